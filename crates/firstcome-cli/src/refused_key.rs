//! What commands say when a service refuses the key that an operator gave.

use crate::failure::Failure;
use anyhow::anyhow;
use firstcome::http::ApiKeyRefusal;

/// Says what is wrong with the key, if that is why the service at `url` refused a call. Returns any other failure as it is.
pub(crate) fn explain(failure: Failure, url: &str) -> Failure {
    let Failure::Refused(error) = &failure else { return failure };
    let says = match error.downcast_ref::<ApiKeyRefusal>().map(|refusal| &*refusal.code) {
        Some("unauthorized") => anyhow!("{url} does not know this key: check FIRSTCOME_ADMIN_KEY or --key-file"),
        Some("forbidden" | "view_only") => {
            anyhow!("{url}: this needs an admin key: the key that was given has a smaller scope")
        }
        _ => return failure,
    };
    Failure::Refused(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:8080";

    fn refused(code: &str) -> Failure {
        Failure::Refused(ApiKeyRefusal { code: code.to_owned(), detail: "Do this.".to_owned() }.into())
    }

    #[test]
    fn a_refused_key_is_named_and_how_to_correct_it() {
        for (code, says) in [
            ("unauthorized", "http://127.0.0.1:8080 does not know this key: check FIRSTCOME_ADMIN_KEY or --key-file"),
            ("forbidden", "http://127.0.0.1:8080: this needs an admin key: the key that was given has a smaller scope"),
            ("view_only", "http://127.0.0.1:8080: this needs an admin key: the key that was given has a smaller scope"),
        ] {
            let explained = explain(refused(code), URL);
            assert!(matches!(explained, Failure::Refused(_)), "{explained:?}");
            assert_eq!(explained.to_string(), says);
        }
    }

    #[test]
    fn other_refusals_and_failures_are_left_as_they_are() {
        let said = refused("unknown_api_key").to_string();
        assert_eq!(explain(refused("unknown_api_key"), URL).to_string(), said);
        let explained = explain(Failure::Unreachable(anyhow!("no service answers")), URL);
        assert!(matches!(explained, Failure::Unreachable(_)), "{explained:?}");
    }
}
