//! A hand-off code moves the place of an admitted visitor to a site, once.

use super::*;
use crate::conformance::all;
use crate::handoff::Handoff;
use firstcome_core::limits::HANDOFF_MS;

/// Sites that redeem one code at the same time.
const AT_ONCE: u128 = 64;

impl<S: RoomStore + 'static> Bench<S> {
    async fn hand_off(&self, room: &RoomName, ticket: &str) -> Result<Handoff, Rejection> {
        answered(self.store.hand_off(room, ticket).await)
    }

    async fn redeem(&self, room: &RoomName, code: &str, of_key: u128) -> Result<TicketAnswer, Rejection> {
        answered(self.store.redeem_handoff(room, code, RenewalKey::new(of_key)).await)
    }

    /// Makes a room with one slot, lets one visitor in, and returns the ticket.
    async fn inside(&self, room: &str, active_ttl_ms: u64) -> Box<str> {
        let settings = RoomSettings { active_ttl_ms, ..slots(1) };
        let rows = [
            (0, Step::Put(settings), "created"),
            (0, keyed(Some("ann"), 4, 1), "new 1 waiting 0"),
            (0, anybody(), "new 2 waiting 0"),
        ];
        self.check(room, &rows).await;
        let polled = self.poll(&name(room), 1).await.expect("it lives");
        assert!(matches!(polled.state, TicketState::Admitted { .. }), "{polled:?}");
        polled.ticket
    }
}

pub(super) async fn a_code_moves_the_place_of_a_visitor_inside_once<S: RoomStore + 'static>(bench: Bench<S>) {
    let (site, other) = (name("site"), name("other"));
    assert_eq!(bench.hand_off(&site, "AAAA").await, Err(Rejection::UnknownRoom));
    assert_eq!(bench.redeem(&site, "AAAA", 1).await, Err(Rejection::UnknownRoom));
    let first = bench.inside("site", 3_600_000).await;
    bench.put(&other, slots(1)).await;
    assert_eq!(bench.hand_off(&site, "AAAA").await, Err(Rejection::UnknownTicket));
    let behind = bench.ticket(&site, 2);
    assert_eq!(bench.hand_off(&site, &behind).await, Err(Rejection::NotAdmitted), "a visitor in line");
    let (code, spare) = (bench.hand_off(&site, &first).await, bench.hand_off(&site, &first).await);
    let (code, spare) = (code.expect("inside"), spare.expect("inside"));
    assert_eq!(code.until, at(0).plus_ms(HANDOFF_MS));
    assert!(bench.poll(&site, 1).await.is_ok(), "a code alone voids no ticket");
    for (room, wrong) in [(&other, &*code.code), (&site, &*first), (&site, "AAAA"), (&site, "")] {
        assert_eq!(bench.redeem(room, wrong, 1).await, Err(Rejection::InvalidHandoff), "{wrong}");
    }
    let arrived = bench.redeem(&site, &code.code, 1).await.expect("a code");
    assert!(arrived.ticket != first && arrived.number == of(1), "{arrived:?}");
    assert!(matches!(arrived.state, TicketState::Admitted { .. }) && arrived.user.as_deref() == Some("ann"));
    assert_eq!(
        bench.redeem(&site, &code.code, 1).await.map(|told| told.ticket),
        Ok(arrived.ticket.clone()),
        "a repeat"
    );
    for (replayed, key) in [(&code, 2), (&spare, 2), (&spare, 3)] {
        assert_eq!(bench.redeem(&site, &replayed.code, key).await, Err(Rejection::HandoffUsed));
    }
    assert_eq!(bench.hand_off(&site, &first).await, Err(Rejection::TicketRenewed));
    bench.tickets.lock().insert((site.clone(), 1), arrived.ticket.clone());
    bench.check("site", &[(1, Step::Check(1, 1), "valid until 3600000"), (1, Step::Leave(1), "left")]).await;
    // The site may hand off in turn; a visitor who has left may not.
    assert_eq!(bench.hand_off(&site, &arrived.ticket).await, Err(Rejection::NotAdmitted));
}

pub(super) async fn a_code_ends_after_its_time_and_with_the_slot<S: RoomStore + 'static>(bench: Bench<S>) {
    let (long, short) = (name("long"), name("short"));
    let ticket = bench.inside("long", 3_600_000).await;
    let code = bench.hand_off(&long, &ticket).await.expect("inside").code;
    bench.set(HANDOFF_MS as i64).await;
    assert_eq!(bench.redeem(&long, &code, 1).await, Err(Rejection::InvalidHandoff), "its time is over");
    let fresh = bench.hand_off(&long, &ticket).await.expect("the ticket is still valid").code;
    assert!(bench.redeem(&long, &fresh, 1).await.is_ok());
    let room = RoomSettings { active_ttl_ms: 5_000, ..slots(1) };
    bench.put(&short, room).await;
    let ticket = bench.join(&short, join(None, None)).await.expect("there is room").1.ticket;
    bench.tick().await;
    bench.poll(&short, 1).await.expect("it lives");
    let handoff = bench.hand_off(&short, &ticket).await.expect("inside");
    let ends = at(HANDOFF_MS as i64 + 5_000);
    assert_eq!(handoff.until, ends);
    bench.set(HANDOFF_MS as i64 + 5_000).await;
    assert_eq!(bench.redeem(&short, &handoff.code, 1).await, Err(Rejection::InvalidHandoff), "the slot is over");
}

pub(super) async fn one_of_many_sites_at_once_redeems_a_code<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("replayed");
    let ticket = bench.inside("replayed", 3_600_000).await;
    let code = bench.hand_off(&room, &ticket).await.expect("inside").code;
    let told = all((0..AT_ONCE).map(|of_key| {
        let (bench, room, code) = (bench.clone(), room.clone(), code.clone());
        async move { bench.redeem(&room, &code, of_key << 64 | 1).await }
    }))
    .await;
    let refused = told.iter().filter(|answer| **answer == Err(Rejection::HandoffUsed)).count();
    assert_eq!((told.iter().flatten().count(), refused), (1, told.len() - 1), "{told:?}");
}
