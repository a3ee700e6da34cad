//! Spans as OTLP over HTTP has them, in JSON.
//!
//! Written by hand: the format has some twenty fields, and the crates of OpenTelemetry bring a second HTTP client, a runtime of their
//! own and generated code for logs and metrics. The source: `opentelemetry/proto/trace/v1/trace.proto` of opentelemetry-proto, and
//! the rules for JSON in the specification of OTLP: ids as hexadecimal digits, numbers of 64 bits as texts, enumerations as numbers.

use super::{Attribute, Span};
use firstcome::trace::TraceContext;
use serde_json::{Map, Value, json};

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// The flag of a sampled span.
const SAMPLED: u32 = 1;

/// Returns the body of a request to a collector. `start_ns` is the time of the epoch at which the clock of spans began.
pub(super) fn body(service_name: &str, start_ns: u64, spans: &[Span]) -> Vec<u8> {
    let spans: Vec<Value> = spans.iter().map(|span| of_span(span, start_ns)).collect();
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let version = env!("CARGO_PKG_VERSION");
    let resource = json!({"attributes": [text("service.name", service_name), text("service.version", version)]});
    let scope = json!({"name": "firstcome", "version": version});
    let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]});
    body.to_string().into_bytes()
}

fn trace_id(context: &TraceContext) -> String {
    format!("{:032x}", context.trace)
}

fn span_id(span: u64) -> String {
    format!("{span:016x}")
}

fn of_span(span: &Span, start_ns: u64) -> Value {
    let time = |ns: u64| start_ns.saturating_add(ns).to_string();
    let attribute = |(key, value): &(&str, Attribute)| {
        let value = match value {
            Attribute::Text(text) => json!({"stringValue": text}),
            Attribute::Number(number) => json!({"intValue": number.to_string()}),
        };
        json!({"key": key, "value": value})
    };
    let mut fields = Map::from_iter([
        ("traceId".to_owned(), trace_id(&span.context).into()),
        ("spanId".to_owned(), span_id(span.context.span).into()),
        ("name".to_owned(), (*span.name).into()),
        ("kind".to_owned(), (span.kind as u8).into()),
        ("startTimeUnixNano".to_owned(), time(span.begun_ns).into()),
        ("endTimeUnixNano".to_owned(), time(span.ended_ns).into()),
        ("attributes".to_owned(), span.attributes.iter().map(attribute).collect()),
        ("flags".to_owned(), SAMPLED.into()),
    ]);
    if let Some(parent) = span.parent {
        fields.insert("parentSpanId".to_owned(), span_id(parent).into());
    }
    if let Some(state) = &span.context.state {
        fields.insert("traceState".to_owned(), (**state).into());
    }
    if let Some(link) = &span.link {
        fields.insert("links".to_owned(), json!([{"traceId": trace_id(link), "spanId": span_id(link.span)}]));
    }
    if span.is_error {
        fields.insert("status".to_owned(), json!({"code": ERROR}));
    }
    fields.into()
}
