//! Reports of the origin lower the rate and raise it again, and a room says why it admits as fast as it does.

use crate::service::{ADMIN, Ask, SERVICE, Service};
use crate::stores::on_each;
use axum::http::Method;
use serde_json::{Value, json};

fn feedback(body: &Value) -> Ask {
    Ask::post("/v1/rooms/sale/feedback").by(SERVICE).json(body)
}

async fn shown(service: &Service) -> Value {
    service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.is(200).json()
}

pub(crate) async fn a_site_in_trouble_gets_fewer_visitors_and_more_again() {
    on_each(async |service| {
        service.make_room("sale", json!({"admit": {"count": 40, "every_ms": 1_000}})).await;
        service.ticket("sale").await;
        let told = service.send(feedback(&json!({"latency_ms": 1_999}))).await.is(200);
        assert_eq!(told.header("cache-control"), Some("no-store"));
        assert_eq!((&told.json()["report"], &told.json()["pace"]["origin_share"]), (&json!("fine"), &json!(1.0)));
        let rows = [
            (json!({"latency_ms": 2_001}), "slow", 0.7),
            (json!({"latency_ms": 600, "latency_ms_max": 500}), "slow", 0.49),
            (json!({"requests": 100, "errors": 6}), "failing", 0.343),
            (json!({"requests": 100, "errors": 5, "latency_ms": 3, "latency_ms_max": 3}), "fine", 0.393),
            (json!({"requests": 0, "errors": 0}), "fine", 0.443),
            (json!({"requests": 4, "errors": 3, "error_share_max": 0.75}), "fine", 0.493),
            (json!({"requests": 1, "errors": 1, "latency_ms": 9_000}), "failing", 0.345),
        ];
        for (body, report, share) in rows {
            let told = service.send(feedback(&body)).await.is(200).json();
            assert_eq!((&told["report"], &told["pace"]["origin_share"]), (&json!(report), &json!(share)), "{body}");
            service.pass_ms(5_000).await;
        }
        // More than one slice: a tick in between leaves some of them waiting.
        for _ in 0..30 {
            service.ticket("sale").await;
        }
        service.tick().await;
        let room = shown(service).await;
        assert_eq!((&room["rate_reason"], &room["pace"]["reason"]), (&json!("origin_errors"), &json!("origin_errors")));
        assert_eq!(room["pace"]["set_per_s"], json!(40.0));
        let public = service.room("sale").await;
        assert_eq!(public["rate_reason"], json!("origin_errors"));
        assert!(public.get("pace").is_none(), "{public}");
        let metrics = service.send(Ask::get("/metrics").by(ADMIN)).await.is(200).body();
        for line in [
            "firstcome_room_rate_reasons{reason=\"origin_errors\"} 1",
            "firstcome_room_rate_reasons{reason=\"limit\"} 0",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        assert!(metrics.contains("firstcome_room_origin_share_min 0.34"), "{metrics}");
    })
    .await;
}

pub(crate) async fn reports_are_checked() {
    let service = Service::memory();
    service.send(feedback(&json!({"latency_ms": 1}))).await.refused(404, "unknown_room");
    service.make_room("sale", json!({"max_active": 1})).await;
    for (body, field) in [
        (json!({}), "latency_ms"),
        (json!({"latency_ms": 86_400_001}), "latency_ms"),
        (json!({"latency_ms": -1}), ""),
        (json!({"latency_ms": 1, "latency_ms_max": 0}), "latency_ms_max"),
        (json!({"requests": 1}), "errors"),
        (json!({"errors": 1}), "requests"),
        (json!({"requests": 1, "errors": 2}), "errors"),
        (json!({"requests": 1, "errors": 1, "error_share_max": 1.5}), "error_share_max"),
        (json!({"latency_ms": 1, "status": "slow"}), "status"),
    ] {
        let refusal = service.send(feedback(&body)).await;
        let code = refusal.json()["code"].as_str().expect("a code").to_owned();
        assert!(refusal.status == 400 && ["invalid_field", "invalid_json"].contains(&code.as_str()), "{body}: {code}");
        assert!(refusal.body().contains(field), "{body}: {}", refusal.body());
    }
    assert_eq!(shown(&service).await["pace"]["origin_share"], json!(1.0), "none of them had an effect");
}

pub(crate) async fn each_reason_is_shown_when_it_decides() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    assert_eq!(service.room("sale").await["rate_reason"], json!("empty"));
    for _ in 0..3 {
        service.ticket("sale").await;
    }
    service.tick().await;
    assert_eq!(service.room("sale").await["rate_reason"], json!("slots_full"));
    service.send(Ask::post("/v1/rooms/sale/pause").by(ADMIN)).await.is(200);
    assert_eq!(service.room("sale").await["rate_reason"], json!("paused"));
    service.send(Ask::post("/v1/rooms/sale/resume").by(ADMIN)).await.is(200);
    let rate = json!({"admit": {"count": 1, "every_ms": 60_000}, "max_active": null});
    service.send(Ask::new(Method::PATCH, "/v1/rooms/sale").by(ADMIN).json(&rate)).await.is(200);
    assert_eq!(service.room("sale").await["rate_reason"], json!("limit"));
}
