//! Sends spans to a collector, in the background.
//!
//! # Promises
//! - The queue is bounded. Spans that do not fit, and those that the collector does not take, are dropped and counted.
//! - A batch is sent twice at most, each time within five seconds.
//! - The loss of the collector is a line of the log, and so is its return.

use super::{Span, Tracer, otlp};
use axum::http::uri::{PathAndQuery, Scheme};
use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use firstcome::address::{Destination, Encryption, Host};
use firstcome::edge::{Clock, SystemClock};
use firstcome::outage::{Outage, ServerKind};
use firstcome::trace::{now_ns, switch_on};
use firstcome_tls::{TlsError, Trust};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The traces that wait to be sent, at most.
const QUEUE_MAX: usize = 2_048;
/// The spans of one request to the collector, as soon as there are so many.
const BATCH_MAX: usize = 512;
/// How long spans are collected for a batch.
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// How long the collector may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often a batch is sent, and the pause between.
const TRIES: u32 = 2;
/// See [`TRIES`].
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of a service waits for the last spans.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The address of a collector that takes OTLP over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpEndpoint(Uri);

/// A text is no address of a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtlpEndpointError;

impl fmt::Display for OtlpEndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write the address of a collector as http://127.0.0.1:4318 or https://host:4318, without a user and a query")
    }
}

impl Error for OtlpEndpointError {}

impl FromStr for OtlpEndpoint {
    type Err = OtlpEndpointError;

    /// Parses the base address, to which `/v1/traces` is added.
    fn from_str(text: &str) -> Result<Self, OtlpEndpointError> {
        let uri: Uri = text.parse().map_err(|_| OtlpEndpointError)?;
        let mut parts = uri.into_parts();
        let is_http = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&parts.scheme.as_ref());
        let is_host = parts.authority.as_ref().is_some_and(|it| !it.host().is_empty() && !it.as_str().contains('@'));
        let base = parts.path_and_query.take();
        let has_query = base.as_ref().is_some_and(|base| base.query().is_some());
        if !is_http || !is_host || has_query {
            return Err(OtlpEndpointError);
        }
        let path = format!("{}/v1/traces", base.as_ref().map_or("", PathAndQuery::path).trim_end_matches('/'));
        parts.path_and_query = Some(path.parse().map_err(|_| OtlpEndpointError)?);
        Uri::from_parts(parts).map(Self).map_err(|_| OtlpEndpointError)
    }
}

impl OtlpEndpoint {
    fn is_tls(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// Where the address leads.
    pub fn destination(&self) -> Destination {
        let (name, port) = (self.0.host().unwrap_or_default(), self.0.port_u16());
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let host = Host::new(name, port.unwrap_or(if self.is_tls() { 443 } else { 80 }));
        Destination {
            hosts: vec![host],
            encryption: if self.is_tls() { Encryption::Checked } else { Encryption::Never },
        }
    }
}

/// Which requests are traced, and where their traces go.
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// The collector.
    pub endpoint: OtlpEndpoint,
    /// The name of the service in traces.
    pub service_name: String,
    /// The share of requests that are traced, from 0 to 1. A request that brings a `traceparent` decides itself.
    pub sample: f64,
    /// Whom a connection by TLS trusts.
    pub trust: Trust,
}

struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: OtlpEndpoint,
    service_name: String,
    /// The time of the epoch at which the clock of spans began.
    start_ns: u64,
    outage: Outage,
}

/// Why a collector did not take a batch.
enum Refusal {
    /// It may take it later.
    Passing(String),
    Final(String),
}

/// In plain text TLS is never used, and a machine that has no authorities needs none.
fn tls_of(endpoint: &OtlpEndpoint, trust: &Trust) -> Result<ClientConfig, TlsError> {
    if endpoint.is_tls() {
        return trust.client_config();
    }
    let config = ClientConfig::builder_with_provider(ring::default_provider().into());
    #[expect(clippy::expect_used, reason = "the provider has the protocols that it has as its default")]
    let config = config.with_safe_default_protocol_versions().expect("the provider knows its own protocols");
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

impl Tracer {
    /// Starts to export. Call within a Tokio runtime. Sends nothing before the first trace.
    ///
    /// # Errors
    /// Authorities or the certificate of this program cannot be used.
    pub(crate) fn start(config: TraceConfig, dropped: Counter) -> Result<Self, TlsError> {
        let TraceConfig { endpoint, service_name, sample, trust } = config;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(ANSWER_WITHIN));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls_of(&endpoint, &trust)?);
        let connector = connector.https_or_http().enable_http1().wrap_connector(http);
        switch_on();
        let unix_ns = u64::try_from(SystemClock::default().now().as_us()).unwrap_or_default().saturating_mul(1_000);
        let address = endpoint.destination().hosts.first().map(ToString::to_string).unwrap_or_default();
        let collector = Collector {
            client: Client::builder(TokioExecutor::new()).build(connector),
            start_ns: unix_ns.saturating_sub(now_ns()),
            outage: Outage::of(ServerKind::Collector, &address),
            endpoint,
            service_name,
        };
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let exporter = tokio::spawn(export(spans, collector, dropped.clone()));
        Ok(Self {
            sampled: (sample.clamp(0.0, 1.0) * (1_u64 << 32) as f64) as u64,
            queue: Mutex::new(Some(queue)),
            exporter: Mutex::new(Some(exporter)),
            dropped,
        })
    }

    /// Sends what waits, for two seconds at most.
    pub(crate) async fn close(&self) {
        drop(self.queue.lock().take());
        let exporter = self.exporter.lock().take();
        if let Some(mut exporter) = exporter
            && timeout(END_WITHIN, &mut exporter).await.is_err()
        {
            exporter.abort();
        }
    }
}

async fn export(mut queue: mpsc::Receiver<Vec<Span>>, collector: Collector, dropped: Counter) {
    while let Some(mut spans) = queue.recv().await {
        let until = Instant::now() + BATCH_EVERY;
        while spans.len() < BATCH_MAX
            && let Ok(Some(more)) = timeout_at(until, queue.recv()).await
        {
            spans.extend(more);
        }
        if !collector.take(&spans).await {
            dropped.inc_by(spans.len() as u64);
        }
    }
}

impl Collector {
    /// Sends a batch. False if the collector does not take it.
    async fn take(&self, spans: &[Span]) -> bool {
        let body = Bytes::from(otlp::body(&self.service_name, self.start_ns, spans));
        for again in 1..=TRIES {
            let error = match self.send(body.clone()).await {
                Ok(()) => {
                    self.outage.over();
                    return true;
                }
                Err(Refusal::Final(says)) => {
                    self.outage.begin(&says);
                    return false;
                }
                Err(Refusal::Passing(says)) => says,
            };
            self.outage.begin(&error);
            if again < TRIES {
                sleep(PAUSE).await;
            }
        }
        false
    }

    async fn send(&self, body: Bytes) -> Result<(), Refusal> {
        let request = Request::builder().method(Method::POST).uri(self.endpoint.0.clone());
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(body));
        let request = request.map_err(|error| Refusal::Final(error.to_string()))?;
        let answer = match timeout(ANSWER_WITHIN, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let why = firstcome_tls::explain(&error);
                return Err(Refusal::Passing(why.unwrap_or_else(|| chain(&error))));
            }
            Err(_) => return Err(Refusal::Passing("no answer in time".to_owned())),
        };
        let status = answer.status();
        let says = format!("it answers {status} to POST {}", self.endpoint.0.path());
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Refusal::Passing(says)),
            _ => Err(Refusal::Final(says)),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_the_base_of_a_collector() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<OtlpEndpoint>().unwrap().0.to_string(), url);
        }
        for text in ["", "127.0.0.1:4318", "grpc://h:4317", "http://", "http://u:p@h", "http://h?x=1", "/v1/traces"] {
            assert_eq!(text.parse::<OtlpEndpoint>(), Err(OtlpEndpointError), "{text}");
        }
        let destination = "http://[::1]:4318".parse::<OtlpEndpoint>().unwrap().destination();
        assert!(destination.beyond_this_machine().is_none(), "{destination:?}");
        let destination = "http://collector:4318".parse::<OtlpEndpoint>().unwrap().destination();
        assert!(destination.beyond_this_machine().is_some() && destination.encryption.may_be_plain());
    }
}
