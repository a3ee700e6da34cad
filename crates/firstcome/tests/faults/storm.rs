//! Many who want few locks while something goes wrong, and what must be true of it afterwards.

use super::server::{PATIENCE, Server, wait_for};
use super::{CLAIM_WINDOW, SLACK, assert_nothing_left, open};
use firstcome::{LockError, Locks};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, timeout};

/// Whether the server keeps what it was told. If it does, one at a time is inside; if not, only fences protect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    Kept,
    Lost,
}

/// How long everybody waits in line: longer than anything here may keep them from their turn.
const WAIT: Duration = Duration::from_secs(120);

/// One grant. The times are steps of one clock that all share: who asked after another one was told came later.
struct Grant {
    asked: u64,
    told: u64,
    fence: u64,
}

/// What a lock guards: it takes nothing with a smaller fence than it has seen.
#[derive(Default)]
struct Guarded {
    fence: u64,
    value: u64,
    refused: u64,
}

impl Guarded {
    /// Whether the fence is good enough; notes it.
    fn sees(&mut self, fence: u64) -> bool {
        let good = self.fence <= fence;
        self.fence = self.fence.max(fence);
        self.refused += u64::from(!good);
        good
    }
}

#[derive(Default)]
struct Lock {
    name: String,
    grants: Mutex<Vec<Grant>>,
    guarded: Mutex<Guarded>,
    /// How many writes the guarded value has taken.
    written: AtomicU64,
    /// Changed in two steps, which nothing but the lock keeps apart.
    unguarded: AtomicU64,
    given_back: Mutex<Option<Instant>>,
}

struct Shared {
    locks: Vec<Lock>,
    lease: Duration,
    over: AtomicBool,
    clock: AtomicU64,
    said: Mutex<BTreeMap<&'static str, u64>>,
    longest_gap: Mutex<Duration>,
}

/// A storm that goes on until it is [ended](Self::end).
pub(crate) struct Storm {
    shared: Arc<Shared>,
    processes: Vec<Locks>,
    tasks: Vec<JoinHandle<()>>,
}

/// What was said to those in a storm, by code, and the longest time between a release and the next grant.
pub(crate) struct StormReplies {
    codes: BTreeMap<&'static str, u64>,
    pub(crate) longest_gap: Duration,
}

impl StormReplies {
    /// How often.
    pub(crate) fn count(&self, code: &str) -> u64 {
        self.codes.get(code).copied().unwrap_or(0)
    }

    /// Nothing else was said but that it was done, and these.
    #[track_caller]
    pub(crate) fn assert_only(&self, codes: &[&str]) {
        let known = |code: &&str| ["granted", "released", "contended"].contains(code) || codes.contains(code);
        assert!(self.codes.keys().all(known), "{:?}", self.codes);
    }
}

impl Storm {
    /// Lets so many tasks of each process wait for each of these locks in turn, and one that does not wait.
    pub(crate) fn begin(processes: Vec<Locks>, names: &[&str], tasks: usize, lease: Duration) -> Self {
        let locks = names.iter().map(|name| Lock { name: (*name).to_owned(), ..Lock::default() });
        let shared = Arc::new(Shared {
            locks: locks.collect(),
            lease,
            over: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            said: Mutex::default(),
            longest_gap: Mutex::default(),
        });
        let mut running = Vec::new();
        for process in &processes {
            for task in 0..=tasks {
                let wait = if task == tasks { Duration::ZERO } else { WAIT };
                running.push(tokio::spawn(work(Arc::clone(&shared), process.clone(), task, wait)));
            }
        }
        Self { shared, processes, tasks: running }
    }

    /// How many grants there were.
    pub(crate) fn grants(&self) -> usize {
        self.shared.locks.iter().map(|lock| lock.grants.lock().len()).sum()
    }

    /// Waits for so many further grants.
    pub(crate) async fn progress(&self, grants: usize) {
        let before = self.grants();
        wait_for("further grants", async || (before + grants <= self.grants()).then_some(())).await;
    }

    /// Waits until a caller is told this once more.
    pub(crate) async fn until_said(&self, code: &'static str) {
        let count = || self.shared.said.lock().get(code).copied().unwrap_or(0);
        let before = count();
        wait_for(code, async || (before < count()).then_some(())).await;
    }

    /// Ends it, and looks whether everything is well.
    pub(crate) async fn end(self, server: &Server, memory: Memory) -> StormReplies {
        let Self { shared, processes, tasks } = self;
        shared.over.store(true, Ordering::Relaxed);
        let promised = shared.lease + CLAIM_WINDOW + SLACK;
        for task in tasks {
            timeout(PATIENCE, task).await.expect("nobody is stuck").expect("no thread panics");
        }
        let fresh = open(&server.url()).await;
        for lock in &shared.locks {
            let guard = fresh.lock(&lock.name).wait(promised).acquire().await;
            let guard = guard.unwrap_or_else(|error| panic!("{} leaked: {error}", lock.name));
            let last = lock.grants.lock().iter().map(|grant| grant.fence).max();
            assert!(last < Some(guard.fence().unwrap().get()), "{}: {guard:?} after {last:?}", lock.name);
            guard.release().await.expect("it is held");
            lock.assert_sound(memory);
        }
        let names: Vec<&str> = shared.locks.iter().map(|lock| lock.name.as_str()).collect();
        let all: Vec<&Locks> = processes.iter().chain([&fresh]).collect();
        assert_nothing_left(server, &all, &names).await;
        let (codes, longest_gap) = (shared.said.lock().clone(), *shared.longest_gap.lock());
        println!("{codes:?}, longest gap {longest_gap:?}");
        StormReplies { codes, longest_gap }
    }
}

impl Lock {
    /// The fences of this lock and what it guarded.
    fn assert_sound(&self, memory: Memory) {
        let (mut grants, name) = (self.grants.lock(), &self.name);
        let fences: BTreeSet<u64> = grants.iter().map(|grant| grant.fence).collect();
        assert_eq!(fences.len(), grants.len(), "{name}: a fence was given twice");
        let guarded = self.guarded.lock();
        assert_eq!(guarded.value, self.written.load(Ordering::Relaxed), "{name}: an update was lost");
        if memory == Memory::Kept {
            assert!(grants.is_sorted_by_key(|grant| grant.fence), "{name}: fences fell");
            assert_eq!(guarded.refused, 0, "{name}: somebody was inside with another one");
            assert_eq!(self.unguarded.load(Ordering::Relaxed), grants.len() as u64, "{name}: an update was lost");
        }
        // A caller that asked after another one was told has a larger fence, no matter what the server forgot in between.
        grants.sort_by_key(|grant| grant.told);
        let told: Vec<u64> = grants.iter().map(|grant| grant.told).collect();
        let mut largest = Vec::from([0]);
        for grant in grants.iter() {
            largest.push(grant.fence.max(largest.last().copied().unwrap_or(0)));
        }
        for grant in grants.iter() {
            let before = largest[told.partition_point(|told| *told < grant.asked)];
            assert!(before < grant.fence, "{name}: {} after {before}", grant.fence);
        }
    }
}

impl Shared {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, code: &'static str) {
        *self.said.lock().entry(code).or_default() += 1;
    }
}

/// Asks again and again until the storm is over.
async fn work(shared: Arc<Shared>, process: Locks, task: usize, wait: Duration) {
    for round in task.. {
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let lock = &shared.locks[round % shared.locks.len()];
        let asked = shared.tick();
        // Every other task of a process shares its turn with its likes.
        let cohort = if task.is_multiple_of(2) { 1 } else { 4 };
        let request = process.lock(&lock.name).lease(shared.lease).wait(wait).cohort(cohort);
        let guard = if wait.is_zero() { request.try_acquire().await } else { request.acquire().await };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                refused(&shared, &error).await;
                continue;
            }
        };
        let fence = guard.fence().unwrap().get();
        lock.grants.lock().push(Grant { asked, told: shared.tick(), fence });
        if let Some(given_back) = lock.given_back.lock().take() {
            let mut longest = shared.longest_gap.lock();
            *longest = longest.max(given_back.elapsed());
        }
        inside(lock, fence).await;
        shared.note("granted");
        let released = guard.release().await;
        *lock.given_back.lock() = Some(Instant::now());
        shared.note(released.as_ref().map_or_else(LockError::code, |()| "released"));
        if wait.is_zero() {
            // Others have their turn.
            yield_now().await;
        }
    }
}

async fn refused(shared: &Shared, error: &LockError) {
    match error {
        LockError::Contended { .. } | LockError::Unavailable(_) | LockError::Unknown => shared.note(error.code()),
        other => panic!("nobody is stuck, and nothing is wrong with what was asked: {other}"),
    }
    yield_now().await;
}

async fn inside(lock: &Lock, fence: u64) {
    let unguarded = lock.unguarded.load(Ordering::Relaxed);
    let read = {
        let mut guarded = lock.guarded.lock();
        guarded.sees(fence).then_some(guarded.value)
    };
    yield_now().await;
    if let Some(value) = read {
        let mut guarded = lock.guarded.lock();
        if guarded.sees(fence) {
            guarded.value = value + 1;
            lock.written.fetch_add(1, Ordering::Relaxed);
        }
    }
    lock.unguarded.store(unguarded + 1, Ordering::Relaxed);
}
