//! The port for API keys over the embedded store, and the writer's part of it.

use super::journal::Change;
use super::reply::Reply;
use super::writer::Log;
use super::{Command, Embedded};
use crate::api_key::{ApiKeyStore, KeyAnswer};
use crate::error::StoreError;
use firstcome_core::api_key::{ApiKey, KeyBook, KeyCommand, KeyDigest, KeyRejection};
use firstcome_core::coupon::Effect;
use firstcome_core::time::Now;
use std::sync::Arc;

/// Judges a command, commits what it changes, and publishes the new book.
pub(super) fn change(command: &KeyCommand, log: &mut Log, now: Now) -> KeyAnswer {
    log.check()?;
    let mut book = KeyBook::clone(&log.shared.api_keys.read());
    let (effect, change) = match book.apply(command, now.wall) {
        Ok(judged) => judged,
        Err(rejection) => return Ok(Err(rejection)),
    };
    if !change.put.is_empty() || !change.forget.is_empty() {
        log.commit(Change::ApiKeys(Box::new(change)))?;
        *log.shared.api_keys.write() = Arc::new(book);
    }
    Ok(Ok(effect))
}

impl ApiKeyStore for Embedded {
    fn find_api_key<T>(&self, digest: &KeyDigest, judge: impl FnMut(&ApiKey) -> Option<T>) -> Option<T> {
        self.inner.shared.api_keys.read().candidates(digest).find_map(judge)
    }

    fn api_keys(&self) -> Arc<KeyBook> {
        Arc::clone(&self.inner.shared.api_keys.read())
    }

    async fn change_api_keys(&self, command: KeyCommand) -> Result<Result<Effect<ApiKey>, KeyRejection>, StoreError> {
        let (reply, answer) = Reply::pair();
        self.ask(Command::ApiKeys { command: Box::new(command), reply }, answer).await
    }
}
