use super::*;
use crate::InputError;
use crate::fence::accepts;
use firstcome_store::Demand;
use firstcome_store::core::time::{Steady, Timestamp};
use firstcome_store::edge::{Clock, SystemClock};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};

#[tokio::test]
async fn a_lock_is_held_by_one_and_handed_over_in_the_order_of_arrival() {
    let locks = Locks::memory();
    let first = locks.lock("a").owner("ann").acquire().await.unwrap();
    let contended = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(&contended, LockError::Contended { holder, waiters: 0, .. } if holder == "ann"), "{contended}");
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..10 {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        let task = tokio::spawn(async move {
            let guard = locks.lock("a").acquire().await.unwrap();
            order.lock().push((number, guard.fence().unwrap()));
            guard.release().await.unwrap();
        });
        tokio::task::yield_now().await;
        tasks.push(task);
    }
    let before = first.fence().unwrap();
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().clone();
    assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(before < order[0].1 && order.is_sorted_by_key(|(_, fence)| *fence));
}

#[tokio::test]
async fn a_wait_that_is_over_says_how_many_were_ahead() {
    let locks = Locks::memory();
    let held = locks.lock("a").acquire().await.unwrap();
    let waits = |ms| locks.lock("a").wait(Duration::from_millis(ms)).acquire();
    let (one, two) = tokio::join!(waits(50), waits(30));
    assert!(matches!(one.unwrap_err(), LockError::TimedOut { position: Some(0) }));
    assert!(matches!(two.unwrap_err(), LockError::TimedOut { position: Some(1) }));
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_guarded_is_changed_by_one_at_a_time() {
    let locks = Locks::memory();
    let count = Arc::new(AtomicU64::new(0));
    let tasks = (0..16).map(|_| {
        let (locks, count) = (locks.clone(), Arc::clone(&count));
        tokio::spawn(async move {
            for _ in 0..200 {
                let read_and_write = async |_: &Guard| {
                    let read = count.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    count.store(read + 1, Ordering::Relaxed);
                };
                locks.lock("counter").with(read_and_write).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 3_200);
}

/// Sends twelve requests for one lock, alternately from two processes. Returns the process and the fence of each, in
/// the order of service.
async fn served(passes: u32) -> Vec<(usize, Fence)> {
    let store = Arc::new(MemoryLocks::default());
    let processes = [0, 1].map(|_| Locks::over(Arc::clone(&store)).unwrap());
    let first = processes[0].lock("a").acquire().await.unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..12 {
        let process = number % 2;
        let (locks, order) = (processes[process].clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock("a").cohort(passes).acquire().await.unwrap();
            order.lock().push((process, guard.fence().unwrap()));
            guard.release().await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    tokio::task::yield_now().await;
    assert!(store.is_empty(), "nothing stays behind");
    order.lock().clone()
}

#[tokio::test]
async fn a_cohort_is_served_by_one_grant_and_others_wait_for_no_more_than_that() {
    let alternating: Vec<usize> = served(1).await.into_iter().map(|(process, _)| process).collect();
    assert_eq!(alternating, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    let order = served(4).await;
    assert!(order.is_sorted_by(|one, other| one.1 < other.1), "{order:?}");
    let batches: Vec<usize> = order.iter().map(|(process, _)| *process).collect();
    assert_eq!(batches, [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]);
    // Within a batch the fences are consecutive.
    assert_eq!(order[3].1, order[0].1.after(3));
}

/// Returns the fence and the end of the hold of lock `a`, as the store has it.
async fn held(locks: &Locks) -> Option<(Fence, u64)> {
    locks.view("a").await.unwrap().view.held.map(|(_, fence, expires_us)| (fence, expires_us))
}

#[tokio::test]
async fn everything_that_is_asked_of_a_hold_it_is_the_same_hold() {
    let locks = Locks::memory();
    let lease = Duration::from_millis(200);
    let guard = locks.lock("a").lease(lease).acquire().await.unwrap();
    let quick = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(quick, LockError::Contended { waiters: 0, .. }));
    // The test asks nothing of the guard, so the sweep moves the hold to the client, which renews it past its first
    // lease.
    let first_us = held(&locks).await.expect("it is held").1;
    let outlives = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        while held(&locks).await.expect("it is renewed").1 <= first_us + 400_000 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), outlives).await.expect("it is renewed again and again");
    assert_eq!(held(&locks).await.map(|(fence, _)| fence), Some(guard.fence().unwrap()));
    assert!(!guard.is_lost());
    let again = guard.reenter().await.unwrap();
    guard.release().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.is_err(), "the other guard has it");
    again.renew(Duration::from_secs(5)).await.unwrap();
    assert!(Duration::from_secs(3) < again.remaining());
    again.release().await.unwrap();
    let fixed = locks.lock("a").lease(lease).fixed().acquire().await.unwrap();
    fixed.lost().await;
    assert!(fixed.is_lost());
    assert!(matches!(fixed.release().await, Err(LockError::Lost)));
    let next = locks.lock("a").acquire().await.unwrap();
    drop(next);
    locks.quiet().await;
    drop(locks.lock("a").try_acquire().await.unwrap());
}

#[tokio::test]
async fn one_leads_at_a_time_and_each_term_is_above_the_one_before() {
    let store = Arc::new(MemoryLocks::default());
    let [one, other] = [(); 2].map(|()| Locks::ordered_by(Shared::memory(Arc::clone(&store))));
    let lease = Duration::from_millis(200);
    let first = one.elect("scheduler").owner("one").campaign().await.unwrap();
    let refused = other.elect("scheduler").try_campaign().await.unwrap_err();
    assert!(matches!(&refused, LockError::Contended { holder, .. } if holder == "one"), "{refused}");
    let waiting = tokio::spawn(other.elect("scheduler").owner("other").lease(lease).campaign());
    while one.view("scheduler").await.unwrap().view.waiters == 0 {
        tokio::task::yield_now().await;
    }
    let term = first.term();
    assert!(!first.is_over() && first.token().unwrap().fence() == term);
    first.resign().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    let leads = one.view("scheduler").await.unwrap().view.held.map(|(owner, fence, _)| (owner.to_string(), fence));
    assert_eq!(leads, Some(("other".to_owned(), second.term())));
    assert!(term < second.term());
    // It leads past its lease as long as it lives, and its work is its own.
    assert!(tokio::time::timeout(lease * 3, second.over()).await.is_err() && !second.is_over());
    assert_eq!(second.run(async { 7 }).await.unwrap(), 7);
    drop(second);
    let third = one.elect("scheduler").campaign().await.unwrap();
    assert!(term < third.term());
}

/// A clock that checks, at every step of the store, whether all is quiet.
#[derive(Default)]
struct Watched {
    clock: SystemClock,
    quiet: parking_lot::Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        let mut quiet = self.quiet.lock();
        let waker = Waker::from(Arc::clone(&self.woken));
        if let Some(asked) = &mut *quiet
            && asked.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *quiet = None;
        }
        self.clock.now()
    }

    fn steady(&self) -> Steady {
        self.clock.steady()
    }
}

#[tokio::test]
async fn while_a_lock_is_given_back_it_is_not_quiet() {
    let clock = Arc::new(Watched::default());
    let store = Arc::new(MemoryLocks::with_clock(Arc::<Watched>::clone(&clock)));
    let locks = Locks::ordered_by(Shared::memory(Arc::clone(&store)));
    let guard = locks.lock("a").acquire().await.unwrap();
    let watched = locks.clone();
    *clock.quiet.lock() = Some(Box::pin(async move { watched.quiet().await }));
    drop(guard);
    let quiet = clock.quiet.lock().take().expect("it was quiet before the store had taken the release");
    assert!(store.is_empty() && clock.woken.0.load(Ordering::Relaxed));
    quiet.await;
}

/// A store whose every answer takes some polls, before and after it takes the step.
#[derive(Default)]
struct Slow {
    store: Arc<MemoryLocks>,
    gone: Arc<AtomicBool>,
    /// What it promises, if that is not what the store does.
    promises: Option<Guarantees>,
}

impl LockStore for Slow {
    fn guarantees(&self) -> Guarantees {
        self.promises.unwrap_or_else(|| self.store.guarantees())
    }

    async fn take(&self, step: Step) -> Result<firstcome_store::core::lock::Answer, StoreError> {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        if self.gone.load(Ordering::Relaxed) {
            let fault = firstcome_store::Fault { kind: firstcome_store::FaultKind::Io, detail: "gone".to_owned() };
            return Err(StoreError::Faulted(Arc::new(fault)));
        }
        let answer = self.store.take_now(&step);
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        Ok(answer)
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        LockStore::view(&*self.store, name).await
    }

    fn attach(&self, client: ClientId, inbox: firstcome_store::LockInbox) {
        LockStore::attach(&*self.store, client, inbox);
    }

    fn detach(&self, client: ClientId) {
        LockStore::detach(&*self.store, client);
    }
}

#[tokio::test]
async fn a_store_without_a_server_says_what_it_promises() {
    assert_eq!(Locks::memory().guarantees(), Guarantees::MEMORY);
    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Locks::open(directory.path()).unwrap().guarantees(), Guarantees::DIRECTORY);
    }
}

#[tokio::test]
async fn a_demand_that_a_custom_store_does_not_meet_is_refused() {
    let locks = Locks::over(Slow { promises: Some(Guarantees::QUORUM), ..Slow::default() }).unwrap();
    for refused in [
        locks.lock("a").ordered().try_acquire().await.map(drop),
        locks.lock("a").fenced().ordered().acquire().await.map(drop),
        locks.all(["a", "b"]).ordered().acquire().await.map(drop),
    ] {
        assert!(matches!(refused, Err(LockError::NotGuaranteed { demand: Demand::Ordered })), "{refused:?}");
    }
    locks.lock("a").fenced().try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_store_that_keeps_no_shared_holds_refuses_them() {
    let locks = Locks::over(Slow { promises: Some(Guarantees::QUORUM), ..Slow::default() }).unwrap();
    for request in [locks.lock("a").shared(), locks.lock("a").permits(3)] {
        let refused = request.try_acquire().await;
        assert!(matches!(refused, Err(LockError::Unsupported { operation: "share a lock" })), "{refused:?}");
    }
    let locks = Locks::memory();
    for permits in [0, 1_001] {
        let refused = locks.lock("a").permits(permits).try_acquire().await;
        assert!(matches!(refused, Err(LockError::Input(InputError::Value { field: "permits", .. }))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_fence_check_accepts_those_who_share_a_turn_and_none_of_an_earlier_one() {
    for locks in each_store() {
        let earlier = locks.lock("a").shared().acquire().await.unwrap();
        let past = earlier.token().unwrap();
        earlier.release().await.unwrap();
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        let one = locks.lock("a").shared().owner("ann").acquire().await.unwrap();
        let two = locks.lock("a").permits(2).owner("bob").acquire().await.unwrap();
        let (first, second) = (one.token().unwrap(), two.token().unwrap());
        assert!(accepts(Some(&past), &first) && accepts(Some(&first), &second) && accepts(Some(&second), &first));
        assert!(!accepts(Some(&first), &past));
        let handed = two.hand_out().await.unwrap();
        assert_eq!(handed.token(), second);
        locks.release_lease("a", handed.request).await.unwrap();
        one.release().await.unwrap();
        // Two that hold the lock alone are never one owner.
        let alone = locks.lock("a").acquire().await.unwrap();
        assert!(!accepts(Some(&alone.token().unwrap()), &second) && alone.token().unwrap().owner() != second.owner());
        alone.release().await.unwrap();
    }
}

#[tokio::test]
async fn several_locks_whose_wait_runs_out_are_not_called_contended() {
    let locks = Locks::memory();
    let held = locks.lock("b").acquire().await.unwrap();
    let both = locks.all(["a", "b"]);
    let told = both.clone().wait(Duration::ZERO).acquire().await.map(drop);
    assert!(matches!(told, Err(LockError::Contended { .. })), "{told:?}");
    // The first lock uses up the wait, so none is left for the second.
    let told = both.wait(Duration::from_nanos(1)).acquire().await.map(drop);
    assert!(matches!(told, Err(LockError::TimedOut { .. })), "{told:?}");
    held.release().await.unwrap();
}

/// In memory, and over a store that answers later.
fn each_store() -> [Locks; 2] {
    [Locks::memory(), Locks::over(Slow::default()).unwrap()]
}

#[tokio::test]
async fn readers_share_and_writers_take_turns_with_them() {
    for locks in each_store() {
        let readers = [locks.lock("book").shared().try_acquire().await.unwrap(), {
            locks.lock("book").shared().acquire().await.unwrap()
        }];
        let fence = readers[0].fence().unwrap();
        assert_eq!(readers[1].fence().unwrap(), fence);
        let contended = locks.lock("book").try_acquire().await;
        assert!(matches!(contended, Err(LockError::Contended { .. })), "{contended:?}");
        let writer = tokio::spawn(locks.lock("book").acquire());
        while locks.view("book").await.unwrap().view.waiters == 0 {
            tokio::task::yield_now().await;
        }
        let late = locks.lock("book").shared().try_acquire().await;
        assert!(matches!(late, Err(LockError::Contended { waiters: 1, .. })), "it goes after the writer: {late:?}");
        for reader in readers {
            reader.release().await.unwrap();
        }
        let writer = writer.await.unwrap().unwrap();
        assert!(fence < writer.fence().unwrap());
        writer.release().await.unwrap();
        locks.quiet().await;
        assert_eq!(locks.view("book").await.unwrap().view.holders, 0);
    }
}

#[tokio::test]
async fn a_semaphore_never_has_more_holders_than_permits_and_serves_all() {
    for locks in each_store() {
        let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let tasks = (0..20).map(|_| {
            let (locks, inside, most) = (locks.clone(), Arc::clone(&inside), Arc::clone(&most));
            tokio::spawn(async move {
                let permit = locks.lock("pool").permits(3).acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3, "all permits are used, and no more");
    }
}

/// Polls a future `polls` times, yields after each poll, and drops the future. Returns whether it completed.
async fn dropped_after<F: Future>(polls: u32, future: F) -> bool {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await;
        if polled.is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn dropped_at_any_await_nothing_stays_behind() {
    let in_time = tokio::time::timeout(Duration::from_secs(20), drop_everywhere());
    in_time.await.expect("everything is undone");
}

async fn drop_everywhere() {
    let store = Arc::new(MemoryLocks::default());
    let locks = Locks::over(Slow { store: Arc::clone(&store), ..Slow::default() }).unwrap();
    let (mut cut, mut done) = (0, 0);
    for polls in 0..20 {
        // Three cases: a free lock, a held lock, and a lock that is released while another task waits. Each future is
        // dropped early.
        let acquire = locks.lock("a").acquire();
        done += u32::from(dropped_after(polls, acquire).await);
        locks.quiet().await;
        assert!(store.is_empty(), "asking, {polls} polls");
        let held = locks.lock("a").acquire().await.unwrap();
        let waits = dropped_after(polls, locks.lock("a").acquire()).await;
        assert!(!waits && locks.lock("a").try_acquire().await.is_err(), "waiting, {polls} polls");
        let next = locks.lock("a");
        let next = tokio::spawn(async move { next.acquire().await.unwrap().release().await });
        tokio::task::yield_now().await;
        cut += u32::from(!dropped_after(polls, held.release()).await);
        next.await.unwrap().unwrap();
        locks.quiet().await;
        assert!(store.is_empty(), "giving back, {polls} polls");
    }
    assert!((3..18).contains(&cut) && (3..18).contains(&done), "{cut} {done}");
}

#[tokio::test]
async fn a_run_of_a_job_that_is_dropped_at_any_await_leaves_nothing_behind() {
    let store = Arc::new(MemoryLocks::default());
    let locks = Locks::over(Slow { store: Arc::clone(&store), ..Slow::default() }).unwrap();
    let week = Duration::from_secs(7 * 86_400);
    let mut done = 0;
    for polls in 0..20 {
        // Asks, and gives back what it got: the slot too.
        let once = locks.once("job", week);
        done += u32::from(dropped_after(polls, async { once.begin().await.unwrap().retry().await.unwrap() }).await);
        let quiet = tokio::time::timeout(Duration::from_secs(20), locks.quiet());
        quiet.await.expect("everything is undone");
        assert!(store.is_empty(), "{polls} polls");
    }
    assert!((3..18).contains(&done), "{done}");
}

#[tokio::test]
async fn who_is_left_of_a_cohort_that_is_over_is_served_all_the_same() {
    let locks = Locks::over(Slow::default()).unwrap();
    let ask = || locks.lock("a").lease(Duration::from_millis(100)).cohort(4).acquire();
    let first = ask().await.unwrap();
    let next = tokio::spawn(ask());
    let granted_us = held(&locks).await.expect("it is held").1;
    let outlives = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        while held(&locks).await.expect("it is renewed").1 <= granted_us + 150_000 {
            ticks.tick().await;
        }
        // The lease of this grant is over, so it serves no further member: the same step gives it up and asks for
        // another grant.
        first.release().await.unwrap();
        next.await.unwrap().unwrap()
    };
    let next = tokio::time::timeout(Duration::from_secs(20), outlives).await.expect("it is its turn");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_was_over_is_lost_no_matter_what_the_store_says() {
    let gone = Arc::new(AtomicBool::new(false));
    let locks = Locks::over(Slow { gone: Arc::clone(&gone), ..Slow::default() }).unwrap();
    let guard = locks.lock("a").lease(Duration::from_millis(100)).fixed().acquire().await.unwrap();
    // Spin without an await, so that the timer cannot notice first.
    while !guard.remaining().is_zero() {
        std::hint::spin_loop();
    }
    gone.store(true, Ordering::Relaxed);
    let released = guard.release().await;
    assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
}
