//! Turns an idempotency key and a body into a [`RequestId`].

use crate::error::InputError;
use firstcome_store::core::id::RequestId;
use firstcome_store::core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use sha2::{Digest, Sha256};

/// Digests parts unambiguously: each part goes in with its length.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Returns the id of a request. `scope` says who owns the key and for which operation (credential, method, path);
/// `body` is the content of the request.
///
/// Two requests have the same id exactly if scope, key and body are equal, except with probability 2^-64.
///
/// ```
/// use firstcome::request::request_id;
///
/// let first = request_id(&[b"shop", b"claim"], "click-7", &[b"ann"]);
/// assert_eq!(first, request_id(&[b"shop", b"claim"], "click-7", &[b"ann"]));
/// assert_ne!(first, request_id(&[b"shop", b"claim"], "click-7", &[b"bob"]));
/// ```
pub fn request_id(scope: &[&[u8]], key: &str, body: &[&[u8]]) -> RequestId {
    let mut parts = Vec::with_capacity(scope.len() + 1);
    parts.push(key.as_bytes());
    parts.extend_from_slice(scope);
    let (key, body) = (digest(&parts), digest(body));
    let mut high = [0; 16];
    high.copy_from_slice(&key[..16]);
    let mut low = [0; 8];
    low.copy_from_slice(&body[..8]);
    RequestId { key: u128::from_be_bytes(high), body: u64::from_be_bytes(low) }
}

/// Returns an idempotency key that a caller chose, if it is valid.
pub(crate) fn checked_key(key: &str) -> Result<String, InputError> {
    if (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(key.into());
    }
    Err(InputError::Value { field: "idempotency key", wanted: "1 to 128 bytes" })
}

#[cfg(test)]
mod tests {
    use super::request_id;

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let base = request_id(&[b"ann", b"POST"], "key", &[b"body"]);
        assert_eq!(base, request_id(&[b"ann", b"POST"], "key", &[b"body"]));
        assert_ne!(base.key, request_id(&[b"annP", b"OST"], "key", &[b"body"]).key);
        assert_ne!(base.key, request_id(&[b"ann", b"POST"], "kez", &[b"body"]).key);
        assert_ne!(base.key, request_id(&[b"ann"], "key", &[b"body"]).key);
        let other = request_id(&[b"ann", b"POST"], "key", &[b"bodz"]);
        assert_eq!(base.key, other.key);
        assert_ne!(base.body, other.body);
    }
}
