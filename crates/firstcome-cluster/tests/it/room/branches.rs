//! What becomes of what is on its way when Redis goes on without the end of a log, in the same generation.

use super::*;
use crate::proxy::{Point, ProxyFault};
use crate::scripts;
use crate::world::options;
use firstcome_store::StoreError;

async fn log_position(place: &TestDeployment) -> u64 {
    place.keeper().await.ask(&["HGET", "fc:{r1}:log", "position"]).await
}

/// Asks for something. It is in the log, and waits for SQL, when Redis forgets it; then others go on, far past its position.
async fn forgotten_on_its_way<T: Send + 'static>(
    world: &mut World,
    place: &TestDeployment,
    [one, two]: [&Cluster; 2],
    asked: impl Future<Output = T> + Send + 'static,
) -> T {
    let (mut locker, mut looker) = (place.foreign().await, place.foreign().await);
    let _: String = place.keeper().await.ask(&["SAVE"]).await;
    locker.say("BEGIN; SELECT id FROM firstcome_room FOR UPDATE").await;
    let asking = tokio::spawn(asked);
    until("a page to wait", async || (0 < looker.waiting().await).then_some(())).await;
    let before = log_position(place).await;
    world.restart_redis().await;
    for node in [one, two] {
        until("a node to follow", async || node.room(&room()).await.ok()).await.expect("there is a room");
    }
    until("the log to go on", async || (before < log_position(place).await).then_some(())).await;
    assert_eq!(one.counts().resumed + two.counts().resumed, 1);
    // What was to be written of the end that is lost never is.
    locker.say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type='Lock'").await;
    locker.say("COMMIT").await;
    let zoe = until("another's place", async || two.join(&room(), of("zoe")).await.ok()).await;
    zoe.expect("there is room");
    let told = asking.await.expect("no panic");
    assert_eq!(one.counts().rebuilt + two.counts().rebuilt, 0);
    told
}

async fn two_nodes(place: &TestDeployment) -> [Cluster; 2] {
    let mut options = options();
    options.patience = Duration::from_secs(60);
    [place.node_with(options.clone()).await, place.node_with(options).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_is_told_that_they_have_left_is_gone() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    in_time(async {
        let place = world.place().await;
        let [one, two] = two_nodes(&place).await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, of("ann")).await;
        let (node, ticket) = (one.clone(), ann.ticket.clone());
        let leaving = async move { node.leave(&room(), &ticket).await };
        let left = forgotten_on_its_way(&mut world, &place, [&one, &two], leaving).await;
        left.expect("it answers").expect("it is one");
        assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_gone").await, 1);
        two.room(&room()).await.expect("it answers").expect("it is there");
        assert_eq!(poll(&two, &ann.ticket).await.state, TicketState::Gone(Departure::Left));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_is_told_that_they_are_inside_has_taken_their_slot() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    in_time(async {
        let place = world.place().await;
        let [one, two] = two_nodes(&place).await;
        put(&one, RoomSettings::with_slots(1)).await;
        let (_, ann) = join(&one, of("ann")).await;
        let mut foreign = place.foreign().await;
        let slots = "SELECT COUNT(*) FROM firstcome_slot";
        until("an offer", async || (foreign.number(slots).await == 1).then_some(())).await;
        let (node, ticket) = (one.clone(), ann.ticket.clone());
        let polling = async move { node.poll(&room(), &ticket).await };
        let told = forgotten_on_its_way(&mut world, &place, [&one, &two], polling).await;
        let told = told.expect("it answers").expect("it is one");
        assert!(matches!(told.state, TicketState::Admitted { .. }), "{:?}", told.state);
        assert_eq!(foreign.number("SELECT COUNT(*) FROM firstcome_slot WHERE taken=1 AND ended=0").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_is_told_a_place_has_it() {
    let Some(mut world) = World::start(Kind::Postgres).await else { return };
    in_time(async {
        let place = world.place().await;
        let [one, two] = two_nodes(&place).await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        join(&one, of("ann")).await;
        let node = one.clone();
        let joining = async move { node.join(&room(), of("bob")).await };
        let told = forgotten_on_its_way(&mut world, &place, [&one, &two], joining).await;
        let (joining, bob) = told.expect("it answers").expect("there is room");
        assert_eq!(joining, Joining::New);
        assert_eq!(join(&two, of("bob")).await.1.ticket, bob.ticket);
        let number = "SELECT number FROM firstcome_ticket WHERE name='bob'";
        assert_eq!(place.foreign().await.number(number).await, i64::from(bob.number.get()));
    })
    .await;
}

/// A branch that goes on elsewhere has raised the ceiling in SQL, and may have drawn all those numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_another_branch_may_draw_are_drawn_by_no_visitor_here() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        put(&place.node().await, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let mut foreign = place.foreign().await;
        foreign.say("UPDATE firstcome_room SET ceiling=ceiling+65536").await;
        let raised = foreign.number("SELECT ceiling FROM firstcome_room").await;
        let two = place.node().await;
        join(&two, of("ann")).await;
        let told = join(&two, ANYBODY).await.1;
        assert_eq!(i64::from(told.number.get()), raised + 1);
        assert!(raised < foreign.number("SELECT ceiling FROM firstcome_room").await, "it has raised it itself");
        assert_eq!(two.counts().rebuilt + two.counts().resumed, 0);
    })
    .await;
}

/// The server is away for long after SQL was asked, and others write meanwhile: what SQL says then is what counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_sql_has_passed_meanwhile_is_not_gone_on_with() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let one = place.node().await;
        put(&one, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
        let (_, ann) = join(&one, of("ann")).await;
        drop(one);
        let (by_line, line) = place.by_redis_line().await;
        let two = by_line.node().await;
        line.set(&Point::Script(scripts::LOG_PROBE), 0, ProxyFault::Hold);
        let node = two.clone();
        let joining = tokio::spawn(async move { node.join(&room(), of("ann")).await });
        line.met(1).await;
        let _: i64 = place.keeper().await.ask(&["HSET", "fc:{r1}:log", "run", "another"]).await;
        place.foreign().await.say("UPDATE firstcome_room SET position=position+1000").await;
        line.pass();
        let told: Result<_, StoreError> = joining.await.expect("no panic");
        assert_eq!(told.expect("it answers").expect("there is room").1.ticket, ann.ticket);
        assert_eq!((two.counts().resumed, two.counts().rebuilt), (0, 1));
    })
    .await;
}
