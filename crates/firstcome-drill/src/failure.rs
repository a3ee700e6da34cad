//! How a command ends: well, or with a [`Failure`], which has an exit code and a message.

use crate::output;
use firstcome::Fault;
use firstcome::archive::ImportError;
use firstcome::cluster::{ClusterError, TransferError};
use firstcome::redis::OpenError;
use std::process::ExitCode;

/// What a command comes to.
pub type Outcome = Result<(), Failure>;

/// Why the program ends with something else than 0.
#[derive(Debug)]
pub enum Failure {
    /// A check failed, or something was refused: 1.
    Refused(anyhow::Error),
    /// The call makes no sense: 2.
    Usage(anyhow::Error),
    /// The store cannot be reached: 3.
    Store(Fault),
    /// The store of locks cannot be reached, or gave no answer: 3.
    Unreachable(anyhow::Error),
    /// A lock was not obtained in time: 75.
    NotObtained(anyhow::Error),
    /// A lock was lost, and what ran under it was stopped: 76.
    Lost(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        if is_unreachable(&error) {
            return Self::Unreachable(error);
        }
        fault_of(&error).map_or_else(|| Self::Refused(error), Self::Store)
    }
}

impl Failure {
    /// The failure of a deployment: an address that cannot be read is a call that makes no sense; all else is a store that cannot
    /// be used.
    pub fn of_cluster(error: ClusterError) -> Self {
        match error {
            ClusterError::Redis(error @ OpenError::Address { .. }) => Self::Usage(error.into()),
            error => Self::Unreachable(error.into()),
        }
    }
}

/// Whether the servers gave no answer, so that it is not the data that is refused.
fn is_unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransferError::Sql(_) | TransferError::Cluster(_)))
}

/// The store's fault, if that is why something did not work.
fn fault_of(error: &anyhow::Error) -> Option<Fault> {
    if let Some(ImportError::Fault(fault)) = error.downcast_ref() {
        return Some(fault.clone());
    }
    if let Some(firstcome::StoreError::Unavailable(fault)) = error.downcast_ref() {
        return Some(fault.as_ref().clone());
    }
    error.downcast_ref().cloned()
}

/// Says on standard error why something went wrong, and makes the exit code of it.
pub fn end(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Refused(error) => (1, format!("{error:#}")),
                Failure::Usage(error) => (2, format!("{error:#}")),
                Failure::Store(fault) => (3, fault.to_string()),
                Failure::Unreachable(error) => (3, format!("{error:#}")),
                Failure::NotObtained(error) => (75, format!("{error:#}")),
                Failure::Lost(error) => (76, format!("{error:#}")),
            };
            output::say(&message);
            ExitCode::from(code)
        }
    }
}
