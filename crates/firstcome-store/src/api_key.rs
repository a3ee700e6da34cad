//! The port for API keys.

use crate::error::StoreError;
use firstcome_core::api_key::{ApiKey, KeyBook, KeyCommand, KeyDigest, KeyRejection};
use firstcome_core::coupon::Effect;
use std::sync::Arc;

/// What a store replies to a change of its keys.
pub type KeyAnswer = Result<Result<Effect<ApiKey>, KeyRejection>, StoreError>;

/// Stores API keys: digests, never a key itself.
///
/// - Durable: an `Ok` answer survives a crash.
/// - Once a change is answered, this process judges every later call by it.
pub trait ApiKeyStore: Send + Sync {
    /// Hands the stored keys that may have this digest to `judge`, one by one, until it returns a value. Does no I/O. The
    /// caller compares the digest in constant time, and judges the state of the key.
    fn find_api_key<T>(&self, digest: &KeyDigest, judge: impl FnMut(&ApiKey) -> Option<T>) -> Option<T>;

    /// Returns all keys, those that are over included. Does no I/O.
    fn api_keys(&self) -> Arc<KeyBook>;

    /// Changes the keys, in one atomic step by the store's clock: see [`KeyCommand`] for the refusals.
    fn change_api_keys(&self, command: KeyCommand) -> impl Future<Output = KeyAnswer> + Send;
}
