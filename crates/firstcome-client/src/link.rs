//! The connections to one service, and one exchange over one of them.

use crate::options::{HttpOptions, OpenHttpError};
use bytes::Bytes;
use firstcome_store::{Fault, FaultKind, trace};
use firstcome_tls::Trust;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long an idle connection is kept. A service closes one after 75 s unless an operator sets less: a request that
/// meets the close would have no answer.
const IDLE: Duration = Duration::from_secs(20);
/// The most bytes of an answer. A page of a thousand claims with the longest attributes has less than a third of it.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most bytes of an event. The longest texts of a room make a sixth of it.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// The connections to one service. The key is in no text that this type shows.
pub(crate) struct Link {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Scheme, authority and the path before `/v1`, without a slash at its end.
    base: String,
    authorization: HeaderValue,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("url", &self.base).finish_non_exhaustive()
    }
}

/// One request, as it is sent each time.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    /// The path from `/v1` on, with its query.
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// An answer that arrived whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer, in words.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The service did not get the request.
    NotSent(String),
    /// The service may have got it.
    Perhaps(String),
}

impl Link {
    /// Prepares connections to the service at `url`. Opens none.
    pub(crate) fn new(url: &str, key: &str, options: &HttpOptions, trust: &Trust) -> Result<Self, OpenHttpError> {
        options.check()?;
        let (base, is_https) = base_of(url)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(options.connect_timeout));
        http.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new();
        let provider = ring::default_provider();
        let broken = |says: String| OpenHttpError::Machine(Fault::new(FaultKind::Io, says));
        let builder = if is_https {
            let config = trust.client_config();
            builder.with_tls_config(config.map_err(|error| broken(error.to_string()))?)
        } else {
            // Never used: reading the certificates would take time, and fail on a machine that has none.
            let config = ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
            let config = config.map_err(|error| broken(format!("TLS cannot be set up: {error}")))?;
            let none = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
            builder.with_tls_config(none)
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(http);
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).timer(TokioTimer::new());
        Ok(Self { client: client.build(connector), base, authorization: authorization_of(key)? })
    }

    /// Where the service is.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends one request once, and reads its answer whole.
    ///
    /// Dropping the future ends the connection; the service may have got the request.
    pub(crate) async fn exchange(&self, sent: &Sent, within: Duration) -> Result<Reply, Lost> {
        let request = self.request(sent)?;
        let answered = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let says = firstcome_tls::explain(&error).unwrap_or_else(|| chain(&error));
                if error.is_connect() { Lost::NotSent(says) } else { Lost::Perhaps(says) }
            })?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Lost::Perhaps(format!("the answer broke off: {error}")))?.to_bytes();
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        };
        let late = || Lost::Perhaps(format!("no answer within {} ms", within.as_millis()));
        tokio::time::timeout(within, answered).await.unwrap_or_else(|_| Err(late()))
    }

    /// Opens a stream of events, on a connection of its own while it lasts. `None` if there is none.
    ///
    /// Dropping the stream ends the connection.
    pub(crate) async fn listen(&self, sent: &Sent, within: Duration) -> Option<EventLines> {
        let asked = self.client.request(self.request(sent).ok()?);
        let answer = tokio::time::timeout(within, asked).await.ok()?.ok()?;
        let kind = answer.headers().get(CONTENT_TYPE)?.to_str().ok()?;
        let is_stream = answer.status() == StatusCode::OK && kind.starts_with("text/event-stream");
        is_stream.then(|| EventLines::new(answer.into_body()))
    }

    fn request(&self, sent: &Sent) -> Result<Request<Full<Bytes>>, Lost> {
        let mut request = Request::new(Full::new(sent.body.clone().unwrap_or_default()));
        *request.method_mut() = sent.method.clone();
        let uri: Result<Uri, _> = format!("{}{}", self.base, sent.path).parse();
        *request.uri_mut() = uri.map_err(|error| Lost::NotSent(format!("no path of a service: {error}")))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        if sent.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(sent.headers.iter().cloned());
        if let Some(context) = trace::current() {
            let named = [
                (trace::TRACEPARENT, Some(context.traceparent())),
                (trace::TRACESTATE, context.state.map(|it| it.to_string())),
            ];
            for (name, value) in named {
                // Both are printable ASCII.
                if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                    headers.insert(name, value);
                }
            }
        }
        Ok(request)
    }
}

/// The events of a stream.
pub(crate) struct EventLines {
    body: Incoming,
    read: Vec<u8>,
    /// Fires once the stream has said nothing for too long. Made with the first read.
    quiet: Option<Pin<Box<Sleep>>>,
}

impl EventLines {
    const fn new(body: Incoming) -> Self {
        Self { body, read: Vec::new(), quiet: None }
    }

    /// Waits for the next event, without comments, and returns its lines. `None` at the end of the stream, if it says
    /// nothing for `quiet_max`, or if it is not one of a service.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self, quiet_max: Duration) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                // A comment begins with a colon.
                if event[0] == b':' {
                    continue;
                }
                return String::from_utf8(event).ok();
            }
            if EVENT_BYTES_MAX < self.read.len() {
                return None;
            }
            let quiet = self.quiet.get_or_insert_with(|| Box::pin(sleep(quiet_max)));
            let frame = tokio::select! {
                frame = self.body.frame() => frame?.ok()?,
                () = quiet.as_mut() => return None,
            };
            self.quiet = None;
            self.read.extend_from_slice(frame.data_ref()?);
        }
    }
}

/// Returns the beginning of every address of a service, and whether it is over TLS.
fn base_of(url: &str) -> Result<(String, bool), OpenHttpError> {
    let wrong = |says| OpenHttpError::Url { says };
    let uri: Uri = url.parse().map_err(|_| wrong("write http://host:port or https://host"))?;
    let is_https = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong("it must begin with http:// or https://")),
    };
    let authority = uri.authority().ok_or(wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("it must not have a user or a password; the key is given on its own"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it names no host"));
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(wrong("it must end with its path, without ? and #"));
    }
    let scheme = if is_https { "https" } else { "http" };
    Ok((format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/')), is_https))
}

fn authorization_of(key: &str) -> Result<HeaderValue, OpenHttpError> {
    let wrong = |says| OpenHttpError::Key { says };
    if key.is_empty() {
        return Err(wrong("it is empty"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong(
            "it may hold only visible ASCII characters; a file may end with a newline that is no part of it",
        ));
    }
    let value = HeaderValue::try_from(format!("Bearer {key}"));
    let mut value = value.map_err(|_| wrong("it may hold only visible ASCII characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Writes an error with all of its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_store::trace::{TraceContext, traced};

    fn opened(url: &str, key: &str) -> Result<String, String> {
        let link = Link::new(url, key, &HttpOptions::default(), &Trust::default());
        link.map(|link| link.base).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_and_keys_are_checked_before_anything_is_sent() {
        let key = "s3cret-key-0123456789";
        for (url, base) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://localhost:8080/", "http://localhost:8080"),
            ("http://[::1]:80/shop/", "http://[::1]:80/shop"),
        ] {
            assert_eq!(opened(url, key).as_deref(), Ok(base));
        }
        for (url, says) in [
            ("", "write http://host:port"),
            ("localhost", "it must begin with http://"),
            ("ftp://localhost", "it must begin with http://"),
            ("http://ann:s3cret@localhost", "a user or a password"),
            ("http://ann@localhost", "a user or a password"),
            ("http://localhost?key=s3cret", "without ? and #"),
            ("http://localhost/#s3cret", "without ? and #"),
        ] {
            let error = opened(url, key).expect_err(url);
            assert!(error.contains(says) && !error.contains("s3cret"), "{url}: {error}");
        }
        for (key, says) in [("", "it is empty"), ("s3 cret", "visible ASCII"), ("s3cret\n", "newline")] {
            let error = opened("http://localhost", key).expect_err(key);
            assert!(error.contains(says) && !error.contains("s3"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_has_no_key() {
        let link = Link::new("http://localhost", "s3cret-key-0123456789", &HttpOptions::default(), &Trust::default())
            .expect("it is fine");
        let request = link.request(&Sent { method: Method::GET, path: "/v1".into(), body: None, headers: Vec::new() });
        assert!(!format!("{link:?} {request:?}").contains("s3cret"));
    }

    #[tokio::test]
    async fn a_request_within_a_trace_names_it_and_others_name_none() {
        let link = Link::new("http://127.0.0.1:1", "key", &HttpOptions::default(), &Trust::default()).unwrap();
        let sent = Sent { method: Method::GET, path: "/v1/x".to_owned(), body: None, headers: Vec::new() };
        let named = |request: &Request<Full<Bytes>>, name| request.headers().get(name).cloned();
        let context = TraceContext::fresh(true);
        let context = TraceContext { state: Some("shop=7".into()), ..context };
        let request = traced(context.clone(), async { link.request(&sent).unwrap() }).await;
        assert_eq!(named(&request, "traceparent").unwrap(), context.traceparent().as_str());
        assert_eq!(named(&request, "tracestate").unwrap(), "shop=7");
        assert_eq!(named(&link.request(&sent).unwrap(), "traceparent"), None);
    }
}
