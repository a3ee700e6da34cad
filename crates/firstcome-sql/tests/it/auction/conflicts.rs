//! Others who are in the way: they delay, and no caller is refused because of them.

use super::proxy::{Commits, Proxy};
use super::{Base, Foreign, balance, bid, charge, endless, key, listing, member, options};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::{DatabaseOptions, SqlAuctions};
use firstcome_store::core::auction::{ListingSettings, PlacedBid, Rejection};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::Stopwatch;
use firstcome_store::{AuctionAnswer, AuctionStore, PlaceBid, StoreError};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How many sessions wait for a row.
pub(super) async fn waiting(base: &Base) -> i64 {
    let text = if base.is_postgres() {
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type='Lock'"
    } else {
        // Not from the table of transactions, which stands still while it is asked again and again.
        "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
         WHERE variable_name='Innodb_row_lock_current_waits'"
    };
    base.number(text).await
}

pub(super) async fn wait_for_waiting(base: &Base, count: i64) {
    wait_for("sessions that wait", async || (count <= waiting(base).await).then_some(())).await;
}

/// A transaction of another caller that has locked the row of a listing.
pub(super) async fn holds_listing(base: &Base, name: &str) -> Foreign {
    let mut foreign = base.connect().await;
    foreign.say(&format!("BEGIN; SELECT id FROM firstcome_listing WHERE name='{name}' FOR UPDATE")).await.unwrap();
    foreign
}

pub(super) fn new(answer: AuctionAnswer<Effect<PlacedBid>>) -> PlacedBid {
    match answer {
        Ok(Ok(Effect::New(placed))) => placed,
        other => panic!("{other:?}"),
    }
}

/// Two who can pay, and an auction in which the first of them has bid 10.
pub(super) async fn set_up(auctions: &SqlAuctions) {
    charge(auctions, "ann", 100).await;
    charge(auctions, "bob", 100).await;
    auctions.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
    assert_eq!(new(auctions.place_bid(&listing("lamp"), bid("ann", 10)).await).fence, 2);
}

/// Something that happens once, in the middle of the transaction that writes a bid.
async fn meddle(base: &Base, update: &str) {
    if base.is_postgres() {
        base.say(&format!(
            "CREATE SEQUENCE once; \
             CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN IF nextval('once') = 1 THEN {update}; END IF; RETURN NEW; END $$; \
             CREATE TRIGGER meddle BEFORE INSERT ON firstcome_bid FOR EACH ROW EXECUTE FUNCTION meddle();"
        ))
        .await;
    } else {
        base.say("CREATE SEQUENCE once NOCACHE").await;
        base.say(&format!(
            "CREATE TRIGGER meddle BEFORE INSERT ON firstcome_bid FOR EACH ROW \
             IF NEXTVAL(once) = 1 THEN {update}; END IF"
        ))
        .await;
    }
}

#[tokio::test]
async fn a_row_that_changes_behind_its_lock_is_not_written_and_the_batch_is_repeated() {
    for update in [
        "UPDATE firstcome_listing SET version=version+1",
        "UPDATE firstcome_member SET records=records+1 WHERE name='bob'",
    ] {
        for base in Base::both().await {
            let auctions = base.open().await;
            set_up(&auctions).await;
            meddle(&base, update).await;
            let placed = new(in_time(auctions.place_bid(&listing("lamp"), bid("bob", 20))).await);
            assert_eq!((placed.bid.number, placed.fence), (2, 3), "{update}");
            assert_eq!(auctions.repeated(), 1, "{update}");
            assert_eq!([balance(&auctions, "ann").await, balance(&auctions, "bob").await], [(100, 100), (80, 100)]);
        }
    }
}

#[tokio::test]
async fn a_deadlock_with_others_repeats_the_batch() {
    for base in Base::both().await {
        let auctions = Arc::new(base.open().await);
        set_up(&auctions).await;
        base.say("CREATE TABLE ballast (id bigint)").await;
        let mut foreign = base.connect().await;
        if base.is_postgres() {
            // A caller that waits for longer than this ends the deadlock by giving up: not the foreigner.
            foreign.say("SET deadlock_timeout='60s'").await.unwrap();
        }
        // MariaDB lets the one go who has written less.
        let rows = vec!["(1)"; 100].join(",");
        let lock = "SELECT id FROM firstcome_member WHERE name='bob' FOR UPDATE";
        foreign.say(&format!("BEGIN; INSERT INTO ballast VALUES {rows}; {lock}")).await.unwrap();
        let bidding = tokio::spawn({
            let auctions = Arc::clone(&auctions);
            async move { auctions.place_bid(&listing("lamp"), bid("bob", 20)).await }
        });
        wait_for_waiting(&base, 1).await;
        in_time(foreign.say("SELECT id FROM firstcome_listing FOR UPDATE")).await.expect("auctions gives way");
        foreign.say("COMMIT").await.unwrap();
        assert_eq!(new(in_time(bidding).await.unwrap()).fence, 3);
        assert!(0 < auctions.repeated());
    }
}

/// Ann with points, and an auction that ends soon; and when. A busy machine has more time for what must come before the end.
pub(super) async fn put_soon_over(auctions: &SqlAuctions) -> Timestamp {
    let watch = Stopwatch::start();
    charge(auctions, "ann", 100).await;
    auctions.put_listing(&listing("clock"), endless()).await.unwrap().unwrap();
    let now = auctions.listing(&listing("clock")).await.unwrap().unwrap().now;
    let ends_at = now.plus_ms(1_500 + 10 * watch.elapsed().as_millis() as u64);
    let settings = ListingSettings::auction(member("own"), super::amount(1), ends_at);
    let settings = ListingSettings { starts_at: Some(now), ..settings };
    auctions.put_listing(&listing("lamp"), settings).await.unwrap().unwrap();
    ends_at
}

/// What a command about the lamp is told while another caller holds its row until after its end.
pub(super) async fn held_up_over_the_end<T: Send + 'static>(
    base: &Base,
    auctions: &SqlAuctions,
    ends_at: Timestamp,
    command: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut foreign = holds_listing(base, "lamp").await;
    let command = tokio::spawn(command);
    wait_for_waiting(base, 1).await;
    let over = async || {
        let now = auctions.listing(&listing("clock")).await.unwrap().unwrap().now;
        assert!(!command.is_finished());
        (ends_at < now).then_some(())
    };
    wait_for("the end of the auction", over).await;
    foreign.say("COMMIT").await.unwrap();
    in_time(command).await.unwrap()
}

/// A bid that was sent before the end.
pub(super) async fn bid_that_gets_the_lock_too_late(base: &Base) -> AuctionAnswer<Effect<PlacedBid>> {
    let auctions = Arc::new(base.open().await);
    let ends_at = put_soon_over(&auctions).await;
    let bidding = Arc::clone(&auctions);
    let command = async move { bidding.place_bid(&listing("lamp"), bid("ann", 10)).await };
    held_up_over_the_end(base, &auctions, ends_at, command).await
}

#[tokio::test]
async fn the_clock_is_read_after_the_wait_for_the_lock() {
    for base in Base::both().await {
        let answer = in_time(bid_that_gets_the_lock_too_late(&base)).await;
        assert!(matches!(answer, Ok(Err(Rejection::NotInProgress))), "{answer:?}");
    }
}

/// Auctions over a line, and the line. In plain text: the line reads what passes, and a MariaDB from 11.4 on offers TLS by itself.
pub(super) async fn over_a_line(base: &Base, options: DatabaseOptions) -> (Proxy, SqlAuctions) {
    let (head, database) = base.url.rsplit_once('/').expect("a database");
    let (head, port) = head.rsplit_once(':').expect("a port");
    let proxy = Proxy::to(port.parse().expect("a number")).await;
    let plain = if base.is_postgres() { "sslmode=disable" } else { "ssl-mode=DISABLED" };
    let url = format!("{head}:{}/{database}?{plain}", proxy.port);
    (proxy, SqlAuctions::open_with(&url, options).await.expect("it opens"))
}

#[tokio::test]
async fn a_stopped_process_delays_others_and_its_late_commit_fails_and_is_repeated() {
    for base in Base::both().await {
        let mut options = options();
        options.idle_timeout = Duration::from_secs(1);
        let (mut line, stopped) = over_a_line(&base, options).await;
        let other = base.open().await;
        set_up(&other).await;
        line.set(Commits::Hold);
        let late = tokio::spawn(async move { (stopped.place_bid(&listing("lamp"), bid("bob", 20)).await, stopped) });
        line.met(1).await;
        // The row is locked until the server ends the silent transaction.
        let placed = new(in_time(other.place_bid(&listing("lamp"), bid("cyd", 15)))
            .await
            .map(|answer| {
                assert_eq!(answer, Err(Rejection::InsufficientPoints(0)), "judged by what was committed");
                answer
            })
            .and(in_time(other.place_bid(&listing("lamp"), bid("bob", 12))).await));
        assert_eq!(placed.fence, 3);
        assert!(!late.is_finished());
        line.set(Commits::Pass);
        let (answer, stopped) = in_time(late).await.unwrap();
        // Judged again: bob has the highest bid by now.
        assert_eq!(answer.unwrap(), Err(Rejection::AlreadyHighestBidder));
        assert!(0 < stopped.repeated());
        assert_eq!(balance(&other, "bob").await, (88, 100));
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_looked_up_and_told_as_it_was() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        set_up(&auctions).await;
        for (at, cut) in [Commits::CutAnswer, Commits::CutRequest].into_iter().enumerate() {
            let (bidder, price) = [("bob", 20), ("ann", 30)][at];
            line.set(cut);
            let before = auctions.repeated();
            let first = PlaceBid { request: key(at as u128), ..bid(bidder, price) };
            let lamp = listing("lamp");
            let (answer, ()) = tokio::join!(in_time(auctions.place_bid(&lamp, first.clone())), async {
                line.met(1 + at as u32).await;
                line.set(Commits::Pass);
            });
            let placed = new(answer);
            assert_eq!((placed.bid.number, placed.fence), (2 + at as u32, 3 + at as u64), "{cut:?}");
            let repeated = auctions.repeated() - before;
            assert_eq!(
                repeated,
                u64::from(cut == Commits::CutRequest),
                "{cut:?}: only what was not done is done again"
            );
            let again = auctions.place_bid(&listing("lamp"), first).await.unwrap();
            assert_eq!(again, Ok(Effect::Again(placed)));
        }
    }
}

#[tokio::test]
async fn a_commit_that_cannot_be_looked_up_is_unknown_and_its_key_tells() {
    for base in Base::both().await {
        let mut hasty = options();
        hasty.patience = Duration::from_secs(1);
        hasty.connections.answer_timeout = Duration::from_secs(1);
        let (mut line, auctions) = over_a_line(&base, hasty).await;
        let other = base.open().await;
        set_up(&other).await;
        let first = PlaceBid { request: key(7), ..bid("bob", 20) };
        line.set(Commits::Hold);
        // Its transaction stays open behind the line, and keeps the row from the caller that looks.
        let answer = in_time(auctions.place_bid(&listing("lamp"), first.clone())).await;
        assert!(matches!(answer, Err(StoreError::Unknown)), "{answer:?}");
        line.met(1).await;
        line.set(Commits::Pass);
        let told = in_time(other.place_bid(&listing("lamp"), first)).await.unwrap().unwrap();
        assert_eq!(told.into_inner().bid.number, 2);
        assert_eq!(balance(&other, "bob").await, (80, 100));
    }
}
