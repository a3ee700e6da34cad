//! Stops a long task, and the servers that it has started, on a signal (SIGINT, SIGTERM).

use crate::failure::Failure;
use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};

/// Runs a future to its end. On SIGINT or SIGTERM drops it, and with it the servers that it has started.
pub async fn unless_stopped<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = doing => done,
        () = told_to_stop() => Err(Failure::Refused(anyhow!("stopped before it was done"))),
    }
}

/// Returns `done` once `end` has finished, which shuts down what it used. A second signal ends that wait. A failure of
/// `done` takes precedence over one of `end`.
pub async fn when_ended<T>(
    done: Result<T, Failure>,
    end: impl Future<Output = anyhow::Result<()>>,
) -> Result<T, Failure> {
    // Tasks of a dropped future are cancelled, and end at their next poll.
    tokio::task::yield_now().await;
    let ended = unless_stopped(async { Ok(end.await?) }).await;
    let done = done?;
    ended?;
    Ok(done)
}

/// Waits until a signal asks this process to end.
async fn told_to_stop() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
