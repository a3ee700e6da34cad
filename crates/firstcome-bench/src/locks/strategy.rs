//! The lock strategies that are compared.

use super::bare::{BareHold, BareLocks};
use super::database::{DatabaseHold, DatabaseLocks};
use super::traced::{Keep, Watched, patient, unreachable};
use firstcome::lock::{Layout, Pauses, QuorumOptions, layout, quorum};
use firstcome::{Fence, Guard, LockError, LockRequest, Locks};
use firstcome_bench::bench_worker::{LEASE, Traffic};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// A lock strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strategy {
    /// No lock: shows that the counter loses updates.
    Control,
    /// A `SET NX` spin lock that tries every 100 ms.
    SpinConstant,
    /// A `SET NX` spin lock whose pauses shrink at random below 100 ms.
    SpinShrinking,
    SpinFull,
    Fifo,
    /// The least that a hand-over in order can cost, compared with the line.
    Bare,
    Cohort,
    File,
    Memory,
    /// A lock over several servers, measured separately.
    Quorum,
    /// A lock over several servers that each process passes on among its tasks.
    QuorumCohort,
    /// The layout of Redisson, compared only with Redisson.
    Redisson,
    /// An advisory lock of PostgreSQL, compared only in the field.
    Advisory,
    /// `GET_LOCK` of MariaDB, compared only in the field.
    GetLock,
}

/// How many tasks of a process one grant of the store serves.
const COHORT: u32 = 32;

/// The strategies of the comparison, in the order of the table.
pub(super) const ALL: [Strategy; 8] = [
    Strategy::Control,
    Strategy::SpinConstant,
    Strategy::SpinShrinking,
    Strategy::SpinFull,
    Strategy::Fifo,
    Strategy::Cohort,
    Strategy::File,
    Strategy::Memory,
];

const fn ms(ms: u32) -> NonZeroU32 {
    NonZeroU32::new(ms).unwrap()
}

impl Strategy {
    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::Control => "no lock (control)",
            Self::SpinConstant => "SET NX spin, 100 ms",
            Self::SpinShrinking => "shrinking jitter, 100 ms",
            Self::SpinFull => "full jitter, 1 to 128 ms",
            Self::Fifo => "native FIFO",
            Self::Bare => "bare hand-over, no lock",
            Self::Cohort => "native cohort(32)",
            Self::File => "locks.db",
            Self::Memory => "memory, one process",
            Self::Quorum => "quorum",
            Self::QuorumCohort => "quorum, cohort(32)",
            Self::Redisson => "Redisson's layout, ours",
            Self::Advisory => "PostgreSQL, pg_advisory_lock",
            Self::GetLock => "MariaDB, GET_LOCK",
        }
    }

    /// Whether the strategy uses the Redis server.
    pub(super) const fn is_on_redis(self) -> bool {
        !matches!(self, Self::Control | Self::File | Self::Memory | Self::Advisory | Self::GetLock)
    }

    /// Whether several processes can exclude each other by it.
    pub(super) const fn spans_processes(self) -> bool {
        !matches!(self, Self::Memory)
    }

    const fn pauses(self) -> Option<Pauses> {
        match self {
            Self::SpinConstant => Some(Pauses::Constant { every_ms: ms(100) }),
            Self::SpinShrinking => Some(Pauses::ShrinkingJitter { base_ms: ms(100) }),
            Self::SpinFull => Some(Pauses::FullJitter { base_ms: ms(1), most_ms: ms(128) }),
            Self::Control | Self::Fifo | Self::Bare | Self::Cohort | Self::File | Self::Memory => None,
            Self::Quorum | Self::QuorumCohort | Self::Redisson | Self::Advisory | Self::GetLock => None,
        }
    }
}

/// A strategy that is ready for use.
pub(super) enum StrategyKind {
    Control,
    /// A layout that others share, without renewals: their recipe has none.
    Shared(Locks, Option<Pauses>),
    /// The number is how many tasks one grant serves.
    Native(Watched, u32),
    Bare(BareLocks),
    /// The locks of a database, one connection for each that waits.
    Database(DatabaseLocks),
    /// Any other store; the number is how many tasks one grant serves.
    Other(Locks, u32),
}

/// A held lock.
pub(super) enum StrategyHold {
    Nothing,
    Lock(Guard),
    Bare(BareHold),
    Database(DatabaseHold),
}

impl StrategyKind {
    pub(super) async fn open(strategy: Strategy, url: &str, directory: &Path) -> anyhow::Result<Self> {
        let shared = async |layout| {
            let open = Locks::redis(url).options(patient()).layout(layout);
            open.await.map_err(|error| unreachable(&error))
        };
        if let Some(pauses) = strategy.pauses() {
            return Ok(Self::Shared(shared(Layout::SingleKey).await?, Some(pauses)));
        }
        Ok(match strategy {
            Strategy::Redisson => Self::Shared(shared(Layout::Redisson).await?, None),
            Strategy::Fifo => Self::Native(Watched::open(url, Keep::Places).await?, 1),
            Strategy::Cohort => Self::Native(Watched::open(url, Keep::Counts).await?, COHORT),
            Strategy::Bare => Self::Bare(BareLocks::open(url).await?),
            Strategy::Advisory | Strategy::GetLock => Self::Database(DatabaseLocks::open(url).await?),
            Strategy::File => Self::Other(Locks::open(directory)?, 1),
            Strategy::Memory => Self::Other(Locks::memory(), 1),
            Strategy::Quorum | Strategy::QuorumCohort => {
                let locks = Locks::quorum_with(url.split(','), QuorumOptions::default().new_set()).await;
                let passes = if strategy == Strategy::Quorum { 1 } else { COHORT };
                Self::Other(locks.map_err(|error| unreachable(&error))?, passes)
            }
            _ => Self::Control,
        })
    }

    fn request(&self, name: &str) -> Option<LockRequest> {
        Some(match self {
            Self::Control | Self::Bare(_) | Self::Database(_) => return None,
            Self::Shared(locks, None) => locks.lock(name).fixed(),
            Self::Shared(locks, Some(pauses)) => locks.lock(name).policy(*pauses).fixed(),
            Self::Native(Watched { locks, .. }, passes) | Self::Other(locks, passes) => {
                locks.lock(name).cohort(*passes)
            }
        })
    }
}

impl firstcome_bench::bench_worker::LockStrategy for StrategyKind {
    type Guard = StrategyHold;

    async fn acquire(&self, name: &str, wait: Duration) -> anyhow::Result<Option<StrategyHold>> {
        if let Self::Database(locks) = self {
            return Ok(locks.acquire(name, wait).await?.map(StrategyHold::Database));
        }
        if let Self::Bare(locks) = self {
            return Ok(locks.acquire(name, wait).await?.map(StrategyHold::Bare));
        }
        let Some(request) = self.request(name) else { return Ok(Some(StrategyHold::Nothing)) };
        match request.wait(wait).lease(LEASE).acquire().await {
            Ok(guard) => Ok(Some(StrategyHold::Lock(guard))),
            Err(LockError::TimedOut { .. } | LockError::Contended { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, held: StrategyHold) -> anyhow::Result<()> {
        match held {
            StrategyHold::Nothing => Ok(()),
            StrategyHold::Lock(guard) => Ok(guard.release().await?),
            StrategyHold::Database(held) => held.release().await,
            StrategyHold::Bare(held) => match self {
                Self::Bare(locks) => locks.release(held).await,
                _ => Ok(()),
            },
        }
    }

    fn traffic(&self) -> Traffic {
        let none = Traffic { requests: Some(0), pushes: 0 };
        match self {
            // Two scripts and a message for each; the server counts the calls.
            Self::Bare(_) => Traffic { requests: None, pushes: 0 },
            Self::Control | Self::Database(_) => none,
            Self::Native(watched, _) => {
                let counts = watched.counts();
                Traffic { requests: Some(counts.requests), pushes: counts.pushes }
            }
            Self::Shared(locks, _) => layout::counts(locks)
                .map_or(none, |counts| Traffic { requests: Some(counts.requests), pushes: counts.pushes }),
            Self::Other(locks, _) => quorum::counts(locks)
                .map_or(none, |counts| Traffic { requests: Some(counts.requests), pushes: counts.pushes }),
        }
    }

    fn fence(&self, held: &StrategyHold) -> u64 {
        match held {
            StrategyHold::Nothing | StrategyHold::Database(_) => 0,
            StrategyHold::Bare(held) => held.fence,
            StrategyHold::Lock(guard) => guard.fence().map_or(0, Fence::get),
        }
    }

    fn place_of(&self, fence: u64) -> Option<u64> {
        match self {
            Self::Native(watched, 1) => watched.place_of(fence),
            _ => None,
        }
    }
}
