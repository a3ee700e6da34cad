//! One JSON object per line: coupons before their claims, then the market.

use super::market_lines::{BidLine, ListingLine, RecordLine};
use super::{Incoming, Sink, attributes, read_instant};
use anyhow::{Context, anyhow};
use firstcome::VoucherKey;
use firstcome::core::coupon::{CouponLimit, CouponSettings, Serial, Title};
use firstcome::core::id::{CouponName, RequestId, RoomName, UserId};
use firstcome::core::time::Timestamp;
use firstcome::sqlite::{ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedListing, ArchivedRecord, IncomingClaim};
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, Write};

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Coupon(CouponLine),
    Claim(ClaimLine),
    Listing(Box<ListingLine>),
    Record(Box<RecordLine>),
    Bid(Box<BidLine>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CouponLine {
    coupon: String,
    limit: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opens_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redeem_until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<String>,
    /// The secret of the codes: with it they stay valid elsewhere.
    voucher_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_at: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimLine {
    coupon: String,
    serial: u32,
    user: String,
    code: String,
    issued_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redeemed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redemption_request: Option<RequestLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestLine {
    key: String,
    body: String,
}

impl RequestLine {
    pub(super) fn new(request: RequestId) -> Self {
        Self { key: format!("{:032x}", request.key), body: format!("{:016x}", request.body) }
    }

    pub(super) fn read(&self) -> anyhow::Result<RequestId> {
        Ok(RequestId { key: u128::from_str_radix(&self.key, 16)?, body: u64::from_str_radix(&self.body, 16)? })
    }
}

/// Writes lines.
pub(super) struct Lines<W> {
    out: W,
}

impl<W: Write> Lines<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out }
    }

    fn line(&mut self, line: &Line) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")?;
        Ok(())
    }
}

impl<W: Write> Sink for Lines<W> {
    fn coupon(&mut self, coupon: &ArchivedCoupon) -> anyhow::Result<()> {
        let settings = &coupon.settings;
        let instant = |at: Option<Timestamp>| at.map(rfc3339::format);
        let line = CouponLine {
            coupon: coupon.name.to_string(),
            limit: settings.limit.get(),
            opens_at: instant(settings.opens_at),
            expires_at: instant(settings.expires_at),
            redeem_until: instant(settings.redeem_until),
            title: settings.title.as_ref().map(|title| title.as_str().to_owned()),
            room: settings.room.as_ref().map(RoomName::to_string),
            voucher_key: coupon.voucher_key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
            deleted_at: instant(coupon.deleted_at),
        };
        self.line(&Line::Coupon(line))
    }

    fn claim(&mut self, claim: &ArchivedClaim) -> anyhow::Result<()> {
        let attributes = claim.attributes.as_ref().map(|text| serde_json::from_str(text.as_str()));
        let (redeemed_at, redemption_request) = claim.redeemed.unzip();
        let line = ClaimLine {
            coupon: claim.coupon.to_string(),
            serial: claim.issued.serial.get(),
            user: claim.user.to_string(),
            code: claim.code.as_str().to_owned(),
            issued_at: rfc3339::format(claim.issued.issued_at),
            attributes: attributes.transpose()?,
            request: claim.request.map(RequestLine::new),
            redeemed_at: redeemed_at.map(rfc3339::format),
            redemption_request: redemption_request.flatten().map(RequestLine::new),
        };
        self.line(&Line::Claim(line))
    }

    fn listing(&mut self, listing: &ArchivedListing) -> anyhow::Result<()> {
        self.line(&Line::Listing(Box::new(ListingLine::new(listing))))
    }

    fn record(&mut self, record: &ArchivedRecord) -> anyhow::Result<()> {
        self.line(&Line::Record(Box::new(RecordLine::new(record))))
    }

    fn bid(&mut self, bid: &ArchivedBid) -> anyhow::Result<()> {
        self.line(&Line::Bid(Box::new(BidLine::new(bid))))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }
}

/// 32 bytes from their digits.
pub(super) fn bytes(field: &str, text: &str) -> anyhow::Result<[u8; 32]> {
    let wrong = || anyhow!("{field} is not 64 hexadecimal digits");
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

fn read_coupon(line: &CouponLine) -> anyhow::Result<ArchivedCoupon> {
    let instant = |text: &Option<String>| text.as_deref().map(read_instant).transpose();
    let title = line.title.as_deref().map(|title| Title::new(title).ok_or_else(|| anyhow!("title is too long")));
    let room = line.room.as_deref().map(|room| RoomName::parse(room).map_err(|error| anyhow!("room {error}")));
    let settings = CouponSettings {
        limit: CouponLimit::new(line.limit).ok_or_else(|| anyhow!("limit must be 1 to 100000000"))?,
        opens_at: instant(&line.opens_at)?,
        expires_at: instant(&line.expires_at)?,
        redeem_until: instant(&line.redeem_until)?,
        title: title.transpose()?,
        room: room.transpose()?,
        acknowledge: firstcome::core::coupon::Acknowledge::Stored,
    };
    Ok(ArchivedCoupon {
        name: CouponName::parse(&line.coupon).map_err(|error| anyhow!("coupon {error}"))?,
        settings,
        voucher_key: VoucherKey::new(bytes("voucher_key", &line.voucher_key)?),
        deleted_at: instant(&line.deleted_at)?,
    })
}

fn read_claim(line: ClaimLine) -> anyhow::Result<IncomingClaim> {
    let attributes = line.attributes.as_ref().map(attributes);
    let request = |line: Option<RequestLine>| line.map(|line| line.read().context("request")).transpose();
    let redemption_request = request(line.redemption_request)?;
    let redeemed_at = line.redeemed_at.as_deref().map(read_instant).transpose()?;
    Ok(IncomingClaim {
        coupon: CouponName::parse(&line.coupon).map_err(|error| anyhow!("coupon {error}"))?,
        serial: Some(Serial::new(line.serial).ok_or_else(|| anyhow!("serial must be 1 to 100000000"))?),
        issued_at: read_instant(&line.issued_at)?,
        user: UserId::restore(&line.user).map_err(|error| anyhow!("user {error}"))?,
        attributes: attributes.transpose()?,
        request: request(line.request)?,
        redeemed: redeemed_at.map(|at| (at, redemption_request)),
        code: Some(line.code),
    })
}

/// Reads lines and hands over each with its number. Stops at the first error.
pub(super) fn read(
    input: impl BufRead,
    _now: Timestamp,
    mut take: impl FnMut(u64, Incoming) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for (number, text) in (1..).zip(input.lines()) {
        let text = text.with_context(|| format!("line {number}"))?;
        if text.trim().is_empty() {
            continue;
        }
        let read = || -> anyhow::Result<Incoming> {
            Ok(match serde_json::from_str(&text)? {
                Line::Coupon(line) => Incoming::Coupon(Box::new(read_coupon(&line)?)),
                Line::Claim(line) => Incoming::Claim(Box::new(read_claim(line)?)),
                Line::Listing(line) => Incoming::Listing(Box::new(line.read()?)),
                Line::Record(line) => Incoming::Record(Box::new(line.read()?)),
                Line::Bid(line) => Incoming::Bid(Box::new(line.read()?)),
            })
        };
        take(number, read().with_context(|| format!("line {number}; nothing was imported"))?)?;
    }
    Ok(())
}
