//! The certificate of the service, read again while it serves.

use crate::failure::Failure;
use anyhow::anyhow;
use firstcome::edge::{Clock, SharedClock};
use firstcome_tls::{Renewal, ServerFiles, ServerTls};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::Signal;
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

/// Warns of a certificate that does not count now.
pub(super) fn warn_of_time(tls: Option<&ServerTls>) {
    if let Some(Err(error)) = tls.map(|tls| tls.check_validity(now_s())) {
        tracing::warn!(code = error.code(), "clients refuse this service: {error}");
    }
}

/// The clock of this machine, in seconds of Unix time: as it is, since an operator may have set it right.
fn now_s() -> i64 {
    SharedClock::default().now().as_us() / 1_000_000
}

/// Reads the files again at SIGHUP, which the caller has begun to receive, and every ten seconds, until the returned set is
/// dropped. After an error the certificate before stays. Without a certificate SIGHUP changes nothing, and ends nothing.
pub(super) fn keep_renewing(tls: Option<ServerTls>, hangup: Signal) -> JoinSet<()> {
    let mut task = JoinSet::new();
    match tls {
        Some(tls) => task.spawn(renew(tls, hangup)),
        None => task.spawn(answer(hangup)),
    };
    task
}

/// Answers SIGHUP in plain text.
async fn answer(mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        tracing::info!("there is no certificate to renew: SIGHUP changed nothing");
    }
}

async fn renew(tls: ServerTls, mut hangup: Signal) {
    // An error that stays is told once.
    let mut told = None;
    loop {
        let is_asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        match tls.renew_valid(now_s()) {
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
