//! What lasts runs on the steady clock: an operator that sets the wall clock takes no visitor's place, slot or pass away.

use crate::stores::on_each;
use serde_json::json;

const HOUR_MS: u64 = 3_600_000;

fn settings() -> serde_json::Value {
    json!({"max_active": 1, "claim_window_ms": 10_000, "active_ttl_ms": 60_000, "waiting_ttl_ms": 120_000})
}

pub(crate) async fn a_wall_clock_set_forward_ends_nothing() {
    on_each(async |service| {
        service.make_room("sale", settings()).await;
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        let [first, second] = [service.ticket("sale").await, service.ticket("sale").await];
        let pass = service.admitted("sale", &first).await;
        service.pass_ms(20_000).await;
        service.clock.step_forward_ms(HOUR_MS);
        service.tick().await;
        // By the wall the pass is long over; its slot is not.
        assert_eq!(service.wrong_with("sale", &pass).await, None);
        service.send(super::claim_by("launch", &pass)).await.is(201);
        let inside = service.standing("sale", &first).await;
        assert_eq!((&inside["state"], &inside["pass_expires_at"]), (&json!("admitted"), &json!(service.later(40_000))));
        assert_eq!(service.wrong_with("sale", inside["pass"].as_str().expect("a pass")).await, None);
        assert_eq!(service.state("sale", &second).await, "waiting");
        assert_eq!(service.room("sale").await["waiting"], 1);
        // And it ends when its time has passed, neither sooner nor later.
        service.pass_ms(39_999).await;
        assert_eq!(service.wrong_with("sale", &pass).await, None);
        assert_eq!(service.state("sale", &second).await, "waiting");
        service.pass_ms(1).await;
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("expired"));
        assert_eq!(service.state("sale", &first).await, "expired");
        assert_eq!(service.state("sale", &second).await, "admitted");
    })
    .await;
}

pub(crate) async fn a_wall_clock_set_back_prolongs_nothing() {
    on_each(async |service| {
        service.make_room("sale", settings()).await;
        let [first, second] = [service.ticket("sale").await, service.ticket("sale").await];
        let pass = service.admitted("sale", &first).await;
        let mut shut = settings();
        shut["paused"] = json!(true);
        service.make_room("shut", shut).await;
        let silent = service.ticket("shut").await;
        let before = service.now();
        // The wall stands still while a minute passes.
        service.clock.stand_ms(59_999);
        service.tick().await;
        assert_eq!(service.wrong_with("sale", &pass).await, None);
        assert_eq!(service.state("sale", &second).await, "waiting");
        service.clock.stand_ms(1);
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("over"), "by the wall it would be good");
        service.tick().await;
        assert_eq!(service.state("sale", &first).await, "expired");
        // An offer lapses all the same.
        service.clock.stand_ms(10_000);
        let back = service.standing("sale", &second).await;
        assert_eq!((&back["state"], &back["position"]), (&json!("waiting"), &json!(0)));
        assert_eq!(service.now(), before);
        service.clock.stand_ms(HOUR_MS);
        assert_eq!(service.state("shut", &silent).await, "expired", "and so does a wait in silence");
    })
    .await;
}

pub(crate) async fn a_step_of_the_wall_clock_gives_no_admissions_away() {
    on_each(async |service| {
        service.make_room("sale", json!({"admit": {"count": 4, "every_ms": 1_000}})).await;
        for _ in 0..20 {
            service.ticket("sale").await;
        }
        let serving = async || service.room("sale").await["serving"].as_u64().expect("a number");
        service.pass_ms(250).await;
        assert_eq!(serving().await, 1);
        service.clock.step_forward_ms(HOUR_MS);
        service.tick().await;
        assert_eq!(serving().await, 1, "no time has passed");
        service.pass_ms(250).await;
        assert_eq!(serving().await, 2);
        // Set back an hour, it goes on at the same rate.
        for number in 3..=8 {
            service.clock.stand_ms(250);
            service.tick().await;
            assert_eq!(serving().await, number);
        }
    })
    .await;
}

pub(crate) async fn an_opening_is_judged_by_the_wall_clock() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "opens_at": "2030-01-01T01:00:00Z"})).await;
        let ticket = service.ticket("sale").await;
        service.clock.stand_ms(20_000);
        service.tick().await;
        assert_eq!(service.state("sale", &ticket).await, "waiting");
        service.clock.step_forward_ms(HOUR_MS);
        service.tick().await;
        assert_eq!(service.state("sale", &ticket).await, "admitted");
    })
    .await;
}
