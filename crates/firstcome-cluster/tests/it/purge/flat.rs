//! A deployment that lives for years keeps its size.

use super::rows::clock;
use super::{DAY_MS, done, purge, retention};
use crate::claim_replies::{coupon, keyed, limit};
use crate::room;
use crate::world::{Foreign, Keeper, PATIENCE, World, options, secret, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::room::RoomSettings;
use firstcome_store::{CouponStore, RoomStore};
use firstcome_test_servers::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Sales that are played, forty days each.
const ROUNDS: u32 = 10;
/// Coupons of each sale.
const COUPONS: u32 = 8;
/// Claims of each coupon, and visitors of each sale.
const USERS: u32 = 25;

/// What one look has measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    keys: i64,
    dataset_bytes: i64,
    rows: i64,
}

async fn size(keeper: &mut Keeper, foreign: &mut Foreign) -> Size {
    let memory: String = keeper.ask(&["INFO", "memory"]).await;
    let dataset = memory.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).expect("a figure");
    let mut rows = 0;
    for table in ["claim", "redemption", "coupon_request", "dead_letter", "ticket", "slot", "gone", "renewal"] {
        rows += foreign.number(&format!("SELECT COUNT(*) FROM firstcome_{table}")).await;
    }
    Size { keys: keeper.ask(&["DBSIZE"]).await, dataset_bytes: dataset.trim().parse().expect("a number"), rows }
}

/// A sale: coupons are made, claimed and deleted; visitors come into a room, and leave.
async fn sale(node: &Cluster, round: u32) {
    for number in 0..COUPONS {
        let name = coupon(&format!("sale-{round}-{number}"));
        node.put_coupon(&name, limit(USERS)).await.expect("it answers").expect("it may be");
        for user in 0..USERS {
            let claim = keyed(&format!("user-{round}-{user}"), u128::from(user), 1);
            node.claim(&name, claim).await.expect("it answers").expect("it is one");
        }
        node.delete_coupon(&name).await.expect("it answers").expect("it may be");
    }
    room::put(node, RoomSettings::with_slots(5)).await;
    let mut tickets = Vec::new();
    for user in 0..USERS {
        tickets.push(room::join(node, room::of(&format!("user-{round}-{user}"))).await.1.ticket);
    }
    for ticket in tickets {
        node.leave(&room::room(), &ticket).await.expect("it answers").expect("it is one");
    }
}

async fn is_flat(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let (place, clock) = (world.place().await, clock());
    // A log keeps its entries until an image of so many bytes is worth it.
    let mut options = options();
    (options.image_bytes_min, options.patience) = (4_096, PATIENCE);
    let node = Cluster::open_by(&place.redis, &place.sql, secret(), options, Arc::clone(&clock) as _).await;
    let node = node.expect("a node opens");
    let (mut keeper, mut foreign) = (place.keeper().await, place.foreign().await);
    let mut kept = retention(7);
    kept.claims = Some(Duration::from_secs(30 * 86_400));
    let mut sizes = Vec::new();
    for round in 0..ROUNDS {
        sale(&node, round).await;
        // Twice: the first one marks the tickets that are gone.
        for _ in 0..2 {
            done(purge(&node, &kept).await);
            clock.pass_ms(20 * DAY_MS);
        }
        done(purge(&node, &kept).await);
        sizes.push(size(&mut keeper, &mut foreign).await);
    }
    // The first rounds load scripts and fill buffers.
    let (first, last) = (sizes[2], sizes[ROUNDS as usize - 1]);
    assert!(last.keys <= first.keys, "{sizes:?}");
    assert!(last.rows <= first.rows, "{sizes:?}");
    // Redis counts what a connection needs for the moment, too.
    wait_for("Redis to be as small as before", async || {
        let now = size(&mut keeper, &mut foreign).await;
        (now.dataset_bytes <= first.dataset_bytes + 16_384).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_of_sales_leaves_redis_and_postgres_flat() {
    is_flat(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_of_sales_leaves_redis_and_mariadb_flat() {
    is_flat(Kind::MariaDb).await;
}
