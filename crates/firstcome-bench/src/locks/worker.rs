//! A worker process that contends for the lock: `firstcome-bench lock-worker`.

use super::strategy::{Strategy, StrategyKind};
use super::traced::{Keep, Watched};
use firstcome_bench::bench_worker::{Contend, WorkerOrders, contend, say};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The job of a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum Job {
    /// Run the critical section again and again.
    Contend(Strategy, Contend),
    /// Hold a lock until killed.
    Hold { url: String, name: String, lease_ms: u64 },
    /// Wait for a lock with so many tasks until killed.
    Wait { url: String, name: String, waiters: u32 },
}

pub(super) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut orders = WorkerOrders::listen();
        match orders.job().await? {
            Job::Contend(strategy, job) => {
                let way = StrategyKind::open(strategy, &job.url, &job.counter.with_file_name("locks")).await?;
                contend(job, way, orders, "ready").await
            }
            Job::Hold { url, name, lease_ms } => {
                let watched = Watched::open(&url, Keep::Counts).await?;
                let guard = watched.locks.lock(&name).lease(Duration::from_millis(lease_ms)).acquire().await?;
                say("ready")?;
                std::future::pending::<()>().await;
                guard.release().await?;
                Ok(())
            }
            Job::Wait { url, name, waiters } => wait(&url, &name, waiters).await,
        }
    })
}

async fn wait(url: &str, name: &str, waiters: u32) -> anyhow::Result<()> {
    let watched = Watched::open(url, Keep::Counts).await?;
    for _ in 0..waiters {
        let request = watched.locks.lock(name);
        tokio::spawn(async move {
            // The grant never comes: the process is killed first.
            let _ = request.acquire().await;
            std::future::pending::<()>().await;
        });
    }
    watched.stand_in_line(name, waiters).await?;
    say("ready")?;
    std::future::pending().await
}
