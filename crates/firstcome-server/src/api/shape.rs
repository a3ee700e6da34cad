//! The request and response bodies of the API. `/openapi.json` shows the same names and units.

use super::auction_shape::Purchase;
use crate::error::{Code, Problem as Refusal};
use crate::rfc3339::{self, format as instant};
use firstcome::core::coupon::{Acknowledge, Attributes, CouponLimit, CouponSettings, Title};
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::limits::{COUPON_LIMIT_MAX, TITLE_BYTES_MAX};
use firstcome::core::time::Timestamp;
use firstcome::{ClaimRecord, Claimed, CouponView, Durability};
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

pub(super) fn read_instant(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || format!("{field} must be an RFC 3339 time, such as 2030-01-01T00:00:00Z");
    rfc3339::parse(text).map(Some).ok_or_else(|| Refusal::field(Code::InvalidField, field, wrong()))
}

/// Parses the limit of a coupon here, so that the error for any other value says what is expected.
struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = CouponLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {COUPON_LIMIT_MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<CouponLimit, E> {
        let limit = u32::try_from(number).ok().and_then(CouponLimit::new);
        limit.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CouponLimit, D::Error> {
    deserializer.deserialize_u64(LimitVisitor)
}

/// RFC 9457 problem
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `error::Problem` writes")]
pub(crate) struct Problem {
    /// Path of the page about this code
    #[schema(example = "/errors/sold_out")]
    r#type: String,
    /// What happened
    title: String,
    /// The HTTP status
    status: u16,
    /// What to do, or what exactly is wrong
    detail: String,
    /// Stable code
    #[schema(example = "sold_out")]
    code: String,
    /// When to try again, in milliseconds from now
    retry_after_ms: Option<u64>,
    /// Which field is wrong
    field: Option<String>,
    /// The serial of the claim that the Idempotency-Key belongs to
    serial: Option<u32>,
    /// The number of the ticket that the Idempotency-Key belongs to
    number: Option<u32>,
    /// The claim that already exists
    claim: Option<Claim<'static>>,
    /// The holder's name
    holder: Option<String>,
    /// How many requests wait for the lock
    waiters: Option<u32>,
    /// When the lease of the holder ends unless it is renewed, in milliseconds from now
    ttl_ms: Option<u64>,
    /// How many requests were still ahead when the wait ran out
    position: Option<u32>,
    /// The least price that the bid must have
    minimum: Option<u64>,
    /// How many points the member can spend
    available: Option<u64>,
    /// The purchase that already exists
    purchase: Option<Purchase<'static>>,
    /// When the auction ends
    effective_ends_at: Option<String>,
    /// The last instant at which the winner could settle
    settles_until: Option<String>,
}

/// Settings of a coupon
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct CouponBody {
    /// The most claims that are issued
    #[serde(deserialize_with = "limit")]
    #[schema(value_type = u64, minimum = 1, maximum = 100_000_000, example = 100)]
    limit: CouponLimit,
    /// Issuing begins
    #[schema(format = DateTime)]
    opens_at: Option<String>,
    /// Issuing ends
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Redeeming ends; never without it
    #[schema(format = DateTime)]
    redeem_until: Option<String>,
    /// For people, at most 256 bytes
    title: Option<String>,
    /// Public claims need a pass of this room
    room: Option<String>,
    /// Only with `--redis --sql`: `database` (a claim is answered once it is stored; the default) or `redis` (sooner:
    /// a claim can be lost with Redis)
    #[schema(example = "database")]
    durability: Option<String>,
}

impl CouponBody {
    /// Parses the settings. `may_choose` says whether the durability can be chosen.
    pub(crate) fn settings(&self, may_choose: bool) -> Result<CouponSettings, Refusal> {
        let wrong = |field: &str, detail: &str| Refusal::field(Code::InvalidField, field, format!("{field} {detail}"));
        let acknowledge = match self.durability.as_deref() {
            Some(_) if !may_choose => {
                return Err(wrong("durability", "can be chosen only on a service with --redis and --sql"));
            }
            // `sql` and `gate` are the names before version 0.2.
            None | Some("database" | "sql") => Acknowledge::Stored,
            Some("redis" | "gate") => Acknowledge::Placed,
            Some(_) => return Err(wrong("durability", "must be database or redis")),
        };
        let opens_at = read_instant("opens_at", self.opens_at.as_deref())?;
        let expires_at = read_instant("expires_at", self.expires_at.as_deref())?;
        let redeem_until = read_instant("redeem_until", self.redeem_until.as_deref())?;
        if let (Some(opens_at), Some(expires_at)) = (opens_at, expires_at)
            && expires_at <= opens_at
        {
            return Err(wrong("expires_at", "must be after opens_at"));
        }
        let too_long = || wrong("title", &format!("must be one line of at most {TITLE_BYTES_MAX} bytes"));
        let title = self.title.as_deref().map(|title| Title::new(title).ok_or_else(too_long));
        let room = self.room.as_deref().map(RoomName::parse).transpose();
        let room = room.map_err(|error| Refusal::field(Code::InvalidName, "room", format!("room {error}")))?;
        Ok(CouponSettings {
            limit: self.limit,
            opens_at,
            expires_at,
            redeem_until,
            title: title.transpose()?,
            room,
            acknowledge,
        })
    }
}

/// A coupon
#[derive(Serialize, ToSchema)]
pub(crate) struct Coupon<'a> {
    coupon: &'a str,
    limit: u32,
    issued: u32,
    remaining: u32,
    /// scheduled, open, sold_out, expired or deleted
    #[schema(example = "open")]
    state: &'static str,
    /// Since when its claims are not kept any longer; absent while they are
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    purged_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    opens_at: Option<String>,
    expires_at: Option<String>,
    redeem_until: Option<String>,
    /// When a claim is answered: once the `database` holds it, or once `redis` has accepted it. Absent if it cannot be
    /// chosen
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    /// The body of a PUT with these settings; shown to an admin key alone
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CouponBody>)]
    pub(crate) settings: Option<Value>,
}

/// Returns the settings of a coupon as the body of a PUT.
pub(super) fn coupon_settings(settings: &CouponSettings, shows_durability: bool) -> Value {
    let CouponSettings { limit, opens_at, expires_at, redeem_until, title, room, acknowledge } = settings;
    without_nulls(json!({
        "limit": limit.get(),
        "opens_at": opens_at.map(instant),
        "expires_at": expires_at.map(instant),
        "redeem_until": redeem_until.map(instant),
        "title": title.as_ref().map(Title::as_str),
        "room": room.as_ref().map(RoomName::as_str),
        "durability": shows_durability.then(|| durability_of(*acknowledge)),
    }))
}

const fn durability_of(acknowledge: Acknowledge) -> &'static str {
    match acknowledge {
        Acknowledge::Stored => Durability::Database.as_str(),
        Acknowledge::Placed => Durability::Redis.as_str(),
    }
}

/// Removes members that are null: a setting without a value has no member.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    object
}

impl<'a> Coupon<'a> {
    pub(crate) fn new(name: &'a CouponName, view: &'a CouponView, shows_durability: bool) -> Self {
        let settings = &view.settings;
        Self {
            coupon: name.as_str(),
            limit: settings.limit.get(),
            issued: view.issued,
            remaining: settings.limit.get().saturating_sub(view.issued),
            state: view.state.as_str(),
            purged_at: view.purged_at.map(instant),
            title: settings.title.as_ref().map(Title::as_str),
            room: settings.room.as_ref().map(RoomName::as_str),
            opens_at: settings.opens_at.map(instant),
            expires_at: settings.expires_at.map(instant),
            redeem_until: settings.redeem_until.map(instant),
            durability: shows_durability.then(|| durability_of(settings.acknowledge)),
            settings: None,
        }
    }
}

/// A request for one coupon
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ClaimBody<'a> {
    /// The user who claims; omitted by a pass without a user
    #[serde(borrow)]
    #[schema(value_type = Option<String>, example = "ann")]
    pub(crate) user: Option<Cow<'a, str>>,
    /// A JSON object of at most 1 KiB that stays with the claim
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    attributes: Option<&'a RawValue>,
}

impl ClaimBody<'_> {
    /// Returns the attributes in canonical form: without blanks, keys in order.
    pub(crate) fn attributes(&self) -> Result<Option<Attributes>, Refusal> {
        let Some(raw) = self.attributes else { return Ok(None) };
        let wrong = |detail: &str| Refusal::field(Code::InvalidField, "attributes", detail);
        if !raw.get().starts_with('{') {
            return Err(wrong("attributes must be a JSON object"));
        }
        let mut text = String::new();
        let spelt = respell(raw.get(), ATTRIBUTES_LEVELS_MAX, &mut text);
        spelt.map_err(|_| wrong("attributes must have at most 32 levels, and numbers of at most 1e308"))?;
        Attributes::new(&text).map(Some).ok_or_else(|| wrong("attributes must have at most 1024 bytes"))
    }
}

/// The most nested levels in a claim's attributes. Protects the stack.
const ATTRIBUTES_LEVELS_MAX: u32 = 32;

/// Writes JSON without blanks and with sorted keys. Copies numbers unchanged, to lose no digit.
fn respell(json: &str, levels: u32, out: &mut String) -> Result<(), serde_json::Error> {
    let deeper = || levels.checked_sub(1).ok_or_else(|| de::Error::custom("too many levels"));
    let separator = |at: usize, first: char, out: &mut String| out.push(if at == 0 { first } else { ',' });
    match json.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json)?;
            let levels = deeper()?;
            for (at, (name, value)) in members.iter().enumerate() {
                separator(at, '{', out);
                out.push_str(&serde_json::to_string(name)?);
                out.push(':');
                respell(value.get(), levels, out)?;
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            let levels = deeper()?;
            for (at, item) in items.iter().enumerate() {
                separator(at, '[', out);
                respell(item.get(), levels, out)?;
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Some(b'"') => out.push_str(&serde_json::to_string(&serde_json::from_str::<String>(json)?)?),
        _ => {
            // A number that no reader accepts would make the whole answer unreadable.
            serde_json::from_str::<serde_json::Value>(json)?;
            out.push_str(json);
        }
    }
    Ok(())
}

/// A claim
#[derive(Serialize, ToSchema)]
pub(crate) struct Claim<'a> {
    coupon: &'a str,
    user: &'a str,
    /// Its serial: 1 for the first. Absent until the claim is stored
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<u32>,
    /// The voucher code that redeems it. Absent until the claim is stored
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "22229-HXKQ3-9WBRT-5MZCA")]
    code: Option<&'a str>,
    #[schema(format = DateTime)]
    issued_at: String,
    /// What the claim survives: memory, disk or database; a claim of redis is not stored yet, and can be lost with
    /// Redis
    #[schema(example = "disk")]
    durability: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    attributes: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    redeemed_at: Option<String>,
}

impl<'a> Claim<'a> {
    pub(crate) fn new(coupon: &'a CouponName, user: &'a str, claimed: &'a Claimed, durability: &'static str) -> Self {
        Self {
            coupon: coupon.as_str(),
            user,
            serial: Some(claimed.issued.serial.get()),
            code: Some(claimed.code.as_str()),
            issued_at: instant(claimed.issued.issued_at),
            durability,
            attributes: None,
            redeemed_at: None,
        }
    }

    /// Builds a claim that Redis has accepted and the database does not hold yet.
    pub(crate) fn placed(coupon: &'a CouponName, user: &'a str, since: Timestamp) -> Self {
        Self {
            coupon: coupon.as_str(),
            user,
            serial: None,
            code: None,
            issued_at: instant(since),
            durability: Durability::Redis.as_str(),
            attributes: None,
            redeemed_at: None,
        }
    }

    pub(crate) fn of_record(coupon: &'a CouponName, record: &'a ClaimRecord, durability: &'static str) -> Self {
        let attributes = record.attributes.as_ref().map(|attributes| attributes.as_str().to_owned());
        Self {
            attributes: attributes.and_then(|text| RawValue::from_string(text).ok()),
            redeemed_at: record.redeemed.map(|redeemed| instant(redeemed.redeemed_at)),
            ..Self::new(coupon, &record.user, &record.claimed, durability)
        }
    }
}

/// A page of claims in serial order
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimPage<'a> {
    pub(crate) items: Vec<Claim<'a>>,
    /// Ask again with `after` set to this; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u32>,
}

/// A request to use up a coupon
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct RedemptionBody {
    /// The voucher code; case, blanks and dashes do not matter
    pub(crate) code: String,
    /// Must be the claimant, if given
    pub(crate) user: Option<String>,
}

/// A coupon that was used up
#[derive(Serialize, ToSchema)]
pub(crate) struct Redemption {
    coupon: String,
    user: String,
    serial: u32,
    code: String,
    #[schema(format = DateTime)]
    issued_at: String,
    #[schema(format = DateTime)]
    redeemed_at: String,
}

impl Redemption {
    pub(crate) fn new(coupon: &CouponName, record: &ClaimRecord) -> Self {
        Self {
            coupon: coupon.to_string(),
            user: record.user.to_string(),
            serial: record.claimed.issued.serial.get(),
            code: record.claimed.code.as_str().to_owned(),
            issued_at: instant(record.claimed.issued.issued_at),
            redeemed_at: record.redeemed.map(|redeemed| instant(redeemed.redeemed_at)).unwrap_or_default(),
        }
    }
}
