//! A minimal HTTP/1.1 client: requests as bytes, answers with a `content-length`, cheap to read.

use super::record::{Call, Holder, Reply};
use serde::Deserialize;
use std::io::{self, Write};
use std::ops::Range;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// A request. Its parts are slices, so that writing it allocates nothing.
#[derive(Default)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a [&'a str],
    /// The person whose address a trusted proxy would forward.
    pub(crate) person: Option<u32>,
    pub(crate) key: Option<&'a str>,
    pub(crate) pass: Option<&'a str>,
    pub(crate) idempotency: Option<(&'a str, u64, u32)>,
    pub(crate) body: &'a [&'a str],
}

impl Request<'_> {
    /// Appends the request in the form that the connection sends.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for part in [self.method, " "].iter().chain(self.path) {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b" HTTP/1.1\r\nhost: 127.0.0.1\r\n");
        // Writing to memory cannot fail.
        if let Some(person) = self.person {
            // Every person has an own address in the block 10.0.0.0/8.
            let [_, a, b, c] = (person + 1).to_be_bytes();
            let _ = write!(out, "x-forwarded-for: 10.{a}.{b}.{c}\r\n");
        }
        if let Some(key) = self.key {
            let _ = write!(out, "authorization: Bearer {key}\r\n");
        }
        if let Some(pass) = self.pass {
            let _ = write!(out, "x-firstcome-pass: {pass}\r\n");
        }
        if let Some((kind, seed, person)) = self.idempotency {
            let _ = write!(out, "idempotency-key: {kind}-{seed:016x}-{person:08}\r\n");
        }
        let length: usize = self.body.iter().map(|part| part.len()).sum();
        if 0 < length {
            let _ = write!(out, "content-type: application/json\r\ncontent-length: {length}\r\n");
        }
        out.extend_from_slice(b"\r\n");
        for part in self.body {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// The status, the range of the body in the buffer, and whether the connection ends with this answer.
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) body: Range<usize>,
    pub(crate) closes: bool,
}

/// Parses a head. Returns `None` if it is incomplete.
fn head(buffer: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let text = std::str::from_utf8(&buffer[..end]).map_err(|_| wrong())?;
    let status = text.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    let (mut length, mut closes) = (0, false);
    for line in text.split("\r\n").skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| wrong())?;
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.trim().eq_ignore_ascii_case("close");
        }
    }
    let start = end + 4;
    Ok(Some(Head { status, body: start..start + length, closes }))
}

/// Reads one whole answer into the buffer, which it empties first.
pub(crate) async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Head> {
    buffer.clear();
    let mut found = None;
    loop {
        if let Some(Head { body, .. }) = &found
            && body.end <= buffer.len()
        {
            break;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if found.is_none() {
            found = head(buffer)?;
        }
    }
    found.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// All fields of answers that a drill reads.
#[derive(Deserialize, Default)]
pub(crate) struct Body<'a> {
    #[serde(default, borrow)]
    pub(crate) ticket: Option<&'a str>,
    #[serde(default)]
    pub(crate) number: Option<u32>,
    #[serde(default)]
    pub(crate) position: Option<u32>,
    #[serde(default)]
    pub(crate) poll_after_ms: Option<u32>,
    #[serde(default, borrow)]
    pub(crate) state: Option<&'a str>,
    #[serde(default, borrow)]
    pub(crate) as_of: Option<&'a str>,
    #[serde(default, borrow)]
    pub(crate) admitted_at: Option<&'a str>,
    #[serde(default, borrow)]
    pub(crate) pass: Option<&'a str>,
    #[serde(default, borrow)]
    pub(crate) pass_expires_at: Option<&'a str>,
    #[serde(default, borrow)]
    pub(crate) code: Option<&'a str>,
    #[serde(default)]
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(default, borrow)]
    pub(crate) user: Option<&'a str>,
    #[serde(default)]
    pub(crate) serial: Option<u32>,
    #[serde(default, borrow)]
    pub(crate) claim: Option<ClaimBody<'a>>,
    #[serde(default)]
    pub(crate) valid: Option<bool>,
    #[serde(default)]
    pub(crate) waiting: Option<u64>,
    #[serde(default)]
    pub(crate) active: Option<u64>,
    #[serde(default)]
    pub(crate) serving: Option<u64>,
    #[serde(default)]
    pub(crate) rate: Option<f64>,
}

/// A claim, in its own answer, in a refusal, or in the list.
#[derive(Deserialize, Clone, Copy)]
pub(crate) struct ClaimBody<'a> {
    pub(crate) user: &'a str,
    pub(crate) serial: u32,
    pub(crate) code: &'a str,
}

/// A page of claims.
#[derive(Deserialize)]
pub(crate) struct ClaimPage<'a> {
    #[serde(borrow)]
    pub(crate) items: Vec<ClaimBody<'a>>,
    #[serde(default)]
    pub(crate) next: Option<u32>,
}

impl<'a> Body<'a> {
    /// Parses a body. An empty one has no fields; returns `None` if it is not JSON.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() { Some(Self::default()) } else { serde_json::from_slice(bytes).ok() }
    }

    /// Returns the claim that this answer is or contains.
    pub(crate) fn claimed(&self) -> Option<ClaimBody<'a>> {
        self.claim.or_else(|| Some(ClaimBody { user: self.user?, serial: self.serial?, code: self.code? }))
    }
}

/// Classifies an answer to this call. A code with a wrong status is unexpected, as is an answer without its required
/// fields.
pub(crate) fn classify(call: Call, status: u16, body: &Body<'_>) -> Reply {
    if 300 <= status {
        return refusal(status, body.code.unwrap_or_default(), body);
    }
    let holds = |reply, holds: bool| if holds { reply } else { Reply::Unexpected };
    let ticket = body.ticket.is_some() && body.number.is_some() && body.poll_after_ms.is_some();
    match (call, status, body.state) {
        (Call::Join, 201, _) => holds(Reply::Joined, ticket),
        (Call::Join, 200, _) => holds(Reply::JoinedAgain, ticket),
        (Call::Poll | Call::Cheat, 200, Some("waiting")) => {
            holds(Reply::Waiting, body.position.is_some() && body.poll_after_ms.is_some())
        }
        (Call::Poll | Call::Cheat, 200, Some("admitted")) => {
            holds(Reply::Admitted, body.pass.is_some() && body.admitted_at.is_some() && body.pass_expires_at.is_some())
        }
        (Call::Poll | Call::Cheat, 200, Some("expired")) => Reply::Expired,
        (Call::Poll | Call::Cheat, 200, Some("left")) => Reply::Left,
        (Call::Leave | Call::Release, 204, _) => Reply::Done,
        (Call::Claim | Call::Cheat, 201, _) => holds(Reply::Issued, body.claimed().is_some()),
        (Call::Verify | Call::Cheat, 200, _) if body.valid == Some(true) => Reply::Valid,
        (Call::Verify | Call::Cheat, 200, _) if body.valid == Some(false) => Reply::Invalid,
        (Call::View, 200, Some("sold_out")) => Reply::CouponSoldOut,
        (Call::View, 200, Some("open" | "scheduled")) => Reply::CouponOpen,
        _ => Reply::Unexpected,
    }
}

fn refusal(status: u16, code: &str, body: &Body<'_>) -> Reply {
    match (status, code) {
        (409, "already_issued") if body.claim.is_some() => Reply::AlreadyIssued,
        (409, "sold_out") => Reply::SoldOut,
        (403, "invalid_pass") => Reply::InvalidPass,
        (403, "pass_required") => Reply::PassRequired,
        (401, "unauthorized") => Reply::Unauthorized,
        (404, "unknown_ticket") => Reply::UnknownTicket,
        (409, "room_full") => Reply::RoomFull,
        (410, "room_closed") => Reply::RoomClosed,
        (429, "rate_limited" | "too_many_joins") => Reply::RateLimited,
        (425, "not_open") => Reply::NotOpen,
        (503, "overloaded") => Reply::Overloaded,
        (503, "store_unavailable") => Reply::StoreUnavailable,
        (503, "outcome_unknown") => Reply::OutcomeUnknown,
        _ => Reply::Unexpected,
    }
}

/// Returns the holder for the `user` of a claim.
pub(crate) fn holder(user: &str) -> Holder {
    let number = |text: &str| text.parse::<u32>().ok();
    if let Some(number) = user.strip_prefix("pass:").and_then(number) {
        return Holder::Pass(number);
    }
    user.strip_prefix('u').and_then(number).map_or_else(|| Holder::Other(hash(user)), Holder::User)
}

/// Hashes a text by FNV-1a. Codes are kept as hashes, since the audit only compares them.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_http() {
        let mut out = Vec::new();
        let request = Request {
            method: "POST",
            path: &["/v1/rooms/", "r", "/tickets"],
            person: Some(257),
            idempotency: Some(("join", 7, 12)),
            body: &["{", "}"],
            ..Request::default()
        };
        request.write(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("POST /v1/rooms/r/tickets HTTP/1.1\r\nhost: "), "{text}");
        assert!(text.contains("x-forwarded-for: 10.0.1.2\r\n"), "{text}");
        assert!(text.contains("idempotency-key: join-0000000000000007-00000012\r\n"), "{text}");
        assert!(text.ends_with("content-length: 2\r\n\r\n{}"), "{text}");
    }

    #[test]
    fn a_head_says_status_length_and_end() {
        let bytes = b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        let head = head(bytes).unwrap().unwrap();
        assert_eq!((head.status, &bytes[head.body], head.closes), (409, &b"abc"[..], true));
        assert!(super::head(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
    }

    #[test]
    fn answers_are_known_by_status_and_code_together() {
        let rows = [
            (Call::Join, 201, r#"{"ticket":"t","number":3,"position":2,"poll_after_ms":9}"#, Reply::Joined),
            (Call::Join, 201, r#"{"ticket":"t"}"#, Reply::Unexpected),
            (Call::Poll, 200, r#"{"state":"waiting","position":2,"poll_after_ms":9}"#, Reply::Waiting),
            (Call::Poll, 200, r#"{"state":"admitted","position":0}"#, Reply::Unexpected),
            (Call::Poll, 404, r#"{"code":"unknown_ticket"}"#, Reply::UnknownTicket),
            (Call::Poll, 200, r#"{"code":"unknown_ticket"}"#, Reply::Unexpected),
            (Call::Claim, 201, r#"{"user":"pass:3","serial":1,"code":"x"}"#, Reply::Issued),
            (
                Call::Claim,
                409,
                r#"{"code":"already_issued","claim":{"user":"u3","serial":1,"code":"x"}}"#,
                Reply::AlreadyIssued,
            ),
            (Call::Claim, 410, r#"{"code":"sold_out"}"#, Reply::Unexpected),
            (Call::Leave, 204, "", Reply::Done),
            (Call::Leave, 503, r#"{"code":"overloaded"}"#, Reply::Overloaded),
            (Call::Verify, 200, r#"{"valid":false,"reason":"over"}"#, Reply::Invalid),
        ];
        for (call, status, text, reply) in rows {
            assert_eq!(classify(call, status, &Body::parse(text.as_bytes()).unwrap()), reply, "{text}");
        }
        assert_eq!((holder("pass:12"), holder("u7")), (Holder::Pass(12), Holder::User(7)));
        assert!(matches!(holder("pass:x"), Holder::Other(_)));
    }
}
