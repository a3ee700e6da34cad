//! Traces of requests: what is recorded of a sampled one, and when.
//!
//! # What a trace shows
//! - The request: method, template of the route, status, id. No name of a user, no ticket, no key.
//! - Each wait for the store, in it the time until the store began (*queue*), and the step of the store that served it. That step
//!   serves many requests, so it is a span of a trace of its own, to which the one in the request has a link.
//! - The call of a gate to its site.
//!
//! # Cost
//! Without a collector a request costs one branch. With one, a request that is not sampled costs a look at `traceparent` and a hash.
//! Spans wait in a bounded queue, and are dropped and counted when it is full: no request ever waits for the collector.
//!
//! # Not promised
//! - A span of a request whose client has left before its answer.
#![cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "without the feature no service has a tracer"))]

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod otlp;

#[cfg(feature = "otlp")]
pub use export::{OtlpEndpoint, TraceConfig};

use crate::api;
use crate::request_id::{REQUEST_ID, RequestScope};
use crate::state::App;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use firstcome::trace::{self, StageKind, TRACEPARENT, TRACESTATE, TraceContext, draw_span, now_ns};
#[cfg(feature = "otlp")]
use firstcome_tls::TlsError;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::borrow::Cow;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const PARENT: HeaderName = HeaderName::from_static(TRACEPARENT);
const STATE: HeaderName = HeaderName::from_static(TRACESTATE);

/// What a span is, by the numbers of OTLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// What an attribute says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Text(String),
    Number(u64),
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Span {
    context: TraceContext,
    parent: Option<u64>,
    name: Cow<'static, str>,
    kind: SpanKind,
    begun_ns: u64,
    ended_ns: u64,
    attributes: Vec<(&'static str, Attribute)>,
    link: Option<TraceContext>,
    is_error: bool,
}

/// Which port got a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Through {
    Service,
    Gate,
}

/// A sampled request under way.
pub(crate) struct ActiveTrace {
    /// The trace, with the span of the request.
    context: TraceContext,
    parent: Option<u64>,
    begun_ns: u64,
    method: Method,
    path: Box<str>,
    through: Through,
    /// When it waited for the store.
    waits: Vec<(u64, u64)>,
    /// What it called.
    calls: Vec<Span>,
}

/// Decides which requests are traced, and hands their spans on.
pub(crate) struct Tracer {
    /// Of 2^32 requests so many are sampled.
    sampled: u64,
    queue: Mutex<Option<mpsc::Sender<Vec<Span>>>>,
    exporter: Mutex<Option<JoinHandle<()>>>,
    dropped: Counter,
}

/// The context that a request brings. Several of them are none.
fn given(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(PARENT).iter();
    let parent = parents.next().filter(|_| parents.next().is_none())?.to_str().ok()?;
    let states: Option<Vec<&str>> = headers.get_all(STATE).iter().map(|state| state.to_str().ok()).collect();
    let state = states.filter(|states| !states.is_empty()).map(|states| states.join(","));
    TraceContext::parse(parent, state.as_deref())
}

impl Tracer {
    /// Begins to trace a request, if it is sampled. A context that it brings decides.
    pub(crate) fn begin<B>(&self, request: &Request<B>, through: Through) -> Option<Box<ActiveTrace>> {
        let path = request.uri().path();
        let given = given(request.headers());
        let is_sampled = match &given {
            Some(given) => given.is_sampled,
            // Probes and scrapes say nothing of the service.
            None => !matches!(path, "/healthz" | "/readyz" | "/metrics") && (draw_span() >> 32) < self.sampled,
        };
        if !is_sampled {
            return None;
        }
        let parent = given.as_ref().map(|given| given.span);
        let context = given.map_or_else(|| TraceContext::fresh(true), |given| given.at(draw_span()));
        Some(Box::new(ActiveTrace {
            context,
            parent,
            begun_ns: now_ns(),
            method: request.method().clone(),
            path: path.into(),
            through,
            waits: Vec::new(),
            calls: Vec::new(),
        }))
    }

    /// Ends the trace of a request that was answered, and hands it on.
    pub(crate) fn end(&self, trace: ActiveTrace, status: StatusCode, headers: &HeaderMap) {
        let spans = trace.into_spans(status, headers);
        let count = spans.len() as u64;
        let is_taken = self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(spans).is_ok());
        if !is_taken {
            self.dropped.inc_by(count);
        }
    }
}

impl App {
    /// Begins to export traces, if the configuration names a collector. Call within a Tokio runtime.
    ///
    /// # Errors
    /// Authorities of the collector, or the certificate of this program, cannot be used.
    #[cfg(feature = "otlp")]
    pub fn start_traces(&mut self) -> Result<(), TlsError> {
        let tracer = self.config.traces.take().map(|config| Tracer::start(config, self.metrics.spans_dropped.clone()));
        self.tracer = tracer.transpose()?;
        Ok(())
    }

    /// Sends the traces that wait, for two seconds at most, and records no more.
    #[cfg(feature = "otlp")]
    pub async fn end_traces(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.close().await;
        }
    }

    /// Ends the trace of a request, if it has one.
    pub(crate) fn end_trace(&self, trace: Option<Box<ActiveTrace>>, status: StatusCode, headers: &HeaderMap) {
        if let Some((tracer, trace)) = self.tracer.as_ref().zip(trace) {
            tracer.end(*trace, status, headers);
        }
    }
}

/// The coupon or the room in a path; empty for others.
fn object(path: &str) -> &str {
    let rest = path.strip_prefix("/v1").unwrap_or(path);
    let of_kind = |kind| rest.strip_prefix(kind).and_then(|rest| rest.split('/').next());
    of_kind("/coupons/").or_else(|| of_kind("/rooms/")).unwrap_or_default()
}

impl ActiveTrace {
    fn child(&self, name: &'static str, (begun_ns, ended_ns): (u64, u64)) -> Span {
        Span {
            context: self.context.at(draw_span()),
            parent: Some(self.context.span),
            name: name.into(),
            kind: SpanKind::Internal,
            begun_ns,
            ended_ns,
            attributes: Vec::new(),
            link: None,
            is_error: false,
        }
    }

    /// The spans of one wait for the store, and of the steps that served it.
    fn of_wait(&self, (begun_ns, ended_ns): (u64, u64), spans: &mut Vec<Span>) {
        let wait = self.child("store wait", (begun_ns, ended_ns));
        let of_wait = Some(wait.context.span);
        spans.push(wait);
        let found = StageKind::ALL.map(|kind| trace::stage(kind, object(&self.path), begun_ns, ended_ns));
        let stages = found.into_iter().flatten();
        for (at, (stage, is_first)) in stages.enumerate() {
            let step_ns = (stage.begun_ns.max(begun_ns), stage.ended_ns);
            if at == 0 {
                let queue = self.child("queue", (begun_ns, step_ns.0));
                spans.push(Span { parent: of_wait, ..queue });
            }
            let (name, size) = (stage.kind.as_str(), ("firstcome.batch.size", Attribute::Number(stage.size)));
            let step = self.child(name, step_ns);
            let link = Some(stage.context.clone());
            spans.push(Span { parent: of_wait, attributes: vec![size.clone()], link, ..step });
            if is_first {
                let attributes = vec![size];
                let batch = self.child(name, (stage.begun_ns, stage.ended_ns));
                spans.push(Span { context: stage.context, parent: None, attributes, ..batch });
            }
        }
    }

    fn into_spans(mut self, status: StatusCode, headers: &HeaderMap) -> Vec<Span> {
        let mut spans = std::mem::take(&mut self.calls);
        for wait in std::mem::take(&mut self.waits) {
            self.of_wait(wait, &mut spans);
        }
        let text = |text: &str| Attribute::Text(text.to_owned());
        let mut attributes = vec![
            ("http.request.method", text(self.method.as_str())),
            ("http.response.status_code", Attribute::Number(status.as_u16().into())),
        ];
        let route = match self.through {
            Through::Service => api::template(&self.method, &self.path),
            Through::Gate => Some("gate"),
        };
        if let Some(route) = route {
            attributes.push(("http.route", text(route)));
        }
        if let Some(id) = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()) {
            attributes.push(("firstcome.request_id", text(id)));
        }
        spans.push(Span {
            parent: self.parent,
            name: route.map_or(self.method.to_string(), |route| format!("{} {route}", self.method)).into(),
            kind: SpanKind::Server,
            begun_ns: self.begun_ns,
            ended_ns: now_ns(),
            attributes,
            link: None,
            is_error: status.is_server_error(),
            context: self.context,
        });
        spans
    }
}

/// A wait of the request under way for the store, until it is dropped.
pub(crate) struct StoreWait {
    begun_ns: Option<u64>,
}

impl StoreWait {
    /// Begins. Reads one number unless traces are recorded.
    pub(crate) fn begin() -> Self {
        Self { begun_ns: trace::is_on().then(now_ns) }
    }
}

impl Drop for StoreWait {
    fn drop(&mut self) {
        if let Some(begun_ns) = self.begun_ns {
            RequestScope::with_trace(|trace| trace.waits.push((begun_ns, now_ns())));
        }
    }
}

/// A call of the request under way to another server.
pub(crate) struct OutgoingCall {
    context: TraceContext,
    begun_ns: u64,
}

impl OutgoingCall {
    /// Begins a call, and names it in the headers that it sends. `None`, and the headers stay, if the request is not traced.
    pub(crate) fn begin(headers: &mut HeaderMap) -> Option<Self> {
        if !trace::is_on() {
            return None;
        }
        let context = RequestScope::with_trace(|trace| trace.context.at(draw_span()))?;
        headers.insert(PARENT, HeaderValue::try_from(context.traceparent()).ok()?);
        Some(Self { context, begun_ns: now_ns() })
    }

    /// Ends it, with the status that was answered.
    pub(crate) fn end(self, status: Option<StatusCode>) {
        let Self { context, begun_ns } = self;
        let status_attribute =
            status.map(|status| ("http.response.status_code", Attribute::Number(status.as_u16().into())));
        RequestScope::with_trace(|trace| {
            let call = trace.child("site", (begun_ns, now_ns()));
            trace.calls.push(Span {
                context,
                kind: SpanKind::Client,
                attributes: status_attribute.into_iter().collect(),
                is_error: status.is_none_or(|status| status.is_server_error()),
                ..call
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_path_is_its_coupon_or_its_room() {
        for (path, name) in [
            ("/v1/coupons/launch/claims", "launch"),
            ("/v1/rooms/sale/tickets/x", "sale"),
            ("/rooms/sale", "sale"),
            ("/v1/listings/lamp/bids", ""),
            ("/", ""),
        ] {
            assert_eq!(object(path), name, "{path}");
        }
    }
}
