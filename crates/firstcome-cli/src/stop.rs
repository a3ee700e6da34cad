//! The end of what takes long, and has started servers, when somebody asks for it.

use crate::Failure;
use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};

/// What this comes to, unless somebody stops the program before: then it is dropped, and with it whatever it has started.
pub(crate) async fn unless_stopped<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = doing => done,
        () = told_to_stop() => Err(Failure::Refused(anyhow!("stopped before it was done"))),
    }
}

/// What was done, once everything that it rested on has ended too. Somebody who asks once more does not wait for that.
pub(crate) async fn when_ended<T>(
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

/// Until somebody asks this process to end.
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
