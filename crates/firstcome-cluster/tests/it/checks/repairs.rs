//! What a repair leaves alone, and what it rests on.

use super::*;
use crate::proxy::{Point, ProxyFault};
use crate::room;
use crate::scripts::ADJUST;
use firstcome_store::TicketAnswer;
use firstcome_store::core::room::replica::{Entry, Replica};
use firstcome_store::edge::draw_hasher;
use std::time::Duration;
use tokio::time::interval;

const ANYBODY: Join = Join { user: None, request: None };

async fn join(node: &Cluster, who: Join) -> TicketAnswer {
    node.join(&room(), who).await.expect("it answers").expect("there is room").1
}

async fn generation(place: &TestDeployment, table: &str) -> i64 {
    place.foreign().await.number(&format!("SELECT generation FROM {table}")).await
}

#[track_caller]
fn repair_of<'a>(done: &'a Reconciled, object: &Object) -> &'a Repair {
    &done.findings.iter().find(|finding| finding.object == *object).expect("it is found").repair
}

/// What is done to the sequencer of a coupon that tells claims early, whether one waits in its outbox, and how that is sorted.
const EARLY: [(&str, &[&str], bool, &str); 8] = [
    ("no sequencer", &["DEL", "fc:{c1}:gate"], true, "missing"),
    ("no sequencer, and nothing waits", &["DEL", "fc:{c1}:gate"], false, "missing"),
    ("no counts", &["HSET", "fc:{c1}:gate", "void", "x"], true, "torn"),
    ("behind", &["HSET", "fc:{c1}:gate", "ticket", "0"], true, "behind"),
    ("no anchor", &["XDEL", "fc:{c1}:outbox:1", "1-1"], true, "torn"),
    ("further than the database", &["HSET", "fc:{c1}:gate", "position", "2"], true, "went_back"),
    ("a wrong count", &["HSET", "fc:{c1}:gate", "void", "3"], false, "miscounted"),
    ("another limit", &["HSET", "fc:{c1}:gate", "limit", "99"], false, "other_settings"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answers_stay_when_their_sequencer_is_broken() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    for (what, damage, is_waiting, state) in EARLY {
        let place = world.place().await;
        let node = place.node().await;
        put(&node, CouponSettings { acknowledge: Acknowledge::Placed, ..limit(9) }).await;
        new(claim(&node, "ann").await);
        at_rest(&place).await;
        drop(node);
        let mut keeper = place.keeper().await;
        if is_waiting {
            append(&mut keeper, "fc:{c1}:outbox:1", 2, &["eve"]).await;
            keeper.set_gate(&["ticket", "2"]).await;
        }
        let _: i64 = keeper.ask(damage).await;
        let before: BTreeSet<String> = keeper.ask(&["KEYS", "fc:{*"]).await;
        let done = in_time(repaired(&place)).await;
        assert_eq!(states(&done, &sequencer()), [state], "{what}: {done:?}");
        // Only where nothing was let in that the database does not have is it rebuilt.
        let is_safe = state == "missing" && !is_waiting;
        let repair = repair_of(&done, &sequencer());
        assert_eq!(matches!(repair, Repair::Done(_)), is_safe, "{what}: {repair:?}");
        assert_eq!(matches!(repair, Repair::Advice(_)), !is_safe, "{what}: {repair:?}");
        assert_eq!(generation(&place, "firstcome_coupon").await, 1 + i64::from(is_safe), "{what}");
        if !is_safe {
            let after: BTreeSet<String> = keeper.ask(&["KEYS", "fc:{*"]).await;
            assert_eq!(after, before, "{what}: nothing was rebuilt or thrown away");
        }
    }
}

/// A node that dies between the database and the sequencer leaves settings there that need only be put in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_a_sequencer_has_not_heard_of_are_put_in_force() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let (lined, line) = place.by_redis_line().await;
    let (dying, node) = (lined.node().await, place.node().await);
    put(&node, CouponSettings { acknowledge: Acknowledge::Placed, ..limit(9) }).await;
    new(claim(&node, "ann").await);
    at_rest(&place).await;
    line.set(&Point::Script(ADJUST), 0, ProxyFault::Hold);
    let fewer = CouponSettings { acknowledge: Acknowledge::Placed, ..limit(5) };
    in_time(dying.put_coupon(&coupon(COUPON), fewer)).await.expect_err("nobody answers");
    drop((dying, node, line));
    // A caller may just be doing it: that is found out within ten seconds, both times.
    let done = in_time(repaired(&place)).await;
    assert_eq!(states(&done, &sequencer()), ["other_settings"], "{done:?}");
    assert!(matches!(repair_of(&done, &sequencer()), Repair::Done(_)), "{done:?}");
    assert_eq!(place.keeper().await.sequencer("limit").await.as_deref(), Some("5"));
    assert_eq!(generation(&place, "firstcome_coupon").await, 1, "it is not rebuilt");
    is_sound(&verified(&place).await);
}

/// A repair looks at everything first, and repairs one after the other: what others have done meanwhile is not undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_repaired_meanwhile_is_not_rebuilt() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let (mut keeper, mut foreign, mut holder) = (place.keeper().await, place.foreign().await, place.foreign().await);
    keeper.set_gate(&["limit", "99"]).await;
    foreign.say("UPDATE firstcome_room SET digest=digest+1").await;
    // A caller that repairs opens a node after everything was looked at, which reads these.
    holder.say("BEGIN; LOCK TABLE firstcome_pass_secret IN ACCESS EXCLUSIVE MODE").await;
    let repairing = tokio::spawn({
        let place = place.clone();
        async move { repaired(&place).await }
    });
    wait_for("a node that opens", async || (0 < foreign.waiting().await).then_some(())).await;
    keeper.set_gate(&["limit", "9"]).await;
    foreign.say("UPDATE firstcome_room SET digest=digest-1").await;
    holder.say("COMMIT").await;
    let done = in_time(repairing).await.expect("it answers");
    assert_eq!([states(&done, &sequencer()), states(&done, &log())], [["other_settings"], ["differs"]]);
    assert_eq!(needs_repair(&done), 0, "{done:?}");
    for table in ["firstcome_coupon", "firstcome_room"] {
        assert_eq!(generation(&place, table).await, 1, "{table}: nothing was rebuilt");
    }
    at_rest(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_go_also_when_the_generation_is_another_one_by_then() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let mut keeper = place.keeper().await;
    keeper.set_gate(&["limit", "99"]).await;
    let _: String = keeper.ask(&["SET", "fc:{c1}:users:0", "1"]).await;
    let done = repaired(&place).await;
    assert_eq!(needs_repair(&done), 0, "{done:?}");
    assert_eq!(generation(&place, "firstcome_coupon").await, 2);
    let left: i64 = keeper.ask(&["EXISTS", "fc:{c1}:users:0"]).await;
    assert_eq!(left, 0, "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_moves_all_the_time_is_named() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let mut keeper = place.keeper().await;
    let _: i64 = keeper.ask(&["HSET", "fc:{r1}:log", "generation", "7"]).await;
    // A node that makes it anew and does not come to an end.
    let mending = async {
        let mut beats = interval(Duration::from_millis(50));
        loop {
            beats.tick().await;
            let until = keeper.now_us().await / 1_000 + 1_900;
            let _: i64 = keeper.ask(&["HSET", "fc:{r1}:lease", "node", "x", "until", &until.to_string()]).await;
        }
    };
    let seen = tokio::select! {
        seen = in_time(reconciled(&place)) => seen,
        () = mending => unreachable!("it never ends"),
    };
    assert_eq!(states(&seen, &log()), ["under_way"], "{seen:?}");
    assert_eq!(needs_repair(&seen), 0, "{seen:?}");
}

/// The tables of one room, as copies that can be put back; that of the room itself numbers its rows.
const TABLES: [&str; 4] = ["firstcome_room", "firstcome_ticket", "firstcome_slot", "firstcome_gone"];
const ROOM_COLUMNS: [&str; 4] = ["position", "digest", "clock_wall", "clock_steady"];

async fn a_database_that_went_back_is_named(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    set_up(&place).await;
    let mut foreign = place.foreign().await;
    for table in TABLES {
        foreign.say(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await;
    }
    let node = place.node().await;
    let dan = join(&node, room::of("dan")).await;
    at_rest(&place).await;
    drop(node);
    at_rest(&place).await;
    for table in &TABLES[1..] {
        foreign.say(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}")).await;
    }
    let columns = ROOM_COLUMNS.map(|column| format!("{column}=(SELECT {column} FROM kept_firstcome_room)"));
    foreign.say(&format!("UPDATE firstcome_room SET {}", columns.join(","))).await;
    let seen = reconciled(&place).await;
    assert_eq!(states(&seen, &log()), ["went_back"], "{seen:?}");
    let lost = format!("{} of dan", dan.number.get());
    assert!(seen.findings.iter().any(|finding| finding.says.contains(&lost)), "{seen:?}");
    let named = broken(&verified(&place).await);
    assert!(named.len() == 1 && named[0].0.starts_with("a log leads to"), "{named:?}");
    // That is not repaired unless an operator accepts it.
    assert_eq!(needs_repair(&repaired(&place).await), 1);
    let node = place.node().await;
    assert!(node.join(&room(), room::of("eve")).await.is_err(), "it stands still");
    let accepted = accept_loss(&place.redis, &place.sql, secret(), options()).await.expect("it is accepted");
    assert_eq!(needs_repair(&accepted), 0, "{accepted:?}");
    is_sound(&verified(&place).await);
    let eve = room::until("the room to go on", async || node.join(&room(), room::of("eve")).await.ok()).await;
    assert!(dan.number < eve.expect("there is room").1.number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_whose_database_went_back_is_named_on_postgres() {
    in_time(a_database_that_went_back_is_named(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_whose_database_went_back_is_named_on_mariadb() {
    in_time(a_database_that_went_back_is_named(Kind::MariaDb)).await;
}

/// People without user and key are not written, so an image may be of a later position than the database is at.
async fn a_later_image_is_compared(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let mut options = options();
    options.image_bytes_min = 256;
    let node = place.node_with(options).await;
    let settings = RoomSettings { paused: true, ..RoomSettings::with_slots(1) };
    node.put_room(&room(), settings).await.expect("it answers").expect("it is put");
    join(&node, room::of("ann")).await;
    let (mut keeper, mut foreign) = (place.keeper().await, place.foreign().await);
    wait_for("an image after the database", async || {
        join(&node, ANYBODY).await;
        let image: Option<i64> = keeper.ask(&["HGET", "fc:{r1}:image:1", "position"]).await;
        let written = foreign.number("SELECT position FROM firstcome_room").await;
        image.is_some_and(|image| written < image).then_some(())
    })
    .await;
    drop(node);
    at_rest(&place).await;
    let whole = verified(&place).await;
    is_sound(&whole);
    assert_eq!(whole.not_checked, Vec::<String>::new());
    assert!(4 < checked(&whole, "a log leads to"), "the room was compared");
    foreign.say("UPDATE firstcome_ticket SET name='eve'").await;
    assert_eq!(states(&reconciled(&place).await, &log()), ["differs"]);
    foreign.say("UPDATE firstcome_ticket SET name='ann'").await;
    // One that has what the database lacks, and no caller writes it: then nothing can be said, and that is.
    keep_an_image_with(&mut keeper, "zoe").await;
    let seen = reconciled(&place).await;
    assert_eq!(states(&seen, &log()), ["undrained"], "{seen:?}");
    assert!(seen.not_looked.len() == 1 && seen.not_looked[0].contains("hall"), "{seen:?}");
    let not_checked = verified(&place).await.not_checked;
    assert!(not_checked.len() == 1 && not_checked[0].contains("room hall"), "{not_checked:?}");
    assert_eq!(needs_repair(&repaired(&place).await), 0);
    is_sound(&verified(&place).await);
    let zoe = foreign.number("SELECT COUNT(*) FROM firstcome_ticket WHERE name='zoe'").await;
    assert_eq!(zoe, 1, "it was written");
}

/// Keeps an image at the end of a log after which a caller has come.
async fn keep_an_image_with(keeper: &mut Keeper, user: &str) {
    let count: usize = keeper.ask(&["HGET", "fc:{r1}:image:1", "parts"]).await;
    let mut image = Vec::new();
    for part in 1..=count {
        let part: Vec<u8> = keeper.ask(&["HGET", "fc:{r1}:image:1", &part.to_string()]).await;
        image.extend(part);
    }
    let end: u64 = keeper.ask(&["HGET", "fc:{r1}:log", "position"]).await;
    let mut replica = Replica::from_image(&image, draw_hasher()).expect("an image");
    let (now, mut changes) = (replica.now(), Vec::new());
    for position in replica.position() + 1..=end + 1 {
        let join = if position <= end { ANYBODY } else { room::of(user) };
        replica.apply(position, now, &Entry::Join { join, tag: position }, &mut changes).expect("it follows");
    }
    let (image, position) = (replica.image(), (end + 1).to_string());
    let command: [&[u8]; 8] =
        [b"HSET", b"fc:{r1}:image:1", b"position", position.as_bytes(), b"parts", b"1", b"1", &image];
    let _: i64 = keeper.ask_bytes(&command).await;
    let _: i64 = keeper.ask(&["HSET", "fc:{r1}:log", "position", &position, "until", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_later_than_the_database_is_compared_on_postgres() {
    in_time(a_later_image_is_compared(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_later_than_the_database_is_compared_on_mariadb() {
    in_time(a_later_image_is_compared(Kind::MariaDb)).await;
}

/// Each step forgets some thousand: that there are more is no failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_without_a_claim_are_forgotten() {
    const STRAYS: usize = 33_000;
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = place.node().await;
    put(&node, limit(9)).await;
    new(claim(&node, "ann").await);
    at_rest(&place).await;
    drop(node);
    let mut keeper = place.keeper().await;
    let users: Vec<String> = (0..STRAYS).flat_map(|at| [format!("stray-{at}"), "1".to_owned()]).collect();
    for users in users.chunks(2_000) {
        let command: Vec<&str> =
            ["HSET", "fc:{c1}:users:1"].into_iter().chain(users.iter().map(String::as_str)).collect();
        let _: i64 = keeper.ask(&command).await;
    }
    let done = in_time(repaired(&place)).await;
    assert_eq!(states(&done, &sequencer()), ["user_not_in_sql"]);
    assert_eq!(needs_repair(&done), 0, "{:?}", repair_of(&done, &sequencer()));
    at_rest(&place).await;
}
