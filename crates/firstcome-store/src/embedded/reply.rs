//! Carries replies from the writer to its callers, and wakes the callers of a batch together.
//!
//! A wake-up from the writer's thread costs its runtime a lock, and often a system call, for each caller. A wake-up
//! from a thread of that runtime costs neither. So the writer tells every caller of a batch its reply, and then wakes
//! one caller per thread that sent commands. That caller wakes the others of its thread as soon as it runs.
//!
//! # Invariants
//! - Every caller that waits is woken once its reply is there: by the writer, by a caller of its thread that ran, or by
//!   one that was dropped before it ran.
//! - A caller that does not run delays the others of its thread only until the writer looks again
//!   ([`wake_left_over`]), within [`LEFT_OVER_MAX`].

use super::Judged;
use crate::error::StoreError;
use firstcome_core::coupon::Rejection;
use parking_lot::Mutex;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How long the writer lets callers wait for another caller to wake them.
pub(super) const LEFT_OVER_MAX: Duration = Duration::from_micros(500);

/// How many threads have a list of their own. Threads beyond it share lists.
const THREADS: usize = 64;

/// The lists of all stores of the process.
static OF_PROCESS: WakeLists = WakeLists::new();

/// The callers whose replies are there and who are not woken yet.
struct WakeLists {
    waiting: [Mutex<Vec<Waker>>; THREADS],
    /// The threads with replies of the current batch: a bit each.
    fresh: AtomicU64,
    /// The threads of which a caller was woken to wake the others: a bit each.
    passed_on: AtomicU64,
}

/// The number of a thread that sent commands.
#[derive(Clone, Copy)]
struct CallerThread(usize);

impl CallerThread {
    fn of_this_thread() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD: Cell<Option<CallerThread>> = const { Cell::new(None) };
        }
        THREAD.get().unwrap_or_else(|| {
            let thread = Self(NEXT.fetch_add(1, Ordering::Relaxed) % THREADS);
            THREAD.set(Some(thread));
            thread
        })
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }

    fn all_of(bits: u64) -> impl Iterator<Item = Self> {
        (0..THREADS).map(Self).filter(move |thread| bits & thread.bit() != 0)
    }
}

impl WakeLists {
    const fn new() -> Self {
        let waiting = [const { Mutex::new(Vec::new()) }; THREADS];
        Self { waiting, fresh: AtomicU64::new(0), passed_on: AtomicU64::new(0) }
    }

    /// Adds a caller whose reply is there.
    fn add(&self, thread: CallerThread, caller: Waker) {
        self.waiting[thread.0].lock().push(caller);
        self.fresh.fetch_or(thread.bit(), Ordering::AcqRel);
    }

    /// Wakes all callers of a thread.
    fn wake_all(&self, thread: CallerThread) {
        self.passed_on.fetch_and(!thread.bit(), Ordering::AcqRel);
        let callers: Vec<Waker> = self.waiting[thread.0].lock().drain(..).collect();
        callers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the caller that has waited longest, to wake the others.
    fn wake_first(&self, thread: CallerThread) {
        let first = {
            let mut callers = self.waiting[thread.0].lock();
            if 1 < callers.len() {
                self.passed_on.fetch_or(thread.bit(), Ordering::AcqRel);
            }
            if callers.is_empty() { None } else { Some(callers.remove(0)) }
        };
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Wakes the others of a thread, if the writer has left that to a caller.
    fn carry_on(&self, thread: CallerThread) {
        if self.passed_on.load(Ordering::Acquire) & thread.bit() != 0 {
            self.wake_all(thread);
        }
    }

    fn wake_callers(&self) {
        // Those of the batch before had the time of this batch.
        self.wake_left_over();
        if self.fresh.load(Ordering::Acquire) != 0 {
            CallerThread::all_of(self.fresh.swap(0, Ordering::AcqRel)).for_each(|thread| self.wake_first(thread));
        }
    }

    fn wake_left_over(&self) {
        let passed_on = self.passed_on.load(Ordering::Acquire);
        if passed_on != 0 {
            CallerThread::all_of(passed_on).for_each(|thread| self.wake_all(thread));
        }
    }
}

/// Wakes the callers whose replies were sent since the last call: one of each thread, which wakes the others.
pub(super) fn wake_callers() {
    OF_PROCESS.wake_callers();
}

/// Whether callers may still wait for another caller to wake them.
pub(super) fn is_left_over() -> bool {
    OF_PROCESS.passed_on.load(Ordering::Acquire) != 0
}

/// Wakes all callers that no other caller has woken yet.
pub(super) fn wake_left_over() {
    OF_PROCESS.wake_left_over();
}

/// The place of one reply.
struct Place<T, R> {
    lists: &'static WakeLists,
    thread: CallerThread,
    state: Mutex<State<T, R>>,
}

enum State<T, R> {
    /// The caller waits; `None` until it was polled.
    Waiting(Option<Waker>),
    Ready(Judged<T, R>),
    /// The caller has taken the reply.
    Taken,
}

/// The writer's end: sends the reply. If it is dropped unsent, the caller gets `Unknown`.
pub(super) struct Reply<T, R = Rejection>(Option<Arc<Place<T, R>>>);

/// The caller's end: a future of the reply. Cancel-safe: dropping it gives the command up.
pub(super) struct Awaited<T, R = Rejection>(Arc<Place<T, R>>);

impl<T, R> Reply<T, R> {
    /// Makes the two ends, for a command of this thread.
    pub(super) fn pair() -> (Self, Awaited<T, R>) {
        Self::pair_in(&OF_PROCESS)
    }

    fn pair_in(lists: &'static WakeLists) -> (Self, Awaited<T, R>) {
        let state = Mutex::new(State::Waiting(None));
        let place = Arc::new(Place { lists, thread: CallerThread::of_this_thread(), state });
        (Self(Some(Arc::clone(&place))), Awaited(place))
    }

    /// Sends the reply. A caller that waits for it is woken by the next [`wake_callers`].
    pub(super) fn send(mut self, answer: Judged<T, R>) {
        let Some(place) = self.0.take() else { return };
        // Without a waker the caller has not been polled yet, and will find the reply. Or it has given up: the effect
        // stands, and a repeat will find it.
        if let Some(waker) = place.tell(answer) {
            place.lists.add(place.thread, waker);
        }
    }

    /// Whether the caller has given up.
    pub(super) fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(|place| Arc::strong_count(place) == 1)
    }
}

impl<T, R> Place<T, R> {
    fn tell(&self, answer: Judged<T, R>) -> Option<Waker> {
        match std::mem::replace(&mut *self.state.lock(), State::Ready(answer)) {
            State::Waiting(waker) => waker,
            State::Ready(_) | State::Taken => None,
        }
    }
}

impl<T, R> Drop for Reply<T, R> {
    fn drop(&mut self) {
        // The writer drops a reply unsent only when it panics in the middle of a batch, or ends. Nothing calls
        // `wake_callers` then.
        if let Some(place) = self.0.take()
            && let Some(waker) = place.tell(Err(StoreError::Unknown))
        {
            waker.wake();
        }
    }
}

impl<T, R> Future for Awaited<T, R> {
    type Output = Judged<T, R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Judged<T, R>> {
        // Also if its own reply is not there: the caller that was woken may have had its reply before.
        self.0.lists.carry_on(self.0.thread);
        let reply = {
            let mut state = self.0.state.lock();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Ready(reply) => reply,
                State::Waiting(waker) => {
                    let known = waker.filter(|waker| waker.will_wake(cx.waker()));
                    *state = State::Waiting(Some(known.unwrap_or_else(|| cx.waker().clone())));
                    return Poll::Pending;
                }
                // Polled again after its end, which no caller does.
                State::Taken => Err(StoreError::Unknown),
            }
        };
        Poll::Ready(reply)
    }
}

impl<T, R> Drop for Awaited<T, R> {
    fn drop(&mut self) {
        // This caller may be the one that the writer woke to wake the others.
        if !matches!(*self.0.state.lock(), State::Taken) {
            self.0.lists.carry_on(self.0.thread);
        }
    }
}

impl<T, R> Awaited<T, R> {
    /// Waits for the reply on a thread that runs nothing else.
    pub(super) fn wait(mut self) -> Judged<T, R> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(reply) = Pin::new(&mut self).poll(&mut cx) {
                return reply;
            }
            std::thread::park();
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair = (Reply<usize>, Awaited<usize>);

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Caller(AtomicUsize);

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type Waiting = (&'static WakeLists, Vec<Arc<Caller>>, Vec<Reply<usize>>, Vec<Awaited<usize>>);

    /// Three callers of one thread, each of which waits.
    fn waiting() -> Waiting {
        let lists: &'static WakeLists = Box::leak(Box::new(WakeLists::new()));
        let callers: Vec<Arc<Caller>> = (0..3).map(|_| Arc::default()).collect();
        let pairs: Vec<Pair> = (0..3).map(|_| Reply::pair_in(lists)).collect();
        let (replies, mut awaited): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        for (caller, awaited) in callers.iter().zip(&mut awaited) {
            assert!(poll(awaited, caller).is_pending());
        }
        (lists, callers, replies, awaited)
    }

    fn poll(awaited: &mut Awaited<usize>, caller: &Arc<Caller>) -> Poll<Judged<usize>> {
        Pin::new(awaited).poll(&mut Context::from_waker(&Waker::from(Arc::clone(caller))))
    }

    fn send_all(replies: Vec<Reply<usize>>) {
        replies.into_iter().enumerate().for_each(|(number, reply)| reply.send(Ok(Ok(number))));
    }

    fn wake_ups(callers: &[Arc<Caller>]) -> Vec<usize> {
        callers.iter().map(|caller| caller.0.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_first_caller_of_a_thread_wakes_the_others() {
        let (lists, callers, replies, mut awaited) = waiting();
        send_all(replies);
        assert_eq!(wake_ups(&callers), [0, 0, 0], "the batch has not ended");
        lists.wake_callers();
        assert_eq!(wake_ups(&callers), [1, 0, 0]);
        for number in 0..3 {
            assert!(
                matches!(poll(&mut awaited[number], &callers[number]), Poll::Ready(Ok(Ok(told))) if told == number)
            );
            assert_eq!(wake_ups(&callers), [1, 1, 1]);
        }
        lists.wake_callers();
        assert_eq!(wake_ups(&callers), [1, 1, 1], "each once");
    }

    #[test]
    fn a_caller_that_gives_up_wakes_the_others_too() {
        let (lists, callers, replies, mut awaited) = waiting();
        send_all(replies);
        lists.wake_callers();
        drop(awaited.remove(0));
        assert_eq!(wake_ups(&callers), [1, 1, 1]);
    }

    #[test]
    fn callers_are_woken_although_the_first_one_never_runs() {
        let (lists, callers, replies, _awaited) = waiting();
        send_all(replies);
        lists.wake_callers();
        lists.wake_left_over();
        assert_eq!(wake_ups(&callers), [1, 1, 1]);
        // The end of a batch wakes what the batch before has left over.
        let (lists, callers, replies, _awaited) = waiting();
        send_all(replies);
        lists.wake_callers();
        lists.wake_callers();
        assert_eq!(wake_ups(&callers), [1, 1, 1]);
    }

    #[test]
    fn a_caller_that_was_polled_for_another_reason_wakes_the_others() {
        let (lists, callers, replies, mut awaited) = waiting();
        send_all(replies);
        assert!(poll(&mut awaited[0], &callers[0]).is_ready());
        lists.wake_callers();
        // Its reply is taken: this wake-up comes too late for it. Any other caller of the thread notices.
        assert_eq!(wake_ups(&callers), [1, 0, 0]);
        let (_, mut newcomer) = Reply::pair_in(lists);
        assert!(poll(&mut newcomer, &callers[0]).is_ready(), "its reply was dropped");
        assert_eq!(wake_ups(&callers), [1, 1, 1]);
    }

    #[test]
    fn a_reply_that_is_dropped_is_an_unknown_outcome() {
        let (_lists, callers, replies, mut awaited) = waiting();
        drop(replies);
        assert_eq!(wake_ups(&callers), [1, 1, 1]);
        for (awaited, caller) in awaited.iter_mut().zip(&callers) {
            assert!(matches!(poll(awaited, caller), Poll::Ready(Err(StoreError::Unknown))));
        }
    }

    #[test]
    fn the_writer_sees_who_has_given_up() {
        let (_lists, _callers, replies, mut awaited) = waiting();
        drop(awaited.remove(1));
        assert_eq!(replies.iter().map(Reply::is_closed).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_thread_can_wait_for_a_reply() {
        let (reply, awaited) = Reply::<usize>::pair();
        let writer = std::thread::spawn(move || {
            reply.send(Ok(Ok(7)));
            wake_callers();
        });
        assert!(matches!(awaited.wait(), Ok(Ok(7))));
        writer.join().unwrap();
    }
}
