//! One room at several nodes, by the servers' own clocks.

mod branches;
mod closing;
mod draw;
mod faults;
mod first_poll;
mod lost;
mod pace;
mod receipts;
mod renewals;
mod secrets;
mod went_back;
mod written;

use crate::in_time;
use crate::world::{TestDeployment, World};
use firstcome_cluster::Cluster;
use firstcome_store::core::id::{RoomName, UserId};
use firstcome_store::core::room::replica::Entry;
use firstcome_store::core::room::{Departure, Join, RoomSettings, TicketState};
use firstcome_store::{Joining, RoomStore, TicketAnswer};
use firstcome_test_servers::Kind;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(crate) fn room() -> RoomName {
    RoomName::parse("hall").expect("a name")
}

pub(crate) fn of(user: &str) -> Join {
    Join { user: Some(UserId::parse(user).expect("a name")), request: None }
}

pub(crate) const ANYBODY: Join = Join { user: None, request: None };

pub(crate) async fn join(node: &Cluster, join: Join) -> (Joining, TicketAnswer) {
    node.join(&room(), join).await.expect("it answers").expect("there is room")
}

pub(crate) async fn poll(node: &Cluster, ticket: &str) -> TicketAnswer {
    node.poll(&room(), ticket).await.expect("it answers").expect("it is one")
}

pub(crate) async fn put(node: &Cluster, settings: RoomSettings) {
    node.put_room(&room(), settings).await.expect("it answers").expect("it is put");
}

/// Looks again and again until there is something to see.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) const fn position(answer: &TicketAnswer) -> Option<u32> {
    match answer.state {
        TicketState::Waiting { position, .. } => Some(position),
        _ => None,
    }
}

async fn three_nodes(place: &TestDeployment) -> [Cluster; 3] {
    place.nodes(3).await.try_into().expect("three")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_have_one_line() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, three] = three_nodes(&place).await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, of("ann")).await;
        let (_, bob) = join(&two, ANYBODY).await;
        let (_, cid) = join(&three, ANYBODY).await;
        assert_eq!([ann.number.get(), bob.number.get(), cid.number.get()], [1, 2, 3]);
        for node in [&one, &two, &three] {
            let (joining, same) = join(node, of("ann")).await;
            assert_eq!((joining, same.ticket.as_ref()), (Joining::SameUser, ann.ticket.as_ref()));
            assert_eq!(position(&poll(node, &cid.ticket).await), Some(2));
        }
        two.leave(&room(), &ann.ticket).await.expect("it answers").expect("it is one");
        for node in [&one, &two, &three] {
            until("all to know that ann has left", async || {
                (poll(node, &ann.ticket).await.state == TicketState::Gone(Departure::Left)).then_some(())
            })
            .await;
            assert_eq!(position(&poll(node, &cid.ticket).await), Some(1));
        }
        let (joining, again) = join(&three, of("ann")).await;
        assert_eq!((joining, again.number.get()), (Joining::New, 4));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_together_never_admit_more_than_the_cap() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let nodes = three_nodes(&place).await;
        put(&nodes[0], RoomSettings::with_slots(4)).await;
        let mut tickets = Vec::new();
        for at in 0..30 {
            tickets.push(join(&nodes[at % 3], ANYBODY).await.1.ticket);
        }
        let mut inside: Vec<usize> = Vec::new();
        let (mut through, mut gone) = (0, BTreeSet::new());
        let end = Instant::now() + Duration::from_secs(60);
        while through < 30 {
            assert!(Instant::now() < end, "{through} of 30 got through");
            // A node may not know yet who has just left at another one.
            for (at, ticket) in tickets.iter().enumerate().filter(|(at, _)| !gone.contains(at)) {
                let told = poll(&nodes[(at + through) % 3], ticket).await;
                if matches!(told.state, TicketState::Admitted { .. }) && !inside.contains(&at) {
                    inside.push(at);
                }
            }
            assert!(inside.len() <= 4, "{inside:?} are inside");
            for at in inside.drain(..) {
                nodes[at % 3].leave(&room(), &tickets[at]).await.expect("it answers").expect("it is one");
                gone.insert(at);
                through += 1;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_redis_has_lost_comes_back_by_its_tickets() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        in_time(async {
            let [one, two, _] = three_nodes(&place).await;
            put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
            let (_, ann) = join(&one, of("ann")).await;
            let (_, bob) = join(&two, ANYBODY).await;
            let (_, gone) = join(&two, ANYBODY).await;
            two.leave(&room(), &gone.ticket).await.expect("it answers").expect("it is one");
            let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
            // Ann is in SQL, Bob comes back by his ticket, and who has left stays so.
            let (joining, same) = join(&one, of("ann")).await;
            assert_eq!((joining, same.number), (Joining::SameUser, ann.number));
            let bob_is_back = async || {
                let told = poll(&two, &bob.ticket).await;
                let counts = one.room(&room()).await.expect("it answers").expect("it is there").view;
                (position(&told) == Some(1) && counts.waiting == 2).then_some(())
            };
            until("Bob to come back", bob_is_back).await;
            assert_eq!(poll(&one, &gone.ticket).await.state, TicketState::Gone(Departure::Left));
            let (_, next) = join(&two, ANYBODY).await;
            assert!(gone.number < next.number, "no number is drawn twice");
            assert_eq!(position(&poll(&one, &next.ticket).await), Some(2));
            assert!(1 <= one.counts().rebuilt + two.counts().rebuilt);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_wrong_is_rebuilt() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    // What no visitor can read, and what says that another room than ours is durable.
    for is_readable in [false, true] {
        let place = world.place().await;
        in_time(async {
            let [one, two, _] = three_nodes(&place).await;
            put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
            let (_, ann) = join(&one, of("ann")).await;
            let (_, bob) = join(&two, ANYBODY).await;
            let mut keeper = place.keeper().await;
            let position: u64 = keeper.ask(&["HGET", "fc:{r1}:log", "position"]).await;
            let mut durable = Vec::new();
            Entry::Durable { position, digest: 4_711 }.encode(&mut durable);
            let durable = [&(durable.len() as u32).to_le_bytes(), durable.as_slice()].concat();
            let wrong: &[u8] = if is_readable { &durable } else { b"nothing that is ours" };
            let add = b"local at = redis.call('HINCRBY', KEYS[1], 'position', 1) \
                return redis.call('XADD', KEYS[2], at .. '-1', 'first', at, 'wall', 1, 'steady', 1, 'entries', ARGV[1])";
            let keys: [&[u8]; 2] = [b"fc:{r1}:log", b"fc:{r1}:entries:1"];
            let _: String = keeper.ask_bytes(&[b"EVAL", add, b"2", keys[0], keys[1], wrong]).await;
            let (joining, same) = join(&two, of("ann")).await;
            assert_eq!((joining, same.number), (Joining::SameUser, ann.number));
            assert_eq!(position_of(&one, &bob).await, Some(1));
            assert!(1 <= one.counts().rebuilt + two.counts().rebuilt);
        })
        .await;
    }
}

/// Where a visitor stands who comes back, until all nodes know.
async fn position_of(node: &Cluster, ticket: &TicketAnswer) -> Option<u32> {
    let there = async || {
        let told = poll(node, &ticket.ticket).await;
        let waiting = node.room(&room()).await.expect("it answers").expect("it is there").view.waiting;
        (waiting == 2).then(|| position(&told))
    };
    until("both to wait", there).await
}
