use crate::exits::poll_times;
use crate::support::{BidError, Dropped, Log, Watched, assert_freed, watched};
use firstcome::lock::Transaction;
use firstcome::{FenceToken, LockError, Locks, distributed_lock};
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a database says when it fails.
#[derive(Clone, Copy)]
struct Failed(&'static str);

impl From<Failed> for BidError {
    fn from(failed: Failed) -> Self {
        if failed.0 == "conflict" { Self::Conflict } else { Self::Database(failed.0) }
    }
}

/// A transaction in memory that writes down what is done to it.
struct Fake {
    log: Log,
    refuse: &'static str,
    open: Option<Dropped>,
}

impl Fake {
    async fn step(&self, name: &'static str) -> Result<(), Failed> {
        self.log.push(name);
        tokio::task::yield_now().await;
        if self.refuse == name { Err(Failed(name)) } else { Ok(()) }
    }
}

impl Transaction for Fake {
    type Error = Failed;

    async fn check_fence(&mut self, token: &FenceToken) -> Result<(), Failed> {
        assert!(token.lock() == "a" && token.owner().contains('#'));
        self.step("check fence").await
    }

    async fn commit(mut self) -> Result<(), Failed> {
        self.step("commit").await?;
        if let Some(open) = self.open.take() {
            std::mem::forget(open);
        }
        Ok(())
    }

    async fn rollback(mut self) {
        let _ = self.step("roll back").await;
        if let Some(open) = self.open.take() {
            std::mem::forget(open);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Well,
    Refuse,
    Panic,
    Lose,
    LoseAtEnd,
    BreakRelease,
}

struct House {
    store: Watched,
    locks: Locks,
    other: Locks,
    log: Log,
    refuse: &'static str,
    conflicts: AtomicU32,
}

fn house(refuse: &'static str) -> House {
    let (store, locks, other) = watched();
    let log = store.log.clone();
    House { store, locks, other, log, refuse, conflicts: AtomicU32::new(0) }
}

impl House {
    async fn begin(&self) -> Result<Fake, Failed> {
        let mut fake = Fake { log: self.log.clone(), refuse: self.refuse, open: None };
        fake.step("begin").await?;
        if 0 < self.conflicts.load(Ordering::Relaxed) {
            self.conflicts.fetch_sub(1, Ordering::Relaxed);
            fake.refuse = "conflict";
        }
        fake.open = Some(Dropped(self.log.clone(), "undone by drop"));
        Ok(fake)
    }

    #[distributed_lock(key = "a", lease = "100ms", guard = held, transaction(tx = self.begin()))]
    async fn bid(&self, plan: Plan) -> Result<u8, BidError> {
        tx.step("body").await?;
        if matches!(plan, Plan::Lose | Plan::LoseAtEnd | Plan::BreakRelease) {
            self.store.broken.store(true, Ordering::Relaxed);
        }
        match plan {
            Plan::Refuse => return Err(BidError::TooLow),
            Plan::Panic => panic!("told to"),
            Plan::Lose => pending().await,
            Plan::LoseAtEnd => {
                while !held.is_lost() {
                    std::hint::spin_loop();
                }
            }
            Plan::Well | Plan::BreakRelease => {}
        }
        Ok(7)
    }

    #[distributed_lock(key = "a", retry = 2, pause = "0ms", transaction(tx = self.begin()))]
    async fn bid_again(&self, name: String) -> Result<String, BidError> {
        tx.step("body").await?;
        tx.step("conflict").await?;
        Ok(name)
    }
}

#[tokio::test]
async fn the_transaction_lives_within_the_lock() {
    let house = house("");
    assert_eq!(house.bid(Plan::Well).await.unwrap(), 7);
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "commit", "release"]);
}

#[tokio::test]
async fn an_error_undoes_it_before_the_release() {
    let house = house("");
    assert!(matches!(house.bid(Plan::Refuse).await, Err(BidError::TooLow)));
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "roll back", "release"]);
}

#[tokio::test]
async fn a_fence_that_is_refused_keeps_the_body_from_running() {
    let house = house("check fence");
    assert!(matches!(house.bid(Plan::Well).await, Err(BidError::Database("check fence"))));
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "roll back", "release"]);
}

#[tokio::test]
async fn a_transaction_that_does_not_begin_or_does_not_commit_is_an_error() {
    let house = house("begin");
    assert!(matches!(house.bid(Plan::Well).await, Err(BidError::Database("begin"))));
    assert_eq!(house.log.take(), ["grant", "begin", "release"]);
    let house = self::house("commit");
    assert!(matches!(house.bid(Plan::Well).await, Err(BidError::Database("commit"))));
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "commit", "undone by drop", "release"]);
}

#[tokio::test]
async fn a_lost_lock_undoes_it() {
    let house = house("");
    assert!(matches!(house.bid(Plan::Lose).await, Err(BidError::Lock(LockError::Lost))));
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "roll back"]);
    assert_freed(&house.other, "a").await;
}

#[tokio::test]
async fn nothing_is_committed_that_ended_after_its_lock() {
    let house = house("");
    assert!(matches!(house.bid(Plan::LoseAtEnd).await, Err(BidError::Lock(LockError::Lost))));
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "roll back"]);
}

#[tokio::test]
async fn what_is_committed_stays_a_success_when_the_release_fails() {
    let house = house("");
    assert_eq!(house.bid(Plan::BreakRelease).await.unwrap(), 7);
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "commit"]);
}

#[tokio::test]
async fn a_panic_drops_it_before_the_lock_is_given_back() {
    let house = std::sync::Arc::new(house(""));
    let panicking = tokio::spawn({
        let house = std::sync::Arc::clone(&house);
        async move { house.bid(Plan::Panic).await }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_freed(&house.other, "a").await;
    assert_eq!(house.log.take(), ["grant", "begin", "check fence", "body", "undone by drop", "release"]);
}

#[tokio::test]
async fn dropped_at_any_await_point_it_is_undone_and_the_lock_is_free() {
    let mut points = 0;
    loop {
        let house = house("");
        let done = poll_times(house.bid(Plan::Well), points).await;
        assert_freed(&house.other, "a").await;
        let log = &house.log;
        let ended = log.count("commit").max(log.count("undone by drop"));
        assert_eq!(ended, log.count("check fence"), "{:?}", log.take());
        if done {
            break;
        }
        points += 1;
    }
    assert!(6 <= points, "only {points} await points were seen");
}

#[tokio::test]
async fn a_conflict_undoes_it_and_the_next_run_has_a_transaction_of_its_own() {
    let house = house("");
    house.conflicts.store(1, Ordering::Relaxed);
    assert_eq!(house.bid_again("ann".into()).await.unwrap(), "ann");
    let run = ["begin", "check fence", "body", "conflict"];
    let expected = [&["grant"], &run[..], &["roll back"], &run[..], &["commit", "release"]].concat();
    assert_eq!(house.log.take(), expected);
}
