//! Ends what takes long, and has started servers, when a signal (SIGINT, SIGTERM) asks for it.

use crate::failure::Failure;
use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};

/// Runs this to its end. When SIGINT or SIGTERM comes before, it is dropped, and with it the servers that it has started.
pub async fn unless_stopped<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = doing => done,
        () = told_to_stop() => Err(Failure::Refused(anyhow!("stopped before it was done"))),
    }
}

/// Gives back what was done, once everything that it rested on has ended too (`end`). A second signal ends that wait. A failure
/// of `done` goes before one of `end`.
pub async fn when_ended<T>(
    done: Result<T, Failure>,
    end: impl Future<Output = anyhow::Result<()>>,
) -> Result<T, Failure> {
    // Tasks of what was dropped are told to end, and do so when it is their turn.
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
