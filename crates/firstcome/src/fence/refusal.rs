//! Reads the token of an HTTP request, and answers a request that has none or a stale one.

use super::{FenceToken, HEADER, HeaderError, StaleFence};
use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

/// Why a request has no token. The response is a problem document of RFC 9457 (`application/problem+json`) with `type`,
/// `title`, `status`, `detail` and `code`. So is the response of a [`StaleFence`]. The codes are stable:
///
/// | status | code | what happened | what to do |
/// |---|---|---|---|
/// | 400 | `invalid_fence` | the header is not a token, or occurs twice | send `guard.token()?.to_header()` |
/// | 409 | `stale_fence` | a newer holder has written | ask for the lock again and begin from the start |
/// | 428 | `fence_required` | the header is missing | hold the lock, and send its token |
///
/// A [`FenceToken`] is an extractor, so a handler that takes one is never called without a token:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, routing::put};
/// use firstcome::fence::{FenceToken, StaleFence};
/// # async fn store(token: &FenceToken) -> Result<(), StaleFence> { Ok(()) }
///
/// async fn put_price(token: FenceToken) -> Result<(), StaleFence> {
///     store(&token).await // one of the checks of `firstcome::fence`
/// }
///
/// let app: Router = Router::new().route("/auctions/7/price", put(put_price));
/// # let call = http::Request::put("/auctions/7/price").body(axum::body::Body::empty())?;
/// # let answer = tower::ServiceExt::oneshot(app, call).await?;
/// # assert_eq!(answer.status(), 428);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderRejection {
    /// The header is missing.
    #[error("the call has no header Firstcome-Fence")]
    Required,
    /// The header is not a token.
    #[error("the header Firstcome-Fence is invalid: {0}")]
    Invalid(HeaderError),
}

impl HeaderRejection {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Required => "fence_required",
            Self::Invalid(_) => "invalid_fence",
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for FenceToken {
    type Rejection = HeaderRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HeaderRejection> {
        let mut values = parts.headers.get_all(HEADER).iter();
        let value = values.next().ok_or(HeaderRejection::Required)?;
        if values.next().is_some() {
            return Err(HeaderRejection::Invalid(HeaderError::Twice("the header")));
        }
        let text = value.to_str().map_err(|_| HeaderRejection::Invalid(HeaderError::Syntax))?;
        text.parse().map_err(HeaderRejection::Invalid)
    }
}

impl IntoResponse for HeaderRejection {
    fn into_response(self) -> Response {
        let (status, title) = match self {
            Self::Required => (StatusCode::PRECONDITION_REQUIRED, "The call has no fence token"),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, "The fence token is invalid"),
        };
        problem(status, self.code(), title, &self.to_string())
    }
}

impl IntoResponse for StaleFence {
    fn into_response(self) -> Response {
        problem(StatusCode::CONFLICT, self.code(), "A newer holder of the lock has written", &self.to_string())
    }
}

fn problem(status: StatusCode, code: &str, title: &str, detail: &str) -> Response {
    // The messages are constants of this crate, and names in them have no quotes. Only the quotes of the messages need
    // an escape.
    let detail = detail.replace('\\', "\\\\").replace('"', "\\\"");
    let body = format!(
        "{{\"type\":\"/errors/{code}\",\"title\":\"{title}\",\"status\":{},\"detail\":\"{detail}\",\"code\":\"{code}\"}}",
        status.as_u16()
    );
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
