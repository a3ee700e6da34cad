//! The outcome of a command: success, or a [`Failure`] with an exit code and a message.

use crate::output;
use firstcome::Fault;
use firstcome::archive::ImportError;
use firstcome::cluster::{ClusterError, TransferError};
use firstcome::redis::OpenError;
use std::process::ExitCode;

/// The outcome of a command.
pub type Outcome = Result<(), Failure>;

/// Why the program ends with a non-zero exit code.
#[derive(Debug)]
pub enum Failure {
    /// A check failed, or a request was refused: 1.
    Refused(anyhow::Error),
    /// The arguments are invalid: 2.
    Usage(anyhow::Error),
    /// The store cannot be reached: 3.
    Store(Fault),
    /// The store of locks or a server cannot be reached, or gave no answer: 3.
    Unreachable(anyhow::Error),
    /// A lock was not obtained in time: 75.
    NotObtained(anyhow::Error),
    /// A lock was lost, and its command was stopped: 76.
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
    /// Translates the error of a deployment: an invalid address is a usage error; any other error is an unreachable
    /// store.
    pub fn of_cluster(error: ClusterError) -> Self {
        match error {
            ClusterError::Redis(error @ OpenError::Address { .. }) => Self::Usage(error.into()),
            error => Self::Unreachable(error.into()),
        }
    }
}

/// Whether the servers gave no answer, in contrast to refused data.
fn is_unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransferError::Sql(_) | TransferError::Cluster(_)))
}

/// Returns the store's fault, if that is the cause of the error.
fn fault_of(error: &anyhow::Error) -> Option<Fault> {
    if let Some(ImportError::Fault(fault)) = error.downcast_ref() {
        return Some(fault.clone());
    }
    if let Some(firstcome::StoreError::Faulted(fault)) = error.downcast_ref() {
        return Some(fault.as_ref().clone());
    }
    error.downcast_ref().cloned()
}

/// Prints the failure to standard error, and returns the exit code.
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
