//! What goes out of a deployment where a server has forgotten something or gives no answer, and what comes into one beside nodes.

use crate::claim_replies::{self, COUPON, coupon, limit};
use crate::in_time;
use crate::room::{join, of, poll, put, room};
use crate::world::{TestDeployment, World, options, secret};
use firstcome_cluster::{Cluster, ClusterError, TransferError, migrate};
use firstcome_sql::{SqlAuctions, SqlError};
use firstcome_store::archive::{
    ArchivedLine, ArchivedRoom, ArchivedTicket, ImportError, Incoming, IncomingClaim, TicketState,
};
use firstcome_store::core::id::{MemberName, RequestId, UserId};
use firstcome_store::core::points::{Amount, Wallet};
use firstcome_store::core::room::{self, Join, RoomSettings};
use firstcome_store::core::time::Timestamp;
use firstcome_store::embedded::journal::PassSecret;
use firstcome_store::{AuctionStore, EraseStore, MovePoints, TicketAnswer, Transfer};
use firstcome_test_servers::Kind;
use std::sync::Arc;
use std::time::Duration;

const ANYBODY: Join = Join { user: None, request: None };

/// The room of a deployment, its tickets, and the secrets of passes.
struct Out {
    secrets: Vec<PassSecret>,
    room: ArchivedRoom,
    tickets: Vec<ArchivedTicket>,
}

impl Out {
    async fn of(node: &Cluster) -> Result<Self, TransferError> {
        let mut archive = node.archive().await?;
        let secrets = archive.pass_secrets().await?;
        let (mut rooms, mut tickets) = (Vec::new(), Vec::new());
        archive
            .for_each_ticket::<TransferError>(|line| {
                match line {
                    ArchivedLine::Room(room) => rooms.push(*room),
                    ArchivedLine::Ticket(ticket) => tickets.push(*ticket),
                }
                Ok(())
            })
            .await?;
        Ok(Self { secrets, room: rooms.pop().expect("a room"), tickets })
    }

    async fn enter(&self, node: &Cluster) -> Result<(), TransferError> {
        let mut import = node.import().await?;
        for secret in &self.secrets {
            import.take(Incoming::PassSecret(*secret)).await?;
        }
        import.take(Incoming::Room(Box::new(self.room.clone()))).await?;
        for ticket in &self.tickets {
            import.take(Incoming::Ticket(Box::new(ticket.clone()))).await?;
        }
        import.finish().await
    }

    /// How many go out as perhaps drawn.
    fn lost(&self) -> u32 {
        let lost = |ticket: &ArchivedTicket| match ticket.state {
            TicketState::Lost(last) => last.get() - ticket.number.get() + 1,
            _ => 0,
        };
        self.tickets.iter().map(lost).sum()
    }
}

async fn ready(place: &TestDeployment) -> Cluster {
    migrate(&place.sql, options().database).await.expect("the tables are made");
    place.node().await
}

/// Ann, five people without a name, and a snapshot that has them; then three more, whom no other caller knows.
async fn told(place: &TestDeployment) -> (TicketAnswer, Vec<TicketAnswer>) {
    let node = ready(place).await;
    put(&node, RoomSettings { paused: true, ..RoomSettings::with_slots(1) }).await;
    let ann = join(&node, of("ann")).await.1;
    for _ in 0..5 {
        join(&node, ANYBODY).await;
    }
    let whole = Out::of(&node).await.expect("it goes out");
    assert_eq!((whole.room.drawn, whole.tickets.len(), whole.lost()), (6, 6, 0));
    let _: String = place.keeper().await.ask(&["SAVE"]).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(join(&node, ANYBODY).await.1);
    }
    (ann, told)
}

/// All nodes have ended when Redis starts from a snapshot that lacks what they have told.
async fn a_snapshot_without_the_end(kind: Kind) {
    let Some(mut world) = World::start(kind).await else { return };
    let place = world.place().await;
    let (ann, told) = told(&place).await;
    world.restart_redis().await;
    let out = Out::of(&place.node().await).await.expect("it goes out");
    assert_eq!(out.room.drawn, 65_536, "whatever may have been drawn was");
    assert_eq!(out.lost(), 65_536 - 6, "all after those whom the snapshot knows");
    assert_eq!(out.tickets.len(), 7);
    let other = ready(&world.place().await).await;
    out.enter(&other).await.expect("it comes in");
    for ticket in told.iter().chain([&ann]) {
        let there = poll(&other, &ticket.ticket).await;
        assert!(matches!(there.state, room::TicketState::Waiting { .. }), "{:?}", ticket.number);
    }
    let next = join(&other, ANYBODY).await.1;
    assert!(told.iter().all(|told| told.number < next.number), "{:?} is somebody else's", next.number);
    assert_eq!(join(&other, of("ann")).await.1.number, ann.number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_snapshot_lacks_goes_out_of_postgres_as_lost() {
    in_time(a_snapshot_without_the_end(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_snapshot_lacks_goes_out_of_mariadb_as_lost() {
    in_time(a_snapshot_without_the_end(Kind::MariaDb)).await;
}

/// Who is in line without a name the log says: one that breaks off says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_not_whole_says_nothing_of_who_was_told() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let harms: [(&str, &[&str]); 4] = [
        ("no entries", &["DEL", "fc:{r1}:entries:1"]),
        ("no image", &["DEL", "fc:{r1}:image:1"]),
        ("no image that can be read", &["HSET", "fc:{r1}:image:1", "1", "x"]),
        ("an entry of nobody", &["XADD", "fc:{r1}:entries:1", "999999-1", "what", "ever"]),
    ];
    for (what, harm) in harms {
        let place = world.place().await;
        told(&place).await;
        let _: redis::Value = place.keeper().await.ask(harm).await;
        let out = in_time(Out::of(&place.node().await)).await.expect("it goes out");
        assert_eq!((out.room.drawn, out.lost()), (65_536, 65_535), "{what}: all but ann");
    }
}

/// A server that gives no answer may know it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_out_while_redis_gives_no_answer() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    told(&place).await;
    let node = place.node().await;
    let frozen = world.freeze_redis();
    let failed = in_time(Out::of(&node)).await.map(|out| out.room.drawn);
    assert!(matches!(failed, Err(TransferError::Cluster(ClusterError::Link(_)))), "{failed:?}");
    drop(frozen);
    assert_eq!(in_time(Out::of(&node)).await.expect("it goes out").room.drawn, 9);
}

/// A server that has died is noticed long before the longest export is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_gives_no_answer_ends_what_was_begun() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let mut options = options();
    options.database.connections.answer_timeout = Duration::from_millis(100);
    let node = Cluster::open(&place.redis, &place.sql, secret(), options).await.expect("a node opens");
    let (mut archive, mut import) = (node.archive().await.expect("it begins"), node.import().await.expect("it begins"));
    let frozen = world.freeze_sql();
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        (archive.coupons().await.map(drop), import.new_coupon(coupon(COUPON), limit(9)).await)
    });
    let ended = ended.await.expect("they do not wait for ever");
    drop(frozen);
    let (Err(TransferError::Sql(out)), Err(TransferError::Sql(entering))) = ended else { panic!("{ended:?}") };
    for error in [out, entering] {
        assert!(matches!(error, SqlError::Unavailable { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_passes_do_not_come_in_where_rooms_have_others() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = ready(&place).await;
    put(&node, RoomSettings::with_slots(1)).await;
    let there = Out::of(&node).await.expect("it goes out").secrets;
    let last = *there.last().expect("a room has one");
    let take = async |secret| {
        let mut import = node.import().await.expect("it begins");
        import.take(Incoming::PassSecret(secret)).await
    };
    take(last).await.expect("it is the same");
    let fresh = PassSecret { id: last.id + 1, bytes: [7; 32], created_at: Timestamp::from_us(1).expect("an instant") };
    let refused = take(fresh).await;
    assert!(matches!(refused, Err(TransferError::Refused(ImportError::PassSecretsDiffer))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_come_into_a_coupon_that_nodes_serve() {
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let node = ready(&world.place().await).await;
    claim_replies::put(&node, limit(9)).await;
    let claim = |name: &str| {
        Incoming::Claim(Box::new(IncomingClaim {
            coupon: coupon(name),
            serial: None,
            issued_at: Timestamp::from_us(1).expect("an instant"),
            user: UserId::parse("ann").expect("a name"),
            attributes: None,
            request: None,
            redeemed: None,
            code: None,
        }))
    };
    let mut import = node.import().await.expect("it begins");
    let refused = import.take(claim(COUPON)).await;
    assert!(
        matches!(&refused, Err(TransferError::Refused(ImportError::CouponThere(name))) if name.as_str() == COUPON),
        "{refused:?}"
    );
    let refused = node.import().await.expect("it begins").take(claim("none")).await;
    assert!(matches!(refused, Err(TransferError::Refused(ImportError::UnknownCoupon(_)))), "{refused:?}");
}

/// Of two that make the same at once one is told that it is there.
async fn two_make_the_same(kind: Kind) {
    let Some(world) = World::start(kind).await else { return };
    let from = ready(&world.place().await).await;
    put(&from, RoomSettings::with_slots(1)).await;
    let out = Out::of(&from).await.expect("it goes out");
    let place = world.place().await;
    let nodes = [ready(&place).await, place.node().await];
    for is_room in [false, true] {
        let (mut first, mut second) =
            (nodes[0].import().await.expect("it begins"), nodes[1].import().await.expect("it begins"));
        if is_room {
            for secret in &out.secrets {
                first.take(Incoming::PassSecret(*secret)).await.expect("it is taken");
            }
            first.take(Incoming::Room(Box::new(out.room.clone()))).await.expect("it is taken");
        } else {
            first.new_coupon(coupon(COUPON), limit(9)).await.expect("it is taken");
        }
        let waiting = tokio::spawn({
            let room = out.room.clone();
            async move {
                if is_room {
                    second.take(Incoming::Room(Box::new(room))).await
                } else {
                    second.new_coupon(coupon(COUPON), limit(9)).await
                }
            }
        });
        let mut foreign = place.foreign().await;
        crate::world::wait_for("one that waits", async || (0 < foreign.waiting().await).then_some(())).await;
        first.finish().await.expect("it comes in");
        let refused = waiting.await.expect("it answers");
        let is_named = match &refused {
            Err(TransferError::Refused(ImportError::RoomThere(name))) => is_room && *name == room(),
            Err(TransferError::Refused(ImportError::CouponThere(name))) => !is_room && name.as_str() == COUPON,
            _ => false,
        };
        assert!(is_named, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_during_an_import_is_named_on_postgres() {
    in_time(two_make_the_same(Kind::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_during_an_import_is_named_on_mariadb() {
    in_time(two_make_the_same(Kind::MariaDb)).await;
}

/// The process of an erasure has ended after its first page: a trigger stands for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_was_cut_short_goes_out_as_if_it_were_done() {
    const CUT: &str = "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cut'; END $$;\
                       CREATE TRIGGER cut BEFORE DELETE ON firstcome_renaming FOR EACH ROW EXECUTE FUNCTION cut()";
    const RECORDS: u64 = 1_200;
    let Some(world) = World::start(Kind::Postgres).await else { return };
    let place = world.place().await;
    let node = ready(&place).await;
    let auctions = Arc::new(SqlAuctions::open_with(&place.sql, options().database).await.expect("it opens"));
    let charges = (0..RECORDS).map(|key| {
        let auctions = Arc::clone(&auctions);
        let request = Some(RequestId { key: key.into(), body: 5 });
        let amount = Amount::new(1).expect("an amount");
        let movement = MovePoints { transfer: Transfer::Charge, amount, request };
        tokio::spawn(async move { auctions.move_points(&MemberName::parse("ann").expect("a name"), movement).await })
    });
    for charge in charges.collect::<Vec<_>>() {
        charge.await.expect("no panic").expect("it answers").expect("no rule refuses it");
    }
    let mut foreign = place.foreign().await;
    foreign.say(CUT).await;
    let ann = UserId::parse("ann").expect("a user");
    auctions.erase(&ann).await.expect_err("the second page cannot be stored");
    assert_eq!(foreign.number("SELECT done FROM firstcome_renaming").await, 500);

    let mut archive = node.archive().await.expect("it goes out");
    archive.listings().await.expect("it goes out");
    let mut wallet: Option<Wallet> = None;
    archive
        .for_each_record::<TransferError>(|archived| {
            assert_eq!(archived.request, None, "no key of an erased person");
            let wallet = wallet.get_or_insert_with(|| Wallet::empty(archived.record.member.clone()));
            assert_eq!(wallet.restore(&archived.record), Ok(()), "{:?}", archived.record);
            Ok(())
        })
        .await
        .expect("it goes out");
    let wallet = wallet.expect("there are records");
    assert!(wallet.member.as_str().starts_with("_erased:"), "{:?}", wallet.member);
    assert_eq!((wallet.records, wallet.balance.total()), (RECORDS, RECORDS));
}
