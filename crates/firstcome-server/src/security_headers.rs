//! The headers that tell a browser what it may do with an answer.
//!
//! # What it promises
//! - Every answer of this service has `X-Content-Type-Options`, `Referrer-Policy` and `Cache-Control`. A handler may set
//!   the last two; an answer without them gets the strictest value.
//! - Every page also has a `Content-Security-Policy`, a `Permissions-Policy` and a `Cross-Origin-Resource-Policy`.
//! - Every page has a `Cross-Origin-Opener-Policy`, except those that a gate or a proxy shows in place of
//!   a page of the site.
//! - Over TLS, own or of a trusted proxy, every answer has `Strict-Transport-Security`, unless the host is a loopback name.
//! - An answer of the site behind a gate passes unchanged: the site sets its own headers.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// As a resource policy: a page of another site that names a page of this service as its image or script gets no byte.
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Pages of this service use none of these. A script that an attacker injects cannot ask a visitor for them either.
const PERMISSIONS: HeaderValue =
    HeaderValue::from_static("camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()");
/// The policy of a page whose handler sets none. It loads nothing, and no other page frames it.
const NOTHING: HeaderValue =
    HeaderValue::from_static("default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The headers of a connection that is refused before its first request, as they are written.
pub(crate) const OF_REFUSED_CONNECTION: &str =
    "cache-control: no-store\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n";

/// Adds the headers of an answer that is no page. Replaces what `headers` has. Costs three insertions.
pub(crate) fn add(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(header::REFERRER_POLICY, NO_REFERRER);
}

/// A browser that has reached the service over TLS keeps to it for a year.
const KEEP_TO_TLS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds the header of an answer that a browser gets over TLS.
pub(crate) fn add_transport(headers: &mut HeaderMap) {
    headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(KEEP_TO_TLS);
}

/// Completes each answer of a router.
pub(crate) async fn completed(mut response: Response) -> Response {
    complete(response.headers_mut());
    response
}

/// Adds each header that an answer lacks. Replaces none.
pub(crate) fn complete(headers: &mut HeaderMap) {
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(NOSNIFF);
    headers.entry(header::REFERRER_POLICY).or_insert(NO_REFERRER);
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if is_page {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING);
        headers.entry(PERMISSIONS_POLICY).or_insert(PERMISSIONS);
        headers.entry(RESOURCE_POLICY).or_insert(SAME_ORIGIN);
        // A page of another site that opens a page of this service gets no handle on its window.
        headers.entry(OPENER_POLICY).or_insert(SAME_ORIGIN);
    }
}

/// Leaves a page its handle on the window that opened it: a proxy shows the page in place of one of the site.
pub(crate) fn keep_opener(headers: &mut HeaderMap) {
    headers.insert(OPENER_POLICY, HeaderValue::from_static("unsafe-none"));
}

/// Completes an answer that a gate shows at the address of its site. Another page of the site, or a page that the site
/// works with, may have opened the window and wait for it: the page in it must not cut the two apart.
pub(crate) fn complete_at_site(headers: &mut HeaderMap) {
    complete(headers);
    headers.remove(OPENER_POLICY);
}
