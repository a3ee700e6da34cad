use super::super::kind::{BoxFuture, OtherHold, OtherLocks};
use super::super::{LockName, Terms};
use super::*;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{Guarantees, MemoryLocks, TimedLockView};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

const HOUR_MS: u64 = 3_600_000;
const HOUR: Duration = Duration::from_millis(HOUR_MS);
/// A slot that every test may begin with: an hour, so that its lock lasts for as long as any test does.
const FIRST: u64 = 400_000;
/// Far above what anything here needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that shows the middle of an hour.
fn in_hour(slot: u64) -> impl Fn() -> u64 {
    move || slot * HOUR_MS + HOUR_MS / 2
}

fn two_processes() -> [Locks; 2] {
    let store = Arc::new(MemoryLocks::default());
    [0, 1].map(|_| Locks::over(Arc::clone(&store)).unwrap())
}

fn on_directory(directory: &tempfile::TempDir) -> Locks {
    Locks::open(directory.path()).unwrap()
}

/// Asks again and again until the answer is this one.
async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let answered = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        loop {
            ticks.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{what}"))
}

async fn one_of_fifty_runs_in_each_slot(processes: [Locks; 2]) {
    let mut fence = None;
    // No more slots: the store's clock does not move with them, and the fifth uses the lock of the first.
    for slot in FIRST..FIRST + 4 {
        let mut asking = JoinSet::new();
        for number in 0..50 {
            let once = processes[number % 2].once("job", HOUR).owner(&format!("task-{number}"));
            asking.spawn(async move { once.begin_by(in_hour(slot)).await });
        }
        let mut runs = Vec::new();
        while let Some(asked) = asking.join_next().await {
            match asked.unwrap() {
                Ok(run) => runs.push(run),
                Err(LockError::SlotTaken { holder, next_in }) => {
                    assert!(holder.starts_with("task-") && next_in <= HOUR / 2, "{holder} {next_in:?}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        let [run] = runs.try_into().unwrap();
        assert_eq!(run.slot(), slot);
        assert_eq!(run.slot_ends_at(), UNIX_EPOCH + HOUR * u32::try_from(slot + 1).unwrap());
        assert!(fence.replace(run.fence()) < Some(run.fence()), "{fence:?}");
        run.finish().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_tasks_of_two_processes_one_runs_in_each_slot_in_memory() {
    one_of_fifty_runs_in_each_slot(two_processes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_tasks_of_two_processes_one_runs_in_each_slot_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    one_of_fifty_runs_in_each_slot([0, 1].map(|_| on_directory(&directory))).await;
}

#[tokio::test]
async fn a_slot_stays_taken_when_its_run_is_dropped_or_finished_and_the_directory_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    for (slot, how) in [(FIRST, "dropped"), (FIRST + 1, "finished")] {
        let locks = on_directory(&directory);
        let run = locks.once("job", HOUR).owner("ann").begin_by(in_hour(slot)).await.unwrap();
        if how == "finished" {
            run.finish().await.unwrap();
        } else {
            drop(run);
        }
        locks.quiet().await;
        let again = locks.once("job", HOUR).begin_by(in_hour(slot)).await.unwrap_err();
        assert!(matches!(&again, LockError::SlotTaken { holder, .. } if holder == "ann"), "{how}: {again}");
        drop(locks);
        let again = on_directory(&directory).once("job", HOUR).begin_by(in_hour(slot)).await.unwrap_err();
        assert_eq!((again.code(), again.to_string().contains("taken by ann")), ("slot_taken", true), "{how}: {again}");
        let now = on_directory(&directory).lock("job").try_acquire().await.unwrap();
        now.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_next_slot_of_the_machines_clock_runs_again() {
    let locks = Locks::memory();
    let once = || locks.once("job", Duration::from_secs(1));
    let mut slots = Vec::new();
    for _ in 0..3 {
        let run = until("the next slot", async || once().begin().await.ok()).await;
        assert!(run.slot() <= unix_ms() / 1_000);
        slots.push(run.slot());
        run.finish().await.unwrap();
    }
    assert!(slots.is_sorted_by(|one, next| one < next), "{slots:?}");
}

#[tokio::test]
async fn a_run_that_still_goes_on_refuses_that_of_the_next_slot_and_gives_the_slot_back() {
    let [locks, other] = two_processes();
    let first = locks.once("job", HOUR).owner("ann").begin_by(in_hour(FIRST)).await.unwrap();
    let next = || other.once("job", HOUR).begin_by(in_hour(FIRST + 1));
    for _ in 0..2 {
        let refused = until("the slot to be free", async || match next().await {
            Err(LockError::SlotTaken { .. }) => None,
            refused => Some(refused.unwrap_err()),
        });
        let refused = refused.await;
        assert!(matches!(&refused, LockError::Contended { holder, .. } if holder == "ann"), "{refused}");
    }
    let before = first.fence();
    first.finish().await.unwrap();
    let second = until("the slot to be free", async || next().await.ok()).await;
    assert!(before < second.fence() && second.slot() == FIRST + 1);
}

#[tokio::test]
async fn a_run_that_failed_gives_its_slot_back() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk = on_directory(&directory);
    for locks in [two_processes(), [on_disk.clone(), on_disk]] {
        let begin = |process: usize| locks[process].once("job", HOUR).begin_by(in_hour(FIRST));
        let failed = begin(0).await.unwrap();
        assert_eq!(begin(1).await.unwrap_err().code(), "slot_taken");
        failed.retry().await.unwrap();
        let again = begin(1).await.unwrap();
        assert_eq!(again.slot(), FIRST);
        again.finish().await.unwrap();
        assert_eq!(begin(0).await.unwrap_err().code(), "slot_taken");
    }
}

/// Locks with a clock that the test sets, to the beginning of the first slot.
fn by_hand() -> (Arc<ManualClock>, Locks) {
    let begins_us = i64::try_from(FIRST * HOUR_MS * 1_000).unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(begins_us)));
    let store = MemoryLocks::with_clock(Arc::<ManualClock>::clone(&clock));
    (clock, Locks::over(store).unwrap())
}

#[tokio::test]
async fn clocks_that_differ_by_the_tolerance_make_no_second_run_in_a_slot() {
    for (tolerance_ms, set) in [(600_000, true), (HOUR_MS, true), (HOUR_MS, false)] {
        let (clock, locks) = by_hand();
        let once = || {
            let once = locks.once("job", HOUR);
            if set { once.tolerance(Duration::from_millis(tolerance_ms)) } else { once }
        };
        // The clock of the first process is that of the store. It runs the job in the middle of the slot.
        clock.pass_ms(HOUR_MS / 2);
        once().begin_by(in_hour(FIRST)).await.unwrap().finish().await.unwrap();
        // That of the second is behind: when its slot is about to end, that of the first has ended so long ago.
        clock.pass_ms(HOUR_MS / 2 + tolerance_ms - 1);
        let behind = || FIRST * HOUR_MS + HOUR_MS - 1;
        let refused = once().begin_by(behind).await.unwrap_err();
        assert_eq!(refused.code(), "slot_taken", "{tolerance_ms} {set}");
        // The next slot has not waited for that.
        once().begin_by(in_hour(FIRST + 1)).await.unwrap().finish().await.unwrap();
    }
}

#[tokio::test]
async fn the_lock_of_a_slot_is_over_when_another_slot_takes_its_name() {
    let (clock, locks) = by_hand();
    let store_ms = || FIRST * HOUR_MS;
    locks.once("job", HOUR).begin_by(store_ms).await.unwrap().finish().await.unwrap();
    // A clock that is ahead by the tolerance.
    clock.pass_ms((SLOT_LOCKS - 1) * HOUR_MS);
    let again = FIRST + SLOT_LOCKS;
    let run = locks.once("job", HOUR).longest(24 * HOUR).begin_by(|| again * HOUR_MS).await.unwrap();
    // The run outlasts its slot by hours, and its slot's lock does not.
    clock.pass_ms((SLOT_LOCKS - 1) * HOUR_MS);
    run.finish().await.unwrap();
    for slot in again + SLOT_LOCKS..again + 40 {
        clock.pass_ms(HOUR_MS);
        locks.once("job", HOUR).begin_by(|| slot * HOUR_MS).await.unwrap().finish().await.unwrap();
    }
}

#[tokio::test]
async fn the_lock_of_a_slot_is_not_renewed_while_its_run_goes_on() {
    let locks = Locks::memory();
    let run = locks.once("job", Duration::from_secs(1)).begin().await.unwrap();
    let lock = format!("job@{}", run.slot() % SLOT_LOCKS);
    let is_over = async || locks.view(&lock).await.unwrap().view.held.is_none().then_some(());
    until("the end of the slot", is_over).await;
    assert!(!run.is_over());
    run.finish().await.unwrap();
}

/// A clock that shows one instant after the other, and stays at the last.
fn shows<const N: usize>(instants: [u64; N]) -> impl Fn() -> u64 {
    let looks = AtomicU64::new(0);
    move || instants[usize::try_from(looks.fetch_add(1, Ordering::Relaxed)).unwrap().min(N - 1)]
}

#[tokio::test]
async fn a_grant_that_comes_after_the_slot_begins_no_run_of_that_slot() {
    let [locks, other] = two_processes();
    let (before, after) = ((FIRST + 1) * HOUR_MS - 1, (FIRST + 1) * HOUR_MS);
    // This process was stopped between its look at the clock and the answer.
    let run = locks.once("job", HOUR).begin_by(shows([before, after])).await.unwrap();
    assert_eq!(run.slot(), FIRST + 1);
    run.retry().await.unwrap();
    // It has given the earlier slot back.
    let earlier = until("the earlier slot", async || other.once("job", HOUR).begin_by(|| before).await.ok()).await;
    assert_eq!(earlier.slot(), FIRST);
    earlier.retry().await.unwrap();
    let late =
        shows([before, after, after + HOUR_MS - 1, after + HOUR_MS, after + 2 * HOUR_MS - 1, after + 2 * HOUR_MS]);
    let refused = locks.once("job", HOUR).begin_by(late).await.unwrap_err();
    assert!(matches!(refused, LockError::TimedOut { position: None }), "{refused}");
    assert!(locks.lock("job").try_acquire().await.is_ok(), "no run has begun");
}

#[tokio::test]
async fn a_run_ends_after_its_longest_time_and_its_body_is_dropped() {
    let [locks, other] = two_processes();
    let once = |slot: u64| {
        let once = locks.once("job", HOUR).longest(Duration::from_millis(150));
        async move { once.begin_by(in_hour(slot)).await.unwrap() }
    };
    let run = once(FIRST).await;
    let dropped = Arc::new(());
    let body = {
        let held = Arc::clone(&dropped);
        async move {
            std::future::pending::<()>().await;
            drop(held);
        }
    };
    let ended = tokio::time::timeout(PATIENCE, run.run(body)).await.expect("it ends");
    assert!(matches!(ended, Err(LockError::Lost)) && run.is_over());
    assert_eq!(Arc::strong_count(&dropped), 1);
    // Nothing but its lease ends it in the store, and it is not renewed.
    let next = until("the end of the run", async || other.once("job", HOUR).begin_by(in_hour(FIRST + 1)).await.ok());
    assert!(run.fence() < next.await.fence());
    assert!(matches!(run.finish().await, Err(LockError::Lost)));
    assert_eq!(other.once("job", HOUR).begin_by(in_hour(FIRST)).await.unwrap_err().code(), "slot_taken");
}

#[tokio::test]
async fn a_run_that_was_lost_gives_its_slot_back_all_the_same() {
    let [locks, other] = two_processes();
    let run = locks.once("job", HOUR).longest(Duration::from_millis(100)).begin_by(in_hour(FIRST)).await.unwrap();
    tokio::time::timeout(PATIENCE, run.over()).await.expect("it ends");
    assert!(matches!(run.retry().await, Err(LockError::Lost)));
    let again = until("the end of the run", async || other.once("job", HOUR).begin_by(in_hour(FIRST)).await.ok()).await;
    assert_eq!(again.slot(), FIRST);
}

#[tokio::test]
async fn a_body_runs_once_in_its_slot() {
    let locks = Locks::memory();
    let runs = AtomicU64::new(0);
    let body = async |run: &Run| {
        assert!(run.guard().name() == "job" && run.token().unwrap().fence() == run.fence());
        runs.fetch_add(1, Ordering::Relaxed) + run.slot()
    };
    // A week: the slot does not end during the test, or the second try begins with the next one.
    let once = || locks.once("job", Duration::from_secs(7 * 86_400)).with(body);
    let (first, again) = (once().await.unwrap(), once().await);
    if first == unix_ms() / (7 * 86_400_000) {
        assert_eq!((again.unwrap_err().code(), runs.load(Ordering::Relaxed)), ("slot_taken", 1));
    }
}

/// A store that cannot leave a hold behind.
struct Sessions;

impl OtherLocks for Sessions {
    fn guarantees(&self) -> Guarantees {
        Guarantees::ETCD
    }

    fn acquire<'a>(&'a self, _: &'a Terms) -> BoxFuture<'a, Result<Arc<dyn OtherHold>, LockError>> {
        panic!("nothing may be sent");
    }

    fn view(&self, _: LockName) -> BoxFuture<'_, Result<TimedLockView, LockError>> {
        panic!("nothing may be sent");
    }

    fn quiet(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_before_anything_is_sent() {
    let refused = |once: Once| async { once.begin().await.unwrap_err().to_string() };
    let sessions = Locks { backing: Backing::Other(Arc::new(Sessions)) };
    assert_eq!(refused(sessions.once("job", HOUR)).await, "this store of locks cannot keep a slot after its run");
    let store = Arc::new(MemoryLocks::default());
    let locks = Locks::over(Arc::clone(&store)).unwrap();
    let (ms, s) = (Duration::from_millis, Duration::from_secs);
    let table = [
        (locks.once("a b", HOUR), "lock may hold only"),
        (locks.once("", HOUR), "lock must not be empty"),
        (locks.once(&"a".repeat(127), HOUR), "at most 126 bytes"),
        (locks.once("job", ms(999)), "every must be 1 s to 7 days"),
        (locks.once("job", ms(7 * 86_400_000 + 1)), "every must be 1 s to 7 days"),
        (locks.once("job", Duration::from_micros(1_500_500)), "in whole milliseconds"),
        (locks.once("job", s(60)).tolerance(ms(60_001)), "tolerance must be at most the interval"),
        (locks.once("job", s(7 * 86_400)).tolerance(s(86_401)), "and at most 24 h"),
        (locks.once("job", HOUR).lease(ms(99)), "lease must be 100 ms to 8 days"),
        (locks.once("job", HOUR).longest(s(8 * 86_400 + 1)), "longest must be 100 ms to 8 days"),
        (locks.once("job", HOUR).owner("x y"), "owner may hold only"),
    ];
    for (once, words) in table {
        let said = refused(once).await;
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(store.is_empty(), "nothing was asked for");
    // What is on the edge is kept.
    let longest = locks.once(&"a".repeat(126), s(7 * 86_400)).tolerance(s(86_400)).longest(s(8 * 86_400));
    longest.begin_by(|| 0).await.unwrap().finish().await.unwrap();
    let shortest = locks.once("job", s(1)).tolerance(Duration::ZERO).lease(ms(100));
    shortest.begin_by(|| 1_999).await.unwrap().finish().await.unwrap();
}
