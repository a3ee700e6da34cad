//! The certificate of the service, read again while it serves.

use crate::failure::Failure;
use anyhow::anyhow;
use firstcome_tls::{Renewal, ServerFiles, ServerTls};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(10);

/// Reads the certificate of the service, if one is named.
pub(super) fn certificate(cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<ServerTls>, Failure> {
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => {
            ServerTls::read(ServerFiles { cert, key }).map(Some).map_err(|error| Failure::Usage(error.into()))
        }
        (Some(_), None) => Err(Failure::Usage(anyhow!("--tls-cert needs --tls-key, the key of the certificate"))),
        (None, Some(_)) => Err(Failure::Usage(anyhow!("--tls-key needs --tls-cert, the certificate of the key"))),
    }
}

/// Reads the files again at SIGHUP and every ten seconds, until the returned set is dropped. After an error the
/// certificate before stays.
pub(super) fn keep_renewing(tls: ServerTls) -> std::io::Result<JoinSet<()>> {
    let hangup = signal(SignalKind::hangup())?;
    let mut task = JoinSet::new();
    task.spawn(renew(tls, hangup));
    Ok(task)
}

async fn renew(tls: ServerTls, mut hangup: Signal) {
    // An error that stays is told once.
    let mut told = None;
    loop {
        let is_asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        match tls.renew() {
            Ok(Renewal::Changed) => {
                told = None;
                tracing::info!("new connections get the renewed certificate");
            }
            Ok(Renewal::Unchanged) => {
                told = None;
                if is_asked {
                    tracing::info!("the certificate has not changed");
                }
            }
            Err(error) if is_asked || told.as_ref() != Some(&error) => {
                tracing::error!(code = error.code(), "the certificate before stays: {error}");
                told = Some(error);
            }
            Err(_) => {}
        }
    }
}
