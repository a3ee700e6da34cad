//! Shows, replaces and patches settings, without undoing what another operator has changed meanwhile.
//!
//! An `ETag` names the settings in force. It does not cover counts and states, which change all the time. With
//! `If-Match` only the settings of that tag are replaced. A patch replaces only the settings that it was merged with,
//! with or without `If-Match`. The store checks that they are still in force, in the step that replaces them.

use crate::dashboard::calls;
use crate::error::{Code, Problem};
use crate::state::App;
use axum::http::{HeaderMap, HeaderValue, header};
use firstcome::Put;
use firstcome::core::revision::Revision;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// How often a patch without `If-Match` is merged again when other callers change the same settings.
const MERGES_MAX: u32 = 8;

/// Settings as a body of the API: a caller can PUT the body that a GET shows.
pub(crate) trait Settings: Send + Sync + Sized {
    /// The name of the object that has the settings.
    type Name: Sync;

    /// Returns the settings in force, read from the store and not from a cache.
    fn in_force(app: &App, name: &Self::Name) -> impl Future<Output = Result<Self, Problem>> + Send;

    /// Returns the settings as the body of a PUT.
    fn shown(&self, app: &App) -> Value;

    /// Parses a body, and checks that its settings may be put.
    fn read(app: &App, body: &[u8]) -> impl Future<Output = Result<Self, Problem>> + Send;

    /// Puts the settings.
    fn put(app: &App, name: &Self::Name, revision: Revision<Self>)
    -> impl Future<Output = Result<Put, Problem>> + Send;
}

/// Returns the strong validator of these settings: 16 hexadecimal digits in quotation marks.
pub(crate) fn tag(shown: &Value) -> String {
    // The members of an object are sorted by name: equal settings have equal texts.
    let digest = Sha256::digest(shown.to_string());
    let mut tag = String::from('"');
    for byte in &digest[..8] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

/// Returns the `ETag` header of these settings.
pub(crate) fn tag_header(shown: &Value) -> (header::HeaderName, HeaderValue) {
    (header::ETAG, HeaderValue::try_from(tag(shown)).unwrap_or(HeaderValue::from_static("\"\"")))
}

/// What `If-Match` requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    /// There is no `If-Match`.
    None,
    /// `If-Match` names the settings in force.
    Met,
}

/// Compares `If-Match` with these settings.
fn judge(headers: &HeaderMap, shown: &Value) -> Result<Condition, Problem> {
    let mut lines = headers.get_all(header::IF_MATCH).iter().peekable();
    if lines.peek().is_none() {
        return Ok(Condition::None);
    }
    let tag = tag(shown);
    let names_it = |line: &HeaderValue| {
        let tags = line.to_str().unwrap_or_default().split(',').map(str::trim);
        tags.into_iter().any(|named| named == "*" || named == tag)
    };
    if lines.any(names_it) { Ok(Condition::Met) } else { Err(Code::SettingsChanged.into()) }
}

/// Puts the settings of a body, if `If-Match` allows it.
pub(crate) async fn put<S: Settings>(
    app: &App,
    name: &S::Name,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Put, Problem> {
    let settings = S::read(app, body).await?;
    let after = settings.shown(app);
    if !headers.contains_key(header::IF_MATCH) {
        // Only the record of the call wants to know what was there.
        let before = if calls::is_recorded() { S::in_force(app, name).await.ok() } else { None };
        let put = S::put(app, name, settings.into()).await?;
        calls::changed(before.map(|before| before.shown(app)).as_ref(), &after);
        return Ok(put);
    }
    let in_force = S::in_force(app, name).await?;
    let before = in_force.shown(app);
    judge(headers, &before)?;
    let put = S::put(app, name, Revision { settings, replaces: Some(in_force) }).await?;
    calls::changed(Some(&before), &after);
    Ok(put)
}

/// Merges a patch with the settings in force, and puts the result.
pub(crate) async fn patch<S: Settings>(
    app: &App,
    name: &S::Name,
    headers: &HeaderMap,
    patch: &Map<String, Value>,
) -> Result<(), Problem> {
    let mut merges = 0;
    loop {
        let in_force = S::in_force(app, name).await?;
        let before = in_force.shown(app);
        let condition = judge(headers, &before)?;
        let mut shown = before.clone();
        merge(&mut shown, patch);
        let settings = S::read(app, shown.to_string().as_bytes()).await?;
        merges += 1;
        match S::put(app, name, Revision { settings, replaces: Some(in_force) }).await {
            Err(problem)
                if problem.code() == Code::SettingsChanged && condition == Condition::None && merges < MERGES_MAX => {}
            done => {
                done?;
                calls::changed(Some(&before), &shown);
                return Ok(());
            }
        }
    }
}

/// Merges as RFC 7396 says: members replace members, null removes them, objects are merged in turn.
fn merge(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(members.remove(name)),
            Value::Object(inner) => merge(members.entry(name.clone()).or_insert(Value::Null), inner),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 7396, appendix A, whose patch is an object.
    #[test]
    fn a_patch_is_merged_as_the_standard_says() {
        for (target, patch, wanted) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, patch.as_object().expect("an object"));
            assert_eq!(merged, wanted, "{target} with {patch}");
        }
    }

    #[test]
    fn a_tag_is_that_of_the_settings_alone() {
        let tags: Vec<String> =
            [json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), json!({"a": 1})].iter().map(tag).collect();
        assert!(tags[0] == tags[1] && tags[0] != tags[2] && tags[0].len() == 18, "{tags:?}");
    }
}
