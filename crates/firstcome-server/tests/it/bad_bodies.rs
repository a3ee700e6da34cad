//! Bodies that no honest client sends. Each is refused with its exact code, nothing happens, and the service goes on.

use crate::room;
use crate::service::{ADMIN, Ask, SERVICE, Service, claim, config, redeem};
use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use serde_json::json;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

const JSON: (u16, &str) = (400, "invalid_json");
const FIELD: (u16, &str) = (400, "invalid_field");

/// Sends bodies to all rows that take one. Nothing may change, and the service must answer afterwards.
async fn each_row_refuses(rows: &[(&[u8], (u16, &str))]) {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let code = service.claim_code("launch", "ann").await;
    service.make_room("sale", json!({"max_active": 1})).await;
    let pass = service.pass("sale").await;
    for (body, (status, wanted)) in rows {
        let shown = String::from_utf8_lossy(body);
        for (path, key) in [
            ("/v1/coupons/launch", ADMIN),
            ("/v1/coupons/launch/claims", SERVICE),
            ("/v1/coupons/launch/redemptions", SERVICE),
            ("/v1/rooms/sale", ADMIN),
            ("/v1/rooms/sale/tickets", SERVICE),
            ("/v1/rooms/sale/passes/verify", SERVICE),
            ("/v1/rooms/sale/passes/release", SERVICE),
            ("/v1/listings/lamp", ADMIN),
            ("/v1/listings/lamp/bids", SERVICE),
            ("/v1/listings/lamp/purchase", SERVICE),
            ("/v1/members/ann/points/charge", SERVICE),
            ("/v1/members/ann/points/refund", SERVICE),
        ] {
            // A client that joins need say nothing about themselves.
            if *body == b"{}" && path.ends_with("/tickets") {
                continue;
            }
            let ask = if key == ADMIN { Ask::put(path) } else { Ask::post(path) };
            let answer = service.send(ask.by(key).raw(body.to_vec())).await;
            assert_eq!((answer.status, answer.text("code").as_str()), (*status, *wanted), "{path}: {shown}");
        }
    }
    let view = service.show("launch").await.is(200).json();
    assert_eq!((&view["limit"], &view["issued"]), (&json!(9), &json!(1)));
    service.redeem("launch", &code).await.is(201);
    assert_eq!(service.wrong_with("sale", &pass).await, None);
    assert_eq!(service.room("sale").await["waiting"], 0);
    assert_eq!(service.balance("ann").await, (0, 0));
}

pub(crate) async fn what_is_not_json_is_refused() {
    let deep = "[".repeat(30_000);
    let rows: [(&[u8], _); 12] = [
        (b"", JSON),
        (b" ", JSON),
        (b"{", JSON),
        (b"}", JSON),
        (b"nonsense", JSON),
        (b"NaN", JSON),
        (b"\xEF\xBB\xBF{}", JSON),
        (b"\xFF\xFE{\0}\0", JSON),
        (b"{'user':'ann'}", JSON),
        (b"{user:\"ann\"}", JSON),
        (b"/* */{}", JSON),
        (deep.as_bytes(), FIELD),
    ];
    each_row_refuses(&rows).await;
}

pub(crate) async fn a_claim_that_is_not_json_to_its_end_has_no_effect() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let rows: [(&[u8], _); 17] = [
        (b"{\"user\":\"ann\"}{}", JSON),
        (b"{\"user\":\"ann\"} x", JSON),
        (b"{\"user\":\"ann\"}\0", JSON),
        (b"{\"user\":\"ann\"}]", JSON),
        (b"{\"user\":\"ann\"}\xEF\xBB\xBF", JSON),
        (b"{\"user\":\"ann\",}", JSON),
        (b"{\"user\":\"ann\"", JSON),
        (b"{\"user\":\"ann\" \"attributes\":{}}", JSON),
        (b"{\"user\":\"ann\",\"attributes\":{\"a\":\"\xFF\"}}", JSON),
        (b"{\"user\":\"ann\",\"attributes\":{\"a\":NaN}}", JSON),
        (b"{\"user\":\"an\xFFn\"}", JSON),
        (b"{\"user\":\"\xC0\x80\"}", JSON),
        (b"{\"user\":\"\xED\xA0\x80\"}", JSON),
        (b"{\"user\":\"a\nb\"}", JSON),
        (b"{\"user\":\"\\ud800\"}", JSON),
        (b"{\"user\":\"\\x\"}", JSON),
        (b"{\"user\":NaN}", JSON),
    ];
    for (body, (status, code)) in rows {
        let answer = service.send(claim("launch", "").raw(body)).await;
        assert_eq!((answer.status, answer.text("code").as_str()), (status, code), "{}", String::from_utf8_lossy(body));
    }
    let deep = "{\"user\":".repeat(8_000);
    service.send(claim("launch", "").raw(deep)).await.refused(400, "invalid_field");
    let deep = "{\"user\":\"ann\",\"attributes\":".to_owned() + &"{\"a\":".repeat(8_000) + &"}".repeat(8_001);
    service.send(claim("launch", "").raw(deep)).await.is(400);
    assert_eq!(service.issued("launch").await, 0);
}

pub(crate) async fn what_is_not_an_object_is_refused() {
    // serde would take a list for an object whose fields come in order.
    let rows: [(&[u8], _); 9] = [
        (b"null", FIELD),
        (b"true", FIELD),
        (b"7", FIELD),
        (b"\"ann\"", FIELD),
        (b"[]", FIELD),
        (b"[\"eve\"]", FIELD),
        (b"[\"eve\",null]", FIELD),
        (b" \t\r\n[7,null,null,null,null,null,null]", FIELD),
        (b"{}", FIELD),
    ];
    each_row_refuses(&rows).await;
}

pub(crate) async fn fields_that_do_not_exist_or_come_twice_are_refused() {
    let long = format!("{{\"{}\":1}}", "x".repeat(60_000)).into_bytes();
    let rows: [(&[u8], _); 6] = [
        (b"{\"user\":\"ann\",\"code\":\"x\",\"limit\":1}", FIELD),
        (b"{\"user\":\"ann\",\"limit\":1,\"code\":\"x\",\"admin\":true}", FIELD),
        (b"{\"\":1}", FIELD),
        (b"{\"\\u0000\":1}", FIELD),
        (b"{\"User\":\"ann\"}", FIELD),
        (&long, FIELD),
    ];
    each_row_refuses(&rows).await;
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    for body in ["{\"user\":\"ann\",\"user\":\"ann\"}", "{\"user\":\"ann\",\"attributes\":{},\"attributes\":{}}"] {
        let answer = service.send(claim("launch", "ann").raw(body)).await.refused(400, "invalid_field");
        assert!(answer.text("detail").starts_with("duplicate field"), "{}", answer.body());
    }
    assert_eq!(service.issued("launch").await, 0);
}

pub(crate) async fn a_refused_field_is_told_in_words_for_people() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let time = |field: &str| format!("{field} must be an RFC 3339 time, such as 2030-01-01T00:00:00Z");
    let limit = "limit must be a whole number from 1 to 100000000";
    for value in
        ["0", "-1", "1.5", "1e30", "-1e30", "1e400", "100000001", "18446744073709551615", "18446744073709551616"]
            .into_iter()
            .chain([
                "\"7\"",
                "null",
                "true",
                "[]",
                "[7]",
                "{}",
                "1.0",
                "-0",
                "99999999999999999999999999999999999999999",
            ])
    {
        let body = format!("{{\"limit\":{value}}}");
        let answer = service.send(Ask::put("/v1/coupons/launch").by(ADMIN).raw(body)).await;
        if value == "1e400" {
            answer.refused(400, "invalid_json");
        } else {
            answer.refused(400, "invalid_field").about("limit", limit);
        }
    }
    for (settings, field, detail) in [
        (json!({"title": "x"}), "limit", "missing field `limit`"),
        (json!({"limit": 1, "title": 7}), "title", "title must be a string"),
        (json!({"limit": 1, "title": "é".repeat(129)}), "title", "title must be one line of at most 256 bytes"),
        (json!({"limit": 1, "title": "two\nlines"}), "title", "title must be one line of at most 256 bytes"),
        (json!({"limit": 1, "opens_at": 7}), "opens_at", "opens_at must be a string"),
        (json!({"limit": 1, "opens_at": "soon"}), "opens_at", &time("opens_at")),
        (json!({"limit": 1, "opens_at": "2030-01-01T00:00:00"}), "opens_at", &time("opens_at")),
        (json!({"limit": 1, "expires_at": "2030-02-30T00:00:00Z"}), "expires_at", &time("expires_at")),
        (json!({"limit": 1, "expires_at": "-000001-01-01T00:00:00Z"}), "expires_at", &time("expires_at")),
        (json!({"limit": 1, "redeem_until": ""}), "redeem_until", &time("redeem_until")),
        (json!({"limit": 1, "redeem_until": "1893456000"}), "redeem_until", &time("redeem_until")),
        (json!({"limit": 1, "redeem_until": "2030-01-01"}), "redeem_until", &time("redeem_until")),
        (
            json!({"limit": 1, "opens_at": "2030-01-01T00:00:00Z", "expires_at": "2030-01-01T01:00:00+01:00"}),
            "expires_at",
            "expires_at must be after opens_at",
        ),
        (
            json!({"limit": 1, "durability": "redis"}),
            "durability",
            "durability can be chosen only on a service with --redis and --sql",
        ),
    ] {
        service.put("launch", settings).await.refused(400, "invalid_field").about(field, detail);
    }
    let view = service.show("launch").await.json();
    assert_eq!((&view["limit"], &view["title"]), (&json!(9), &json!(null)), "nothing has changed");
}

pub(crate) async fn values_at_their_limits_are_taken() {
    let service = Service::memory();
    for settings in [
        json!({"limit": 1}),
        json!({"limit": 100_000_000}),
        json!({"limit": 1, "title": "é".repeat(128)}),
        json!({"limit": 1, "title": ""}),
        json!({"limit": 1, "opens_at": "0001-01-01T00:00:00Z", "expires_at": "9999-12-31T23:59:59.999999Z"}),
        json!({"limit": 1, "opens_at": "2030-01-01T00:00:00Z", "expires_at": "2030-01-01T00:00:00.000001Z"}),
        json!({"limit": 1, "room": "r".repeat(128)}),
    ] {
        service.make("edge", settings.clone()).await;
        let view = service.show("edge").await.json();
        for (member, value) in settings.as_object().expect("an object") {
            assert_eq!(&view[member], value);
        }
    }
}

pub(crate) async fn attributes_are_an_object_of_at_most_one_kibibyte() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 99})).await;
    let send = async |user: &str, attributes: &str| {
        let body = format!("{{\"user\":\"{user}\",\"attributes\":{attributes}}}");
        service.send(claim("launch", user).raw(body)).await
    };
    // `{"a":""}` has 8 bytes beside the text.
    let of_bytes = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    send("exact", &of_bytes(1_024)).await.is(201);
    send("blank", &of_bytes(1_024).replace(':', &format!(": {}", " ".repeat(2_000)))).await.is(201);
    let large = "attributes must have at most 1024 bytes";
    send("large", &of_bytes(1_025)).await.refused(400, "invalid_field").about("attributes", large);
    for value in ["[]", "7", "\"x\"", "true", "[{}]"] {
        let answer = send("wrong", value).await.refused(400, "invalid_field");
        answer.about("attributes", "attributes must be a JSON object");
    }
    let of_levels = |levels: usize| "{\"a\":".repeat(levels - 1) + "{}" + &"}".repeat(levels - 1);
    send("level", &of_levels(32)).await.is(201);
    let deep = "attributes must have at most 32 levels, and numbers of at most 1e308";
    for levels in [33, 200, 5_000] {
        send("deep", &of_levels(levels)).await.refused(400, "invalid_field").about("attributes", deep);
    }
    let lists = format!("{{\"a\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    send("deep", &lists).await.refused(400, "invalid_field").about("attributes", deep);
    for value in [
        "{",
        "{\"a\":1e999}",
        "{\"a\":[-1e999]}",
        "{\"a\":1e}",
        "NaN",
        "{\"a\":NaN}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":\"\u{1}\"}",
    ] {
        let code = send("wrong", value).await.is(400).text("code");
        assert!(["invalid_json", "invalid_field"].contains(&code.as_str()), "{value}: {code}");
    }
    assert_eq!(service.issued("launch").await, 3);
}

pub(crate) async fn a_mistake_is_told_by_its_own_field_everything_that_comes_beside_it() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    for (body, field, detail) in [
        (json!({"attributes": {"a": 1}, "user": 7}), "user", "user must be a string"),
        (json!({"attributes": {"a": 1}}), "user", "user must be given"),
        (json!({"user": null}), "user", "user must be given"),
        (json!({"user": ["ann"]}), "user", "user must be a string"),
    ] {
        service.send(claim("launch", "").json(&body)).await.refused(400, "invalid_field").about(field, detail);
    }
    for (body, field, detail) in [
        (json!({"user": "ann"}), "code", "missing field `code`"),
        (json!({"code": 7}), "code", "code must be a string"),
        (json!({"code": "x", "user": 7}), "user", "user must be a string"),
    ] {
        service.send(redeem("launch", &body)).await.refused(400, "invalid_field").about(field, detail);
    }
    let unknown = service.send(claim("launch", "").json(&json!({"user": "ann", "usr": 1}))).await;
    unknown.refused(400, "invalid_field").about("usr", "unknown field `usr`, expected `user` or `attributes`");
}

/// A body in parts: no client knows beforehand how long it is.
struct Parts {
    parts: VecDeque<io::Result<Bytes>>,
    ends: bool,
}

impl Parts {
    fn of(parts: impl IntoIterator<Item = io::Result<Bytes>>) -> Body {
        Body::new(Self { parts: parts.into_iter().collect(), ends: true })
    }

    fn endless() -> Body {
        Body::new(Self { parts: VecDeque::from([Ok(Bytes::from_static(b"{"))]), ends: false })
    }

    fn chunks(bytes: &[u8]) -> Body {
        Self::of(bytes.chunks(1_000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))))
    }
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.parts.pop_front() {
            Some(part) => Poll::Ready(Some(part.map(Frame::data))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

pub(crate) async fn a_body_has_at_most_64_kibibytes() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let of_bytes = |user: &str, bytes: usize| {
        let body = format!("{{\"user\":\"{user}\"}}");
        let blanks = " ".repeat(bytes - body.len());
        (body + &blanks).into_bytes()
    };
    service.send(claim("launch", "").raw(of_bytes("exact", 65_536))).await.is(201);
    service.send(claim("launch", "").raw(Parts::chunks(&of_bytes("parts", 65_536)))).await.is(201);
    for bytes in [65_537, 65_536 * 16] {
        service.send(claim("launch", "").raw(of_bytes("large", bytes))).await.refused(413, "body_too_large");
        let body = Parts::chunks(&of_bytes("large", bytes));
        service.send(claim("launch", "").raw(body)).await.refused(413, "body_too_large");
    }
    let settings = Ask::put("/v1/coupons/launch").by(ADMIN).raw(vec![b' '; 65_537]);
    service.send(settings).await.refused(413, "body_too_large");
    service.send(redeem("launch", &json!({})).raw(vec![b' '; 65_537])).await.refused(413, "body_too_large");
    for ask in [room::join("sale"), room::verify("sale", ""), room::release("sale", "")] {
        service.send(ask.raw(vec![b' '; 65_537])).await.refused(413, "body_too_large");
    }
    assert_eq!(service.issued("launch").await, 2);
}

pub(crate) async fn a_body_is_announced_as_json() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    for kind in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"]
        .into_iter()
        .chain(["application/jsonp", "application/json-patch+json", "text/json", "application/ json", "*/*", "\u{e9}"])
    {
        let rows = [claim("launch", "ann"), redeem("launch", &json!({"code": "x"})), Ask::put("/v1/coupons/launch")];
        let of_rooms =
            [Ask::put("/v1/rooms/sale"), room::join("sale"), room::verify("sale", ""), room::release("sale", "")];
        for ask in rows.into_iter().chain(of_rooms).map(|ask| ask.by(ADMIN).header("content-type", kind)) {
            service.send(ask).await.refused(415, "unsupported_media_type");
        }
    }
    let unannounced = claim("launch", "ann").without("content-type");
    service.send(unannounced).await.refused(415, "unsupported_media_type");
    for (user, kind) in
        [("ann", "APPLICATION/JSON"), ("bob", "application/json; charset=utf-8"), ("cid", "application/json;")]
    {
        service.send(claim("launch", user).header("content-type", kind)).await.is(201);
    }
}

pub(crate) async fn a_body_that_does_not_come_is_not_waited_for() {
    let mut config = config();
    config.limits.body = Duration::from_millis(50);
    let service = Service::memory_with(config);
    service.make("launch", json!({"limit": 9})).await;
    service.send(claim("launch", "").raw(Parts::endless())).await.refused(408, "request_timeout");
    service.send(redeem("launch", &json!({})).raw(Parts::endless())).await.refused(408, "request_timeout");
    service.send(Ask::put("/v1/coupons/launch").by(ADMIN).raw(Parts::endless())).await.refused(408, "request_timeout");
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).raw(Parts::endless())).await.refused(408, "request_timeout");
    for ask in [room::join("sale"), room::verify("sale", ""), room::release("sale", "")] {
        service.send(ask.raw(Parts::endless())).await.refused(408, "request_timeout");
    }
    assert_eq!(service.issued("launch").await, 0);
}

pub(crate) async fn a_body_that_breaks_off_has_no_effect() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 9})).await;
    let body = Parts::of([Ok(Bytes::from_static(b"{\"user\":\"ann\"}")), Err(io::Error::other("canary: it broke"))]);
    service.send(claim("launch", "").raw(body)).await.refused(400, "invalid_json");
    assert_eq!(service.issued("launch").await, 0);
}
