use crate::support::{BidError, Log, assert_free};
use firstcome::{Guard, InputError, LockError, Locks, distributed_lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone)]
struct Auction {
    id: u64,
}

#[derive(Clone)]
struct BidCommand {
    auction: Auction,
    bidder: (String, u64),
}

fn bid_of(id: u64, bidder: &str) -> BidCommand {
    BidCommand { auction: Auction { id }, bidder: (bidder.into(), 1) }
}

impl Auction {
    fn number(&self) -> u64 {
        self.id
    }
}

#[derive(Clone)]
struct House {
    locks: Locks,
    prefix: &'static str,
    price: Arc<AtomicU64>,
    log: Log,
}

fn house() -> House {
    House { locks: Locks::memory(), prefix: "HOUSE", price: Arc::default(), log: Log::default() }
}

impl House {
    /// Reads, waits, writes: wrong unless it is alone.
    #[distributed_lock(key = "AUCTION:{command.auction.id}")]
    async fn raise(&self, command: BidCommand) -> Result<u64, BidError> {
        let price = self.price.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.price.store(price + command.bidder.1, Ordering::Relaxed);
        Ok(price + command.bidder.1)
    }

    #[distributed_lock(key = "A", guard = held)]
    async fn note(&self, who: &'static str) -> Result<firstcome::Fence, BidError> {
        self.log.push(who);
        tokio::task::yield_now().await;
        Ok(held.fence().unwrap())
    }

    #[distributed_lock(
        key = "{self.prefix}:{command.auction.number()}:{command.bidder.0}-{command.bidder.1}:{number}",
        locks = self.locks,
        guard = held,
        owner = "{command.bidder.0}@{number}",
        lease = "192h",
        wait = "1h"
    )]
    async fn named(&self, command: BidCommand, number: u8) -> Result<(String, LockError), BidError> {
        let contended = self.locks.lock(held.name()).try_acquire().await.unwrap_err();
        Ok((held.name().into(), contended))
    }

    #[distributed_lock(key = "{name}", wait = "0s")]
    async fn at_once(&self, name: &str) -> Result<(), BidError> {
        Ok(())
    }

    #[distributed_lock(key = "{name}", wait = "10ms")]
    async fn soon(&self, name: &str) -> Result<(), BidError> {
        Ok(())
    }

    #[distributed_lock(key = "owned", owner = "{owner}", lease = "100ms")]
    async fn owned(&self, owner: &str) -> Result<(), BidError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_with_the_same_key_run_one_at_a_time() {
    let house = house();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let house = house.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    house.raise(bid_of(7, "ann")).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(house.price.load(Ordering::Relaxed), 800);
}

#[tokio::test]
async fn bodies_run_in_the_order_of_their_calls_with_growing_fences() {
    let house = house();
    let first = house.locks.lock("A").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for who in ["ann", "bob", "cid"] {
        let house = house.clone();
        tasks.push(tokio::spawn(async move { house.note(who).await.unwrap() }));
        tokio::task::yield_now().await;
    }
    assert!(house.log.take().is_empty(), "nobody runs while another holds the lock");
    let mut last = first.fence().unwrap();
    first.release().await.unwrap();
    for task in tasks {
        let fence = task.await.unwrap();
        assert!(last < fence);
        last = fence;
    }
    assert_eq!(house.log.take(), ["ann", "bob", "cid"]);
}

#[tokio::test]
async fn other_keys_do_not_wait() {
    let house = house();
    let _held: Guard = house.locks.lock("AUCTION:7").acquire().await.unwrap();
    assert_eq!(house.raise(bid_of(8, "ann")).await.unwrap(), 1);
}

#[tokio::test]
async fn a_key_and_an_owner_come_from_fields_methods_and_self() {
    let house = house();
    let (name, contended) = house.named(bid_of(7, "ann"), 3).await.unwrap();
    assert_eq!(name, "HOUSE:7:ann-1:3");
    assert!(matches!(&contended, LockError::Contended { holder, .. } if holder == "ann@3"), "{contended}");
}

#[tokio::test]
async fn who_waits_too_long_is_told_so_and_who_does_not_wait_too() {
    let house = house();
    let held = house.locks.lock("a").acquire().await.unwrap();
    let contended = house.at_once("a").await.unwrap_err();
    assert!(matches!(contended, BidError::Lock(LockError::Contended { .. })), "{contended:?}");
    let late = house.soon("a").await.unwrap_err();
    assert!(matches!(late, BidError::Lock(LockError::TimedOut { .. })), "{late:?}");
    held.release().await.unwrap();
    house.at_once("a").await.unwrap();
    assert_free(&house.locks, "a").await;
}

#[tokio::test]
async fn a_value_that_makes_no_name_is_refused() {
    let house = house();
    for bad in ["", "two words", "{}", "-x"] {
        let refused = house.soon(bad).await.unwrap_err();
        assert!(
            matches!(refused, BidError::Lock(LockError::Input(InputError::Name { field: "lock", .. }))),
            "{bad}: {refused:?}"
        );
    }
    let refused = house.owned("two words").await.unwrap_err();
    assert!(
        matches!(refused, BidError::Lock(LockError::Input(InputError::Name { field: "owner", .. }))),
        "{refused:?}"
    );
    house.owned("ann").await.unwrap();
}
