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
    /// The store of locks or a server cannot be reached or gave no answer, or an address cannot be listened on: 3.
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

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(fault) => write!(f, "{fault}"),
            Self::Refused(error)
            | Self::Usage(error)
            | Self::Unreachable(error)
            | Self::NotObtained(error)
            | Self::Lost(error) => write!(f, "{error:#}"),
        }
    }
}

impl Failure {
    const fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::Store(_) | Self::Unreachable(_) => 3,
            Self::NotObtained(_) => 75,
            Self::Lost(_) => 76,
        }
    }

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

/// Prints the failure to standard error, each line of it by itself, and returns the exit code.
pub fn end(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            let code = failure.code();
            failure.to_string().lines().for_each(output::say);
            ExitCode::from(code)
        }
    }
}
