//! Metrics of failed authentications.

use crate::failures::{Credential, FailureCap};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CredentialLabels {
    credential: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// The metric handles, looked up once.
pub(crate) struct FailureFigures {
    failed: [Counter; Credential::ALL.len()],
    refused: [Counter; FailureCap::ALL.len()],
}

impl FailureFigures {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let failed = Family::<CredentialLabels, Counter>::default();
        registry.register("authentication_failures", "Failed authentications, by what was shown", failed.clone());
        let refused = Family::<LimitLabels, Counter>::default();
        let help = "Authentications over a limit of failed ones, by whose limit it is";
        registry.register("authentications_refused", help, refused.clone());
        let of_credential = |credential: Credential| CredentialLabels { credential: credential.as_str() };
        Self {
            failed: Credential::ALL.map(|credential| failed.get_or_create(&of_credential(credential)).clone()),
            refused: FailureCap::ALL.map(|cap| refused.get_or_create(&LimitLabels { limit: cap.as_str() }).clone()),
        }
    }

    /// Counts a failed authentication.
    pub(crate) fn failed(&self, credential: Credential) {
        self.failed[credential as usize].inc();
    }

    /// Counts an authentication that a cap has refused.
    pub(crate) fn refused(&self, cap: FailureCap) {
        self.refused[cap as usize].inc();
    }
}
