//! Runs the pure lock client of the core over a store: sends its calls, wakes its waiters, and keeps its time.

use super::any_store::{AnyStore, BoxFuture};
use super::guard::HoldTerms;
use super::quick::{self, Quick};
use super::{Guard, LockError};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Answer, Ask, Call, ClientId, Failed, Fence, LockReply, Party, Request, Settings, Step, Taken,
};
use firstcome_store::core::time::Steady;
use firstcome_store::edge::draw_id;
use firstcome_store::{Fault, Guarantees, LockEvent, LockInbox, LockStore, MemoryLocks, StoreError, TimedLockView};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

pub(super) enum Backend {
    /// Answers within the call: needs no future and no task.
    Memory(Arc<MemoryLocks>),
    Other(Arc<dyn AnyStore>),
}

/// What the tasks that await one request must know.
#[derive(Default)]
pub(super) struct Seat {
    granted: Option<Fence>,
    deadline: Option<Steady>,
    /// Whether the grant is confirmed, so that the hold lasts its whole lease.
    taken: bool,
    last: Option<LockReply>,
    /// Counts the renewals that the client reported.
    renewals: u64,
    wakers: Vec<Waker>,
}

pub(super) struct Machine {
    pub(super) client: Party,
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) quick: Quick,
    /// When the timer wakes by itself; `None` while the timer runs its checks.
    asleep_until: Option<Steady>,
    /// The tasks that wait until this process neither holds nor wants a lock.
    pub(super) quiet: Vec<Waker>,
    /// The last failure of the store, for the callers that must report it.
    error: Option<StoreError>,
}

/// One process, as a client of one lock store.
pub(super) struct Shared {
    pub(super) backend: Backend,
    pub(super) machine: Mutex<Machine>,
    pub(super) id: ClientId,
    drawn: AtomicU64,
    started: Instant,
    pub(super) wake: Arc<Notify>,
    runtime: Option<Handle>,
    pub(super) owner: OwnerName,
}

impl Shared {
    pub(super) fn memory(store: Arc<MemoryLocks>) -> Arc<Self> {
        // No other process uses a store in memory, so even a constant id is unique.
        let id = draw_id().unwrap_or(0);
        Self::new(Backend::Memory(store), id)
    }

    pub(super) fn over(store: impl LockStore) -> Result<Arc<Self>, Fault> {
        Ok(Self::of_client(ClientId(draw_id()?), store))
    }

    /// Makes the state over a store that was opened for this client id.
    pub(super) fn of_client(client: ClientId, store: impl LockStore) -> Arc<Self> {
        Self::new(Backend::Other(Arc::new(store)), client.0)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the edge where the steady clock comes in")]
    fn new(backend: Backend, id: u64) -> Arc<Self> {
        let client = Party::new(ClientId(id), Settings::default());
        let owner = format!("process-{}-{id:016x}", std::process::id());
        let shared = Arc::new(Self {
            backend,
            machine: Mutex::new(Machine {
                client,
                seats: BTreeMap::new(),
                quick: Quick::default(),
                asleep_until: None,
                quiet: Vec::new(),
                error: None,
            }),
            id: ClientId(id),
            drawn: AtomicU64::new(quick::FIRST),
            started: Instant::now(),
            wake: Arc::default(),
            runtime: Handle::try_current().ok(),
            // The text has letters, digits and dashes only, so it is a valid name.
            owner: OwnerName::parse(&owner).unwrap_or_else(|_| unreachable!("{owner} is a name")),
        });
        let weak = Arc::downgrade(&shared);
        let inbox: LockInbox = Arc::new(move |event| {
            if let Some(shared) = weak.upgrade() {
                shared.on_event(event);
            }
        });
        match &shared.backend {
            Backend::Memory(store) => LockStore::attach(&**store, ClientId(id), inbox),
            Backend::Other(store) => AnyStore::attach(&**store, ClientId(id), inbox),
        }
        let timer = keep_time(Arc::downgrade(&shared), Arc::clone(&shared.wake));
        match &shared.runtime {
            Some(runtime) => drop(runtime.spawn(timer)),
            None => own_thread(timer),
        }
        shared
    }

    /// Draws a request number that the client never draws.
    pub(super) fn draw(&self) -> (u64, Request) {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        (number, Request { client: self.id, number })
    }

    pub(super) fn now(&self) -> Steady {
        Steady::from_us(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    fn instant(&self, at: Steady) -> Instant {
        self.started + Duration::from_micros(at.as_us().try_into().unwrap_or(0))
    }

    /// Changes the client, passes its replies on to their seats, and returns the calls to send.
    fn act<R>(&self, change: impl FnOnce(&mut Machine, Steady) -> R) -> (R, Vec<Call>) {
        let mut awake = Vec::new();
        let (result, calls, wakes) = {
            let mut machine = self.machine.lock();
            let result = change(&mut machine, self.now());
            while let Some((number, told)) = machine.client.next_reply() {
                if let Some(seat) = machine.seats.get_mut(&number) {
                    seat.on_event(told);
                    awake.append(&mut seat.wakers);
                }
            }
            if !machine.quiet.is_empty() && machine.is_quiet() {
                awake.append(&mut machine.quiet);
            }
            let mut calls = Vec::new();
            while let Some(call) = machine.client.next_call() {
                calls.push(call);
            }
            let due = machine.client.next_due();
            let wakes = machine.asleep_until.is_some_and(|until| due.is_some_and(|due| due < until));
            if wakes {
                machine.asleep_until = due;
            }
            (result, calls, wakes)
        };
        if wakes {
            self.wake.notify_one();
        }
        awake.into_iter().for_each(Waker::wake);
        (result, calls)
    }

    pub(super) fn act_and_send(self: &Arc<Self>, change: impl FnOnce(&mut Machine, Steady)) {
        let ((), calls) = self.act(change);
        self.send(calls);
    }

    /// Sends calls in order. A background task handles each answer that does not come at once.
    fn send(self: &Arc<Self>, calls: Vec<Call>) {
        for call in calls {
            if let Some(running) = self.begin(call) {
                self.in_background(running);
            }
        }
    }

    /// Sends one call. Returns a future to await if the answer does not come at once.
    fn begin(self: &Arc<Self>, call: Call) -> Option<BoxFuture<()>> {
        match &self.backend {
            Backend::Memory(store) => {
                let answer = store.take_now(&call.step);
                self.finish(call.id, Ok(answer));
                None
            }
            Backend::Other(store) => {
                let mut running = Arc::clone(store).finish(Arc::clone(self), call);
                // Poll once now, so that calls arrive in the order in which they were made.
                match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(()) => None,
                    Poll::Pending => Some(running),
                }
            }
        }
    }

    /// Sends calls in order. Returns the last one for the caller to await, if it was not answered at once. The earlier
    /// calls finish in the background: a cohort that ends, for example, asks again for its remaining members.
    fn begin_all(self: &Arc<Self>, calls: Vec<Call>) -> Option<BoxFuture<()>> {
        let mut last = None;
        for call in calls {
            if let Some(before) = std::mem::replace(&mut last, self.begin(call)) {
                self.in_background(before);
            }
        }
        last
    }

    fn in_background(&self, running: BoxFuture<()>) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(running);
        } else {
            own_thread(running);
        }
    }

    /// Sleeps on the runtime of the timer, because the caller may run under another executor.
    pub(super) async fn sleep(&self, time: Duration) {
        let (done, passed) = oneshot::channel();
        self.in_background(Box::pin(async move {
            tokio::time::sleep(time).await;
            // The caller may have dropped its future.
            let _ = done.send(());
        }));
        let _ = passed.await;
    }

    pub(super) fn finish(self: &Arc<Self>, call: u64, answer: Result<Answer, StoreError>) {
        self.act_and_send(|machine, now| {
            let answer = answer.map_err(|error| {
                let failed = if matches!(error, StoreError::Unknown) { Failed::Unknown } else { Failed::Unavailable };
                machine.error = Some(error);
                failed
            });
            machine.client.answered(call, answer, now);
        });
    }

    fn on_event(self: &Arc<Self>, event: LockEvent) {
        self.act_and_send(|machine, now| match event {
            LockEvent::Push(push) => machine.client.pushed(&push, now),
            LockEvent::MayHaveMissed => machine.client.check_everywhere(now),
        });
    }

    /// Asks for a lock, and waits for the grant or a refusal.
    pub(super) async fn acquire(self: &Arc<Self>, ask: Ask) -> Result<Guard, LockError> {
        let ask = match self.acquire_quickly(ask) {
            Ok(guard) => return Ok(guard),
            Err(ask) => ask,
        };
        let asked = HoldTerms::of(&ask);
        let (number, calls) = self.act(|machine, now| {
            let number = machine.client.ask(ask, now);
            machine.seats.insert(number, Seat::default());
            number
        });
        let mut pending = Pending { shared: self, number, running: self.begin_all(calls), wanted: Wanted::Yes };
        let fence = pending.granted().await?;
        // From here on the request belongs to the guard.
        pending.wanted = Wanted::No;
        drop(pending);
        Ok(Guard::new(Arc::clone(self), number, asked, fence))
    }

    pub(super) async fn release(self: &Arc<Self>, number: u64) -> Result<(), LockError> {
        let (over, calls) = self.act(|machine, now| {
            let over = machine.seats.get(&number).is_none_or(|seat| seat.is_over(now));
            machine.client.release(number, now);
            over
        });
        let mut pending = Pending { shared: self, number, running: self.begin_all(calls), wanted: Wanted::Yes };
        match pending.last().await {
            LockReply::Released => Ok(()),
            // A hold that was over before the release is lost, even if the store did not answer.
            LockReply::Failed(_) if over => Err(LockError::Lost),
            told => Err(self.error_of(told)),
        }
    }

    pub(super) async fn renew(self: &Arc<Self>, number: u64, lease: Duration) -> Result<(), LockError> {
        let lease_ms = super::lease_ms(lease)?;
        self.adopt(number);
        let (before, calls) = self.act(|machine, now| {
            machine.client.renew(number, lease_ms, now);
            machine.client.tick(now);
            machine.seats.get(&number).map_or(0, |seat| seat.renewals)
        });
        self.send(calls);
        poll_fn(|context| {
            let mut machine = self.machine.lock();
            let Some(seat) = machine.seats.get_mut(&number) else { return Poll::Ready(Err(LockError::Lost)) };
            if seat.last.is_some() {
                return Poll::Ready(Err(LockError::Lost));
            }
            if before < seat.renewals {
                return Poll::Ready(Ok(()));
            }
            seat.wait(context);
            Poll::Pending
        })
        .await
    }

    /// Hands a hold out, so that this process neither renews nor releases it any more.
    pub(super) async fn hand_out(
        self: &Arc<Self>,
        number: u64,
        lease: Duration,
    ) -> Result<(Request, Instant), LockError> {
        self.adopt(number);
        if self.machine.lock().seats.get(&number).is_some_and(|seat| !seat.taken) {
            self.renew(number, lease).await?;
        }
        let (handed, calls) = self.act(|machine, now| {
            let deadline = machine.seats.remove(&number).and_then(|seat| seat.deadline);
            machine.client.hand_out(number, now).zip(deadline)
        });
        self.send(calls);
        let (request, deadline) = handed.ok_or(LockError::Lost)?;
        Ok((request, self.instant(deadline)))
    }

    /// Takes a step that concerns no request of this process's client.
    pub(super) async fn take(&self, step: Step) -> Result<Answer, LockError> {
        let answer = match &self.backend {
            Backend::Memory(store) => Ok(store.take_now(&step)),
            Backend::Other(store) => Arc::clone(store).take(step).await,
        };
        answer.map_err(LockError::from)
    }

    pub(super) fn guarantees(&self) -> Guarantees {
        match &self.backend {
            Backend::Memory(store) => LockStore::guarantees(&**store),
            Backend::Other(store) => AnyStore::guarantees(&**store),
        }
    }

    pub(super) async fn view(&self, name: &LockName) -> Result<TimedLockView, LockError> {
        let seen = match &self.backend {
            Backend::Memory(store) => LockStore::view(&**store, name).await,
            Backend::Other(store) => Arc::clone(store).view(name.clone()).await,
        };
        seen.map_err(LockError::from)
    }

    pub(super) async fn quiet(&self) {
        poll_fn(|context| {
            let mut machine = self.machine.lock();
            if machine.is_quiet() {
                return Poll::Ready(());
            }
            machine.quiet.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Gives up a request that no caller wants any more.
    pub(super) fn forget(self: &Arc<Self>, number: u64) {
        if self.release_quickly(number).is_some() {
            return;
        }
        self.act_and_send(|machine, now| {
            machine.seats.remove(&number);
            machine.client.drop_request(number, now);
        });
    }

    pub(super) fn deadline(self: &Arc<Self>, number: u64) -> Instant {
        self.adopt(number);
        let deadline =
            self.machine.lock().seats.get(&number).filter(|seat| seat.last.is_none()).and_then(|s| s.deadline);
        self.instant(deadline.unwrap_or(Steady::from_us(0)))
    }

    pub(super) fn is_lost(self: &Arc<Self>, number: u64) -> bool {
        self.adopt(number);
        let now = self.now();
        self.machine.lock().seats.get(&number).is_none_or(|seat| seat.is_over(now))
    }

    pub(super) fn poll_lost(self: &Arc<Self>, number: u64, context: &mut Context<'_>) -> Poll<()> {
        self.adopt(number);
        let mut machine = self.machine.lock();
        // The hold was released, so it can never be lost.
        let Some(seat) = machine.seats.get_mut(&number) else { return Poll::Pending };
        if seat.last == Some(LockReply::Lost) || (seat.last.is_none() && seat.is_over(self.now())) {
            return Poll::Ready(());
        }
        seat.wait(context);
        Poll::Pending
    }

    fn error_of(&self, told: LockReply) -> LockError {
        match told {
            LockReply::Contended { holder, waiters, ttl_ms } => {
                LockError::Contended { holder: holder.to_string(), waiters, ttl: Duration::from_millis(ttl_ms) }
            }
            LockReply::TimedOut { ahead } => LockError::TimedOut { position: ahead },
            LockReply::Failed(Failed::Unavailable) => match self.machine.lock().error.clone() {
                Some(error) => LockError::Unavailable(error),
                None => LockError::Unknown,
            },
            LockReply::Failed(Failed::Unknown) => LockError::Unknown,
            _ => LockError::Lost,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let id = self.machine.lock().client.id();
        match &self.backend {
            Backend::Memory(store) => LockStore::detach(&**store, id),
            Backend::Other(store) => AnyStore::detach(&**store, id),
        }
        self.wake.notify_one();
    }
}

impl Machine {
    /// Makes the timer wake no later than `at`. Returns whether the caller must wake it for that.
    pub(super) fn sleep_until_at_most(&mut self, at: Steady) -> bool {
        let wakes = self.asleep_until.is_some_and(|until| at < until);
        if wakes {
            self.asleep_until = Some(at);
        }
        wakes
    }
}

impl Seat {
    /// Makes the seat of a request that already holds its lock.
    pub(super) fn of_hold(fence: Fence, deadline: Steady) -> Self {
        Self { granted: Some(fence), deadline: Some(deadline), taken: true, ..Self::default() }
    }

    fn on_event(&mut self, told: LockReply) {
        match told {
            LockReply::Granted { fence, deadline, taken } => {
                (self.granted, self.deadline, self.taken) = (Some(fence), Some(deadline), taken == Taken::Yes);
            }
            LockReply::Renewed { deadline } => {
                self.deadline = Some(deadline);
                self.renewals += 1;
            }
            last => self.last = Some(last),
        }
    }

    fn is_over(&self, now: Steady) -> bool {
        self.last.is_some() || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn wait(&mut self, context: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            self.wakers.push(context.waker().clone());
        }
    }
}

/// A request that a caller awaits. Dropping it gives the request up; calls that were sent go on in the background.
struct Pending<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    running: Option<BoxFuture<()>>,
    wanted: Wanted,
}

/// Whether dropping the future gives the request up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
}

impl Pending<'_> {
    /// Polls the running call, then asks the seat.
    fn poll<T>(&mut self, context: &mut Context<'_>, ask: impl Fn(&mut Seat) -> Option<T>) -> Poll<T> {
        if let Some(running) = &mut self.running
            && running.as_mut().poll(context).is_ready()
        {
            self.running = None;
        }
        let mut machine = self.shared.machine.lock();
        let seat = machine.seats.entry(self.number).or_default();
        match ask(seat) {
            Some(answer) => Poll::Ready(answer),
            None => {
                seat.wait(context);
                Poll::Pending
            }
        }
    }

    async fn granted(&mut self) -> Result<Fence, LockError> {
        let word = |seat: &mut Seat| seat.granted.map(Ok).or_else(|| seat.last.clone().map(Err));
        let granted = poll_fn(|context| self.poll(context, word)).await;
        granted.map_err(|told| self.shared.error_of(told))
    }

    async fn last(&mut self) -> LockReply {
        poll_fn(|context| self.poll(context, |seat| seat.last.clone())).await
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.shared.in_background(running);
        }
        if self.wanted == Wanted::Yes {
            self.shared.forget(self.number);
        }
    }
}

/// Wakes the client when something is due, until the last handle of this process is dropped.
async fn keep_time(shared: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let until = {
            let Some(shared) = shared.upgrade() else { return };
            let (due, calls) = shared.act(|machine, now| {
                machine.asleep_until = None;
                let sweep_at = machine.expire(now);
                machine.client.tick(now);
                let due = machine.client.next_due();
                let due = due.into_iter().chain(sweep_at).min();
                machine.asleep_until = Some(due.unwrap_or(Steady::from_us(i64::MAX)));
                due
            });
            shared.send(calls);
            due.map(|due| shared.instant(due))
        };
        match until {
            Some(until) => {
                // Both a timeout and a wake-up lead to the next round.
                let _ = tokio::time::timeout_at(until.into(), wake.notified()).await;
            }
            None => wake.notified().await,
        }
    }
}

/// Runs work on a thread with its own runtime, for callers without a runtime.
fn own_thread(work: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    if let Ok(runtime) = runtime {
        let thread = std::thread::Builder::new().name("firstcome-locks".into());
        drop(thread.spawn(move || runtime.block_on(work)));
    }
}
