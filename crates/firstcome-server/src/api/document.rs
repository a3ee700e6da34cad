//! Completes the OpenAPI document with what the macros leave out: the media type of refusals, the patterns of names
//! and keys, the values of enumerated texts, and the calls that need no key. Each is stated once, for all operations.

use crate::error::Code;
use firstcome::HandleKey;
use firstcome::core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, NAME_BYTES_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX};
use firstcome::core::room::RateReason;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// Names of everything: coupons, rooms, users, members, owners.
const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:@-]*$";
/// Idempotency keys: visible ASCII characters.
const KEY_PATTERN: &str = "^[!-~]+$";
const BASE64URL_PATTERN: &str = "^[A-Za-z0-9_-]+$";
/// The largest integer that every JSON reader keeps exactly.
const AFTER_MAX: u64 = (1 << 53) - 1;

/// The members of bodies and answers that hold names.
const NAMES: [&str; 9] = ["coupon", "room", "lock", "listing", "user", "member", "owner", "bidder", "buyer"];

/// The values of enumerated members: schema, member, values.
const VALUES: [(&str, &str, &[&str]); 13] = [
    ("Claim", "durability", &["memory", "disk", "redis", "database"]),
    ("Coupon", "durability", &["redis", "database"]),
    ("CouponBody", "durability", &["redis", "database"]),
    ("Coupon", "state", &["scheduled", "open", "sold_out", "expired", "deleted"]),
    ("Room", "state", &["open", "paused", "scheduled", "closed"]),
    ("Draw", "state", &["committed", "drawn"]),
    ("Room", "rate_reason", &RATE_REASONS),
    ("Pace", "reason", &RATE_REASONS),
    ("Feedback", "report", &["fine", "slow", "failing"]),
    ("Ticket", "state", &["in_draw", "waiting", "admitted", "expired", "left"]),
    ("Listing", "state", &["scheduled", "running", "ended", "sold", "unsold"]),
    ("Record", "kind", &["CHARGE", "REFUND", "HOLD", "RELEASE", "CAPTURE", "PURCHASE", "SOLD"]),
    ("PassVerdict", "reason", &["malformed", "unknown_key", "forged", "other_room", "expired", "over"]),
];

/// The operations that a key to view may call, and those that look at no key. All others refuse such a key.
const VIEWS: [&str; 16] = [
    "get_api_keys",
    "get_appearance",
    "get_bids",
    "get_coupon",
    "get_dead_letters",
    "get_draw",
    "get_gate",
    "get_listing",
    "get_lock",
    "get_member",
    "get_pass_keys",
    "get_records",
    "get_room",
    "healthz",
    "metrics",
    "readyz",
];

/// Announces the refusal of a key to view.
fn refuse_views(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let refused = responses.entry("403").or_insert_with(
        || json!({"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}),
    );
    let words = refused["description"].as_str().map(|words| format!("{words} ")).unwrap_or_default();
    refused["description"] = json!(words + "`view_only`");
}
/// Why a room has its present rate.
const RATE_REASONS: [&str; RateReason::ALL.len()] = {
    let mut texts = [""; RateReason::ALL.len()];
    let mut at = 0;
    while at < texts.len() {
        texts[at] = RateReason::ALL[at].as_str();
        at += 1;
    }
    texts
};

/// Completes the document. Returns a document that has no JSON form unchanged.
pub(super) fn complete(document: OpenApi) -> OpenApi {
    let Ok(mut json) = serde_json::to_value(&document) else { return document };
    json["servers"] = json!([{"url": "/", "description": "The service that shows this document"}]);
    json["components"]["securitySchemes"]["pass"] = json!({
        "type": "apiKey", "in": "header", "name": "X-Firstcome-Pass", "description": "A pass of the coupon's room"
    });
    for (path, operations) in members_of(&mut json["paths"]) {
        for operation in members_of(operations).map(|(_, operation)| operation) {
            of_operation(path, operation);
        }
    }
    for (name, schema) in members_of(&mut json["components"]["schemas"]) {
        // An enumeration has no members.
        if let Some(members) = schema.get_mut("properties") {
            of_schema(name, members);
        }
    }
    // An example made of the examples of each member would be refused.
    json["components"]["schemas"]["ListingBody"]["example"] = json!({
        "owner": "eve", "kind": "auction", "price": 100, "ends_at": "2099-01-01T12:00:00Z", "min_increment": 10,
        "extend": {"window_ms": 60_000, "by_ms": 60_000, "max_count": 10},
        "settle_within_ms": 86_400_000, "on_default": "release"
    });
    serde_json::from_value(json).unwrap_or(document)
}

fn members_of(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}

fn of_operation(path: &str, operation: &mut Value) {
    let is_claim = operation["operationId"] == "post_claim";
    match &mut operation["security"] {
        // The call needs no key. An unknown key is refused all the same.
        none @ Value::Null => *none = json!([]),
        // A pass of the coupon's room is enough for a claim.
        Value::Array(keys) if is_claim => keys.push(json!({"pass": []})),
        _ => {}
    }
    if !operation["operationId"].as_str().is_some_and(|id| VIEWS.contains(&id)) {
        refuse_views(operation);
    }
    for (_, response) in members_of(&mut operation["responses"]) {
        let Some(content) = response.get_mut("content").and_then(Value::as_object_mut) else { continue };
        let is_problem = |body: &Value| body["schema"]["$ref"] == "#/components/schemas/Problem";
        if content.get("application/json").is_some_and(is_problem)
            && let Some(body) = content.remove("application/json")
        {
            content.insert("application/problem+json".to_owned(), body);
        }
    }
    for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
        let of = (parameter["in"].as_str().unwrap_or_default(), parameter["name"].as_str().unwrap_or_default());
        let is_number_of_serials = path.ends_with("/claims");
        parameter["schema"] = match of {
            ("path", "ticket") => {
                json!({"type": "string", "minLength": 1, "maxLength": 256, "pattern": BASE64URL_PATTERN})
            }
            ("path", _) => name(),
            ("query", "after") => {
                let most = if is_number_of_serials { 100_000_000 } else { AFTER_MAX };
                json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": most})
            }
            ("query", "limit") => json!({
                "type": "integer", "format": "int32", "minimum": 1, "maximum": PAGE_ITEMS_MAX, "default": PAGE_ITEMS_DEFAULT
            }),
            ("query", "of") => json!({"type": "string", "maxLength": 4, "enum": ["node"]}),
            ("header", "Idempotency-Key") => {
                json!({"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_BYTES_MAX, "pattern": KEY_PATTERN})
            }
            ("header", "If-Match") => json!({"type": "string", "maxLength": 1_024}),
            _ => json!({"type": "string", "minLength": 1, "maxLength": crate::pass::TOKEN_BYTES_MAX}),
        };
    }
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": NAME_PATTERN})
}

fn of_schema(schema: &str, properties: &mut Value) {
    for (member, property) in members_of(properties) {
        if NAMES.contains(&member.as_str()) {
            extend(property, &name());
        }
        if member == "handle" {
            let chars = HandleKey::HANDLE_CHARS;
            extend(property, &json!({"minLength": chars, "maxLength": chars, "pattern": BASE64URL_PATTERN}));
        }
        let values = VALUES.iter().find(|(of, name, _)| *of == schema && name == member).map(|(.., values)| *values);
        let values = match (schema, member.as_str()) {
            (_, "kind") if schema.starts_with("Listing") => Some(&["fixed_price", "auction"][..]),
            (_, "on_default") => Some(&["release"][..]),
            _ => values,
        };
        if let Some(values) = values {
            extend(property, &json!({"enum": values}));
        }
        if (schema, member.as_str()) == ("Problem", "code") {
            let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
            extend(property, &json!({"enum": codes}));
        }
    }
}

/// Adds keywords to a schema beyond its type. A nullable member stays nullable.
fn extend(property: &mut Value, with: &Value) {
    let may_be_null = property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let Some(property) = property.as_object_mut() else { return };
    for (key, mut value) in with.as_object().cloned().unwrap_or_default() {
        if key == "type" {
            continue;
        }
        if key == "enum"
            && may_be_null
            && let Some(values) = value.as_array_mut()
        {
            values.push(Value::Null);
        }
        property.insert(key, value);
    }
}
