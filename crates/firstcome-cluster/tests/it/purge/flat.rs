//! A deployment that lives for years keeps its size.
//!
//! Members and listings are no part of a cluster: their tables have a purge of their own.

use super::rows::clock;
use super::{DAY_MS, done, purge, retention};
use crate::claim_replies::{coupon, keyed, limit, new};
use crate::room;
use crate::world::{Foreign, Keeper, PATIENCE, World, options, secret, wait_for};
use firstcome_cluster::Cluster;
use firstcome_store::core::id::CouponName;
use firstcome_store::core::room::{RenewalKey, RoomSettings, TicketState};
use firstcome_store::edge::ManualClock;
use firstcome_store::{CouponStore, ReceiptStore, RedeemRequest, RoomStore};
use firstcome_test_servers::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Sales that are played, forty days each.
const ROUNDS: u32 = 10;
/// The first sales load scripts and fill buffers. In them each table that a purge empties has rows once.
const WARM: u32 = 3;
/// Coupons of each sale.
const COUPONS: u32 = 8;
/// Claims of each coupon, and visitors of each sale.
const USERS: u32 = 25;

/// Tables whose rows go: those that retention covers, and those of places that end. Of heads only those count behind which a newer one
/// stands: the newest one of each room and coupon stays.
const GO: [&str; 9] =
    ["claim", "coupon_request", "dead_letter", "gone", "head", "redemption", "renewal", "slot", "ticket"];
/// Tables that keep a row for each coupon, or for each chain of heads.
const GROW: [&str; 2] = ["coupon", "head_removed"];
/// Tables with rows for each room, or for the whole deployment. Not every database has each of them.
const STAY: [&str; 9] =
    ["api_key", "appearance", "deployment", "flush", "pass_secret", "purge", "room", "schema", "secret"];

/// What one look has measured.
#[derive(Debug)]
struct Size {
    keys: i64,
    dataset_bytes: i64,
    rows: BTreeMap<&'static str, i64>,
}

/// A node that lives for years, and what looks at it from outside.
struct Life {
    node: Cluster,
    clock: Arc<ManualClock>,
    keeper: Keeper,
    foreign: Foreign,
    /// The most rows that a look in the middle of a sale has found.
    held: BTreeMap<&'static str, i64>,
}

impl Life {
    async fn count(&mut self, table: &str) -> i64 {
        let newer =
            "SELECT 1 FROM firstcome_head n WHERE n.kind=h.kind AND n.object=h.object AND h.sequence<n.sequence";
        let rest = if table == "head" { format!(" h WHERE EXISTS ({newer})") } else { String::new() };
        self.foreign.number(&format!("SELECT COUNT(*) FROM firstcome_{table}{rest}")).await
    }

    async fn size(&mut self) -> Size {
        let mut rows = BTreeMap::new();
        for table in GO {
            rows.insert(table, self.count(table).await);
        }
        Size { keys: self.keeper.ask(&["DBSIZE"]).await, dataset_bytes: self.dataset_bytes().await, rows }
    }

    async fn dataset_bytes(&mut self) -> i64 {
        let memory: String = self.keeper.ask(&["INFO", "memory"]).await;
        let dataset = memory.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).expect("a figure");
        dataset.trim().parse().expect("a number")
    }

    /// Looks what there is in the middle of a sale.
    async fn look(&mut self) {
        for table in GO.into_iter().chain(GROW) {
            let count = self.count(table).await;
            let held = self.held.entry(table).or_default();
            *held = count.max(*held);
        }
    }

    /// A coupon is claimed, some of its codes are redeemed, heads are published, and it is deleted.
    async fn sells(&mut self, round: u32, number: u32) {
        let name = coupon(&format!("sale-{round}-{number}"));
        // A few are left for the claim behind the entry that no node can read.
        self.node.put_coupon(&name, limit(USERS + 3)).await.expect("it answers").expect("it may be");
        for user in 0..USERS {
            let claim = keyed(&format!("user-{round}-{user}"), u128::from(user), 1);
            let request = claim.request;
            let claimed = new(self.node.claim(&name, claim).await);
            if user.is_multiple_of(10) {
                let redeem = RedeemRequest { code: claimed.code.as_str().to_owned(), user: None, request };
                self.node.redeem(&name, redeem).await.expect("it answers").expect("it is one");
                self.node.publish_heads().await.expect("heads are published");
            }
        }
        if number == 0 {
            self.buries(&name, round).await;
        }
        self.look().await;
        self.node.delete_coupon(&name).await.expect("it answers").expect("it may be");
    }

    /// An entry of the outbox that no node can read becomes a dead letter, and the claim behind it finds a place.
    async fn buries(&mut self, name: &CouponName, round: u32) {
        let (keeper, position, ticket) = (&mut self.keeper, USERS.to_string(), (USERS + 1).to_string());
        wait_for("a sequencer that knows", async || {
            (keeper.sequencer("position").await == Some(position.clone())).then_some(())
        })
        .await;
        let outbox = keeper.key("outbox").await.expect("an outbox");
        let _: String = keeper.ask(&["XADD", &outbox, &format!("{ticket}-1"), "what", "ever"]).await;
        keeper.set_gate(&["ticket", &ticket]).await;
        let late = keyed(&format!("late-{round}"), u128::from(USERS), 1);
        assert_eq!(new(self.node.claim(name, late).await).issued.serial.get(), USERS + 1);
    }

    /// Visitors come into the room. One is admitted, some renew their tickets, heads are published, and all leave.
    async fn visits(&mut self, round: u32) {
        let (node, clock) = (self.node.clone(), Arc::clone(&self.clock));
        room::put(&node, RoomSettings::with_slots(5)).await;
        let mut tickets = Vec::new();
        for user in 0..USERS {
            tickets.push(room::join(&node, room::of(&format!("user-{round}-{user}"))).await.1.ticket);
        }
        room::until("a visitor to be inside", async || {
            clock.pass_ms(100);
            matches!(room::poll(&node, &tickets[0]).await.state, TicketState::Admitted { .. }).then_some(())
        })
        .await;
        for ticket in tickets.iter_mut().rev().take(3) {
            let renewed = node.renew(&room::room(), ticket, RenewalKey::new(round.into())).await;
            *ticket = renewed.expect("it answers").expect("it is renewed").ticket;
        }
        for _ in 0..2 {
            node.publish_heads().await.expect("heads are published");
            clock.pass_ms(1_000);
        }
        self.look().await;
        for ticket in tickets {
            node.leave(&room::room(), &ticket).await.expect("it answers").expect("it is one");
        }
        self.look().await;
    }

    /// A sale: coupons are made, claimed and deleted; visitors come into a room, and leave.
    async fn sale(&mut self, round: u32) {
        for number in 0..COUPONS {
            self.sells(round, number).await;
        }
        self.visits(round).await;
        let keeper = &mut self.keeper;
        wait_for("no key of a coupon", async || {
            let keys: Vec<String> = keeper.ask(&["KEYS", "fc:{c*"]).await;
            keys.is_empty().then_some(())
        })
        .await;
    }

    /// What stays empty is flat, and shows nothing.
    fn all_were_held(&self) {
        for (table, held) in &self.held {
            assert!(0 < *held, "{table}: no row in the first sales");
        }
    }

    /// A table that no list names is one of which this test shows nothing. Tables that grow have a row for each coupon and room.
    async fn grows_as_documented(&mut self) {
        let schema = match self.foreign {
            Foreign::Postgres(_) => "current_schema()",
            Foreign::MySql(_) => "DATABASE()",
        };
        let known = [&GO[..], &GROW, &STAY].concat().join("','firstcome_");
        let unknown = format!(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema={schema} AND table_name LIKE 'firstcome%' \
             AND table_name NOT IN ('firstcome_{known}')"
        );
        assert_eq!(self.foreign.number(&unknown).await, 0, "name each table in GO, GROW or STAY");
        let (coupons, rooms) = (self.count("coupon").await, self.count("room").await);
        assert_eq!((coupons, rooms), (i64::from(ROUNDS * COUPONS), 1));
        assert!(self.count("head_removed").await <= coupons + rooms, "one for each chain");
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
    let (keeper, foreign) = (place.keeper().await, place.foreign().await);
    let mut life = Life { node: node.clone(), clock, keeper, foreign, held: BTreeMap::new() };
    let mut kept = retention(7);
    kept.claims = Some(Duration::from_secs(30 * 86_400));
    kept.heads = Some(Duration::from_secs(7 * 86_400));
    let mut sizes = Vec::new();
    for round in 0..ROUNDS {
        life.sale(round).await;
        // Twice: the first one marks the tickets that are gone.
        for _ in 0..2 {
            done(purge(&node, &kept).await);
            life.clock.pass_ms(20 * DAY_MS);
        }
        done(purge(&node, &kept).await);
        sizes.push(life.size().await);
        if round + 1 == WARM {
            life.all_were_held();
        }
    }
    let (first, last) = (&sizes[WARM as usize - 1], &sizes[ROUNDS as usize - 1]);
    assert!(last.keys <= first.keys, "{sizes:?}");
    assert!(GO.into_iter().all(|table| last.rows[table] <= first.rows[table]), "{sizes:?}");
    life.grows_as_documented().await;
    // Redis counts what a connection needs for the moment, too.
    wait_for("Redis to be as small as before", async || {
        (life.dataset_bytes().await <= first.dataset_bytes + 16_384).then_some(())
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
