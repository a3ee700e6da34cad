//! Traced locks on Redis: counts the steps that were sent, and records the order of the line.

use anyhow::{anyhow, bail};
use firstcome::core::id::LockName;
use firstcome::core::lock::{Acquired, Answer, ClientId, Grant, LockAnswer, Step};
use firstcome::edge::Stopwatch;
use firstcome::redis::{Counts, Link, LinkOptions, RedisLocks};
use firstcome::{Fault, FaultKind, Guarantees, LockEvent, LockInbox, LockStore, Locks, StoreError, TimedLockView};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest delay on a machine that is busy with the benchmark.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time for a line to form.
const LINE_PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two checks of a condition.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// The steps by kind. The link counts the same steps, and scripts that it had to load.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Steps {
    pub(super) renewals: u64,
    /// The holds in these renewals.
    pub(super) renewed: u64,
    pub(super) beats: u64,
}

/// The trace. It is recorded unsorted and sorted on demand, to keep the cost out of the measurement.
#[derive(Default)]
struct TraceSummary {
    steps: Steps,
    /// Request numbers, each with its place in line.
    placed: Vec<(u64, u64)>,
    /// Fences, each with the request that it was granted to.
    granted: Vec<(u64, u64)>,
    /// The place in line behind each fence.
    places: BTreeMap<u64, u64>,
}

/// Whether places are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Places,
    Counts,
}

struct Traced {
    store: RedisLocks,
    keep: Keep,
    seen: Arc<Mutex<TraceSummary>>,
}

/// Locks with their trace.
pub(super) struct Watched {
    pub(super) locks: Locks,
    pub(super) link: Link,
    seen: Arc<Mutex<TraceSummary>>,
}

fn with<R>(seen: &Mutex<TraceSummary>, change: impl FnOnce(&mut TraceSummary) -> R) -> R {
    change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns options for a machine that is busy with the benchmark.
pub(crate) fn patient() -> LinkOptions {
    let mut options = LinkOptions::default();
    (options.connect_timeout, options.answer_timeout) = (PATIENCE, PATIENCE);
    options
}

/// Converts an error of opening to a fault of the store.
pub(crate) fn unreachable(error: &impl ToString) -> anyhow::Error {
    Fault { kind: FaultKind::Unreachable, detail: error.to_string() }.into()
}

impl Watched {
    pub(super) async fn open(url: &str, keep: Keep) -> anyhow::Result<Self> {
        let client = ClientId(firstcome::edge::draw_id().map_err(|fault| anyhow!("{fault}"))?);
        let store = RedisLocks::open(url, client, patient()).await.map_err(|error| unreachable(&error))?;
        let (link, seen) = (store.link().clone(), Arc::<Mutex<TraceSummary>>::default());
        let locks = Locks::over_as(client, Traced { store, keep, seen: Arc::clone(&seen) });
        Ok(Self { locks, link, seen })
    }

    pub(super) fn steps(&self) -> Steps {
        with(&self.seen, |seen| seen.steps)
    }

    pub(super) fn counts(&self) -> Counts {
        self.link.counts()
    }

    /// Waits until so many waiters are in line.
    pub(super) async fn stand_in_line(&self, name: &str, waiters: u32) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        while self.locks.view(name).await?.view.waiters < waiters {
            if LINE_PATIENCE < watch.elapsed() {
                bail!("{waiters} do not get in line");
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns the place in line of the request that got this fence.
    pub(super) fn place_of(&self, fence: u64) -> Option<u64> {
        with(&self.seen, |seen| {
            if !seen.granted.is_empty() {
                seen.sort();
            }
            seen.places.get(&fence).copied()
        })
    }
}

impl TraceSummary {
    fn granted(&mut self, grant: &Grant) {
        self.granted.push((grant.fence.get(), grant.request.number));
    }

    /// Records an answer. `asked` is the number of the request, if the step was an acquire.
    fn answered(&mut self, asked: Option<u64>, answer: &Answer) {
        match (asked, &answer.said) {
            (Some(asked), LockAnswer::Acquired(Acquired::Queued { number, .. })) => self.placed.push((asked, *number)),
            // A request that finds the lock free is granted on arrival.
            (Some(asked), LockAnswer::Acquired(Acquired::Granted(grant))) => {
                self.placed.push((asked, grant.fence.get()));
                self.granted(grant);
            }
            (_, LockAnswer::Beaten { looked, .. }) => {
                looked.iter().flat_map(|(grant, _)| grant).for_each(|g| self.granted(g));
            }
            _ => {}
        }
    }

    fn sort(&mut self) {
        let mut first = BTreeMap::new();
        for (asked, place) in &self.placed {
            first.entry(*asked).or_insert(*place);
        }
        let behind = self.granted.drain(..).filter_map(|(fence, asked)| Some((fence, *first.get(&asked)?)));
        self.places.extend(behind);
    }
}

impl LockStore for Traced {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn take(&self, step: Step) -> Result<Answer, StoreError> {
        with(&self.seen, |seen| match &step {
            Step::Renew { renewals, .. } => {
                seen.steps.renewals += 1;
                seen.steps.renewed += renewals.len() as u64;
            }
            Step::Beat { .. } => seen.steps.beats += 1,
            Step::Acquire { .. } | Step::Release { .. } => {}
        });
        if self.keep == Keep::Counts {
            return self.store.take(step).await;
        }
        let asked = match &step {
            Step::Acquire { waiter, .. } => Some(waiter.request.number),
            _ => None,
        };
        let answer = self.store.take(step).await?;
        with(&self.seen, |seen| seen.answered(asked, &answer));
        Ok(answer)
    }

    async fn view(&self, name: &LockName) -> Result<TimedLockView, StoreError> {
        self.store.view(name).await
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        let (keep, seen) = (self.keep, Arc::clone(&self.seen));
        let inbox: LockInbox = Arc::new(move |event| {
            if let (LockEvent::Push(push), Keep::Places) = (&event, keep) {
                with(&seen, |seen| seen.granted(&push.grant));
            }
            inbox(event);
        });
        self.store.attach(client, inbox);
    }

    fn detach(&self, client: ClientId) {
        self.store.detach(client);
    }
}
