//! What every answer promises, to any request: the shape of a problem, its headers, no internal text, and nothing
//! that the OpenAPI document does not announce.

use crate::service::Answer;
use axum::http::Method;
use firstcome_server::api::openapi_json;
use firstcome_server::error::Code;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

thread_local! {
    /// The codes that this test has seen. A test and its service run on one thread, so other tests do not count.
    static SEEN: RefCell<BTreeSet<Code>> = const { RefCell::new(BTreeSet::new()) };
}

/// The codes that this test has seen so far.
pub(crate) fn seen() -> BTreeSet<Code> {
    SEEN.with_borrow(Clone::clone)
}

/// Words of the code and of the machine, which say nothing to a caller.
const INTERNAL: [&str; 12] =
    ["u64", "u32", "i64", "struct ", "tuple", "newtype", "invalid type", "panicked", "src/", "sqlite", ".rs", "Error("];

/// The OpenAPI document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::from_str(&openapi_json()).expect("the document is JSON"))
}

/// The code of an answer that is a problem.
pub(crate) fn code(answer: &Answer) -> Option<Code> {
    if answer.header("content-type") != Some("application/problem+json") {
        return None;
    }
    let text = answer.text("code");
    Some(*Code::ALL.iter().find(|code| code.as_str() == text).unwrap_or_else(|| panic!("unlisted code {text}")))
}

/// Holds an answer to the promises.
pub(crate) fn hold(method: &Method, path: &str, answer: &Answer) {
    let asked = format!("{method} {path}: {}", answer.status);
    let page = ["/docs", "/openapi.json", "/errors/", "/assets/", "/rooms/", "/dashboard"]
        .iter()
        .any(|page| path.starts_with(page));
    let whole = format!("{:?}\n{}", answer.headers, String::from_utf8_lossy(&answer.bytes));
    assert!(!whole.contains("canary"), "{asked}: a secret in {whole}");
    let words = format!("{:?}\n{}", answer.headers, without_tokens(answer));
    for word in INTERNAL.iter().filter(|_| !page) {
        assert!(!words.contains(word), "{asked}: {word:?} in {words}");
    }
    // An answer of the site behind a gate has the headers that the site gave it.
    if answer.header("x-site").is_none() {
        secured(&asked, answer);
    }
    match code(answer) {
        Some(code) => {
            SEEN.with_borrow_mut(|seen| seen.insert(code));
            problem(&asked, code, answer);
        }
        None => {
            // Readiness is asked by machines that look at the status alone.
            let ready = answer.status == 503 && path.split('?').next() == Some("/readyz");
            let is_html = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
            assert!(answer.status < 400 || ready || is_html, "{asked} is not a problem: {whole}");
        }
    }
    announced(&asked, method, path, answer);
}

/// The headers that tell a browser what it may do with an answer.
fn secured(asked: &str, answer: &Answer) {
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{asked}: x-content-type-options");
    let referrer = answer.header("referrer-policy").unwrap_or_else(|| panic!("{asked} has no referrer policy"));
    assert!(["no-referrer", "same-origin"].contains(&referrer), "{asked}: {referrer}");
    assert!(answer.header("cache-control").is_some(), "{asked} may be kept by any cache");
    if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
        let policy = answer.header("content-security-policy").unwrap_or_else(|| panic!("{asked} has no policy"));
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(rule), "{asked}: {rule}");
        }
        let permissions = answer.header("permissions-policy").unwrap_or_default();
        assert!(permissions.contains("camera=()"), "{asked}: {permissions}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{asked}");
        opener(asked, answer);
    }
}

/// Another site that opens a page gets no handle on its window, unless the page stands in place of one of the site.
fn opener(asked: &str, answer: &Answer) {
    let policy = answer.header("cross-origin-opener-policy");
    if answer.body().contains("href=\"/.firstcome/assets/room.css") {
        assert_eq!(policy, None, "{asked}: a gate shows it");
        return;
    }
    // The path of an answer of a real connection is not known.
    let is_of_room = asked.contains(" /rooms/") || asked.contains(" /: ");
    let is_instead = is_of_room && policy == Some("unsafe-none");
    assert!(is_instead || policy == Some("same-origin"), "{asked}: {policy:?}");
}

/// The body without tickets, passes and keys: any word may stand in them by chance.
fn without_tokens(answer: &Answer) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| {
                    !["ticket", "pass", "public_key", "handle", "challenge", "key"].contains(&name.as_str())
                });
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    match serde_json::from_slice::<Value>(&answer.bytes) {
        Ok(mut json) => {
            strip(&mut json);
            json.to_string()
        }
        Err(_) => String::from_utf8_lossy(&answer.bytes).into_owned(),
    }
}

fn problem(asked: &str, code: Code, answer: &Answer) {
    let json = answer.json();
    assert_eq!(json["type"], format!("/errors/{}", code.as_str()), "{asked}");
    assert_eq!(json["title"], code.title(), "{asked}");
    assert_eq!(json["status"], answer.status, "{asked}");
    assert_eq!(answer.status, code.status(), "{asked}");
    let detail = json["detail"].as_str().unwrap_or_default();
    assert!((1..=400).contains(&detail.len()), "{asked}: {detail:?}");
    if let Some(field) = json.get("field") {
        let field = field.as_str().expect("a field is a text");
        assert!((1..=128).contains(&field.len()), "{asked}: {field:?}");
    }
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{asked}");
    let scheme = match code {
        Code::Unauthorized => Some("Bearer"),
        Code::NoPass => Some("Firstcome-Pass"),
        _ => None,
    };
    assert_eq!(answer.header("www-authenticate"), scheme, "{asked}");
    let wait_s = answer.header("retry-after").map(|text| text.parse::<u64>().expect("seconds"));
    let wait_ms = json.get("retry_after_ms").map(|wait| wait.as_u64().expect("milliseconds"));
    assert_eq!(wait_s, wait_ms.map(|wait_ms| wait_ms.div_ceil(1_000).max(1)), "{asked}");
    let waits = [425, 429, 503].contains(&answer.status) || [Code::RoomFull, Code::ReceiptPending].contains(&code);
    assert_eq!(wait_s.is_some(), waits, "{asked}: says when to come back");
}

/// The operation of the document that serves a path.
pub(crate) fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let paths = document()["paths"].as_object().expect("the document has paths");
    let matches = |template: &str| {
        let (wanted, given) = (template.split('/'), path.split('/'));
        let mut same = wanted.zip(given);
        let fits = |(wanted, given): (&str, &str)| wanted == given || (wanted.starts_with('{') && !given.is_empty());
        same.all(fits) && template.split('/').count() == path.split('/').count()
    };
    let (_, methods) = paths.iter().find(|(template, _)| matches(template))?;
    methods.get(method.as_str().to_lowercase())
}

/// Status and code stand in the document, with the words that say what they mean.
fn announced(asked: &str, method: &Method, path: &str, answer: &Answer) {
    // Of the router, not of the row: another port, or another service, has other rows.
    let elsewhere = [Code::NotFound, Code::MethodNotAllowed, Code::NotServed].map(Some).contains(&code(answer));
    let Some(operation) = operation(method, path).filter(|_| !elsewhere) else { return };
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{asked} is not announced");
    if let Some(code) = code(answer) {
        let description = response["description"].as_str().unwrap_or_default();
        assert!(description.contains(&format!("`{}`", code.as_str())), "{asked} {} is not announced", code.as_str());
    } else if !answer.bytes.is_empty() && answer.header("content-type") == Some("application/json") {
        members(asked, &response["content"]["application/json"]["schema"], &answer.json());
    }
}

/// The members of an answer are those of its schema: none is missing, none is unannounced.
fn members(asked: &str, schema: &Value, value: &Value) {
    let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) else { return };
    let schema = &document()["components"]["schemas"][name];
    let (properties, object) = (schema["properties"].as_object(), value.as_object());
    let (Some(properties), Some(object)) = (properties, object) else { panic!("{asked}: {value} is no {name}") };
    for (member, value) in object {
        assert!(properties.contains_key(member), "{asked}: {name} announces no {member}");
        if let Some(items) = value.as_array() {
            items.iter().for_each(|item| members(asked, &properties[member]["items"], item));
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(object.contains_key(required), "{asked}: {name} lacks {required}");
    }
}
