//! The API keys of a service, for an operator's program.

use crate::HttpStore;
use crate::call::{Call, CallReply};
use firstcome_store::StoreError;
use firstcome_store::core::api_key::KeyScope;
use firstcome_store::core::id::KeyName;
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::time::Duration;

/// The text of a key, which no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct ApiKeyText(String);

impl ApiKeyText {
    /// Returns the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyText(..)")
    }
}

/// A key as a service shows it. Instants are RFC 3339 in UTC.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[non_exhaustive]
pub struct ApiKeyView {
    /// Its name.
    pub name: String,
    /// What its calls may do: `view`, `service` or `admin`.
    pub scope: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// When it was created.
    pub created_at: String,
    /// From when on it is not accepted; `None` for never.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// Until when the key before the last rotation is accepted.
    pub old_key_until: Option<String>,
    /// The key itself, in the answer to the request that made it. `None` if that answer was lost and this one is to a repeat.
    pub key: Option<ApiKeyText>,
}

#[derive(Deserialize)]
struct KeysShown {
    items: Vec<ApiKeyView>,
}

/// A refusal by the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiKeyRefusal {
    /// The stable code.
    pub code: String,
    /// What to do, in words.
    pub detail: String,
}

impl fmt::Display for ApiKeyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for ApiKeyRefusal {}

/// Outer: did the service answer? Inner: what was the answer?
pub type ApiKeyReply<T> = Result<Result<T, ApiKeyRefusal>, StoreError>;

pub(crate) fn refusal(told: &CallReply) -> Result<ApiKeyRefusal, StoreError> {
    let problem = told.problem().ok_or_else(|| told.strange())?;
    if told.is_perhaps_second() {
        return Err(StoreError::Unknown);
    }
    Ok(ApiKeyRefusal { code: problem.code().to_owned(), detail: problem.detail().to_owned() })
}

fn path(name: &KeyName) -> String {
    format!("/v1/keys/{name}")
}

impl HttpStore {
    /// Creates a key. Needs an admin key. A lost answer is asked for again, and then comes without the text of the key.
    pub async fn create_api_key(
        &self,
        name: &KeyName,
        scope: KeyScope,
        valid_for: Option<Duration>,
    ) -> ApiKeyReply<ApiKeyView> {
        let valid_for_ms = valid_for.map(|time| time.as_millis() as u64);
        let body = json!({"name": name.as_str(), "scope": scope.as_str(), "valid_for_ms": valid_for_ms});
        self.make(Call::post_once("/v1/keys".to_owned(), &body, None)?).await
    }

    /// Replaces a key; the service accepts the old one for a time still. Needs an admin key. Repeats as
    /// [`Self::create_api_key`] does.
    pub async fn rotate_api_key(&self, name: &KeyName, old_valid_for: Duration) -> ApiKeyReply<ApiKeyView> {
        let body = json!({"old_valid_for_ms": old_valid_for.as_millis() as u64});
        self.make(Call::post_once(format!("{}/rotate", path(name)), &body, None)?).await
    }

    async fn make(&self, call: Call) -> ApiKeyReply<ApiKeyView> {
        let told = self.service.call(&call).await?;
        if told.is_yes() { Ok(Ok(told.read()?)) } else { Ok(Err(refusal(&told)?)) }
    }

    /// Lists the keys of the store. Needs an admin key, or one to view.
    pub async fn api_keys(&self) -> ApiKeyReply<Vec<ApiKeyView>> {
        let told = self.service.call(&Call::get("/v1/keys".to_owned())).await?;
        if told.is_yes() { Ok(Ok(told.read::<KeysShown>()?.items)) } else { Ok(Err(refusal(&told)?)) }
    }

    /// Revokes all keys of a name. A second time has no effect. Needs an admin key.
    pub async fn revoke_api_key(&self, name: &KeyName) -> ApiKeyReply<()> {
        let told = self.service.call(&Call::delete(path(name))).await?;
        if told.is_yes() { Ok(Ok(())) } else { Ok(Err(refusal(&told)?)) }
    }
}
