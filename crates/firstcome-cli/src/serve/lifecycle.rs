//! What the log is told of the start and of the stop of a service.

use crate::settings::ChangedSettings;
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

/// Waits for a signal to stop, and returns its name.
pub(super) async fn signalled(term: &mut Signal, int: &mut Signal) -> &'static str {
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    }
}
