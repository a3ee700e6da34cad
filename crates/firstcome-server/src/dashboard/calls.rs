//! Calls of the API that change settings, for the same record as the actions on the dashboard.

use super::audit::AuditEntry;
use crate::accept::Peer;
use crate::address;
use crate::auth::{Caller, Scope};
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

/// The most bytes that an entry says of a change.
const CHANGE_BYTES_MAX: usize = 4_096;

tokio::task_local! {
    /// What the call under way has changed.
    static CHANGE: RefCell<String>;
}

/// Whether a call is under way that is recorded.
pub(crate) fn is_recorded() -> bool {
    CHANGE.try_with(|_| ()).is_ok()
}

/// Notes what the call under way has changed: the settings before, if they are known, and after.
pub(crate) fn changed(before: Option<&Value>, after: &Value) {
    let _ = CHANGE.try_with(|change| change.replace(differences(before, after)));
}

/// Names the members that differ, as `max_active: 1 → 2`.
fn differences(before: Option<&Value>, after: &Value) -> String {
    let members = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after) = (members(before), members(Some(after)));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let word = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let differs = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let words = differs.map(|name| format!("{name}: {} → {}", word(before.get(name)), word(after.get(name))));
    let mut text = words.collect::<Vec<_>>().join("; ");
    let end = (0..=CHANGE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

/// Names the action of a call that changes settings, and its object. `None` for all other calls.
fn action(method: &Method, path: &str) -> Option<(&'static str, String)> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    let (kind, name, verb, more) = (parts.next()?, parts.next(), parts.next(), parts.next());
    let word = match *method {
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::POST => "post",
        _ => return None,
    };
    let object = |name: &str| format!("{} {name}", kind.trim_end_matches('s'));
    match (kind, name, verb, more) {
        ("coupons" | "rooms" | "listings", Some(name), None, _) if word != "post" => Some((word, object(name))),
        ("rooms", Some(name), Some("appearance"), None) if word != "post" => {
            Some((word, format!("appearance of {}", object(name))))
        }
        ("rooms", Some(name), Some("pause"), None) if word == "post" => Some(("pause", object(name))),
        ("rooms", Some(name), Some("resume"), None) if word == "post" => Some(("resume", object(name))),
        ("keys", None, ..) if word == "post" => Some(("create", "API key".to_owned())),
        ("keys", Some(name), None, _) if word == "delete" => Some(("revoke", format!("API key {name}"))),
        ("keys", Some(name), Some("rotate"), None) if word == "post" => Some(("rotate", format!("API key {name}"))),
        // The person is no part of the path, and the record names a digest.
        ("erasures", None, ..) if word == "post" => Some(("erase", "person".to_owned())),
        ("purge", None, ..) if word == "post" => Some(("purge", "what is over".to_owned())),
        ("pass-keys", None, ..) if word == "post" => Some(("rotate", "pass keys".to_owned())),
        ("pass-keys", Some(kid), None, _) if word == "delete" => Some(("revoke", format!("pass key {kid}"))),
        _ => None,
    }
}

/// Names a key in the record: by its name in the store, or by the first digits of its digest.
fn key_name(app: &App, caller: Caller) -> String {
    if app.is_dev() {
        return "development".to_owned();
    }
    if let Some(key) = app.api_keys.book().keys().find(|key| key.caller.0 == caller.id) {
        return format!("key {}", key.name);
    }
    let digits: String = caller.id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("key {digits}")
}

fn client(app: &App, peer: Option<&Peer>, headers: &HeaderMap) -> Option<IpAddr> {
    peer.map(|Peer(peer)| address::client(*peer, headers, &app.config.proxies))
}

/// Records calls with a key that change settings, refused ones included. Others pass at the cost of a look at the path.
pub(crate) async fn recorded(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some((action, object)) = action(request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    // A flood of calls without a key must not push what operators did out of the list.
    let caller = app.reader(request.headers()).ok().filter(|caller| caller.scope != Scope::Public);
    let Some(caller) = caller else { return next.run(request).await };
    let address = client(&app, request.extensions().get(), request.headers());
    let call = async {
        let response = next.run(request).await;
        (response, CHANGE.with(RefCell::take))
    };
    let (response, change) = Box::pin(CHANGE.scope(RefCell::default(), call)).await;
    let role = match caller.scope {
        Scope::Admin => "operate",
        Scope::View => "view",
        Scope::Service | Scope::Public => "service",
    };
    let status = response.status();
    app.dashboard.audit.add(AuditEntry {
        at: app.backend.now(),
        role,
        session: key_name(&app, caller),
        address,
        action,
        object,
        change,
        answer: if status.is_success() { "done" } else { status.canonical_reason().unwrap_or("refused") },
    });
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_that_change_settings_are_actions() {
        for (method, path, wanted) in [
            (Method::PUT, "/v1/rooms/sale", Some(("put", "room sale"))),
            (Method::DELETE, "/v1/coupons/launch", Some(("delete", "coupon launch"))),
            (Method::PATCH, "/v1/listings/lamp", Some(("patch", "listing lamp"))),
            (Method::POST, "/v1/rooms/sale/pause", Some(("pause", "room sale"))),
            (Method::PUT, "/v1/rooms/sale/appearance", Some(("put", "appearance of room sale"))),
            (Method::POST, "/v1/pass-keys", Some(("rotate", "pass keys"))),
            (Method::DELETE, "/v1/pass-keys/7", Some(("revoke", "pass key 7"))),
            (Method::POST, "/v1/keys", Some(("create", "API key"))),
            (Method::DELETE, "/v1/keys/shop", Some(("revoke", "API key shop"))),
            (Method::POST, "/v1/keys/shop/rotate", Some(("rotate", "API key shop"))),
            (Method::POST, "/v1/erasures", Some(("erase", "person"))),
            (Method::POST, "/v1/purge", Some(("purge", "what is over"))),
            (Method::GET, "/v1/keys", None),
            (Method::GET, "/v1/rooms/sale", None),
            (Method::DELETE, "/v1/rooms/sale/tickets/x", None),
            (Method::POST, "/v1/coupons/launch/claims", None),
            (Method::POST, "/v1/rooms/sale", None),
            (Method::PUT, "/rooms/sale", None),
        ] {
            let told = action(&method, path);
            assert_eq!(told.as_ref().map(|(word, object)| (*word, object.as_str())), wanted, "{method} {path}");
        }
    }

    #[test]
    fn a_change_names_what_differs() {
        let (before, after) = (json!({"a": 1, "b": 2, "d": 1}), json!({"a": 1, "b": 3, "c": "x"}));
        assert_eq!(differences(Some(&before), &after), "b: 2 → 3; c: none → x; d: 1 → none");
        assert_eq!(differences(None, &json!({"a": 1})), "a: none → 1");
        let long = differences(None, &json!({"a": "안".repeat(CHANGE_BYTES_MAX)}));
        assert!((CHANGE_BYTES_MAX - 3..=CHANGE_BYTES_MAX).contains(&long.len()));
    }
}
