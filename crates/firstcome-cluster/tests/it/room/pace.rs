//! How fast a room goes, and who is let in, by a clock of the test's own.

use super::*;
use firstcome_store::core::room::Admit;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use std::sync::Arc;

fn rate(count: u32, every_ms: u64) -> RoomSettings {
    RoomSettings { admit: Some(Admit { count, every_ms }), max_active: None, ..RoomSettings::with_slots(1) }
}

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_us(1_800_000_000_000_000).expect("an instant")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_rate_is_reached() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let clock = clock();
        let one = place.node_by(Arc::clone(&clock)).await;
        put(&one, rate(39, 10_000)).await;
        let mut tickets = Vec::new();
        for _ in 0..300 {
            tickets.push(join(&one, ANYBODY).await.1);
        }
        let serving = async || one.room(&room()).await.expect("it answers").expect("it is there").view.serving;
        let before = serving().await;
        // Everybody is there for as long as it takes: no visitor is away for longer than a visitor may be.
        for at in 0..4_000 {
            clock.pass_ms(5);
            serving().await;
            if at % 1_000 == 0 {
                for ticket in &tickets {
                    // The first poll after an admission takes the slot.
                    if one.poll_settled("hall", &ticket.ticket).is_none() {
                        poll(&one, &ticket.ticket).await;
                    }
                }
            }
        }
        let admitted = serving().await - before;
        assert!((76..=79).contains(&admitted), "{admitted} in 20 s at 3.9 each second");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_asks_as_they_were_told_is_not_passed_over() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let clock = clock();
        let one = place.node_by(Arc::clone(&clock)).await;
        put(&one, rate(1, 10_000)).await;
        let mut people = Vec::new();
        for _ in 0..1_000 {
            let told = join(&one, ANYBODY).await.1;
            people.push((told.poll_after_ms, told, None::<u64>));
        }
        let (mut now_ms, mut left) = (0_u32, people.len());
        while left != 0 {
            // Fast enough that the faster rate is reached: those far back are due before they ask again.
            let step_ms = if now_ms < 420_000 { 1_000 } else { 250 };
            clock.pass_ms(step_ms.into());
            now_ms += step_ms;
            assert!(now_ms < 3_000_000, "{left} are not in yet");
            if now_ms == 420_000 {
                put(&one, rate(100, 10_000)).await;
            }
            // No visitor except those who ask lets time go on: the log hears of those far back now and then.
            one.room(&room()).await.expect("it answers").expect("it is there");
            for (next_ms, ticket, admission) in people.iter_mut().filter(|it| it.2.is_none() && it.0 <= now_ms) {
                let told = poll(&one, &ticket.ticket).await;
                *next_ms = now_ms + told.poll_after_ms;
                if let TicketState::Admitted { slot, .. } = told.state {
                    *admission = Some(slot.admission);
                    left -= 1;
                }
            }
        }
        let order: Vec<u64> = people.iter().filter_map(|it| it.2).collect();
        let late = order.windows(2).filter(|two| two[1] < two[0]).count();
        assert_eq!(late, 0, "somebody was let in before who came later");
    })
    .await;
}

/// No node was there for longer than anybody may be silent: no visitor could be heard, so no visitor was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_visitor_is_passed_over_because_no_node_was_there() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        // Each has its own clock: what a node that is gone still has under way must not see the later time.
        let later = clock();
        later.pass_ms(1_000_000);
        let one = place.node_by(clock()).await;
        put(&one, RoomSettings { paused: true, waiting_ttl_ms: 60_000, ..RoomSettings::with_slots(1) }).await;
        let tickets = [join(&one, ANYBODY).await.1, join(&one, ANYBODY).await.1];
        drop(one);
        let two = place.node_by(later).await;
        let view = two.room(&room()).await.expect("it answers").expect("it is there").view;
        assert_eq!(view.waiting, 2);
        for (at, ticket) in tickets.iter().enumerate() {
            assert_eq!(position(&poll(&two, &ticket.ticket).await), Some(at as u32));
        }
        assert_eq!(two.counts().rebuilt + two.counts().resumed, 0);
    })
    .await;
}
