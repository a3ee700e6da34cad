//! Runs the pure client of the core over a store: sends its calls, wakes a waiter, keeps its time.

use super::quick::{self, Quick};
use super::{Guard, LockError};
use firstcome_store::core::id::{LockName, OwnerName};
use firstcome_store::core::lock::{
    Answer, Ask, Call, ClientId, Failed, Fence, LockReply, Party, Request, Settings, Step, Taken,
};
use firstcome_store::core::time::Steady;
use firstcome_store::edge::draw_id;
use firstcome_store::{Fault, LockEvent, LockInbox, LockStore, MemoryLocks, StoreError, TimedLockView};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A store behind a pointer.
pub(super) trait AnyStore: Send + Sync {
    fn take(self: Arc<Self>, step: Step) -> BoxFuture<Result<Answer, StoreError>>;
    fn view(self: Arc<Self>, name: LockName) -> BoxFuture<Result<TimedLockView, StoreError>>;
    fn attach(&self, client: ClientId, inbox: LockInbox);
    fn detach(&self, client: ClientId);
}

impl<S: LockStore> AnyStore for S {
    fn take(self: Arc<Self>, step: Step) -> BoxFuture<Result<Answer, StoreError>> {
        Box::pin(async move { LockStore::take(&*self, step).await })
    }

    fn view(self: Arc<Self>, name: LockName) -> BoxFuture<Result<TimedLockView, StoreError>> {
        Box::pin(async move { LockStore::view(&*self, &name).await })
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        LockStore::attach(self, client, inbox);
    }

    fn detach(&self, client: ClientId) {
        LockStore::detach(self, client);
    }
}

pub(super) enum Backend {
    /// Answers at once: no future, no task.
    Memory(Arc<MemoryLocks>),
    Other(Arc<dyn AnyStore>),
}

/// What a request's holder and waiters are to know.
#[derive(Default)]
pub(super) struct Seat {
    granted: Option<Fence>,
    deadline: Option<Steady>,
    /// Whether the hold lasts its whole lease.
    taken: bool,
    last: Option<LockReply>,
    /// Counts renewals that were told.
    renewals: u64,
    wakers: Vec<Waker>,
}

pub(super) struct Machine {
    pub(super) client: Party,
    pub(super) seats: BTreeMap<u64, Seat>,
    pub(super) quick: Quick,
    /// When the timer wakes by itself; `None` while it looks.
    asleep_until: Option<Steady>,
    /// Who waits until nothing is wanted any more.
    pub(super) quiet: Vec<Waker>,
    /// The last failure of the store, for the process that has to be told about it.
    error: Option<StoreError>,
}

/// One process with the locks of one store.
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
        // No other process asks a store in memory, so an id that is drawn badly does no harm.
        let id = draw_id().unwrap_or(0);
        Self::new(Backend::Memory(store), id)
    }

    pub(super) fn over(store: impl LockStore) -> Result<Arc<Self>, Fault> {
        Ok(Self::of_client(ClientId(draw_id()?), store))
    }

    /// Over a store that knows already which process this is.
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
            // Letters, digits and dashes: a name.
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

    /// A number that the client never draws.
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

    /// Changes the client, hands on what it tells, and returns what must be sent.
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

    /// Sends calls, in their order; what comes of them is dealt with in the background.
    fn send(self: &Arc<Self>, calls: Vec<Call>) {
        for call in calls {
            if let Some(running) = self.begin(call) {
                self.in_background(running);
            }
        }
    }

    /// Sends one call. What is not answered at once is still to be awaited.
    fn begin(self: &Arc<Self>, call: Call) -> Option<BoxFuture<()>> {
        let Call { id, step } = call;
        match &self.backend {
            Backend::Memory(store) => {
                let answer = store.take_now(&step);
                self.finish(id, Ok(answer));
                None
            }
            Backend::Other(store) => {
                let (shared, store) = (Arc::clone(self), Arc::clone(store));
                let mut running: BoxFuture<()> = Box::pin(async move {
                    let answer = store.take(step).await;
                    shared.finish(id, answer);
                });
                // Once now, so that calls arrive in the order in which they were made.
                match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(()) => None,
                    Poll::Pending => Some(running),
                }
            }
        }
    }

    /// Sends calls, in their order. The last is still to be awaited, if it was not answered at once; a call before it (a
    /// cohort that ends asks anew for the process that is left) is no process's to await.
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

    /// Passes time where the timer runs, since a waiter may be under another executor.
    pub(super) async fn sleep(&self, time: Duration) {
        let (done, passed) = oneshot::channel();
        self.in_background(Box::pin(async move {
            tokio::time::sleep(time).await;
            // A waiter may be gone.
            let _ = done.send(());
        }));
        let _ = passed.await;
    }

    fn finish(self: &Arc<Self>, call: u64, answer: Result<Answer, StoreError>) {
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

    /// Asks, and waits for the first word.
    pub(super) async fn acquire(self: &Arc<Self>, ask: Ask) -> Result<Guard, LockError> {
        let ask = match self.acquire_quickly(ask) {
            Ok(guard) => return Ok(guard),
            Err(ask) => ask,
        };
        let asked = (ask.name.clone(), ask.owner.clone(), Duration::from_millis(u64::from(ask.lease_ms)));
        let (number, calls) = self.act(|machine, now| {
            let number = machine.client.ask(ask, now);
            machine.seats.insert(number, Seat::default());
            number
        });
        let mut pending = Pending { shared: self, number, running: self.begin_all(calls), wanted: Wanted::Yes };
        let fence = pending.granted().await?;
        // From here on it belongs to the guard.
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
            // What the store did not say cannot make a hold last that was over before it was asked.
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

    /// Takes a hold out of this process's hands.
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

    /// Takes a step that is about no request of this process.
    pub(super) async fn take(&self, step: Step) -> Result<Answer, LockError> {
        let answer = match &self.backend {
            Backend::Memory(store) => Ok(store.take_now(&step)),
            Backend::Other(store) => Arc::clone(store).take(step).await,
        };
        answer.map_err(LockError::from)
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

    /// No process wants this request any more.
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
        // Given back: it is never lost any more.
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
    /// The timer is to look no later than this. Whether it has to be woken for that.
    pub(super) fn sleep_until_at_most(&mut self, at: Steady) -> bool {
        let wakes = self.asleep_until.is_some_and(|until| at < until);
        if wakes {
            self.asleep_until = Some(at);
        }
        wakes
    }
}

impl Seat {
    /// Of a hold that is there already.
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

/// A request that a process awaits. Dropped, it is given up; what is under way for it goes on without them.
struct Pending<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    running: Option<BoxFuture<()>>,
    wanted: Wanted,
}

/// Whether the request goes when its future does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
}

impl Pending<'_> {
    /// Polls what is under way, then asks the seat.
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

/// Wakes the client when something is due, until no process needs it any more.
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
                // Whichever is first: both lead to another look.
                let _ = tokio::time::timeout_at(until.into(), wake.notified()).await;
            }
            None => wake.notified().await,
        }
    }
}

/// Without a runtime of the caller's: a thread with one of its own.
fn own_thread(work: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    if let Ok(runtime) = runtime {
        let thread = std::thread::Builder::new().name("firstcome-locks".into());
        drop(thread.spawn(move || runtime.block_on(work)));
    }
}
