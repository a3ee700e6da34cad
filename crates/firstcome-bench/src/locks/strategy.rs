//! The lock strategies that are compared.

use super::traced::{Keep, Watched, patient, unreachable};
use firstcome::lock::{Pauses, QuorumOptions, layout};
use firstcome::redis::Redisson;
use firstcome::{Guard, KeyGuard, KeyLocks, LockError, Locks, QuorumGuard, QuorumLocks, SpinGuard, SpinLocks};
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
    Cohort,
    File,
    Memory,
    /// A lock over several servers, measured separately.
    Quorum,
    /// A lock over several servers that each process passes on among its tasks.
    QuorumCohort,
    /// The layout of Redisson, compared only with Redisson.
    Redisson,
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
            Self::Cohort => "native cohort(32)",
            Self::File => "locks.db",
            Self::Memory => "memory, one process",
            Self::Quorum => "quorum",
            Self::QuorumCohort => "quorum, cohort(32)",
            Self::Redisson => "Redisson's layout, ours",
        }
    }

    /// Whether the strategy uses the Redis server.
    pub(super) const fn is_on_redis(self) -> bool {
        !matches!(self, Self::Control | Self::File | Self::Memory)
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
            Self::Control | Self::Fifo | Self::Cohort | Self::File | Self::Memory => None,
            Self::Quorum | Self::QuorumCohort | Self::Redisson => None,
        }
    }
}

/// A strategy that is ready for use.
pub(super) enum StrategyKind {
    Control,
    Spin(SpinLocks, Pauses),
    Redisson(KeyLocks<Redisson>),
    /// The number is how many tasks one grant serves.
    Native(Watched, u32),
    Local(Locks),
    /// The number is how many tasks one grant serves.
    Quorum(QuorumLocks, NonZeroU32),
}

/// A held lock.
pub(super) enum StrategyHold {
    Nothing,
    Spin(SpinGuard),
    Redisson(KeyGuard<Redisson>),
    Ours(Guard),
    Quorum(QuorumGuard),
}

impl StrategyKind {
    pub(super) async fn open(strategy: Strategy, url: &str, directory: &Path) -> anyhow::Result<Self> {
        if let Some(pauses) = strategy.pauses() {
            return Ok(Self::Spin(
                SpinLocks::redis_with(url, patient()).await.map_err(|error| unreachable(&error))?,
                pauses,
            ));
        }
        Ok(match strategy {
            Strategy::Redisson => {
                let open = Locks::redis(url).options(patient()).layout(layout::Redisson);
                Self::Redisson(open.await.map_err(|error| unreachable(&error))?)
            }
            Strategy::Fifo => Self::Native(Watched::open(url, Keep::Places).await?, 1),
            Strategy::Cohort => Self::Native(Watched::open(url, Keep::Counts).await?, COHORT),
            Strategy::File => Self::Local(Locks::open(directory)?),
            Strategy::Memory => Self::Local(Locks::memory()),
            Strategy::Quorum | Strategy::QuorumCohort => {
                let locks = Locks::quorum_with(url.split(','), QuorumOptions::default().new_set()).await;
                let passes = if strategy == Strategy::Quorum { 1 } else { COHORT };
                let passes = NonZeroU32::new(passes).unwrap_or(NonZeroU32::MIN);
                Self::Quorum(locks.map_err(|error| unreachable(&error))?, passes)
            }
            _ => Self::Control,
        })
    }
}

impl firstcome_bench::bench_worker::LockStrategy for StrategyKind {
    type Guard = StrategyHold;

    async fn acquire(&self, name: &str, wait: Duration) -> anyhow::Result<Option<StrategyHold>> {
        let got = match self {
            Self::Control => Ok(StrategyHold::Nothing),
            Self::Spin(locks, pauses) => {
                locks.lock(name).policy(*pauses).wait(wait).lease(LEASE).fixed().acquire().await.map(StrategyHold::Spin)
            }
            Self::Redisson(locks) => {
                locks.lock(name).wait(wait).lease(LEASE).fixed().acquire().await.map(StrategyHold::Redisson)
            }
            Self::Native(Watched { locks, .. }, passes) => {
                locks.lock(name).wait(wait).lease(LEASE).cohort(*passes).acquire().await.map(StrategyHold::Ours)
            }
            Self::Local(locks) => locks.lock(name).wait(wait).lease(LEASE).acquire().await.map(StrategyHold::Ours),
            Self::Quorum(locks, passes) => {
                locks.lock(name).wait(wait).lease(LEASE).cohort(*passes).acquire().await.map(StrategyHold::Quorum)
            }
        };
        match got {
            Ok(held) => Ok(Some(held)),
            Err(LockError::TimedOut { .. } | LockError::Contended { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, held: StrategyHold) -> anyhow::Result<()> {
        match held {
            StrategyHold::Nothing => {}
            StrategyHold::Spin(guard) => guard.release().await?,
            StrategyHold::Redisson(guard) => guard.release().await?,
            StrategyHold::Ours(guard) => guard.release().await?,
            StrategyHold::Quorum(guard) => guard.release().await?,
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        let counts = match self {
            Self::Spin(locks, _) => locks.counts(),
            Self::Redisson(locks) => locks.counts(),
            Self::Native(watched, _) => watched.counts(),
            Self::Quorum(locks, _) => {
                let counts = locks.counts();
                return Traffic { requests: Some(counts.requests), pushes: counts.pushes };
            }
            Self::Control | Self::Local(_) => return Traffic { requests: Some(0), pushes: 0 },
        };
        Traffic { requests: Some(counts.requests), pushes: counts.pushes }
    }

    fn fence(&self, held: &StrategyHold) -> u64 {
        match held {
            StrategyHold::Ours(guard) => guard.fence().get(),
            StrategyHold::Quorum(guard) => guard.fence().get(),
            StrategyHold::Nothing | StrategyHold::Spin(_) | StrategyHold::Redisson(_) => 0,
        }
    }

    fn place_of(&self, fence: u64) -> Option<u64> {
        match self {
            Self::Native(watched, 1) => watched.place_of(fence),
            _ => None,
        }
    }
}
