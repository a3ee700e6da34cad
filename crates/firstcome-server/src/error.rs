//! The catalogue of error codes, and the problem that carries one.

use crate::address;
use crate::api::{self, Whole};
use crate::failures::Credential;
use crate::pass::PassError;
use crate::request_id::REQUEST_ID;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstcome::throttle::Throttle;
use firstcome::{FaultKind, StoreError};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::sync::OnceLock;

macro_rules! codes {
    ($($variant:ident $status:literal $code:literal $title:literal $advice:literal;)*) => {
        /// A stable code. Codes may be added; none changes its meaning.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Code {
            $(
                #[doc = $title]
                $variant,
            )*
        }

        impl Code {
            /// All codes, in the order of their status.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the code as programs read it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// Returns the HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// Says what happened, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }

            /// Says what to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$variant => $advice),* }
            }
        }
    };
}

codes! {
    InvalidJson 400 "invalid_json" "The body is not JSON" "Send one JSON object in UTF-8.";
    InvalidField 400 "invalid_field" "A field is missing, unknown, of the wrong type or out of range" "`field` says which one, `detail` says what it must be.";
    InvalidName 400 "invalid_name" "Invalid name" "Use 1 to 128 of A-Z a-z 0-9 . _ : @ -, the first one a letter or a digit; a user must not begin with `pass:`. For any other text, such as an e-mail address with a plus or a name in another script, send an id or a hash.";
    InvalidQuery 400 "invalid_query" "A query parameter is unknown or out of range" "`detail` says which one.";
    InvalidIdempotencyKey 400 "invalid_idempotency_key" "Invalid Idempotency-Key" "Send it once, with 1 to 128 visible ASCII characters; on public calls at least 22 of the base64url alphabet.";
    EndsBeforeStart 400 "ends_before_start" "The auction would end before it starts" "Choose an `ends_at` that is not before `starts_at`, which is now if it is left out.";
    LowContrast 400 "low_contrast" "Texts of this colour cannot be read on the background" "`ratio` is the contrast of `field`; WCAG AA asks for 4.5. Choose a darker or a lighter colour.";
    Unauthorized 401 "unauthorized" "No valid key came with the call" "Send `Authorization: Bearer <key>`.";
    NoPass 401 "no_pass" "No pass came with the call" "Join the room, wait for the pass, and send it in `X-Firstcome-Pass` or in the cookie `firstcome_pass`.";
    Forbidden 403 "forbidden" "The key may not do this" "Use a key of the scope that the reference names.";
    PassRequired 403 "pass_required" "The coupon is behind a waiting room" "Send the pass of its room in `X-Firstcome-Pass`, or a service key.";
    InvalidPass 403 "invalid_pass" "The pass is not valid here" "Join the room and wait for a pass of your own.";
    InvalidHandoff 403 "invalid_handoff" "The hand-off code is not of this room, or its time is over" "Send the visitor to the page of the room, which makes another code.";
    ViewOnly 403 "view_only" "This key may only look" "Use a key that may operate: the admin key, or a service key for the calls of a back end.";
    FormExpired 403 "form_expired" "The form does not belong to this session" "Load the page again and send its form. A form works in the session that it was made for, and from this site alone.";
    ForeignOrigin 403 "foreign_origin" "In development mode only this machine may call" "Call by a loopback name, or start the service with keys.";
    SecondPersonNeeded 403 "second_person_needed" "A second operator must confirm it" "Give the address of the request to another operator, who logs in with another name and confirms it in time.";
    WorkRequired 403 "work_required" "The room takes work before a join, and this join shows none that counts" "Try nonces of up to 14 digits until the SHA-256 of `challenge.nonce` begins with `bits` zero bits, and send `challenge.nonce` in `X-Firstcome-Work`. Or send the challenge alone after `wait_ms`. `reason` says what was wrong.";
    NotFound 404 "not_found" "There is nothing at this path" "See `/docs`.";
    UnknownCoupon 404 "unknown_coupon" "There is no such coupon" "Check the name; an admin creates it with PUT.";
    UnknownRoom 404 "unknown_room" "There is no such room" "Check the name; an admin creates it with PUT.";
    NoDraw 404 "no_draw" "The room has no draw" "It serves in the order of arrival, unless an admin puts the setting `order` `draw`.";
    UnknownTicket 404 "unknown_ticket" "This room never gave out this ticket" "Use the ticket that joining returned, whole and in its room.";
    UnknownClaim 404 "unknown_claim" "This user has no claim of this coupon" "Claim one first.";
    UnknownCode 404 "unknown_code" "No claim of this coupon has this code" "Check for a typing mistake.";
    UnknownApiKey 404 "unknown_api_key" "There is no such API key" "Check the name: `firstcome keys list` shows all of the store. Keys of the environment have none.";
    UnknownPassKey 404 "unknown_pass_key" "There never was such a pass key" "Give the number in the footer of a pass (`kid`). `firstcome pass-keys list` shows the keys that are accepted.";
    UnknownListing 404 "unknown_listing" "There is no such listing" "Check the name; a service key creates it with PUT.";
    NotServed 404 "not_served" "This service serves members and listings only" "It runs over a database alone. Ask a service that has coupons, rooms and locks.";
    MethodNotAllowed 405 "method_not_allowed" "This path does not take this method" "The `Allow` header lists those that it takes.";
    RequestTimeout 408 "request_timeout" "The body did not arrive in time" "Send it within 10 s.";
    AlreadyIssued 409 "already_issued" "This user holds this coupon" "`claim` is the claim of this user.";
    SoldOut 409 "sold_out" "All are issued" "There is nothing to wait for, unless an operator raises the limit.";
    RoomFull 409 "room_full" "The line is full" "Try again after `retry_after_ms`.";
    ReceiptPending 409 "receipt_pending" "No published head covers it yet" "Ask again after `retry_after_ms`. The service publishes a head every second.";
    TicketRenewed 409 "ticket_renewed" "The place moved to another device" "This ticket, or the link with it, was used once and is void. Go on with the device that used it: it has the new ticket.";
    NotAdmitted 409 "not_admitted" "The visitor has no slot, so there is nothing to hand off" "Poll the ticket until its `state` is `admitted`.";
    HandoffUsed 409 "handoff_used" "This hand-off code was redeemed before, or its ticket was renewed" "Send the visitor to the page of the room: it says where the place is now.";
    NotNear 409 "not_near" "The ticket is not in line near the front" "Poll after `poll_after_ms`. Open a stream when a poll says `stream`.";
    LimitBelowIssued 409 "limit_below_issued" "More are issued than the new limit" "`issued` is the lowest limit now.";
    DrawFixed 409 "draw_fixed" "The order of the room cannot change now" "It changes only while no ticket is in line or has a slot, and a room draws once. Close the room with DELETE and put it again: that ends all its tickets.";
    RoomFixed 409 "room_fixed" "The room cannot change once a claim exists" "Keep the room, or make another coupon.";
    WrongUser 409 "wrong_user" "The code belongs to another user" "Let its holder redeem it.";
    AlreadyRedeemed 409 "already_redeemed" "The code was used up" "`redeemed_at` says when.";
    ListingRunning 409 "listing_running" "The listing runs: only the end of an auction may change, to a later one" "Leave the rest as it is, or make another listing.";
    ListingEnded 409 "listing_ended" "The listing is over" "Nothing of it changes any more: make another one.";
    OwnListing 409 "own_listing" "The owner can neither bid nor buy" "Let another member bid or buy.";
    NotInProgress 409 "not_in_progress" "It takes no bids, or cannot be bought: not yet, not any more, or never" "The listing's `state` and `kind` say which.";
    AlreadyHighestBidder 409 "already_highest_bidder" "This member has the highest bid" "Wait for a higher bid.";
    BidTooLow 409 "bid_too_low" "Another member has bid as much, or the price is higher" "Bid `minimum` at least.";
    InsufficientPoints 409 "insufficient_points" "The member has fewer points to spend" "`available` says how many; those that back a bid do not count.";
    BalanceTooLarge 409 "balance_too_large" "The member, or the owner who is paid, would have more points than fit" "A balance is at most 9007199254740991: take points out first.";
    AuctionNotEnded 409 "auction_not_ended" "The auction goes on" "Settle after `effective_ends_at`.";
    NotWinner 409 "not_winner" "Another member has won, or no member" "Only the highest bidder may settle.";
    ApiKeyExists 409 "api_key_exists" "A key of this name is accepted" "Rotate it, revoke it, or choose another name.";
    ApiKeyRevoked 409 "api_key_revoked" "The key was revoked" "Create a key: its name is free again.";
    LastAdminKey 409 "last_admin_key" "No other admin key is accepted" "Create another admin key first, or rotate this one.";
    TooManyApiKeys 409 "too_many_api_keys" "There are as many names of keys as fit" "Use the name of a key that is expired or revoked.";
    PointsHeld 409 "points_held" "Points of this person are held for bids" "Settle the auctions in which the member is the highest bidder, or wait until they end, and erase again; `points` says how many are held.";
    OwnsAuction 409 "owns_auction" "This person owns an auction that is not over" "Wait until the auction `listing` is sold or unsold, and erase again. Before its start, another owner can be put.";
    PurgeRefused 409 "purge_refused" "Nothing was purged" "`reason` says why: `purge_running`, or with `last_at` a clock that is obviously wrong (`clock_behind`, `clock_ahead`). Set the clock, or send `trust_clock` if it is right.";
    AlreadySold 409 "already_sold" "It is sold" "`purchase` says to whom and for how much.";
    SettlementExpired 409 "settlement_expired" "The winner did not settle in time" "The time was over after `settles_until`; the points are free again, and the listing is unsold.";
    Contended 409 "contended" "Another holder has the lock" "`holder` has it for `ttl_ms` more unless it is renewed; ask with a `wait_ms` to get in line.";
    Expired 410 "expired" "It is over" "`expired_at` says since when.";
    Deleted 410 "deleted" "The coupon was deleted" "Names are never used again: make another one.";
    Purged 410 "purged" "The claims of the coupon are not kept any longer" "`purged_at` says since when. The coupon itself still says how many there were.";
    RoomClosed 410 "room_closed" "The room is closed" "There is nothing to wait for, unless an operator opens it again.";
    LockLost 410 "lock_lost" "This handle holds the lock no more" "It was given back, its lease ended, or it is no handle of this lock. Stop using the guarded record, and acquire the lock again.";
    RecordsRemoved 410 "records_removed" "These records were removed" "A purge removed all up to the number `removed_to`: ask after it, or without `after`.";
    HeadsRemoved 410 "heads_removed" "These heads were removed" "A purge removed all up to the sequence `removed_to`: ask after it, or without `after`. A receipt that names them can no longer be made.";
    SettingsChanged 412 "settings_changed" "The settings have changed since they were read" "Read them again, and decide whether your change still holds: `settings` and the `ETag` are in the answer to a GET with your key.";
    BodyTooLarge 413 "body_too_large" "The body has more than 64 KiB" "Send less. An appearance may have 256 KiB.";
    UnsupportedMediaType 415 "unsupported_media_type" "The body is not announced as JSON" "Send `Content-Type: application/json`.";
    IdempotencyKeyReused 422 "idempotency_key_reused" "The Idempotency-Key came with another body before" "Use a new key for a new request.";
    NotOpen 425 "not_open" "It is not open yet" "`opens_at` says from when, `retry_after_ms` how long that is.";
    RateLimited 429 "rate_limited" "Too many requests from this address" "Try again after `retry_after_ms`. The service counts by `address`: its joins, its calls without a key and its failed authentications per minute, and what it has open at once. After failed authentications `limit` says whose limit it is: that of the `address`, of its `network`, or of all addresses together (`total`).";
    TooManyJoins 429 "too_many_joins" "More visitors join than a limit of the operator allows" "Try again after `retry_after_ms`. `limit` says whose limit it is: that of your `network`, of the `room`, of all rooms together (`total`), or of joins of your network that `wait` in place of work.";
    InternalError 500 "internal_error" "The service met a bug of its own" "It may or may not have been done: send the same request again, with the same Idempotency-Key if it had one. Report it with `request_id`, which the log has too.";
    UpstreamUnreachable 502 "upstream_unreachable" "The site cannot be reached" "Nothing was sent to it. Try again later; an operator looks at the site, and at `--upstream` of the gate.";
    StreamsFull 503 "streams_full" "Too many streams are open" "Poll, and ask for a stream again after `retry_after_ms`.";
    Overloaded 503 "overloaded" "Too much waits to be done" "Nothing was done now. Try again after `retry_after_ms`.";
    NotStoredYet 503 "not_stored_yet" "The claim has its place and is not stored yet" "The database is behind. Send the same request again after `retry_after_ms`: it has no second effect.";
    StoreUnavailable 503 "store_unavailable" "The store cannot do it now" "Nothing was done. Try again after `retry_after_ms`; `/readyz` and the log tell an operator what is wrong, if it does not end by itself.";
    OutcomeUnknown 503 "outcome_unknown" "It may or may not have been done" "Send the same request again: it has no second effect. A charge or refund without an Idempotency-Key may be done twice: look at the member's records first.";
    UpstreamSilent 504 "upstream_silent" "The site has not answered" "It may or may not have done what was asked. Look before you ask again.";
}

/// A refusal on its way out: RFC 9457 `application/problem+json`.
#[derive(Debug)]
pub struct Problem {
    code: Code,
    detail: Option<String>,
    members: Map<String, Value>,
    retry_after_ms: Option<u64>,
    /// What the client has shown in vain.
    failed: Option<Credential>,
    /// The id of the request, for the header of the answer.
    request_id: Option<HeaderValue>,
}

impl Problem {
    /// Creates a problem with the code's own title and advice.
    pub fn new(code: Code) -> Self {
        let failed = match code {
            Code::Unauthorized => Some(Credential::Key),
            Code::UnknownTicket => Some(Credential::Ticket),
            _ => None,
        };
        Self { code, detail: None, members: Map::new(), retry_after_ms: None, failed, request_id: None }
    }

    /// Creates the problem of a pass that is not valid for this reason.
    pub(crate) fn of_pass(code: Code, reason: &'static str) -> Self {
        let failed = (reason == PassError::Forged.code()).then_some(Credential::Pass);
        Self { failed, ..Self::new(code).with("reason", reason) }
    }

    /// Creates a problem about one field.
    pub fn field(code: Code, field: &str, detail: impl Into<String>) -> Self {
        Self::new(code).detail(detail).with("field", field)
    }

    /// Returns the code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Returns the specific detail, or the code's advice without one.
    pub(crate) fn says(&self) -> String {
        self.detail.clone().unwrap_or_else(|| self.code.advice().to_owned())
    }

    /// Replaces the code's advice by a specific detail.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a member for programs.
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.into(), value.into());
        self
    }

    /// Names the request in the header of the answer.
    pub(crate) fn named(mut self, request_id: HeaderValue) -> Self {
        self.request_id = Some(request_id);
        self
    }

    /// Says which address was counted.
    pub fn of_address(self, address: IpAddr) -> Self {
        self.with("address", address::shown(address))
    }

    /// Says when to try again: `retry_after_ms`, and `Retry-After` in seconds rounded up.
    pub fn retry_after_ms(mut self, wait_ms: u64) -> Self {
        self.retry_after_ms = Some(wait_ms);
        self.with("retry_after_ms", wait_ms)
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy { says, retry_after } => {
                Self::new(Code::Overloaded).detail(says).retry_after_ms(retry_after.as_millis() as u64)
            }
            StoreError::NotStoredYet { retry_after } => {
                Self::new(Code::NotStoredYet).retry_after_ms(retry_after.as_millis() as u64)
            }
            // A condition that can end by itself: retry after 2 s.
            StoreError::Faulted(fault) if matches!(fault.kind, FaultKind::Busy | FaultKind::Full) => {
                Self::new(Code::StoreUnavailable).detail(fault.kind.title()).retry_after_ms(2_000)
            }
            StoreError::Faulted(_) => Self::new(Code::StoreUnavailable).retry_after_ms(5_000),
            // An immediate repeat is safe; a second lets a restart finish.
            _ => Self::new(Code::OutcomeUnknown).retry_after_ms(1_000),
        }
    }
}

/// Tells the log of a request that failed, for each code once a second at most. What writes the line adds the id of the request.
fn note_failure(code: Code, detail: Option<&str>) {
    static FAILED: [Throttle; Code::ALL.len()] = [const { Throttle::new() }; Code::ALL.len()];
    // Streams that are refused and panics have lines of their own.
    let has_line = matches!(code, Code::StreamsFull | Code::InternalError);
    if has_line || !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    if let Some(left_out) = FAILED[code as usize].pass() {
        let (status, detail) = (code.status(), detail.unwrap_or(code.title()));
        tracing::warn!(code = code.as_str(), status, detail, left_out, "a request failed");
    }
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Returns the body of a problem without a detail. Built once, since "sold out" answers a crowd.
fn plain_body(code: Code) -> Bytes {
    static BODIES: OnceLock<Vec<Bytes>> = OnceLock::new();
    let bodies = BODIES
        .get_or_init(|| Code::ALL.iter().map(|&code| Bytes::from(body(code, code.advice(), &Map::new()))).collect());
    bodies[code as usize].clone()
}

/// Builds the body of a problem, with the newline that all answers end with.
pub(crate) fn body(code: Code, detail: &str, members: &Map<String, Value>) -> Vec<u8> {
    let problem = Body { code, detail, members };
    let mut body = Vec::with_capacity(512);
    // A map of texts and plain values always has a JSON form.
    let _ = serde_json::to_writer(&mut body, &problem);
    body.push(b'\n');
    body
}

struct Body<'a> {
    code: Code,
    detail: &'a str,
    members: &'a Map<String, Value>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = self.code.as_str();
        let mut problem = serializer.serialize_map(None)?;
        problem.serialize_entry("type", &format_args!("/errors/{code}"))?;
        problem.serialize_entry("title", self.code.title())?;
        problem.serialize_entry("status", &self.code.status())?;
        problem.serialize_entry("detail", self.detail)?;
        problem.serialize_entry("code", code)?;
        for (name, value) in self.members {
            problem.serialize_entry(name, value)?;
        }
        problem.end()
    }
}

impl Problem {
    /// Builds the answer, whose headers go into `headers`. The map is emptied before. A caller passes the map of the
    /// request, which has room for them.
    pub(crate) fn whole(self, headers: HeaderMap) -> Whole {
        let Self { code, detail, members, retry_after_ms, failed, request_id } = self;
        if 500 <= code.status() {
            note_failure(code, detail.as_deref());
        }
        let body = if detail.is_none() && members.is_empty() {
            plain_body(code)
        } else {
            Bytes::from(body(code, detail.as_deref().unwrap_or(code.advice()), &members))
        };
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let mut response = api::whole(status, headers, body, PROBLEM_JSON);
        if let Some(failed) = failed {
            response.extensions_mut().insert(failed);
        }
        let headers = response.headers_mut();
        if let Some(id) = request_id {
            headers.insert(REQUEST_ID, id);
        }
        if let Some(wait_ms) = retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait_ms.div_ceil(1_000).max(1)));
        }
        let scheme = match code {
            Code::Unauthorized => Some("Bearer"),
            Code::NoPass => Some("Firstcome-Pass"),
            _ => None,
        };
        if let Some(scheme) = scheme {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.whole(HeaderMap::with_capacity(api::HEADERS_USUAL)).map(axum::body::Body::new)
    }
}

/// The catalogue as a Markdown page: `docs/errors.md`.
pub fn catalogue_markdown() -> String {
    let mut page = String::from(
        "# Error codes\n\nEvery refusal is an RFC 9457 `application/problem+json` object with `type`, `title`, `status`, \
         `detail` and `code`, and what helps beside them. `code` is stable. This page is made from the code and held to \
         it by a test.\n\n| status | code | what happened | what to do |\n|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let row = format!("| {} | `{}` | {} | {} |\n", code.status(), code.as_str(), code.title(), code.advice());
        page.push_str(&row);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_only_waits_is_no_fault_of_the_store() {
        let retry_after = Duration::from_secs(3);
        let [full, waits] = [StoreError::busy(retry_after), StoreError::NotStoredYet { retry_after }];
        for (error, code) in [(full, Code::Overloaded), (waits, Code::NotStoredYet)] {
            let problem = Problem::from(error);
            assert_eq!(problem.code, code);
            assert_eq!(problem.into_response().headers()[header::RETRY_AFTER], "3");
        }
    }

    #[test]
    fn codes_are_unique_and_in_the_order_of_their_status() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].status() <= pair[1].status(), "{:?}", pair[1]);
        }
        for (at, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, at);
            assert!(Code::ALL[at + 1..].iter().all(|other| other.as_str() != code.as_str()));
        }
    }
}
