//! A large room is closed on a cluster. Once this was one transaction over all its tickets: with three million of them the
//! operator was told `outcome_unknown` three times, the room was closed a minute later, and nothing else was durable meanwhile.
//!
//! Here a room has 200 000 tickets of users, and one of their rows is locked by another client's transaction, so that no transaction
//! over all of them can end. The closing is told all the same, joins to another room and claims are durable, and the rows go page by
//! page. The node is killed in the middle; another one, which starts then, deletes the rest.

use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::World;
use firstcome_test_servers::Kind;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::Runtime;

const TICKETS: i64 = 200_000;
/// The row that is locked.
const LOCKED: i64 = 50_000;

/// A connection to the database that is no node's.
struct Database {
    runtime: Runtime,
    connection: PgConnection,
}

impl Database {
    fn at(url: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let connection = runtime.block_on(PgConnection::connect(url)).expect("it answers");
        Self { runtime, connection }
    }

    fn say(&mut self, text: &str) {
        let said = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut self.connection);
        self.runtime.block_on(said).expect("it is done");
    }

    fn number(&mut self, text: &str) -> i64 {
        let asked = sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(&mut self.connection);
        self.runtime.block_on(asked).expect("a number")
    }

    /// Rows of the closed room that are still there.
    fn left(&mut self) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM firstcome_ticket WHERE room=1 AND number<={TICKETS}"))
    }
}

/// A node with a room of so many, another room, and a coupon.
fn filled(world: &World, database: &mut Database) -> Server {
    let node = Server::spawn(world.node().args(["--dev"]));
    let mut client = node.client();
    for room in ["sale", "other"] {
        assert_eq!(client.put_status(&format!("/v1/rooms/{room}"), &json!({"max_active": 1, "paused": true})), 201);
    }
    client.put_coupon("launch", 5);
    database.say(&format!(
        "UPDATE firstcome_room SET ceiling={TICKETS} WHERE id=1; \
         INSERT INTO firstcome_ticket (room,number,name,joined_at) \
         SELECT 1,n,'user-' || n,0 FROM generate_series(1, {TICKETS}) AS n"
    ));
    // The log of the room is made anew from these rows.
    world.redis(&["DEL", "fc:{r1}:log"]);
    wait_for("a room of all of them", || {
        (client.get("/v1/rooms/sale").json()["waiting"].as_i64() == Some(TICKETS)).then_some(())
    });
    node
}

#[test]
fn a_large_room_is_closed_at_once_and_its_rows_go_while_all_else_is_durable_and_after_a_kill() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let (mut database, mut other) = (Database::at(world.sql.url()), Database::at(world.sql.url()));
    let mut node = filled(&world, &mut database);
    let mut client = node.client();
    other.say(&format!("BEGIN; SELECT 1 FROM firstcome_ticket WHERE room=1 AND number={LOCKED} FOR UPDATE"));

    let closed = client.call("DELETE", "/v1/rooms/sale", None);
    assert_eq!(closed.status, 204, "{}", closed.text());
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type='Lock'";
    wait_for("a page to wait", || (0 < database.number(waiting)).then_some(()));
    assert!(TICKETS - LOCKED <= database.left(), "the middle: not even half is gone");
    let joined = client.call("POST", "/v1/rooms/other/tickets", Some(&json!({"user": "ann"})));
    assert_eq!(joined.status, 201, "{}", joined.text());
    assert_eq!(database.number("SELECT COUNT(*) FROM firstcome_ticket WHERE room=2"), 1);
    let claim = client.claim("launch", "ann", None).expect("an answer");
    assert_eq!(claim.status, 201, "{}", claim.text());
    assert_eq!(database.number("SELECT COUNT(*) FROM firstcome_claim"), 1);

    node.kill();
    database.say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type='Lock'");
    other.say("COMMIT");
    let mut left = database.left();
    assert!(TICKETS - LOCKED <= left, "no node is there to delete the rest");
    let node = Server::spawn(world.node().args(["--dev"]));
    let mut client = node.client();
    // The room may be opened again before all rows are gone, and a user who was in line before begins anew.
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1, "paused": true})), 200);
    let joined = client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({"user": "user-7"})));
    assert_eq!(joined.status, 201, "{}", joined.text());
    assert!(Some(TICKETS) < joined.json()["number"].as_i64(), "{}", joined.text());
    while 0 < left {
        left = wait_for("the rows to become fewer", || Some(database.left()).filter(|now| *now < left));
    }
    assert_eq!(client.get("/v1/rooms/sale").json()["waiting"], 1);
    node.stop();
}
