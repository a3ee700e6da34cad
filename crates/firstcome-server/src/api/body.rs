//! Parses and validates requests: bodies, names, idempotency keys, page parameters.

use super::{IDEMPOTENCY_BODY, IDEMPOTENCY_KEY};
use crate::accept::too_slow;
use crate::auth::{Caller, Scope};
use crate::error::{Code, Problem};
use axum::http::{HeaderMap, Method, header};
use bytes::{Bytes, BytesMut};
use firstcome::core::coupon::Serial;
use firstcome::core::id::{
    CouponName, ListingName, LockName, MemberName, NameError, OwnerName, RequestId, RoomName, UserId,
};
use firstcome::core::limits::{
    BODY_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, NAME_BYTES_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX,
    PUBLIC_IDEMPOTENCY_KEY_CHARS_MIN,
};
use firstcome::request::request_id;
use http_body_util::BodyExt;
use hyper::body::Body;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// A name in a path, percent-decoded. An error if the path is not UTF-8.
pub(crate) type PathName = Result<axum::extract::Path<String>, axum::extract::rejection::PathRejection>;

fn bad_name(field: &str, error: NameError) -> Problem {
    let detail = format!("{field} {error}");
    Problem::field(Code::InvalidName, field, detail)
}

/// Parses the coupon name of a path.
pub(crate) fn coupon(path: &str) -> Result<CouponName, Problem> {
    CouponName::parse(path).map_err(|error| bad_name("coupon", error))
}

/// Parses the room name of a path.
pub(crate) fn room(path: &str) -> Result<RoomName, Problem> {
    RoomName::parse(path).map_err(|error| bad_name("room", error))
}

/// Parses the lock name of a path.
pub(crate) fn lock(path: &str) -> Result<LockName, Problem> {
    LockName::parse(path).map_err(|error| bad_name("lock", error))
}

/// Parses the listing name of a path.
pub(crate) fn listing(path: &str) -> Result<ListingName, Problem> {
    ListingName::parse(path).map_err(|error| bad_name("listing", error))
}

/// Parses a member name of a path, or of a field of a body.
pub(crate) fn member(field: &str, text: &str) -> Result<MemberName, Problem> {
    MemberName::parse(text).map_err(|error| bad_name(field, error))
}

/// Parses the owner of a body.
pub(crate) fn owner(text: &str) -> Result<OwnerName, Problem> {
    OwnerName::parse(text).map_err(|error| bad_name("owner", error))
}

/// Parses the user of a body.
pub(crate) fn user(text: &str) -> Result<UserId, Problem> {
    UserId::parse(text).map_err(|error| bad_name("user", error))
}

/// Parses a user that is only looked up. Accepts the reserved names of passes without a user, under which no client
/// can claim.
pub(crate) fn looked_up_user(text: &str) -> Result<&str, Problem> {
    match UserId::parse(text) {
        Ok(_) | Err(NameError::Reserved) => Ok(text),
        Err(error) => Err(bad_name("user", error)),
    }
}

/// Returns the problem for a path parameter that axum could not decode.
pub(crate) fn undecodable() -> Problem {
    Problem::new(Code::InvalidName).detail("the path is not UTF-8")
}

/// Reads a JSON body: declared as JSON, at most 64 KiB, within the deadline.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
    deadline: Duration,
) -> Result<Bytes, Problem> {
    read_up_to(BODY_BYTES_MAX, headers, body, deadline).await
}

/// Reads a JSON body of at most so many bytes.
pub(crate) async fn read_up_to(
    bytes_max: usize,
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
    deadline: Duration,
) -> Result<Bytes, Problem> {
    if !is_announced(headers, &["application/json"]) {
        return Err(Code::UnsupportedMediaType.into());
    }
    read_any(bytes_max, body, deadline).await
}

/// Reads a merge patch, as [`read`] reads a body. Also accepts `application/merge-patch+json`.
pub(crate) async fn read_patch(
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
    deadline: Duration,
) -> Result<Map<String, Value>, Problem> {
    if !is_announced(headers, &["application/merge-patch+json", "application/json"]) {
        return Err(
            Problem::new(Code::UnsupportedMediaType).detail("send application/merge-patch+json or application/json")
        );
    }
    parse(&read_any(BODY_BYTES_MAX, body, deadline).await?)
}

/// Reads the form of a page, as [`read`] reads a body. A field that comes twice counts by its first value.
pub(crate) async fn read_form(
    headers: &HeaderMap,
    body: impl Body<Data = Bytes> + Unpin,
    deadline: Duration,
) -> Result<Vec<(String, String)>, Problem> {
    if !is_announced(headers, &["application/x-www-form-urlencoded"]) {
        return Err(Problem::new(Code::UnsupportedMediaType).detail("send application/x-www-form-urlencoded"));
    }
    let bytes = read_any(BODY_BYTES_MAX, body, deadline).await?;
    Ok(form_urlencoded::parse(&bytes).into_owned().collect())
}

async fn read_any(
    bytes_max: usize,
    body: impl Body<Data = Bytes> + Unpin,
    deadline: Duration,
) -> Result<Bytes, Problem> {
    // A body whose declared length is too large is refused before the client sends it.
    if (bytes_max as u64) < body.size_hint().lower() {
        return Err(Code::BodyTooLarge.into());
    }
    tokio::time::timeout(deadline, collected(bytes_max, body)).await.unwrap_or_else(|_| Err(too_slow()))
}

/// Collects a body. Most bodies arrive in one piece, which is returned without a copy.
async fn collected(bytes_max: usize, mut body: impl Body<Data = Bytes> + Unpin) -> Result<Bytes, Problem> {
    let mut whole = Bytes::new();
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        // The peer left or broke the framing, so it rarely reads this answer.
        let broken = |_| Problem::new(Code::InvalidJson).detail("the body did not arrive whole");
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        if bytes_max < whole.len() + piece.len() {
            return Err(Code::BodyTooLarge.into());
        }
        if whole.is_empty() {
            whole = piece;
        } else {
            // Reuses the memory of the pieces before, unless they are part of a larger buffer.
            let mut longer = BytesMut::from(whole);
            longer.extend_from_slice(&piece);
            whole = longer.freeze();
        }
    }
    Ok(whole)
}

fn is_announced(headers: &HeaderMap, kinds: &[&str]) -> bool {
    let Some(Ok(kind)) = headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    kinds.iter().any(|kind| essence.eq_ignore_ascii_case(kind))
}

/// Parses a JSON object. An error names the path of its field.
pub(crate) fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Problem> {
    // serde would take a list of the fields in their order for an object.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'[') {
        return Err(Problem::field(Code::InvalidField, "body", "body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| explain::<T>(bytes, &error))
}

/// Parses again, more slowly, to find the field of the error.
fn explain<'de, T: Deserialize<'de>>(bytes: &'de [u8], error: &serde_json::Error) -> Problem {
    if !error.is_data() {
        return Problem::new(Code::InvalidJson).detail(error.to_string());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut deserializer) else {
        return Code::InvalidJson.into();
    };
    let message = error.inner().to_string();
    // serde_json ends with the position, which the field's name makes redundant.
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let path = error.path().to_string();
    let named = message.split('`').nth(1).filter(|_| message.contains(" field `"));
    let field = if path == "." { named.unwrap_or_default() } else { &path };
    let field = if field.is_empty() { "body" } else { shortened(field) };
    // The value that came is the caller's text, of any length. Only the expectation is shown.
    let wanted = message.starts_with("invalid ").then(|| message.rsplit_once(", expected ")).flatten();
    let detail = match wanted {
        // serde names its own types where it expects a number.
        Some((_, "u32" | "u64")) => format!("{field} must be a whole number within its limits"),
        Some((_, wanted)) => format!("{field} must be {wanted}"),
        None if NAME_BYTES_MAX < named.map_or(0, str::len) => "unknown field".to_owned(),
        None => message.to_owned(),
    };
    Problem::field(Code::InvalidField, field, detail)
}

/// Returns the beginning of a field name, which can be as long as its sender likes.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(NAME_BYTES_MAX / 4).map_or(text, |(end, _)| &text[..end])
}

/// Returns the request's id if it carries an `Idempotency-Key`. `body` is the parsed content, not its spelling.
///
/// With a key of a back end, `Idempotency-Body` replaces the digest of the content. So a client that speaks for a port
/// hands on the very id that its caller made.
pub(crate) fn request(
    headers: &HeaderMap,
    caller: Caller,
    (name, row): (&str, &str),
    body: &[&[u8]],
) -> Result<Option<RequestId>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |detail: &str| Problem::new(Code::InvalidIdempotencyKey).detail(detail);
    if values.next().is_some() {
        return Err(wrong("the header came twice"));
    }
    let bytes = value.as_bytes();
    if bytes.is_empty() || IDEMPOTENCY_KEY_BYTES_MAX < bytes.len() {
        return Err(wrong("it must have 1 to 128 bytes"));
    }
    let Some(key) = value.to_str().ok().filter(|_| bytes.iter().all(u8::is_ascii_graphic)) else {
        return Err(wrong("it may hold only visible ASCII characters"));
    };
    let base64url = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    if caller.scope == Scope::Public && (bytes.len() < PUBLIC_IDEMPOTENCY_KEY_CHARS_MIN || !bytes.iter().all(base64url))
    {
        return Err(wrong("on a public call it must be 22 or more base64url characters"));
    }
    // Method and path, with the name decoded: its percent-encoding does not matter.
    let scope: [&[u8]; 4] = [&caller.id, Method::POST.as_str().as_bytes(), name.as_bytes(), row.as_bytes()];
    let mut id = request_id(&scope, key, body);
    if caller.scope != Scope::Public
        && let Some(digest) = headers.get(IDEMPOTENCY_BODY)
    {
        let digest = digest.to_str().ok().filter(|text| text.len() == 16 && text.bytes().all(is_hexadecimal));
        let digest = digest.and_then(|text| u64::from_str_radix(text, 16).ok());
        id.body = digest.ok_or_else(|| wrong("Idempotency-Body must be 16 digits of 0-9 a-f"))?;
    }
    Ok(Some(id))
}

const fn is_hexadecimal(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The requested page of a list: up to `limit` items after `after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageQuery<T> {
    pub(crate) after: Option<T>,
    pub(crate) limit: usize,
}

impl PageQuery<Serial> {
    /// Reads `?after=&limit=` of a list of serials. `after=0` is the beginning.
    pub(crate) fn serials(query: &str) -> Result<Self, Problem> {
        Self::parse(query, "a serial", |number| u32::try_from(number).ok().and_then(Serial::new))
    }
}

impl PageQuery<u64> {
    /// Reads `?after=&limit=` of a list of numbers. `after=0` is the beginning.
    pub(crate) fn numbers(query: &str) -> Result<Self, Problem> {
        // A JSON client cannot represent a larger number exactly.
        Self::parse(query, "a number", |number| (number < 1 << 53).then_some(number))
    }
}

impl<T> PageQuery<T> {
    fn parse(query: &str, wanted: &str, read: impl Fn(u64) -> Option<T>) -> Result<Self, Problem> {
        let wrong = |detail: String| Problem::new(Code::InvalidQuery).detail(detail);
        let mut page = Self { after: None, limit: PAGE_ITEMS_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = value.parse::<u64>().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
            match (name, number) {
                ("after", Some(0)) => page.after = None,
                ("after", number) => match number.and_then(&read) {
                    Some(after) => page.after = Some(after),
                    None => return Err(wrong(format!("after must be {wanted}"))),
                },
                ("limit", Some(number)) if (1..=PAGE_ITEMS_MAX as u64).contains(&number) => {
                    page.limit = number as usize;
                }
                ("limit", _) => return Err(wrong(format!("limit must be 1 to {PAGE_ITEMS_MAX}"))),
                _ => return Err(wrong("only after and limit are known".into())),
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_parameters_are_checked_at_their_limits() {
        let page = |after, limit| Some(PageQuery { after: Serial::new(after), limit });
        let rows = [
            ("", page(0, 100)),
            ("after=0", page(0, 100)),
            ("after=7&limit=1", page(7, 1)),
            ("limit=1000", page(0, 1_000)),
            ("limit=1001", None),
            ("limit=0", None),
            ("limit=", None),
            ("limit=%2B1", None),
            ("limit=+1", None),
            ("after=-1", None),
            ("after=4294967296", None),
            ("after=100000001", None),
            ("offset=1", None),
        ];
        for (query, wanted) in rows {
            assert_eq!(PageQuery::serials(query).ok(), wanted, "{query}");
        }
        let numbers = |query| PageQuery::numbers(query).ok().map(|page| (page.after, page.limit));
        assert_eq!(numbers("after=4294967296&limit=2"), Some((Some(4_294_967_296), 2)));
        assert_eq!(numbers("after=0"), Some((None, 100)));
        assert_eq!(numbers("after=9007199254740991"), Some((Some(9_007_199_254_740_991), 100)));
        assert_eq!(numbers("after=9007199254740992"), None);
    }
}
