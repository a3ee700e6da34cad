//! rslock on the Redis of the benchmark, or on several as it has Redlock: `rslock [TRIES DELAY_MS]`, as its `set_retry` takes them.

use anyhow::{Context, bail};
use firstcome_bench::bench_worker::{LEASE, LockStrategy, Traffic, run_peer};
use rslock::{Lock, LockError, LockManager};
use std::time::Duration;
use tokio::time::Instant;

/// Not its defaults, 3 and 200 ms: the longest wait is half as long. Longer delays can be faster, since one task then has
/// the lock to itself while the others pause; under 20 ms the tries of those who wait slow down the one who has it.
const TRIES: u32 = 16;
const DELAY: Duration = Duration::from_millis(50);

/// One manager for all tasks: it keeps one multiplexed connection.
struct Rslock(LockManager);

impl LockStrategy for Rslock {
    type Guard = Lock;

    /// The loop of its `acquire`, which has no deadline; dropped at one it could leave a key behind.
    async fn acquire(&self, name: &str, wait: Duration) -> anyhow::Result<Option<Lock>> {
        let start = Instant::now();
        loop {
            match self.0.lock(name, LEASE).await {
                Ok(lock) => return Ok(Some(lock)),
                Err(LockError::TtlTooLarge) => bail!("it takes no lease of {LEASE:?}"),
                Err(_) if wait <= start.elapsed() => return Ok(None),
                Err(_) => {}
            }
        }
    }

    /// It does not say whether it could: if not, all wait for the end of the lease, and the figures show it.
    async fn release(&self, held: Lock) -> anyhow::Result<()> {
        held.release().await;
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        Traffic { requests: None, pushes: 0 }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (tries, delay) = match arguments.as_slice() {
        [] => (TRIES, DELAY),
        [tries, delay_ms] => {
            let delay_ms: u64 = delay_ms.parse().context("DELAY_MS")?;
            (tries.parse().context("TRIES")?, Duration::from_millis(delay_ms.max(1)))
        }
        _ => bail!("either nothing or TRIES DELAY_MS"),
    };
    let what =
        format!("version 0.10, set_retry({tries}, up to {} ms), one LockManager in each process", delay.as_millis());
    run_peer(&what, |url| {
        let mut manager = LockManager::new(url.split(',').map(str::to_owned).collect());
        manager.set_retry(tries, delay);
        Ok(Rslock(manager))
    })
}
