//! Commits that are not answered, and what else has happened by the time a caller looks.

use super::conflicts::{new, over_a_line, set_up, wait_for_waiting};
use super::proxy::{Commits, Proxy};
use super::{Base, amount, balance, bid, charge, key, listing, member, options};
use crate::in_time;
use crate::server::wait_for;
use firstcome_sql::SqlAuctions;
use firstcome_store::core::auction::{ListingSettings, Rejection};
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::time::Timestamp;
use firstcome_store::{AuctionAnswer, AuctionStore, PlaceBid, Put, StoreError};
use std::time::Duration;

/// An auction of a thing that is not yet to be had, so that it can be put again and again, each time at another price.
fn at_price(price: u64) -> ListingSettings {
    ListingSettings {
        starts_at: Some(Timestamp::from_us(Timestamp::MAX.as_us() - 1).expect("an instant")),
        ..ListingSettings::auction(member("own"), amount(price), Timestamp::MAX)
    }
}

async fn put(auctions: &SqlAuctions, price: u64) -> AuctionAnswer<Put> {
    in_time(auctions.put_listing(&listing("lamp"), at_price(price))).await
}

async fn price(base: &Base) -> i64 {
    base.number("SELECT COALESCE(max(price),0) FROM firstcome_listing WHERE name='lamp'").await
}

/// Puts settings whose commit meets this, does something else before anybody can look, and gives the answer.
async fn put_while(
    line: &mut Proxy,
    auctions: &SqlAuctions,
    settings: u64,
    (cut, meets): (Commits, u32),
    meanwhile: impl AsyncFnOnce(),
) -> AuctionAnswer<Put> {
    line.set_then_stop(cut);
    let (answer, ()) = tokio::join!(put(auctions, settings), async {
        in_time(line.met(meets)).await;
        meanwhile().await;
        line.set(Commits::Pass);
    });
    answer
}

#[tokio::test]
async fn settings_whose_commit_is_not_answered_are_told_as_it_was() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        let cuts = [(Commits::CutRequest, "lamp"), (Commits::CutAnswer, "vase")];
        for (at, (cut, name)) in cuts.into_iter().enumerate() {
            for (put_at, told) in [Put::Created, Put::Replaced].into_iter().enumerate() {
                line.set(cut);
                let repeated = auctions.repeated();
                let name = listing(name);
                let (answer, ()) =
                    tokio::join!(in_time(auctions.put_listing(&name, at_price(5 + put_at as u64))), async {
                        line.met(1 + (2 * at + put_at) as u32).await;
                        line.set(Commits::Pass);
                    });
                assert_eq!(answer.unwrap().unwrap(), told, "{cut:?}");
                let lost = u64::from(cut == Commits::CutRequest);
                assert_eq!(
                    auctions.repeated() - repeated,
                    lost,
                    "{cut:?} {told:?}: only what was not done is done again"
                );
            }
            let version = base.number(&format!("SELECT version FROM firstcome_listing WHERE name='{name}'")).await;
            assert_eq!(version, 2, "{cut:?}");
        }
    }
}

#[tokio::test]
async fn settings_that_others_have_replaced_meanwhile_are_not_put_again() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        let other = base.open().await;
        let others = async |mine: i64, theirs: u64| {
            wait_for("the commit", async || (price(&base).await == mine).then_some(())).await;
            assert_eq!(put(&other, theirs).await.unwrap(), Ok(Put::Replaced));
        };
        // First as a listing that is made, then as one that is there.
        for (meets, mine, theirs) in [(1, 1, 2), (2, 3, 4)] {
            let cut = (Commits::CutAnswer, meets);
            let answer = put_while(&mut line, &auctions, mine, cut, async || others(mine as i64, theirs).await).await;
            assert!(matches!(answer, Err(StoreError::Unknown)), "{answer:?}");
            assert_eq!(price(&base).await, theirs as i64, "the later settings stand");
        }
    }
}

#[tokio::test]
async fn settings_that_were_lost_are_put_after_those_of_others() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        let other = base.open().await;
        for (meets, mine, theirs, first) in [(1, 1, 2, Put::Created), (2, 3, 4, Put::Replaced)] {
            let cut = (Commits::CutRequest, meets);
            let others = async || {
                let answer = in_time(other.put_listing(&listing("lamp"), at_price(theirs))).await;
                assert_eq!(answer.unwrap(), Ok(first));
            };
            let repeated = auctions.repeated();
            // The same version by another writer: it was not ours.
            let answer = put_while(&mut line, &auctions, mine, cut, others).await;
            assert_eq!(answer.unwrap(), Ok(Put::Replaced));
            assert_eq!((price(&base).await, auctions.repeated() - repeated), (mine as i64, 1));
        }
    }
}

#[tokio::test]
async fn a_listing_that_is_being_made_is_waited_for() {
    for base in Base::both().await {
        let mut hasty = options();
        hasty.patience = Duration::from_secs(1);
        hasty.connections.answer_timeout = Duration::from_secs(1);
        let (mut line, auctions) = over_a_line(&base, hasty).await;
        line.set(Commits::Hold);
        // Its transaction stays open behind the line, and keeps the name from the caller that looks.
        let answer = put(&auctions, 1).await;
        assert!(matches!(answer, Err(StoreError::Unknown)), "{answer:?}");
        in_time(line.met(1)).await;
        line.set(Commits::Pass);
    }
}

#[tokio::test]
async fn a_bid_is_told_as_it_was_though_others_have_gone_on() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        let other = base.open().await;
        set_up(&other).await;
        line.set_then_stop(Commits::CutAnswer);
        let lamp = listing("lamp");
        let (answer, ()) = tokio::join!(in_time(auctions.place_bid(&lamp, bid("bob", 20))), async {
            in_time(line.met(1)).await;
            let highest = async || Some(in_time(other.place_bid(&lamp, bid("ann", 30))).await.unwrap().ok()?);
            wait_for("the commit", highest).await;
            line.set(Commits::Pass);
        });
        assert_eq!((new(answer).bid.number, auctions.repeated()), (2, 0));
    }
}

#[tokio::test]
async fn a_record_of_the_same_chain_by_another_writer_is_not_ours() {
    for base in Base::both().await {
        let (mut line, auctions) = over_a_line(&base, options()).await;
        set_up(&auctions).await;
        line.set_then_stop(Commits::CutAnswer);
        let lamp = listing("lamp");
        let (answer, ()) = tokio::join!(in_time(auctions.place_bid(&lamp, bid("bob", 20))), async {
            in_time(line.met(1)).await;
            let is_there = async || (base.number("SELECT count(*) FROM firstcome_bid").await == 2).then_some(());
            wait_for("the commit", is_there).await;
            // As if another process had taken the same bid in the same microsecond.
            let of_this = "(SELECT writer FROM firstcome_listing WHERE name='lamp')";
            base.say(&format!("UPDATE firstcome_record SET writer=writer-1 WHERE writer={of_this}")).await;
            base.say("UPDATE firstcome_listing SET writer=writer-1").await;
            line.set(Commits::Pass);
        });
        assert_eq!(answer.unwrap(), Err(Rejection::AlreadyHighestBidder));
    }
}

#[tokio::test]
async fn an_owner_at_a_number_that_is_another_members_by_now_is_looked_up_again() {
    for base in Base::both().await {
        let auctions = base.open().await;
        let lamp = listing("lamp");
        assert_eq!(put(&auctions, 1).await.unwrap(), Ok(Put::Created));
        charge(&auctions, "ann", 5).await;
        for (round, (name, told)) in [("lamp", Put::Replaced), ("vase", Put::Created)].into_iter().enumerate() {
            base.say(&format!("UPDATE firstcome_member SET name='eve-{round}' WHERE name='own'")).await;
            let answer = in_time(auctions.put_listing(&listing(name), at_price(7))).await;
            assert_eq!(answer.unwrap(), Ok(told));
            let owner = format!(
                "SELECT count(*) FROM firstcome_listing l JOIN firstcome_member m ON m.id=l.owner_id \
                 WHERE l.name='{name}' AND m.name=l.owner"
            );
            assert_eq!(base.number(&owner).await, 1, "{name}");
        }
        assert!(auctions.listing(&lamp).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn what_other_servers_may_not_have_is_not_told() {
    for base in Base::both().await.iter().filter(|base| base.is_postgres()) {
        let mut hasty = options();
        hasty.patience = Duration::from_secs(3);
        hasty.connections.answer_timeout = Duration::from_secs(1);
        let auctions = SqlAuctions::open_with(&base.url, hasty).await.expect("it opens");
        set_up(&auctions).await;
        let follow = async |names: &str| {
            base.say(&format!("ALTER SYSTEM SET synchronous_standby_names='{names}'")).await;
            base.say("SELECT pg_reload_conf()").await;
            let text = format!(
                "SELECT count(*) FROM pg_settings WHERE name='synchronous_standby_names' AND setting='{names}'"
            );
            wait_for("the setting", async || (base.number(&text).await == 1).then_some(())).await;
        };
        follow("nobody").await;
        let wait = "FROM pg_stat_activity WHERE wait_event='SyncRep'";
        let first = PlaceBid { request: key(7), ..bid("bob", 20) };
        let lamp = listing("lamp");
        let (answer, ()) = tokio::join!(in_time(auctions.place_bid(&lamp, first.clone())), async {
            // Until auctions looks: its look waits for the row.
            wait_for_waiting(base, 1).await;
            let broken_off = format!("SELECT count(pg_cancel_backend(pid)) {wait}");
            assert_eq!(base.number(&broken_off).await, 1, "the wait of the commit is broken off");
        });
        assert!(matches!(answer, Err(StoreError::Unknown)), "{answer:?}");
        follow("").await;
        let told = in_time(auctions.place_bid(&lamp, first)).await.unwrap().unwrap();
        assert!(matches!(told, Effect::Again(_)));
        assert_eq!(balance(&auctions, "bob").await, (80, 100));
    }
}
