//! Settings that are read back, changed in part, and kept from lost updates: of coupons, rooms and listings alike.

use crate::auction::instant;
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use crate::stores::on_each;
use axum::http::Method;
use serde_json::{Value, json};

/// One of each kind: who may change it, how it begins, and a change to it with what comes of it.
struct Kind {
    path: &'static str,
    key: &'static str,
    settings: Value,
    patch: Value,
    patched: Value,
    wrong: Value,
}

fn kinds() -> [Kind; 3] {
    [
        Kind {
            path: "/v1/coupons/launch",
            key: ADMIN,
            settings: json!({"limit": 5, "title": "Launch", "expires_at": "2031-01-01T00:00:00Z"}),
            patch: json!({"limit": 9, "title": null}),
            patched: json!({"limit": 9, "expires_at": "2031-01-01T00:00:00Z"}),
            wrong: json!({"limit": 0}),
        },
        Kind {
            path: "/v1/rooms/sale",
            key: ADMIN,
            settings: json!({"admit": {"count": 5, "every_ms": 1_000}, "max_waiting": 7, "waiting_ttl_ms": 60_000, "first_poll_ms": 59_000,
                "active_ttl_ms": 61_000, "claim_window_ms": 62_000, "idle_ttl_ms": 0, "paused": false, "message": "Soon"}),
            // An object is merged, too.
            patch: json!({"admit": {"count": 6}, "message": null, "max_active": 3, "first_poll_ms": null}),
            patched: json!({"admit": {"count": 6, "every_ms": 1_000}, "max_active": 3, "max_waiting": 7,
                "waiting_ttl_ms": 60_000, "active_ttl_ms": 61_000, "claim_window_ms": 62_000, "idle_ttl_ms": 0,
                "paused": false}),
            wrong: json!({"admit": null}),
        },
        Kind {
            path: "/v1/listings/lamp",
            key: SERVICE,
            settings: json!({"owner": "eve", "kind": "auction", "price": 100, "starts_at": instant(100),
                "ends_at": instant(200), "extend": {"window_ms": 2_000, "by_ms": 3_000, "max_count": 2}}),
            patch: json!({"extend": {"max_count": 4}, "price": 90}),
            patched: json!({"owner": "eve", "kind": "auction", "price": 90, "starts_at": instant(100),
                "ends_at": instant(200), "extend": {"window_ms": 2_000, "by_ms": 3_000, "max_count": 4}}),
            wrong: json!({"kind": "raffle"}),
        },
    ]
}

impl Kind {
    fn ask(&self, method: &str) -> Ask {
        Ask::new(Method::from_bytes(method.as_bytes()).expect("a method"), self.path).by(self.key)
    }

    async fn shown(&self, service: &Service) -> Answer {
        service.send(self.ask("GET")).await.is(200)
    }
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").expect("a tag").to_owned()
}

pub(crate) async fn settings_are_shown_to_those_who_may_change_them() {
    on_each(async |service| {
        for kind in kinds() {
            let made = service.send(kind.ask("PUT").json(&kind.settings)).await.is(201);
            assert_eq!(made.json()["settings"], kind.settings, "{}", kind.path);
            let shown = kind.shown(service).await;
            assert_eq!((&shown.json()["settings"], tag(&shown)), (&kind.settings, tag(&made)));
            let public = service.send(Ask::get(kind.path)).await.is(200);
            assert_eq!((public.json().get("settings"), public.header("etag")), (None, None), "{}", kind.path);
            // A PUT of the settings that a GET showed changes nothing.
            let again = service.send(kind.ask("PUT").json(&shown.json()["settings"])).await.is(200);
            assert_eq!((&again.json()["settings"], tag(&again)), (&kind.settings, tag(&made)));
        }
    })
    .await;
}

pub(crate) async fn a_patch_changes_what_it_names_and_leaves_the_rest() {
    on_each(async |service| {
        for kind in kinds() {
            service.send(kind.ask("PATCH").json(&kind.patch)).await.is(404);
            service.send(kind.ask("PUT").json(&kind.settings)).await.is(201);
            let before = tag(&kind.shown(service).await);
            for wrong in [&kind.wrong, &json!({"nothing": 1})] {
                service.send(kind.ask("PATCH").json(wrong)).await.refused(400, "invalid_field");
            }
            service.send(kind.ask("PATCH").json(&json!([1]))).await.refused(400, "invalid_field");
            service.send(kind.ask("PATCH").raw("limit=9")).await.refused(400, "invalid_json");
            service.send(Ask::new(Method::PATCH, kind.path).json(&kind.patch)).await.refused(401, "unauthorized");
            assert_eq!(tag(&kind.shown(service).await), before, "nothing of that has changed anything");
            let merge = ("content-type", "application/merge-patch+json");
            let ask = kind.ask("PATCH").json(&kind.patch).without("content-type").header(merge.0, merge.1);
            let patched = service.send(ask).await.is(200);
            assert_eq!(patched.json()["settings"], kind.patched, "{}", kind.path);
            assert_ne!(tag(&patched), before);
            let other = kind.ask("PUT").json(&kind.settings).without("content-type").header(merge.0, merge.1);
            service.send(other).await.refused(415, "unsupported_media_type");
        }
    })
    .await;
}

/// Two operators read the same settings, and each changes something.
pub(crate) async fn no_change_of_another_operator_is_lost() {
    on_each(async |service| {
        for kind in kinds() {
            let put = kind.ask("PUT").json(&kind.settings).header("if-match", "*");
            service.send(put).await.is(404);
            let made = service.send(kind.ask("PUT").json(&kind.settings)).await.is(201);
            let seen = tag(&made);
            let first = kind.ask("PATCH").json(&kind.patch).header("if-match", &seen);
            let changed = tag(&service.send(first).await.is(200));
            for stale in [&seen, "\"0123456789abcdef\"", "nonsense", ""] {
                let put = kind.ask("PUT").json(&kind.settings).header("if-match", stale);
                service.send(put).await.refused(412, "settings_changed");
                let patch = kind.ask("PATCH").json(&kind.patch).header("if-match", stale);
                service.send(patch).await.refused(412, "settings_changed");
            }
            assert_eq!(kind.shown(service).await.json()["settings"], kind.patched, "{}", kind.path);
            let either = format!("\"other\", {changed}");
            service.send(kind.ask("PUT").json(&kind.settings).header("if-match", either)).await.is(200);
            assert_eq!(kind.shown(service).await.json()["settings"], kind.settings);
        }
    })
    .await;
}

/// Patches of different members that come together are all there in the end.
pub(crate) async fn patches_that_come_together_are_merged_one_after_the_other() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let patch = |body: Value| {
            let sent = service.send(Ask::new(Method::PATCH, "/v1/rooms/sale").by(ADMIN).json(&body));
            tokio::spawn(sent)
        };
        let all = [
            patch(json!({"max_active": 7})),
            patch(json!({"max_waiting": 77})),
            patch(json!({"message": "Soon"})),
            patch(json!({"active_ttl_ms": 60_000})),
        ];
        for answer in all {
            answer.await.expect("no task panics").is(200);
        }
        let room = service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.json();
        for (member, value) in [
            ("max_active", json!(7)),
            ("max_waiting", json!(77)),
            ("message", json!("Soon")),
            ("active_ttl_ms", json!(60_000)),
        ] {
            assert_eq!(room["settings"][member], value, "{room}");
        }
    })
    .await;
}

pub(crate) async fn a_room_is_paused_and_resumed_without_its_settings() {
    on_each(async |service| {
        let turn = |what: &str| Ask::post(&format!("/v1/rooms/sale/{what}"));
        service.send(turn("pause").by(ADMIN)).await.refused(404, "unknown_room");
        service.make_room("sale", json!({"max_active": 3, "message": "Soon"})).await;
        let before = service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await;
        for what in ["pause", "resume"] {
            service.send(turn(what)).await.refused(401, "unauthorized");
            service.send(turn(what).by(SERVICE)).await.refused(403, "forbidden");
            service.send(turn(what).by(ADMIN).header("if-match", "\"other\"")).await.refused(412, "settings_changed");
        }
        for _ in 0..2 {
            assert_eq!(service.send(turn("pause").by(ADMIN)).await.is(200).text("state"), "paused");
        }
        let ticket = service.ticket("sale").await;
        service.tick().await;
        assert_eq!(service.state("sale", &ticket).await, "waiting");
        for _ in 0..2 {
            let resumed = service.send(turn("resume").by(ADMIN)).await.is(200);
            assert_eq!((resumed.text("state"), tag(&resumed)), ("open".to_owned(), tag(&before)));
        }
        service.tick().await;
        assert_eq!(service.state("sale", &ticket).await, "admitted");
    })
    .await;
}

pub(crate) async fn a_coupon_is_behind_no_room_that_is_not_there() {
    on_each(async |service| {
        let behind = Ask::put("/v1/coupons/launch").by(ADMIN).json(&json!({"limit": 5, "room": "sale"}));
        let told = service.send(behind).await.refused(400, "invalid_field").json();
        assert_eq!(told["field"], "room", "{told}");
        assert!(told["detail"].as_str().is_some_and(|says| says.contains("PUT /v1/rooms/sale")), "{told}");
        service.show("launch").await.refused(404, "unknown_coupon");
        service.make_room("sale", json!({"max_active": 1})).await;
        service.make("launch", json!({"limit": 5, "room": "sale"})).await;
    })
    .await;
}
