//! What is written to SQL, by whom, and how much of it.

use super::*;
use crate::proxy::{Point, Proxy, ProxyFault};
use crate::world::{TestDeployment, options};
use firstcome_store::StoreError;
use firstcome_store::core::room::RoomState;
use std::sync::Arc;
use tokio::task::JoinHandle;

fn paused() -> RoomSettings {
    RoomSettings { paused: true, ..RoomSettings::with_slots(1) }
}

/// A page is committed, and a visitor that wrote it does not hear of it; more has come meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_sql_is_not_written_again() {
    for sql in [Kind::Postgres, Kind::MariaDb] {
        let Some(world) = World::start(sql).await else { return };
        let place = world.place().await;
        in_time(async {
            let (by_line, line) = place.by_sql_line().await;
            let one = Arc::new(by_line.node().await);
            put(&one, paused()).await;
            // Strangers write nothing, and the log goes on all the time.
            let two = place.node().await;
            join(&two, ANYBODY).await;
            let strangers = tokio::spawn(async move {
                loop {
                    join(&two, ANYBODY).await;
                }
            });
            line.set(&Point::Commit, 0, ProxyFault::CutAnswer);
            let begun_at = Instant::now();
            let joining = [of("ann"), of("bob"), of("cid")].map(|who| {
                let one = Arc::clone(&one);
                tokio::spawn(async move { join(&one, who).await.1.number.get() })
            });
            let mut numbers = Vec::new();
            for joining in joining {
                numbers.push(joining.await.expect("a place"));
            }
            line.met(1).await;
            numbers.push(join(&one, of("dan")).await.1.number.get());
            strangers.abort();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 4);
            assert!(begun_at.elapsed() < Duration::from_secs(6), "it took {:?}", begun_at.elapsed());
            assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_ticket").await, 4);
        })
        .await;
    }
}

/// A page with a closing in its middle: how far the line is is what stands at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_closing_in_the_same_page_counts() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let one = Arc::new(place.node().await);
        put(&one, RoomSettings::with_slots(1)).await;
        for _ in 0..3 {
            join(&one, ANYBODY).await;
        }
        let state = async || one.room(&room()).await.expect("it answers").expect("it is there").view;
        let frozen = world.freeze_sql();
        let node = Arc::clone(&one);
        let closing = tokio::spawn(async move { node.close_room(&room()).await });
        until("the closing", async || (state().await.state == RoomState::Closed).then_some(())).await;
        let node = Arc::clone(&one);
        let opening = tokio::spawn(async move { node.put_room(&room(), RoomSettings::with_slots(1)).await });
        until("the opening", async || (state().await.state == RoomState::Open).then_some(())).await;
        let node = Arc::clone(&one);
        let joining = tokio::spawn(async move { join(&node, ANYBODY).await.1 });
        until("an admission", async || (state().await.active == 1).then_some(())).await;
        drop(frozen);
        closing.await.expect("no panic").expect("it answers").expect("it is closed");
        opening.await.expect("no panic").expect("it answers").expect("it is open");
        let told = joining.await.expect("a place");
        assert_eq!(told.number.get(), 4);
        until("the slot in SQL", async || {
            let slots = "SELECT COUNT(*) FROM firstcome_slot WHERE ended=0";
            (place.foreign().await.number(slots).await == 1).then_some(())
        })
        .await;
        assert_eq!(place.foreign().await.number("SELECT reached FROM firstcome_room").await, 5);
        let _: String = place.keeper().await.ask(&["FLUSHDB"]).await;
        assert!(matches!(poll(&one, &told.ticket).await.state, TicketState::Admitted { .. }));
        assert_eq!(one.counts().rebuilt, 1);
    })
    .await;
}

/// A visitor that writes goes away just after something has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_goes_on_with_what_waits() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let [one, two, _] = three_nodes(&place).await;
        put(&one, paused()).await;
        let (_, ann) = join(&one, of("ann")).await;
        one.leave(&room(), &ann.ticket).await.expect("it answers").expect("it is one");
        two.room(&room()).await.expect("it answers").expect("it is there");
        drop(one);
        let begun_at = Instant::now();
        put(&two, RoomSettings::with_slots(2)).await;
        assert!(begun_at.elapsed() < Duration::from_secs(5), "it took {:?}", begun_at.elapsed());
    })
    .await;
}

/// A visitor joins at a node that the line keeps from the database.
async fn held_up(one: &Arc<Cluster>, line: &Proxy) -> JoinHandle<()> {
    let node = Arc::clone(one);
    let joining = tokio::spawn(async move { drop(node.join(&room(), of("cid")).await) });
    line.met(1).await;
    joining
}

/// Another node gives a place after hers, before a waiter runs out of patience; and a visitor that was held up hears of it.
async fn another_goes_on(
    place: &TestDeployment,
    one: &Cluster,
    line: &Proxy,
    joining: JoinHandle<()>,
    ann: &TicketAnswer,
) {
    let (two, begun_at) = (place.node().await, Instant::now());
    let dan = until("a place at the other node", async || node_join(&two, of("dan")).await.ok()).await;
    assert!(begun_at.elapsed() < Duration::from_secs(12), "it took {:?}", begun_at.elapsed());
    assert!(ann.number < dan.number);
    line.pass();
    joining.await.expect("no panic");
    assert_eq!(join(one, of("dan")).await.1.number, dan.number);
}

/// The node whose turn it is to write does not reach the database, and another one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_cannot_write_lets_others() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let (by_line, line) = place.by_sql_line().await;
        let one = Arc::new(by_line.node().await);
        put(&one, paused()).await;
        let (_, ann) = join(&one, of("ann")).await;
        line.set(&Point::Text("UPDATE firstcome_room SET position"), 0, ProxyFault::Hold);
        let joining = held_up(&one, &line).await;
        // One goes on to ask the room, and so keeps its turn.
        poll(&one, &ann.ticket).await;
        another_goes_on(&place, &one, &line, joining, &ann).await;
    })
    .await;
}

/// The same, where it does not even learn what others have written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_cannot_read_what_others_wrote_lets_others_write() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let two = place.node().await;
        put(&two, paused()).await;
        let (_, ann) = join(&two, of("ann")).await;
        let (by_line, line) = place.by_sql_line().await;
        let one = Arc::new(by_line.node().await);
        poll(&one, &ann.ticket).await;
        // The last to write before it is another node.
        join(&two, of("bob")).await;
        poll(&one, &ann.ticket).await;
        drop(two);
        line.set(&Point::Text("FROM firstcome_room WHERE id="), 0, ProxyFault::Hold);
        let joining = held_up(&one, &line).await;
        another_goes_on(&place, &one, &line, joining, &ann).await;
    })
    .await;
}

/// So much came while the database stood still that no visitor can keep a digest of each position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_outage_is_written_in_pages_too() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let mut options = options();
        (options.rows_max, options.patience) = (3, Duration::from_secs(60));
        let one = Arc::new(place.node_with(options).await);
        put(&one, paused()).await;
        place.foreign().await.say(FEW).await;
        let frozen = world.freeze_sql();
        let joining: Vec<_> = (0..10)
            .map(|at| {
                let one = Arc::clone(&one);
                tokio::spawn(async move { node_join(&one, of(&format!("user-{at}"))).await })
            })
            .collect();
        let waiting = async || one.room(&room()).await.expect("it answers").expect("it is there").view.waiting;
        until("all to be in the log", async || (waiting().await == 10).then_some(())).await;
        let mut tick = Vec::new();
        Entry::Tick.encode(&mut tick);
        let ticks = [&(tick.len() as u32).to_le_bytes(), tick.as_slice()].concat().repeat(20_000);
        let add = b"local log = redis.call('HMGET', KEYS[1], 'position', 'wall', 'steady') \
            local last = log[1] + 20000 redis.call('HSET', KEYS[1], 'position', last) \
            return redis.call('XADD', KEYS[2], last .. '-1', 'first', log[1] + 1, 'wall', log[2], 'steady', log[3], \
            'entries', ARGV[1])";
        let keys: [&[u8]; 2] = [b"fc:{r1}:log", b"fc:{r1}:entries:1"];
        let _: String = place.keeper().await.ask_bytes(&[b"EVAL", add, b"2", keys[0], keys[1], &ticks]).await;
        assert_eq!(waiting().await, 10);
        drop(frozen);
        for joining in joining {
            joining.await.expect("no panic").expect("a place");
        }
        assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_ticket").await, 10);
        assert_eq!(one.counts().rebuilt, 0);
    })
    .await;
}

/// A database that takes no more than three tickets at once.
const FEW: &str = "CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF (SELECT COUNT(*) FROM fresh) > 3 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$; \
    CREATE TRIGGER few AFTER INSERT ON firstcome_ticket REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT \
    EXECUTE FUNCTION few()";

async fn node_join(node: &Cluster, who: Join) -> Result<TicketAnswer, StoreError> {
    node.join(&room(), who).await.map(|told| told.expect("there is room").1)
}

/// While the database stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bounded_backlog_waits_and_is_written_in_pages() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        let mut options = options();
        (options.rows_max, options.rows_waiting_max) = (3, 20);
        let one = Arc::new(place.node_with(options).await);
        put(&one, paused()).await;
        place.foreign().await.say(FEW).await;
        let frozen = world.freeze_sql();
        let joining: Vec<_> = (0..21)
            .map(|at| {
                let one = Arc::clone(&one);
                tokio::spawn(async move { node_join(&one, of(&format!("user-{at}"))).await })
            })
            .collect();
        // Strangers need nothing of the database, unless too much waits for it.
        until("too much to wait", async || node_join(&one, ANYBODY).await.err()).await;
        let refused = node_join(&one, of("zoe")).await;
        assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}");
        drop(frozen);
        for joining in joining {
            joining.await.expect("no panic").expect("a place");
        }
        assert_eq!(place.foreign().await.number("SELECT COUNT(*) FROM firstcome_ticket").await, 21);
        join(&one, of("zoe")).await;
    })
    .await;
}

/// Numbers are used up and the ceiling cannot be raised: nothing was done, and the log is not filled with questions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_numbers_nothing_is_done() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    in_time(async {
        put(&place.node().await, paused()).await;
        place.foreign().await.say("UPDATE firstcome_room SET ceiling=3").await;
        let mut keeper = place.keeper().await;
        let _: String = keeper.ask(&["FLUSHDB"]).await;
        let (by_line, line) = place.by_sql_line().await;
        let mut options = options();
        options.patience = Duration::from_millis(1_500);
        let one = by_line.node_with(options).await;
        line.set(&Point::Text("UPDATE firstcome_room SET position"), 0, ProxyFault::Hold);
        let refused = node_join(&one, ANYBODY).await;
        assert!(matches!(refused, Err(StoreError::Faulted(_))), "{refused:?}");
        let position: u64 = keeper.ask(&["HGET", "fc:{r1}:log", "position"]).await;
        assert!(position < 20, "{position} entries");
        line.pass();
        let number = until("a number", async || node_join(&one, ANYBODY).await.ok()).await.number;
        assert_eq!(number.get(), 4);
    })
    .await;
}
