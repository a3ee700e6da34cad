//! Settings of a client, and why one could not be made.

use firstcome_store::Fault;
use std::time::Duration;

/// How a client waits and repeats.
///
/// ```text
/// HttpOptions { retry_for: Duration::from_secs(5), ..HttpOptions::default() }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpOptions {
    /// How long one connection may take to open: 10 ms to 1 minute, 5 s by default.
    pub connect_timeout: Duration,
    /// How long the client waits for one answer, from the first byte of the request to the last byte of the answer:
    /// 100 ms to 10 minutes, 15 s by default. A service answers within 10 s unless an operator sets more. An acquire of
    /// a lock has its own wait in addition.
    pub answer_timeout: Duration,
    /// How long one call repeats a request that had no answer, or that the service could not do yet: up to 1 hour, 30 s
    /// by default. Zero sends each request once.
    pub retry_for: Duration,
    /// The most requests under way at once, except those that wait for locks: 1 to 10 000, 64 by default. Further calls
    /// wait for their turn, at most [`Self::retry_for`] or [`Self::answer_timeout`], whichever is longer.
    pub requests_max: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(15),
            retry_for: Duration::from_secs(30),
            requests_max: 64,
        }
    }
}

/// Why a client could not be made. Nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenHttpError {
    /// The text is no address of a service.
    #[error("invalid address of a service: {says}")]
    Url {
        /// What is wrong, and what to write. Never shows what was written, which may hold a password.
        says: &'static str,
    },
    /// The key cannot be one.
    #[error("invalid key of a service: {says}")]
    Key {
        /// What is wrong. Never shows the key.
        says: &'static str,
    },
    /// An option is out of range.
    #[error("{option} must be {wanted}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its range.
        wanted: &'static str,
    },
    /// The certificates that this machine trusts could not be read, or no random bytes could be drawn.
    #[error(transparent)]
    Machine(#[from] Fault),
}

impl HttpOptions {
    /// Checks every option against its range.
    pub(crate) fn check(&self) -> Result<(), OpenHttpError> {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        let wrong = |option, wanted| Err(OpenHttpError::Option { option, wanted });
        if !(Duration::from_millis(10)..=minute).contains(&self.connect_timeout) {
            return wrong("connect_timeout", "10 ms to 1 minute");
        }
        if !(Duration::from_millis(100)..=minute * 10).contains(&self.answer_timeout) {
            return wrong("answer_timeout", "100 ms to 10 minutes");
        }
        if hour < self.retry_for {
            return wrong("retry_for", "at most 1 hour");
        }
        if !(1..=10_000).contains(&self.requests_max) {
            return wrong("requests_max", "1 to 10000");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_at_their_limits() {
        let fine = HttpOptions::default();
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let rows = [
            (fine, None),
            (HttpOptions { connect_timeout: ms(10), answer_timeout: ms(100), retry_for: ms(0), requests_max: 1 }, None),
            (HttpOptions { connect_timeout: ms(9), ..fine }, Some("connect_timeout")),
            (HttpOptions { connect_timeout: s(61), ..fine }, Some("connect_timeout")),
            (HttpOptions { answer_timeout: ms(99), ..fine }, Some("answer_timeout")),
            (HttpOptions { answer_timeout: s(601), ..fine }, Some("answer_timeout")),
            (HttpOptions { retry_for: s(3_600), requests_max: 10_000, ..fine }, None),
            (HttpOptions { retry_for: s(3_601), ..fine }, Some("retry_for")),
            (HttpOptions { requests_max: 0, ..fine }, Some("requests_max")),
            (HttpOptions { requests_max: 10_001, ..fine }, Some("requests_max")),
        ];
        for (options, wrong) in rows {
            let told = options.check().err().map(|error| error.to_string());
            assert_eq!(told.as_deref().and_then(|text| text.split(' ').next()), wrong, "{options:?}");
        }
    }
}
