use crate::support::{BidError, Log, assert_free, watched};
use firstcome::{Fence, Locks, distributed_lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Ends with so many conflicts, then well.
struct Table {
    locks: Locks,
    conflicts: AtomicU32,
    runs: AtomicU32,
    fences: Mutex<Vec<Fence>>,
}

fn table(conflicts: u32) -> Table {
    let (conflicts, runs) = (AtomicU32::new(conflicts), AtomicU32::new(0));
    Table { locks: Locks::memory(), conflicts, runs, fences: Mutex::default() }
}

impl Table {
    fn write(&self) -> Result<u32, BidError> {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let conflicts = self.conflicts.load(Ordering::Relaxed);
        if runs <= conflicts { Err(BidError::Conflict) } else { Ok(runs) }
    }

    #[distributed_lock(key = "a", retry = 3, pause = "1ms", guard = held)]
    async fn change(&self, mut names: Vec<String>, _unused: &str) -> Result<(u32, usize), BidError> {
        names.push("one more".into());
        self.fences.lock().unwrap().push(held.fence().unwrap());
        tokio::task::yield_now().await;
        let runs = self.write()?;
        drop(names.clone());
        Ok((runs, names.len()))
    }

    #[distributed_lock(key = "a", retry = 3, pause = "1ms")]
    async fn change_self(&mut self, names: Vec<String>) -> Result<u32, BidError> {
        *self.runs.get_mut() += 10;
        drop(names);
        if self.runs.load(Ordering::Relaxed) < 30 { Err(BidError::Conflict) } else { self.write() }
    }

    #[distributed_lock(key = "a", retry = 3, pause = "1ms")]
    async fn refuse(&self) -> Result<(), BidError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Err(BidError::TooLow)
    }
}

#[tokio::test]
async fn a_conflict_runs_the_body_again_from_its_start_in_the_same_hold() {
    let table = table(2);
    let (runs, names) = table.change(vec!["ann".into()], "").await.unwrap();
    assert_eq!((runs, names), (3, 2), "each run has arguments as they came in");
    let fences = table.fences.lock().unwrap().clone();
    assert_eq!(fences.len(), 3);
    assert!(fences.iter().all(|fence| *fence == fences[0]));
    assert_free(&table.locks, "a").await;
}

#[tokio::test]
async fn after_so_many_runs_the_conflict_is_the_answer() {
    let table = table(100);
    assert!(matches!(table.change(Vec::new(), "").await, Err(BidError::Conflict)));
    assert_eq!(table.runs.load(Ordering::Relaxed), 4, "one run, and three more");
    assert_free(&table.locks, "a").await;
}

#[tokio::test]
async fn what_is_no_conflict_is_not_repeated() {
    let table = table(0);
    assert!(matches!(table.refuse().await, Err(BidError::TooLow)));
    assert_eq!(table.runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_body_with_mut_self_runs_again_too() {
    let mut table = table(0);
    assert_eq!(table.change_self(vec!["ann".into()]).await.unwrap(), 31);
}

#[tokio::test]
async fn the_lock_is_held_through_the_pause() {
    let (table, log) = (table(1), Log::default());
    let change = async {
        table.change(Vec::new(), "").await.unwrap();
        log.push("changed");
    };
    let other = async {
        let held = table.locks.lock("a").acquire().await.unwrap();
        log.push("other");
        held.release().await.unwrap();
    };
    tokio::join!(change, other);
    assert_eq!((log.take(), table.runs.load(Ordering::Relaxed)), (vec!["changed", "other"], 2));
}

/// Loses its lock, and then finds a conflict.
#[distributed_lock(key = "a", locks = locks, lease = "100ms", guard = held, retry = 3, pause = "1ms")]
async fn lose(locks: &Locks, broken: &AtomicBool, runs: &AtomicU32) -> Result<(), BidError> {
    runs.fetch_add(1, Ordering::Relaxed);
    broken.store(true, Ordering::Relaxed);
    while !held.is_lost() {
        std::hint::spin_loop();
    }
    Err(BidError::Conflict)
}

#[tokio::test]
async fn nothing_runs_again_without_the_lock() {
    let ((store, locks, _), runs) = (watched(), AtomicU32::new(0));
    assert!(matches!(lose(&locks, &store.broken, &runs).await, Err(BidError::Conflict)));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// Finds a conflict at once, and loses its lock while it waits for the next run.
#[distributed_lock(key = "a", locks = locks, lease = "100ms", retry = 3, pause = "1m")]
async fn lose_in_pause(locks: &Locks, broken: &AtomicBool, runs: &AtomicU32) -> Result<(), BidError> {
    runs.fetch_add(1, Ordering::Relaxed);
    broken.store(true, Ordering::Relaxed);
    Err(BidError::Conflict)
}

#[tokio::test]
async fn a_lock_lost_in_the_pause_ends_it() {
    let ((store, locks, _), runs) = (watched(), AtomicU32::new(0));
    assert!(matches!(lose_in_pause(&locks, &store.broken, &runs).await, Err(BidError::Conflict)));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}
