//! Carries commands to the writer through a bounded queue, first in first out.

use super::engine::Engine;
use super::queue::{PushError, Queue, Waited};
use super::reply::{self, LEFT_OVER_MAX};
use super::{Command, Shared};
use crate::edge::Stopwatch;
use crate::error::{Fault, FaultKind, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How many commands may wait, however fast the writer is. Protects memory: about 250 bytes each.
pub(super) const QUEUE_COMMANDS_MAX: usize = 65_536;
/// How much service time may wait. Protects callers: a caller that would wait longer is refused at once.
pub(super) const QUEUE_SERVICE_MAX: Duration = Duration::from_millis(250);
/// How many commands go into one transaction. Keeps a commit near 5 ms, and so the wait of the next batch.
pub(super) const BATCH_COMMANDS_MAX: usize = 2_048;
// Up to this number all waiting commands share one transaction, so their wait is one sync, however slow the disk is.
const _: () = assert!(BATCH_COMMANDS_MAX < QUEUE_COMMANDS_MAX);

/// The shortest and the longest pause before a write is tried again after a temporary fault.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(50);
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(2);
/// After this time without a fault the next one begins with the shortest pause. So a disk that is almost full does not
/// fill the log with messages.
const PROBE_CALM: Duration = Duration::from_secs(10);

/// How commands reach the engine.
pub(super) enum CommandPath {
    /// In the caller's own thread, because nothing is synced. `None` once closed, or after a panic.
    Inline(Arc<Shared>, Mutex<Option<Box<Engine>>>),
    /// Through a queue to a thread that takes all commands that arrived while it was busy.
    Thread(Thread),
}

pub(super) struct Thread {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl CommandPath {
    pub(super) fn inline(shared: Arc<Shared>, engine: Engine) -> Self {
        Self::Inline(shared, Mutex::new(Some(Box::new(engine))))
    }

    pub(super) fn thread(shared: Arc<Shared>, engine: Engine) -> std::io::Result<Self> {
        let (command_path, stepper) = Thread::new(shared, engine);
        let writer = std::thread::Builder::new().name("firstcome-writer".into()).spawn(move || stepper.run())?;
        *command_path.writer.lock() = Some(writer);
        Ok(Self::Thread(command_path))
    }

    pub(super) fn stepped(shared: Arc<Shared>, engine: Engine) -> (Self, Stepper) {
        let (command_path, stepper) = Thread::new(shared, engine);
        (Self::Thread(command_path), stepper)
    }

    /// Submits a command, or returns at once why not.
    pub(super) fn submit(&self, command: Command) -> Result<(), StoreError> {
        match self {
            Self::Inline(shared, place) => {
                let mut place = place.lock();
                // Taken out while it runs: an engine that panics never runs again.
                let mut engine = place.take().ok_or_else(|| stopped(shared))?;
                let watched = Watched(shared);
                engine.run(&mut vec![command]);
                drop(watched);
                *place = Some(engine);
                Ok(())
            }
            Self::Thread(thread) => thread.submit(command),
        }
    }

    /// Accepts no more commands, finishes the waiting ones, and closes the journal. May block.
    pub(super) fn close(&self) {
        match self {
            Self::Inline(_, place) => drop(place.lock().take()),
            Self::Thread(thread) => {
                thread.queue.close();
                if let Some(writer) = thread.writer.lock().take() {
                    // A writer that panicked has reported its fault already: see `Stepper::drop`.
                    let _ = writer.join();
                }
            }
        }
    }
}

impl Thread {
    fn new(shared: Arc<Shared>, engine: Engine) -> (Self, Stepper) {
        let queue = Arc::new(Queue::default());
        let batch = Vec::new();
        let stepper = Stepper { shared: Arc::clone(&shared), queue: Arc::clone(&queue), engine, batch };
        (Self { shared, queue, writer: Mutex::new(None) }, stepper)
    }

    fn submit(&self, command: Command) -> Result<(), StoreError> {
        if let Some(fault) = self.shared.fault() {
            return Err(StoreError::Faulted(fault));
        }
        let limit = self.shared.stats.queue_limit.load(Ordering::Relaxed) as usize;
        self.queue.push(command, limit.min(QUEUE_COMMANDS_MAX)).map_err(|refused| match refused {
            PushError::Full => self.overloaded(),
            PushError::Closed => stopped(&self.shared),
        })
    }

    fn overloaded(&self) -> StoreError {
        self.shared.stats.overloaded.fetch_add(1, Ordering::Relaxed);
        StoreError::busy(QUEUE_SERVICE_MAX)
    }
}

/// Stops all writes if its owner panics: the state may be half changed.
struct Watched<'a>(&'a Shared);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Fault::new(FaultKind::Stopped, "the writer met a broken invariant"));
        }
    }
}

fn stopped(shared: &Shared) -> StoreError {
    let stopped = || Arc::new(Fault::new(FaultKind::Stopped, "the writer has stopped"));
    StoreError::Faulted(shared.fault().unwrap_or_else(stopped))
}

/// The pauses of the writer before it tries again whether writes succeed: twice as long each time. A fault that returns
/// soon after it ended continues with the earlier pause.
#[derive(Default)]
struct Pauses {
    last: Duration,
    rested: Option<Stopwatch>,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        if self.rested.take().is_some_and(|rested| PROBE_CALM < rested.elapsed()) {
            self.last = Duration::ZERO;
        }
        self.last = (self.last * 2).clamp(PROBE_PAUSE_MIN, PROBE_PAUSE_MAX);
        self.last
    }

    /// Notes that no fault is open.
    fn rest(&mut self) {
        if !self.last.is_zero() && self.rested.is_none() {
            self.rested = Some(Stopwatch::start());
        }
    }
}

/// The writer, for a caller that steps it.
pub struct Stepper {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    engine: Engine,
    batch: Vec<Command>,
}

firstcome_core::debug_by_name!(Stepper);

impl Stepper {
    /// Runs one batch of at most `commands_max` waiting commands, and returns how many it held. During a temporary
    /// fault it refuses all waiting commands, and tries whether writes succeed again.
    pub fn step(&mut self, commands_max: usize) -> usize {
        if self.shared.passing_fault().is_some() {
            let refused = self.refuse_all();
            self.engine.probe();
            return refused;
        }
        self.queue.take(&mut self.batch, commands_max);
        let commands = self.batch.len();
        self.engine.run(&mut self.batch);
        commands
    }

    /// Refuses all commands that came before the fault was known. Returns how many.
    fn refuse_all(&mut self) -> usize {
        self.queue.take(&mut self.batch, QUEUE_COMMANDS_MAX);
        let commands = self.batch.len();
        self.engine.run(&mut self.batch);
        commands
    }

    /// Waits, and then tries whether writes succeed again. Commands that come meanwhile are refused, when they are
    /// submitted or here.
    fn outlast(&mut self, pause: Duration) {
        let watch = Stopwatch::start();
        while let Some(left) = pause.checked_sub(watch.elapsed()).filter(|left| !left.is_zero()) {
            self.refuse_all();
            if self.queue.is_closed() {
                return;
            }
            std::thread::park_timeout(left.min(PROBE_PAUSE_MIN));
        }
        self.engine.probe();
    }

    fn run(mut self) {
        let mut pauses = Pauses::default();
        // Takes what has arrived, at least one command, without waiting for more. A lone command costs one sync and no
        // timer. Under load a batch is everything that arrived during the sync before it.
        loop {
            let left_over = reply::is_left_over().then_some(LEFT_OVER_MAX);
            match self.queue.wait(&mut self.batch, BATCH_COMMANDS_MAX, left_over) {
                Waited::Closed => break,
                Waited::InVain => {
                    reply::wake_left_over();
                    continue;
                }
                Waited::Commands => {}
            }
            self.shared.stats.queue_depth.store(self.queue.depth() as u64, Ordering::Relaxed);
            self.engine.run(&mut self.batch);
            while self.shared.passing_fault().is_some() && !self.queue.is_closed() {
                self.outlast(pauses.next());
            }
            pauses.rest();
        }
        self.engine.close();
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        drop(Watched(&self.shared));
        self.queue.close();
        self.queue.clear();
        reply::wake_left_over();
    }
}
