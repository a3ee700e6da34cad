//! Published heads that are old go, and what is left is a chain that verifies.

use super::rows::{breaches, is_sound, verified};
use crate::in_time;
use crate::world::World;
use firstcome_store::conformance::head_purges;
use firstcome_test_servers::Kind;

const READABLE_FROM: &str = "SELECT version FROM firstcome_schema WHERE part='coupons:readable_from'";

async fn heads_leave_a_cluster(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let place = world.place().await;
    let mut foreign = {
        drop(place.node().await);
        place.foreign().await
    };
    assert_eq!(foreign.number(READABLE_FROM).await, 8, "programs from before may use the tables");
    in_time(head_purges(async |clock| place.node_by(clock).await, async || is_sound(&place).await)).await;
    assert_eq!(foreign.number(READABLE_FROM).await, 10, "and may not once heads are gone");
    // Each change of what is left is found.
    let first = "SELECT MIN(sequence) FROM firstcome_head WHERE kind=1";
    let first = foreign.number(first).await;
    let mark = "UPDATE firstcome_head_removed SET sequence=sequence";
    for (change, undo) in [
        (format!("{mark}-1 WHERE kind=1"), format!("{mark}+1 WHERE kind=1")),
        (format!("{mark}+1 WHERE kind=2"), format!("{mark}-1 WHERE kind=2")),
        (format!("DELETE FROM firstcome_head WHERE kind=1 AND sequence={first}"), String::new()),
    ] {
        foreign.say(&change).await;
        let found = verified(&place).await;
        let chain = found.checks.iter().find(|check| check.invariant == "heads of a room or coupon are one chain");
        assert_eq!(chain.map(|check| check.breaches), Some(1), "{change}: {found:?}");
        if !undo.is_empty() {
            foreign.say(&undo).await;
            assert_eq!(breaches(&verified(&place).await), 0, "{undo}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_leave_a_cluster_and_the_rest_verifies() {
    heads_leave_a_cluster(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_leave_a_cluster_on_mariadb_and_the_rest_verifies() {
    heads_leave_a_cluster(Kind::MariaDb).await;
}
