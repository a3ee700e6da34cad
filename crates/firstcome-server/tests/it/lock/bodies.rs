//! What a call about a lock may say, and what not.

use super::{DAY_MS, acquire, look, release, renew, text};
use crate::service::{ADMIN, Ask, SERVICE, SERVICE_TOO, STRANGER, Service};
use serde_json::{Value, json};

fn post(row: &str, body: &Value) -> Ask {
    Ask::post(&format!("/v1/locks/door/{row}")).by(SERVICE).json(body)
}

pub(crate) async fn waits_and_leases_are_taken_at_their_limits_and_refused_beyond() {
    let service = Service::memory();
    let whole = |field: &str| format!("{field} must be a whole number within its limits");
    let wait = "wait_ms must be 0 to 3600000".to_owned();
    let lease = "lease_ms must be 100 to 691200000".to_owned();
    let rows = [
        ("wait_ms", json!(3_600_001), wait.clone()),
        ("wait_ms", json!(u64::MAX), wait),
        ("lease_ms", json!(0), lease.clone()),
        ("lease_ms", json!(99), lease.clone()),
        ("lease_ms", json!(691_200_001), lease.clone()),
        ("lease_ms", json!(4_294_967_396_u64), lease),
    ];
    let none = [json!(-1), json!(1.5), json!(200.0), json!("200"), json!(null), json!([200]), json!(true), json!({})];
    let none = none.iter().flat_map(|value| ["wait_ms", "lease_ms"].map(|field| (field, value.clone(), whole(field))));
    let held = service.hold("door", "ann").await;
    for (field, value, detail) in rows.into_iter().chain(none) {
        let mut body = json!({"owner": "bob", "wait_ms": 0, "lease_ms": 200});
        body[field] = value.clone();
        let told = service.send(post("acquire", &body)).await.refused(400, "invalid_field");
        told.about(field, &detail);
        if field == "lease_ms" {
            let body = json!({"handle": held["handle"], "lease_ms": value});
            service.send(post("renew", &body)).await.refused(400, "invalid_field").about(field, &detail);
        }
    }
    for digits in ["1e2", "1E400", "18446744073709551616", "-0", "0x10", "+1", "01"] {
        let body = format!("{{\"owner\":\"bob\",\"wait_ms\":{digits},\"lease_ms\":200}}");
        let told = service.send(post("acquire", &json!(null)).raw(body)).await;
        assert_eq!(told.status, 400, "{digits}");
    }
    assert_eq!(service.lock("door").await["fence"], held["fence"]);
    service.give_back(&held).await.is(200);
    for (wait_ms, lease_ms) in [(0, 100), (3_600_000, 691_200_000)] {
        let held = service.send(acquire("gate", "ann", wait_ms, lease_ms)).await.is(200).json();
        service.send(renew("gate", text(&held, "handle"), 691_200_000)).await.is(200);
        service.send(renew("gate", text(&held, "handle"), DAY_MS)).await.is(200);
        service.give_back(&held).await.is(200);
    }
}

pub(crate) async fn fields_of_locks_are_all_there_and_no_others() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let whole = [
        ("acquire", json!({"owner": "bob", "wait_ms": 0, "lease_ms": 200})),
        ("renew", json!({"handle": held["handle"], "lease_ms": 200})),
        ("release", json!({"handle": held["handle"]})),
    ];
    for (row, body) in &whole {
        for field in body.as_object().expect("an object").keys() {
            let mut less = body.clone();
            less.as_object_mut().expect("an object").remove(field);
            let told = service.send(post(row, &less)).await.refused(400, "invalid_field");
            told.about(field, &format!("missing field `{field}`"));
            let twice = body.to_string().replacen('{', &format!("{{\"{field}\":{},", body[field]), 1);
            let told = service.send(post(row, body).raw(twice)).await.refused(400, "invalid_field");
            told.about(field, &format!("duplicate field `{field}`"));
        }
        let mut more = body.clone();
        more["fence"] = json!(1);
        let told = service.send(post(row, &more)).await.refused(400, "invalid_field").json();
        assert_eq!(told["field"], "fence");
        for none in ["", "null", "[]", "\"x\"", "{", "{}x", "\u{feff}{}"] {
            let told = service.send(post(row, body).raw(none)).await;
            assert_eq!(told.status, 400, "{row} {none}");
        }
        let large = format!("{}{}", " ".repeat(65 * 1024), body);
        service.send(post(row, body).raw(large)).await.refused(413, "body_too_large");
        service.send(post(row, body).header("content-type", "text/plain")).await.refused(415, "unsupported_media_type");
    }
    assert_eq!(service.lock("door").await["fence"], held["fence"], "nothing happened");
    assert!(DAY_MS / 2 < service.lock("door").await["ttl_ms"].as_u64().expect("a number"));
}

pub(crate) async fn locks_are_for_service_keys() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let asks = || {
        let handle = text(&held, "handle");
        [look("door"), acquire("gate", "bob", 0, 200), renew("door", handle, DAY_MS), release("door", handle)]
    };
    for ask in asks() {
        service.send(ask.without("authorization")).await.refused(401, "unauthorized");
    }
    for ask in asks() {
        service.send(ask.by(STRANGER)).await.refused(401, "unauthorized");
    }
    for ask in asks() {
        service.send(ask.by(STRANGER).raw("nonsense")).await.refused(401, "unauthorized");
    }
    assert_eq!(
        (&service.lock("gate").await["held"], &service.lock("door").await["held"]),
        (&json!(false), &json!(true))
    );
    for key in [SERVICE_TOO, ADMIN] {
        service.send(look("door").by(key)).await.is(200);
    }
}
