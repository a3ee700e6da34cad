//! A layer of tower that lets requests with a valid pass through.

use super::arrival::Arrival;
use super::{Pass, PassError, PassVerifier};
use futures_util::future::{BoxFuture, Either};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

const NO_PASS: &str = "{\"type\":\"/errors/no_pass\",\"title\":\"No pass came with the call\",\"status\":401,\
     \"detail\":\"Join the room, wait for the pass, and send it in `X-Firstcome-Pass` or in the cookie `firstcome_pass`.\",\
     \"code\":\"no_pass\"}";
pub(super) const AWAY: &str = "{\"type\":\"/errors/store_unavailable\",\"title\":\"The waiting room is away\",\"status\":503,\
     \"detail\":\"It is unknown which passes are valid. Try again in some seconds.\",\"code\":\"store_unavailable\"}";
/// The seconds after which a client tries again while the service is away.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// The most bytes that the page of a room takes as `back`.
const BACK_BYTES_MAX: usize = 2_048;

/// What a [`PassLayer`] does once the service was away for the grace. A service that has not answered yet, or that
/// refuses the key or the room, is not away: then the layer answers 503 in both cases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenAway {
    /// Answers 503 to every request.
    #[default]
    FailClosed,
    /// Lets every request through, with the pass if the last list has it. For a site that only must not be overrun,
    /// never for a stock of which exactly N exist.
    FailOpen,
}

/// Lets requests with a valid pass through, and puts the [`Pass`] into their extensions.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::pass::{PassLayer, PassVerifier};
/// use tower::ServiceBuilder;
///
/// let passes = PassVerifier::start("https://queue.example.org", "a service key", "sale")?;
/// let layers = ServiceBuilder::new().layer(PassLayer::new(passes));
/// # let _ = layers; Ok(()) }
/// ```
///
/// The pass comes in the header `X-Firstcome-Pass`, or else in the cookie `firstcome_pass`. Every other request gets:
///
/// | status | when | what |
/// |---|---|---|
/// | 303 | no valid pass; the client takes pages | to the page of the room, with the path of the request in `back` |
/// | 401 | no valid pass; the client prefers JSON | a problem document with the code `no_pass` |
/// | 503 | the service has not answered yet, or was away for the grace, with [`WhenAway::FailClosed`] | a problem document with the code `store_unavailable` |
///
/// A GET with a [hand-off code](crate::WaitingRoom::hand_off) in the parameter `firstcome_handoff` comes from the page of a room on
/// another host. Without a valid pass the layer redeems the code, which is its only call within a request, sets the cookie
/// `firstcome_pass`, and redirects (303) to the address without the code. A code that was used or is over leads there too, without a
/// pass. While the service does not answer, the layer answers 503, and the browser's next try has the same effect as this one. The
/// cookie is `Secure` if the address or `X-Forwarded-Proto` says `https`. Give such a site a [`Self::page`] on the other host.
///
/// Put the layer around the whole router: within a nested router of axum `back` lacks the beginning of the path. With
/// the feature `axum`, [`Pass`] is an extractor.
#[derive(Clone, Debug)]
pub struct PassLayer {
    passes: PassVerifier,
    page: Box<str>,
    when_away: WhenAway,
}

impl PassLayer {
    /// Lets requests with a pass through. Others go to `/rooms/{room}`, and to none while the service is away.
    pub fn new(passes: PassVerifier) -> Self {
        let page = format!("/rooms/{}", passes.room()).into();
        Self { passes, page, when_away: WhenAway::default() }
    }

    /// Sends visitors without a pass to another page: a path of this site, or an address. On the host of the site the page of a room
    /// leads back to the path of the request, which the layer adds as `back`. On another host it leads to the `target_url` of
    /// the room, with a hand-off code.
    pub fn page(self, page: &Uri) -> Self {
        Self { page: page.to_string().into(), ..self }
    }

    /// Says what happens once the service was away for the grace.
    pub fn when_away(self, when_away: WhenAway) -> Self {
        Self { when_away, ..self }
    }

    /// Decides about a request: through with a pass, through without one, or a refusal.
    fn decide(&self, headers: &HeaderMap) -> Result<Option<Pass>, Refusal> {
        let shown = shown_pass(headers).unwrap_or_default();
        match (self.passes.check(shown), self.when_away) {
            (Ok(pass), _) => Ok(Some(pass)),
            (Err(PassError::Away), WhenAway::FailOpen) if self.passes.is_lost() => {
                Ok(self.passes.check_by_last_list(shown))
            }
            (Err(PassError::Away), _) => Err(Refusal::Away),
            (Err(PassError::Refused(_)), _) if prefers_json(headers) => Err(Refusal::NoPass),
            (Err(PassError::Refused(_)), _) => Err(Refusal::ToPage),
        }
    }

    fn refuse<R: From<&'static str>>(&self, refusal: Refusal, uri: &Uri, sent: &HeaderMap) -> Response<R> {
        let (status, body) = match refusal {
            Refusal::Away => (StatusCode::SERVICE_UNAVAILABLE, AWAY),
            Refusal::NoPass => (StatusCode::UNAUTHORIZED, NO_PASS),
            Refusal::ToPage => (StatusCode::SEE_OTHER, ""),
        };
        let mut response = Response::new(R::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match refusal {
            Refusal::Away => drop(headers.insert(header::RETRY_AFTER, RETRY_AFTER)),
            Refusal::NoPass => (),
            Refusal::ToPage => {
                // A `Uri` and escaped bytes are always a valid value.
                let host = sent.get(header::HOST).and_then(|host| host.to_str().ok()).or_else(|| uri.host());
                let place = HeaderValue::try_from(place(&self.page, uri, host.unwrap_or_default()));
                headers.insert(header::LOCATION, place.unwrap_or(HeaderValue::from_static("/")));
                return response;
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    ToPage,
    NoPass,
    Away,
}

impl<S> Layer<S> for PassLayer {
    type Service = PassService<S>;

    fn layer(&self, inner: S) -> PassService<S> {
        PassService { inner, layer: self.clone() }
    }
}

/// An answer of the layer itself: at once, or by a call to the service.
type Answering<R, E> = Either<Ready<Result<Response<R>, E>>, BoxFuture<'static, Result<Response<R>, E>>>;

/// A service behind a [`PassLayer`].
#[derive(Clone, Debug)]
pub struct PassService<S> {
    inner: S,
    layer: PassLayer,
}

impl<S, B, R> Service<Request<B>> for PassService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<&'static str> + 'static,
    S::Error: 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Answering<R, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let arrival = Arrival::of(&request);
        match (self.layer.decide(request.headers()), arrival) {
            (Ok(Some(_)), Some(arrival)) => Either::Right(Either::Left(ready(Ok(arrival.go_on())))),
            (Err(Refusal::ToPage | Refusal::NoPass), Some(arrival)) => {
                let redeemed = arrival.redeem(self.layer.passes.clone());
                Either::Right(Either::Right(Box::pin(async move { Ok(redeemed.await) })))
            }
            (Ok(pass), _) => {
                if let Some(pass) = pass {
                    request.extensions_mut().insert(pass);
                }
                Either::Left(self.inner.call(request))
            }
            (Err(refusal), _) => {
                Either::Right(Either::Left(ready(Ok(self.layer.refuse(refusal, request.uri(), request.headers())))))
            }
        }
    }
}

/// Returns the pass that a request shows: the header, or else the cookie.
fn shown_pass(headers: &HeaderMap) -> Option<&str> {
    if let Some(shown) = headers.get("x-firstcome-pass") {
        return shown.to_str().ok();
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|one| one.trim().strip_prefix("firstcome_pass="))
}

/// Whether a client rather takes JSON than a page, by `Accept`. Of two equal ones the first counts, and without any a
/// page.
fn prefers_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> = accepted.flat_map(|value| value.split(',')).map(str::trim).collect();
    let quality = |of: [&str; 3]| {
        // The most exact range counts.
        let found = of.iter().find_map(|wanted| ranges.iter().position(|range| media_type(range) == *wanted));
        found.map(|at| (weight(ranges[at]), at))
    };
    match (quality(["application/json", "application/*", "*/*"]), quality(["text/html", "text/*", "*/*"])) {
        (Some((json, json_at)), Some((page, page_at))) => page < json || (page == json && json_at < page_at),
        (Some((json, _)), None) => 0.0 < json,
        (None, _) => false,
    }
}

fn media_type(range: &str) -> &str {
    range.split(';').next().unwrap_or_default().trim()
}

fn weight(range: &str) -> f32 {
    let named = range.split(';').skip(1).find_map(|part| part.trim().strip_prefix("q="));
    named.map_or(1.0, |text| text.parse().unwrap_or(0.0))
}

/// Returns the page of the room with the path of a request, to which a page on the same host leads back.
fn place(page: &str, uri: &Uri, host: &str) -> String {
    let authority = page.split_once("://").filter(|_| !page.starts_with('/')).map(|(_, rest)| rest);
    let authority = authority.and_then(|rest| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host)) {
        return page.to_owned();
    }
    let mut place = format!("{page}{}back=", if page.contains('?') { '&' } else { '?' });
    let wanted = uri.path_and_query().map_or("/", |path| path.as_str());
    // What the page of a room refuses would leave the visitor without a place.
    let leads_back = wanted.starts_with('/')
        && !wanted.starts_with("//")
        && !wanted.contains('\\')
        && wanted.len() <= BACK_BYTES_MAX;
    for byte in if leads_back { wanted } else { "/" }.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            place.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(place, "%{byte:02X}");
        }
    }
    place
}

/// The pass of a request behind a [`PassLayer`]. Without one it answers 401 `no_pass`: with [`WhenAway::FailOpen`] take
/// an `Option<Pass>`.
#[cfg(feature = "axum")]
mod extractor {
    use super::{NO_PASS, Pass};
    use axum_core::body::Body;
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, Response};
    use http::request::Parts;
    use http::{HeaderValue, StatusCode, header};
    use std::convert::Infallible;

    /// A request has no pass: it came while the service was away, or no layer is before the handler.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
    #[error("the request has no pass")]
    pub struct PassMissing;

    impl IntoResponse for PassMissing {
        fn into_response(self) -> Response {
            let mut response = Response::new(Body::from(NO_PASS));
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
    }

    impl<S: Send + Sync> FromRequestParts<S> for Pass {
        type Rejection = PassMissing;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, PassMissing> {
            parts.extensions.get::<Self>().cloned().ok_or(PassMissing)
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for Pass {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}

#[cfg(feature = "axum")]
pub use extractor::PassMissing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_goes_before_the_cookie() {
        let mut headers = HeaderMap::new();
        assert_eq!(shown_pass(&headers), None);
        headers.append("cookie", HeaderValue::from_static("theme=dark; not_firstcome_pass=x"));
        assert_eq!(shown_pass(&headers), None);
        headers.append("cookie", HeaderValue::from_static("a=b;  firstcome_pass=v4.public.x; c=d"));
        assert_eq!(shown_pass(&headers), Some("v4.public.x"));
        headers.insert("x-firstcome-pass", HeaderValue::from_static("v4.public.y"));
        assert_eq!(shown_pass(&headers), Some("v4.public.y"));
    }

    #[test]
    fn json_is_for_clients_that_prefer_it() {
        let prefers = |accept: &'static str| {
            prefers_json(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(!prefers_json(&HeaderMap::new()));
        for pages in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/json;q=0.1, text/html",
            "text/html, application/json",
            "application/json;q=0",
            "image/png",
        ] {
            assert!(!prefers(pages), "{pages}");
        }
        for json in [
            "application/json",
            "application/json, text/html",
            "text/html;q=0.5, application/*",
            "application/json, */*;q=0.1",
        ] {
            assert!(prefers(json), "{json}");
        }
    }

    #[test]
    fn the_page_learns_where_the_visitor_came_from() {
        let uri: Uri = "http://shop/basket?size=1&a=%20b".parse().unwrap();
        assert_eq!(place("/rooms/sale", &uri, "shop"), "/rooms/sale?back=%2Fbasket%3Fsize%3D1%26a%3D%2520b");
        let root = Uri::from_static("/a");
        assert_eq!(place("http://Shop:80/rooms/sale", &root, "shop:80"), "http://Shop:80/rooms/sale?back=%2Fa");
        for host in ["shop", "shop.example", ""] {
            let elsewhere = "https://queue.example/rooms/sale";
            assert_eq!(place(elsewhere, &root, host), elsewhere, "a path of this site is none of {host}");
        }
        let long: Uri = format!("/?{}", "a".repeat(2_047)).parse().unwrap();
        for refused in [Uri::from_static("*"), Uri::from_static("//evil.example/x"), long] {
            assert_eq!(place("/wait?lang=de", &refused, "shop"), "/wait?lang=de&back=%2F", "{refused}");
        }
    }
}
