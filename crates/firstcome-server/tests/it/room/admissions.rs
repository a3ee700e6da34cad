//! From the line into a slot and out of it: in order, no faster and no more than the room says, and to the instant.

use super::join;
use crate::service::Service;
use crate::stores::on_each;
use firstcome::core::time::Timestamp;
use serde_json::json;

/// Sets the clock to one microsecond before an instant that is so much later, or to that instant.
fn to_the_instant(service: &Service, ms: u64, short_by_us: i64) {
    let end = service.store.now().as_us() + i64::try_from(ms).expect("a short time") * 1_000;
    service.clock.set(Timestamp::clamped_us(end - short_by_us));
}

pub(crate) async fn the_first_poll_after_the_admission_brings_the_pass_and_later_ones_the_same() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "active_ttl_ms": 60_000})).await;
        let ticket = service.ticket("sale").await;
        let next = service.ticket("sale").await;
        service.pass_ms(400).await;
        service.clock.pass_ms(1_000);
        let first = service.poll("sale", &ticket).await.is(200);
        assert_eq!(first.header("cache-control"), Some("no-store"));
        let inside = first.json();
        let pass = inside["pass"].clone();
        assert!(pass.as_str().is_some_and(|pass| pass.starts_with("v4.public.")), "{inside}");
        let whole = json!({
            "number": 1, "state": "admitted", "position": 0, "eta_ms": 0, "poll_after_ms": inside["poll_after_ms"],
            "as_of": "2030-01-01T00:00:01.4Z", "admitted_at": inside["admitted_at"], "pass": pass,
            // The slot ends 60 s after it was taken; a pass on the whole second before that.
            "pass_expires_at": "2030-01-01T00:01:01Z", "slot_ends_at": "2030-01-01T00:01:01.4Z",
            "admission": inside["admission"]
        });
        assert_eq!(inside, whole);
        assert!(
            ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00.4Z"].map(|at| json!(at)).contains(&inside["admitted_at"])
        );
        for _ in 0..5 {
            service.pass_ms(7_777).await;
            let later = service.standing("sale", &ticket).await;
            for member in ["pass", "pass_expires_at", "admitted_at", "state"] {
                assert_eq!(later[member], inside[member]);
            }
            assert_eq!(service.state("sale", &next).await, "waiting");
        }
    })
    .await;
}

pub(crate) async fn an_admission_that_no_visitor_takes_lapses_at_the_end_of_its_window() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "claim_window_ms": 10_000})).await;
        for (short_by_us, taken) in [(1, true), (0, false)] {
            let ticket = service.ticket("sale").await;
            service.tick().await;
            to_the_instant(service, 10_000, short_by_us);
            let answer = service.standing("sale", &ticket).await;
            assert_eq!(answer["state"] == "admitted", taken, "{answer}");
            if taken {
                service.leave("sale", &ticket).await.is(204);
                continue;
            }
            assert_eq!((&answer["state"], &answer["position"]), (&json!("waiting"), &json!(0)));
            assert!(answer.get("pass").is_none() && answer.get("admitted_at").is_none(), "{answer}");
            // Who comes later does not overtake it.
            let later = service.ticket("sale").await;
            service.pass_ms(1).await;
            let again = service.standing("sale", &ticket).await;
            // Anew: the ticker may have been faster than this test by that millisecond.
            let since = [json!(service.now()), json!(service.later(-1))];
            assert!(again["state"] == "admitted" && since.contains(&again["admitted_at"]), "{again}");
            assert_eq!(service.state("sale", &later).await, "waiting");
        }
    })
    .await;
}

pub(crate) async fn a_lapsed_admission_frees_its_slot_for_the_next() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "claim_window_ms": 1_000, "active_ttl_ms": 5_000})).await;
        let [silent, next] = [service.ticket("sale").await, service.ticket("sale").await];
        service.tick().await;
        service.pass_ms(1_000).await;
        assert_eq!(service.state("sale", &next).await, "admitted");
        let back = service.standing("sale", &silent).await;
        assert_eq!((&back["state"], &back["position"]), (&json!("waiting"), &json!(0)));
        service.pass_ms(5_000).await;
        assert_eq!(service.state("sale", &silent).await, "admitted");
        assert_eq!(service.state("sale", &next).await, "expired");
    })
    .await;
}

pub(crate) async fn a_slot_ends_at_its_end() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "active_ttl_ms": 60_000})).await;
        for (short_by_us, state, wrong) in [(1, "admitted", None), (0, "expired", Some("expired"))] {
            let ticket = service.ticket("sale").await;
            let pass = service.admitted("sale", &ticket).await;
            to_the_instant(service, 60_000, short_by_us);
            assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), wrong);
            assert_eq!(service.state("sale", &ticket).await, state);
            assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), wrong);
            service.leave("sale", &ticket).await.is(204);
            assert_eq!(service.state("sale", &ticket).await, if wrong.is_some() { "expired" } else { "left" });
            // On to a whole second, where passes end.
            to_the_instant(service, 0, -short_by_us);
        }
    })
    .await;
}

pub(crate) async fn a_slot_without_contact_ends_after_its_idle_time() {
    on_each(async |service| {
        let settings = json!({"max_active": 1, "active_ttl_ms": 60_000, "idle_ttl_ms": 10_000});
        service.make_room("sale", settings).await;
        let ticket = service.ticket("sale").await;
        let pass = service.admitted("sale", &ticket).await;
        // A poll is a contact, and so is a question about the pass.
        for _ in 0..2 {
            service.pass_ms(9_000).await;
            let inside = service.standing("sale", &ticket).await;
            assert_eq!(inside["pass_expires_at"], service.later(10_000), "{inside}");
            service.pass_ms(9_000).await;
            assert_eq!(service.wrong_with("sale", &pass).await, None, "by its slot, not by what it said at first");
        }
        to_the_instant(service, 10_000, 1);
        assert_eq!(service.room("sale").await["active"], 1);
        to_the_instant(service, 0, -1);
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("expired"));
        assert_eq!(service.state("sale", &ticket).await, "expired");
        assert_eq!(service.room("sale").await["active"], 0);
    })
    .await;
}

pub(crate) async fn who_is_silent_is_passed_over_and_next_on_coming_back() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let silent = service.send(join("sale")).await.is(201).json();
        let poll_after_ms = silent["poll_after_ms"].as_u64().expect("a time");
        let silent = silent["ticket"].as_str().expect("a ticket").to_owned();
        let present = service.ticket("sale").await;
        // Three times what was told, and at least 30 s: until then it counts as there.
        service.pass_ms(poll_after_ms.max(10_000) * 3).await;
        assert_eq!(service.standing("sale", &present).await["position"], 1);
        service.pass_ms(1).await;
        service.make_room("sale", json!({"max_active": 1})).await;
        service.tick().await;
        assert_eq!(service.state("sale", &present).await, "admitted");
        assert_eq!(service.room("sale").await["serving"], 2);
        let later = service.ticket("sale").await;
        let back = service.standing("sale", &silent).await;
        assert_eq!((&back["state"], &back["position"], &back["number"]), (&json!("waiting"), &json!(0), &json!(1)));
        service.leave("sale", &present).await.is(204);
        service.tick().await;
        assert_eq!(service.state("sale", &silent).await, "admitted");
        assert_eq!(service.state("sale", &later).await, "waiting");
    })
    .await;
}

pub(crate) async fn who_is_silent_for_the_whole_time_loses_the_place() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true, "waiting_ttl_ms": 60_000})).await;
        let [silent, present] = [service.ticket_of("sale", "ann").await, service.ticket("sale").await];
        to_the_instant(service, 60_000, 1_000);
        assert_eq!(service.standing("sale", &present).await["position"], 1);
        to_the_instant(service, 0, -1_000);
        assert_eq!(service.state("sale", &silent).await, "expired");
        assert_eq!(service.standing("sale", &present).await["position"], 0);
        let again = service.send(super::join_as("sale", "ann")).await.is(201).json();
        assert_eq!((&again["number"], again["ticket"] == json!(silent)), (&json!(3), false));
        assert_eq!(service.state("sale", &silent).await, "expired");
    })
    .await;
}

pub(crate) async fn a_rate_is_never_exceeded_and_is_kept() {
    let service = Service::memory();
    service.make_room("sale", json!({"admit": {"count": 20, "every_ms": 1_000}})).await;
    for _ in 0..200 {
        service.ticket("sale").await;
    }
    let mut serving = vec![0];
    for _ in 0..100 {
        service.pass_ms(50).await;
        serving.push(service.room("sale").await["serving"].as_u64().expect("a number"));
    }
    // 20 per second are 5 in a slice.
    for (from, before) in serving.iter().enumerate() {
        for (steps, now) in serving[from..].iter().enumerate() {
            assert!(now - before <= steps as u64 + 5, "{before} to {now} in {steps} steps of 50 ms");
        }
    }
    assert!(99 <= serving[100], "{}", serving[100]);
    let rate = service.room("sale").await["rate"].as_f64().expect("a rate");
    assert!((19.0..=21.0).contains(&rate), "{rate}");
}

pub(crate) async fn slots_never_exceed_their_number_and_positions_never_rise() {
    let service = Service::memory();
    let settings = json!({
        "max_active": 3, "claim_window_ms": 700, "active_ttl_ms": 2_000, "idle_ttl_ms": 1_500, "waiting_ttl_ms": 40_000
    });
    service.make_room("sale", settings).await;
    let mut known: Vec<(String, u64)> = Vec::new();
    let mut state = 7_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..1_500 {
        match below(10) {
            0 | 1 if known.len() < 120 => {
                let joined = service.send(join("sale")).await.is(201).json();
                let ticket = joined["ticket"].as_str().expect("a ticket").to_owned();
                known.push((ticket, joined["position"].as_u64().expect("a position")));
            }
            2 => service.pass_ms(below(900) as u64).await,
            3 if !known.is_empty() && below(6) == 0 => {
                service.leave("sale", &known[below(known.len())].0).await.is(204);
            }
            4 => service.clock.pass_ms(below(400) as u64),
            _ if known.is_empty() => {}
            _ => {
                let at = below(known.len());
                let (ticket, position) = &mut known[at];
                let shown = service.standing("sale", ticket).await;
                let now = shown["position"].as_u64().expect("a position");
                assert!(now <= *position, "{shown} stood at {position}");
                *position = now;
                *seen.entry(shown["state"].as_str().expect("a state").to_owned()).or_insert(0) += 1;
            }
        }
        assert!(service.room("sale").await["active"].as_u64().expect("a count") <= 3);
    }
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["admitted", "expired", "left", "waiting"], "{seen:?}");
}
