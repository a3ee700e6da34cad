//! Locks on Redis with somebody who looks over their shoulder: which steps were sent, and who got in line when.

use anyhow::anyhow;
use firstcome::core::id::LockName;
use firstcome::core::lock::{Acquired, Answer, ClientId, Grant, Said, Step};
use firstcome::redis::{Counts, Link, LinkOptions, RedisLocks};
use firstcome::{Fault, FaultKind, LockEvent, LockInbox, LockSeen, LockStore, Locks, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longer than a machine that has other things to do lets anything wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// Steps by their kind. The link counts the same ones, and scripts that had to be loaded.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Steps {
    pub(super) renewals: u64,
    /// Holds in them.
    pub(super) renewed: u64,
    pub(super) beats: u64,
}

/// What was seen.
#[derive(Default)]
struct Seen {
    steps: Steps,
    /// The place in line that a request was given, by its number.
    places: BTreeMap<u64, u64>,
    /// Which request a fence was given to.
    fences: BTreeMap<u64, u64>,
}

/// Whether places are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Places,
    Counts,
}

struct Traced {
    store: RedisLocks,
    keep: Keep,
    seen: Arc<Mutex<Seen>>,
}

/// Locks, and what was seen of them.
pub(super) struct Watched {
    pub(super) locks: Locks,
    pub(super) link: Link,
    seen: Arc<Mutex<Seen>>,
}

fn with<R>(seen: &Mutex<Seen>, change: impl FnOnce(&mut Seen) -> R) -> R {
    change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Options for a machine that is busy with the benchmark itself.
pub(super) fn patient() -> LinkOptions {
    let mut options = LinkOptions::default();
    (options.connect_timeout, options.answer_timeout) = (PATIENCE, PATIENCE);
    options
}

/// What cannot be opened, as a fault of the store.
pub(super) fn unreachable(error: &impl ToString) -> anyhow::Error {
    Fault { kind: FaultKind::Unreachable, detail: error.to_string() }.into()
}

impl Watched {
    pub(super) async fn open(url: &str, keep: Keep) -> anyhow::Result<Self> {
        let client = ClientId(firstcome::edge::draw_id().map_err(|fault| anyhow!("{fault}"))?);
        let store = RedisLocks::open(url, client, patient()).await.map_err(|error| unreachable(&error))?;
        let (link, seen) = (store.link().clone(), Arc::<Mutex<Seen>>::default());
        let locks = Locks::over_as(client, Traced { store, keep, seen: Arc::clone(&seen) });
        Ok(Self { locks, link, seen })
    }

    pub(super) fn steps(&self) -> Steps {
        with(&self.seen, |seen| seen.steps)
    }

    pub(super) fn counts(&self) -> Counts {
        self.link.counts()
    }

    /// The place in line that became a hold with this fence.
    pub(super) fn place_of(&self, fence: u64) -> Option<u64> {
        with(&self.seen, |seen| seen.places.get(seen.fences.get(&fence)?).copied())
    }
}

impl Seen {
    fn granted(&mut self, grant: &Grant) {
        self.fences.insert(grant.fence.get(), grant.request.number);
    }

    fn answered(&mut self, step: &Step, answer: &Answer) {
        match (step, &answer.said) {
            (Step::Acquire { waiter, .. }, Said::Acquired(Acquired::Queued { number, .. })) => {
                self.places.entry(waiter.request.number).or_insert(*number);
            }
            // Who finds the lock free has it from the moment of the arrival on.
            (Step::Acquire { waiter, .. }, Said::Acquired(Acquired::Granted(grant))) => {
                self.places.entry(waiter.request.number).or_insert(grant.fence.get());
                self.granted(grant);
            }
            (_, Said::Beaten { looked, .. }) => {
                looked.iter().flat_map(|(grant, _)| grant).for_each(|g| self.granted(g));
            }
            _ => {}
        }
    }
}

impl LockStore for Traced {
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
        let answer = self.store.take(step.clone()).await?;
        with(&self.seen, |seen| seen.answered(&step, &answer));
        Ok(answer)
    }

    async fn view(&self, name: &LockName) -> Result<LockSeen, StoreError> {
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
