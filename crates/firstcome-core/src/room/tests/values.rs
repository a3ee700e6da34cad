//! Values that constructors check, and codes that never change.

use super::*;

#[test]
fn numbers_begin_with_one_and_leave_the_last_one_out() {
    for (value, fits) in [(0, false), (1, true), (ROOM_NUMBER_MAX, true), (u32::MAX, false)] {
        assert_eq!(TicketNumber::new(value).map(TicketNumber::get), fits.then_some(value), "{value}");
    }
}

#[test]
fn settings_that_are_out_of_range_are_named() {
    let base = RoomSettings::with_slots(1);
    let rate = |count, every_ms| RoomSettings { admit: Some(Admit { count, every_ms }), ..base.clone() };
    let text = |length: usize| Some("x".repeat(length).into_boxed_str());
    let link = |link: &str| RoomSettings { target_url: Some(link.into()), ..base.clone() };
    let day = 86_400_000;
    let rows = [
        (RoomSettings::defaults(), Err("admit")),
        (base.clone(), Ok(())),
        (RoomSettings::with_rate(1, 1_000), Ok(())),
        (rate(0, 1_000), Err("admit.count")),
        (rate(1_000_000, 100), Ok(())),
        (rate(1_000_001, 100), Err("admit.count")),
        (rate(1, 99), Err("admit.every_ms")),
        (rate(1, day), Ok(())),
        (rate(1, day + 1), Err("admit.every_ms")),
        (RoomSettings::with_slots(0), Err("max_active")),
        (RoomSettings::with_slots(10_000_000), Ok(())),
        (RoomSettings::with_slots(10_000_001), Err("max_active")),
        (RoomSettings { max_waiting: 0, ..base.clone() }, Err("max_waiting")),
        (RoomSettings { max_waiting: 100_000_000, ..base.clone() }, Ok(())),
        (RoomSettings { max_waiting: 100_000_001, ..base.clone() }, Err("max_waiting")),
        (RoomSettings { waiting_ttl_ms: 99, ..base.clone() }, Err("waiting_ttl_ms")),
        (RoomSettings { waiting_ttl_ms: 7 * day, ..base.clone() }, Ok(())),
        (RoomSettings { waiting_ttl_ms: 7 * day + 1, ..base.clone() }, Err("waiting_ttl_ms")),
        (RoomSettings { first_poll_ms: Some(99), ..base.clone() }, Err("first_poll_ms")),
        (RoomSettings { first_poll_ms: Some(100), ..base.clone() }, Ok(())),
        (RoomSettings { first_poll_ms: Some(7 * day), ..base.clone() }, Ok(())),
        (RoomSettings { first_poll_ms: Some(7 * day + 1), ..base.clone() }, Err("first_poll_ms")),
        (RoomSettings { active_ttl_ms: 99, ..base.clone() }, Err("active_ttl_ms")),
        (RoomSettings { active_ttl_ms: day + 1, ..base.clone() }, Err("active_ttl_ms")),
        (RoomSettings { claim_window_ms: 99, ..base.clone() }, Err("claim_window_ms")),
        (RoomSettings { claim_window_ms: day + 1, ..base.clone() }, Err("claim_window_ms")),
        (RoomSettings { idle_ttl_ms: Some(99), ..base.clone() }, Err("idle_ttl_ms")),
        (RoomSettings { idle_ttl_ms: Some(100), ..base.clone() }, Ok(())),
        (RoomSettings { idle_ttl_ms: Some(day + 1), ..base.clone() }, Err("idle_ttl_ms")),
        (RoomSettings { message: text(2_048), ..base.clone() }, Ok(())),
        (RoomSettings { message: text(2_049), ..base.clone() }, Err("message")),
        (RoomSettings { message: Some("two\nlines".into()), ..base.clone() }, Err("message")),
        (link("https://shop.example/a?b=c"), Ok(())),
        (link("http://shop.example"), Ok(())),
        (link("/sale"), Ok(())),
        (link("//evil.example"), Err("target_url")),
        (link("/\\evil.example"), Err("target_url")),
        (link("javascript:alert(1)"), Err("target_url")),
        (link("https://a b"), Err("target_url")),
        (link(""), Err("target_url")),
    ];
    for (settings, wanted) in rows {
        let told = settings.check();
        assert_eq!(told.clone().map_err(|(field, _)| field), wanted, "{settings:?}");
        assert!(told.err().is_none_or(|(field, says)| says.starts_with(field)), "{settings:?}");
    }
}

#[test]
fn every_refusal_and_state_is_spelt_as_in_the_contract() {
    let rows = [
        (Rejection::UnknownRoom, "unknown_room"),
        (Rejection::UnknownTicket, "unknown_ticket"),
        (Rejection::KeyReused(number(1)), "idempotency_key_reused"),
        (Rejection::Closed, "room_closed"),
        (Rejection::Full { retry_after_ms: 1 }, "room_full"),
    ];
    for (rejection, code) in rows {
        assert_eq!(rejection.code(), code, "{rejection:?}");
    }
    let states = [
        (RoomState::Open, "open"),
        (RoomState::Paused, "paused"),
        (RoomState::Scheduled, "scheduled"),
        (RoomState::Closed, "closed"),
    ];
    for (state, word) in states {
        assert_eq!(state.as_str(), word, "{state:?}");
    }
}

#[test]
fn every_damage_says_which_rule_is_broken() {
    let rows = [(Damage::Ticket, "number"), (Damage::Slot, "slot"), (Damage::Reached, "reached")];
    for (damage, word) in rows {
        assert!(damage.as_str().contains(word), "{damage:?}: {}", damage.as_str());
    }
}

#[test]
fn the_told_interval_is_a_fifth_of_the_wait_within_bounds_and_spread_by_a_fifth() {
    let rows =
        [(None, 15_000), (Some(0), 2_000), (Some(6_000), 2_000), (Some(90_000), 18_000), (Some(u64::MAX), 60_000)];
    for (wait_ms, middle_ms) in rows {
        let told: Vec<u32> = (1..=1_000).map(|number| poll_after_ms(wait_ms, number)).collect();
        let (least, most) = (*told.iter().min().unwrap(), *told.iter().max().unwrap());
        assert!(middle_ms * 4 / 5 <= least && most <= middle_ms * 6 / 5 + 100, "{wait_ms:?}: {least} to {most}");
        assert!(middle_ms * 5 / 6 > least && most > middle_ms * 7 / 6, "{wait_ms:?}: {least} to {most}");
        assert_eq!(poll_after_ms(wait_ms, 7), poll_after_ms(wait_ms, 7), "the same for the same ticket");
    }
}

#[test]
fn a_change_knows_its_ticket() {
    let rows = [
        (Change::Lapsed { number: number(3) }, Some(3)),
        (Change::Gone { number: number(4), how: Departure::Left }, Some(4)),
        (Change::Taken { number: number(5), until: start().steady }, Some(5)),
        (Change::Joined { number: number(6), join: anonymous(), joined_at: start().wall }, Some(6)),
        (Change::Reached(7), None),
    ];
    for (change, wanted) in rows {
        assert_eq!(change.number().map(TicketNumber::get), wanted, "{change:?}");
    }
}
