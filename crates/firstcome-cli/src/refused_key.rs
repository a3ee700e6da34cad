//! What commands say when a service refuses the key that an operator gave.

use crate::failure::Failure;
use anyhow::anyhow;
use firstcome::http::ApiKeyRefusal;

/// How the client begins the detail of a refusal that no rule made.
const REFUSES: &str = "the service refuses the request: ";

/// Says what is wrong with the key, if that is why the service at `url` refused a call. Returns any other failure as it is.
pub(crate) fn explain(failure: Failure, url: &str) -> Failure {
    let says = match code(&failure).as_deref() {
        Some("unauthorized") => anyhow!("{url} does not know this key: check FIRSTCOME_ADMIN_KEY or --key-file"),
        Some("forbidden" | "view_only") => {
            anyhow!("{url}: this needs an admin key: the key that was given has a smaller scope")
        }
        _ => return failure,
    };
    Failure::Refused(says)
}

/// Returns the code of the refusal that a failure tells.
fn code(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Refused(error) => error.downcast_ref::<ApiKeyRefusal>().map(|refusal| refusal.code.clone()),
        Failure::Unreachable(error) => {
            let said = error.to_string();
            let (_, refusal) = said.split_once(REFUSES)?;
            refusal.split(':').next().map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome::{Fault, FaultKind, StoreError};
    use std::sync::Arc;

    const URL: &str = "http://127.0.0.1:8080";

    fn refused(code: &str) -> [Failure; 2] {
        let refusal = ApiKeyRefusal { code: code.to_owned(), detail: "Do this.".to_owned() };
        let fault = Fault::new(FaultKind::Unfit, format!("{REFUSES}{code}: Do this."));
        let error = StoreError::Faulted(Arc::new(fault));
        [Failure::Refused(refusal.into()), Failure::Unreachable(error.into())]
    }

    #[test]
    fn a_refused_key_is_named_and_how_to_correct_it() {
        for (code, says) in [
            ("unauthorized", "http://127.0.0.1:8080 does not know this key: check FIRSTCOME_ADMIN_KEY or --key-file"),
            ("forbidden", "http://127.0.0.1:8080: this needs an admin key: the key that was given has a smaller scope"),
            ("view_only", "http://127.0.0.1:8080: this needs an admin key: the key that was given has a smaller scope"),
        ] {
            for failure in refused(code) {
                let explained = explain(failure, URL);
                assert!(matches!(explained, Failure::Refused(_)), "{explained:?}");
                assert_eq!(explained.to_string(), says);
            }
        }
    }

    #[test]
    fn other_refusals_and_faults_are_left_as_they_are() {
        for failure in refused("unknown_api_key") {
            let said = failure.to_string();
            assert_eq!(explain(failure, URL).to_string(), said);
        }
        let fault = Fault::new(FaultKind::Unreachable, format!("{URL}: no service answers"));
        let explained = explain(Failure::Unreachable(StoreError::Faulted(Arc::new(fault)).into()), URL);
        assert!(matches!(explained, Failure::Unreachable(_)), "{explained:?}");
    }
}
