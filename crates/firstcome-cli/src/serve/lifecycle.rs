//! What the log is told of the start and of the stop of a service.

use super::{Opened, supervisor};
use crate::failure::Failure;
use crate::settings::ChangedSettings;
use firstcome::edge::Stopwatch;
use firstcome_server::App;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;

/// Tells the log what has started: the version, the stores, where it listens for clients, operators and visitors, and the settings
/// that are no defaults. Nothing of it is a secret.
pub(super) fn started(stores: &str, changed: &ChangedSettings, listeners: [Option<&TcpListener>; 3]) {
    let address = |listener: Option<&TcpListener>| Some(listener?.local_addr().ok()?.to_string());
    let [listen, admin_listen, gate_listen] = listeners.map(address);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        stores,
        listen,
        admin_listen,
        gate_listen,
        settings = %changed,
        "firstcome has started"
    );
}

/// Begins to export traces, if a collector is named.
#[cfg(feature = "otlp")]
pub(super) fn traced(mut opened: Opened) -> Result<Opened, Failure> {
    opened.app.start_traces().map_err(|error| Failure::Usage(error.into()))?;
    Ok(opened)
}

/// Without the feature there are no traces.
#[cfg(not(feature = "otlp"))]
pub(super) fn traced(opened: Opened) -> Result<Opened, Failure> {
    Ok(opened)
}

/// Waits for a signal to stop, and then for the grace, which a second signal ends. Returns how long the stop takes from then on.
pub(super) async fn to_stop(app: &App, stop_grace: Duration, term: &mut Signal, int: &mut Signal) -> Stopwatch {
    let signal = signalled(term, int).await;
    app.announce_stop();
    supervisor::stopping();
    if !stop_grace.is_zero() {
        let grace_ms = stop_grace.as_millis() as u64;
        tracing::info!(signal, grace_ms, "not ready any more, and serving until the grace is over");
        tokio::select! {
            () = tokio::time::sleep(stop_grace) => {}
            _ = signalled(term, int) => {}
        }
    }
    tracing::info!(signal, "stopping: no new connections, finishing what is under way");
    Stopwatch::start()
}

/// Sends the last traces, and tells the log how long the stop took.
pub(super) async fn ended(app: &App, stopping: Stopwatch) {
    let lasted_ms = stopping.elapsed().as_millis() as u64;
    tracing::info!(lasted_ms, "stopped: no connection is served any more");
    #[cfg(feature = "otlp")]
    app.end_traces().await;
    #[cfg(not(feature = "otlp"))]
    let _ = app;
}

/// Waits for a signal to stop, and returns its name.
async fn signalled(term: &mut Signal, int: &mut Signal) -> &'static str {
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    }
}
