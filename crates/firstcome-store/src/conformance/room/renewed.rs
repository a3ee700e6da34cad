//! A renewal gives a place another ticket, and the ticket before it is refused everywhere.

use super::*;
use crate::conformance::all;

/// Requests that renew one ticket at the same time.
const AT_ONCE: u128 = 16;

impl<S: RoomStore + 'static> Bench<S> {
    /// Renews the newest ticket of a number, and keeps the new one.
    pub(super) async fn renew(&self, room: &RoomName, number: u32, of_key: u128) -> Result<TicketAnswer, Rejection> {
        let shown = self.ticket(room, number);
        let answer = answered(self.store.renew(room, &shown, RenewalKey::new(of_key)).await);
        if let Ok(told) = &answer {
            let is_gone = matches!(told.state, TicketState::Gone(_));
            assert_eq!(told.ticket == shown, is_gone, "{room:?}, {number}: a place that lives has a new ticket");
            self.tickets.lock().insert((room.clone(), number), told.ticket.clone());
        }
        answer
    }

    /// Checks that a ticket is refused by each method that takes one.
    async fn check_refused(&self, room: &RoomName, ticket: &str) {
        let poll = answered(self.store.poll(room, ticket).await);
        assert_eq!(poll.err(), Some(Rejection::TicketRenewed), "poll");
        let leave = answered(self.store.leave(room, ticket).await);
        assert_eq!(leave.err(), Some(Rejection::TicketRenewed), "leave");
        let renew = answered(self.store.renew(room, ticket, RenewalKey::new(99)).await);
        assert_eq!(renew.err(), Some(Rejection::TicketRenewed), "renew");
    }
}

pub(super) async fn a_renewed_ticket_is_refused_and_the_new_one_has_the_place<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("renewed");
    let rows = [
        (0, Step::Put(paused()), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (0, keyed(Some("ann"), 4, 1), "new 2 waiting 1"),
        (0, anybody(), "new 3 waiting 2"),
    ];
    bench.check("renewed", &rows).await;
    let first = [1, 2, 3].map(|number| bench.ticket(&room, number));
    let rows = [
        (1, Step::Renew(1, 10), "1 waiting 0"),
        (1, Step::Renew(2, 10), "2 waiting 1"),
        (1, Step::View, "paused 3 waiting 0 active serving 0"),
        (1, Step::Poll(1), "1 waiting 0"),
        // A join that finds the place finds the newest ticket.
        (1, keyed(Some("ann"), 4, 1), "again 2 waiting 1"),
        (1, user("ann"), "same user 2 waiting 1"),
        (2, Step::Poll(3), "3 waiting 2"),
    ];
    bench.check("renewed", &rows).await;
    bench.check_refused(&room, &first[0]).await;
    bench.check_refused(&room, &first[1]).await;
    let again = answered(bench.store.renew(&room, &first[1], RenewalKey::new(10)).await).expect("a repeat");
    assert_eq!(again.ticket, bench.ticket(&room, 2), "a repeat finds the same ticket");
    let second = bench.ticket(&room, 1);
    bench.check("renewed", &[(3, Step::Renew(1, 11), "1 waiting 0")]).await;
    bench.check_refused(&room, &first[0]).await;
    bench.check_refused(&room, &second).await;
    let late = answered(bench.store.renew(&room, &first[0], RenewalKey::new(10)).await);
    assert_eq!(late.err(), Some(Rejection::TicketRenewed), "its new ticket was renewed too");
    let rows = [
        (4, Step::Leave(1), "left"),
        (4, Step::Renew(1, 12), "1 left"),
        (4, Step::Poll(1), "1 left"),
        (4, Step::Poll(2), "2 waiting 0"),
        (4, Step::Close, "closed"),
        (4, Step::Renew(2, 13), "2 expired"),
    ];
    bench.check("renewed", &rows).await;
}

pub(super) async fn a_renewal_takes_the_slot_and_keeps_the_pass<S: RoomStore + 'static>(bench: Bench<S>) {
    let rows = [
        (0, Step::Put(slots(1)), "created"),
        (0, anybody(), "new 1 waiting 0"),
        (100, Step::Renew(1, 1), "1 admitted 1@0 until 30100"),
        (100, Step::Check(1, 1), "valid until 30100"),
        (200, Step::Renew(1, 2), "1 admitted 1@0 until 30100"),
        (200, Step::Check(1, 1), "valid until 30100"),
        (300, Step::Leave(1), "left"),
        (300, Step::Check(1, 1), "not valid"),
    ];
    bench.check("inside", &rows).await;
}

pub(super) async fn one_of_many_renewals_at_once_gets_the_place<S: RoomStore + 'static>(bench: Bench<S>) {
    let room = name("once");
    bench.put(&room, paused()).await;
    let shown = bench.join(&room, join(Some("ann"), None)).await.expect("there is room").1.ticket;
    // Each request twice, as after an answer that was lost.
    let told = all((0..AT_ONCE).chain(0..AT_ONCE).map(|of_key| {
        let (bench, room, shown) = (bench.clone(), room.clone(), shown.clone());
        async move { answered(bench.store.renew(&room, &shown, RenewalKey::new(of_key << 60)).await) }
    }))
    .await;
    let given: Vec<&TicketAnswer> = told.iter().flatten().collect();
    assert_eq!(given.len(), 2, "one request, and its repeat: {told:?}");
    assert_eq!(given[0].ticket, given[1].ticket);
    let refused = told.iter().filter(|answer| **answer == Err(Rejection::TicketRenewed)).count();
    assert_eq!(refused, told.len() - 2);
    bench.check_refused(&room, &shown).await;
    let held = answered(bench.store.poll(&room, &given[0].ticket).await).expect("the place");
    assert_eq!(held.number, of(1));
}

pub(super) async fn renewals_come_back<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let room = name("renewals");
    let bench = Bench::new(open, 0).await;
    bench.put(&room, paused()).await;
    for _ in 0..3 {
        bench.join(&room, join(None, None)).await.expect("there is room");
    }
    let first = [1, 2, 3].map(|number| bench.ticket(&room, number));
    bench.renew(&room, 2, 5).await.expect("it lives");
    bench.renew(&room, 3, 6).await.expect("it lives");
    bench.check("renewals", &[(1, Step::Leave(3), "left")]).await;
    let bench = bench.reopen(open, 1_000).await;
    bench.check_refused(&room, &first[1]).await;
    let again = answered(bench.store.renew(&room, &first[1], RenewalKey::new(5)).await).expect("a repeat");
    assert_eq!(again.ticket, bench.ticket(&room, 2), "a repeat finds the same ticket");
    let rows = [
        (1_000, Step::Poll(1), "1 waiting 0"),
        (1_000, Step::Poll(2), "2 waiting 1"),
        (1_000, Step::Poll(3), "3 left"),
        (1_000, Step::Renew(2, 7), "2 waiting 1"),
        (1_000, Step::Close, "closed"),
        (1_000, Step::Put(paused()), "replaced"),
        (1_000, anybody(), "new 4 waiting 0"),
    ];
    bench.check("renewals", &rows).await;
    let bench = bench.reopen(open, 2_000).await;
    bench.check("renewals", &[(2_000, Step::Poll(2), "2 expired"), (2_000, Step::Poll(4), "4 waiting 0")]).await;
}
