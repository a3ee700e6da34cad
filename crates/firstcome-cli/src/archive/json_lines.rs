//! One JSON object per line. A row comes after the rows that it refers to. The first line says the version, and the
//! last one how many lines are between. Files without these two lines come from older versions, or are parts of other
//! files.

use super::auction_lines::{BidLine, ListingLine, RecordLine};
use super::head_lines::HeadLine;
use super::room_lines::{PassSecretLine, RoomLine, SecretLine, TicketLine};
use super::secrecy::Secrecy;
use super::{Sink, attributes, read_instant};
use anyhow::{Context, anyhow, bail};
use firstcome::VoucherKey;
use firstcome::archive::{
    ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedHead, ArchivedLine, ArchivedListing, ArchivedPurge,
    ArchivedRecord, ArchivedSecret, Incoming, IncomingClaim,
};
use firstcome::core::coupon::{Acknowledge, CouponLimit, CouponSettings, Serial, Title};
use firstcome::core::id::{CouponName, RequestId, RoomName, UserId};
use firstcome::core::time::Timestamp;
use firstcome::embedded::journal::PassSecret;
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, Write};

/// The version that this program writes. Files of the first version have no line that says so.
const VERSION: u32 = 4;

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ExportLine {
    /// The first line.
    Export {
        version: u32,
    },
    Secret(SecretLine),
    Coupon(CouponLine),
    Claim(ClaimLine),
    PassSecret(PassSecretLine),
    Room(Box<RoomLine>),
    Ticket(Box<TicketLine>),
    Listing(Box<ListingLine>),
    Record(Box<RecordLine>),
    Bid(Box<BidLine>),
    Head(Box<HeadLine>),
    /// The last line: how many lines are between it and the first.
    End {
        lines: u64,
    },
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
    /// `redis`, if Redis answers claims before the database stores them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durability: Option<DurabilityLine>,
    /// The secret of the voucher codes: with it they stay valid in another store.
    voucher_key: String,
    /// Codes of serials from this one on are bound to their claims. Files of versions before 3 omit it: their codes
    /// are not bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    codes_bound_from: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_at: Option<String>,
    /// When a purge began to remove its claims, of which none follows then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purged_at: Option<String>,
    /// How many claims were issued; only of a purged coupon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issued: Option<u32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DurabilityLine {
    /// Archives before version 0.2 say `gate`.
    #[serde(alias = "gate")]
    Redis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimLine {
    coupon: String,
    serial: u32,
    user: String,
    /// Omitted if secrets are wrapped: an importer that has the key computes it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
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
    secrecy: Secrecy,
    /// How many lines were written after the first.
    count: u64,
}

impl<W: Write> Lines<W> {
    /// Creates a writer, and writes the first line.
    pub(super) fn new(out: W, secrecy: Secrecy) -> anyhow::Result<Self> {
        let mut lines = Self { out, secrecy, count: 0 };
        lines.write(&ExportLine::Export { version: VERSION })?;
        Ok(lines)
    }

    fn line(&mut self, line: &ExportLine) -> anyhow::Result<()> {
        self.count += 1;
        self.write(line)
    }

    fn write(&mut self, line: &ExportLine) -> anyhow::Result<()> {
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
            durability: (settings.acknowledge == Acknowledge::Placed).then_some(DurabilityLine::Redis),
            voucher_key: self.secrecy.put("coupon", coupon.name.as_str(), coupon.voucher_key.as_bytes())?,
            codes_bound_from: Some(coupon.voucher_key.codes_bound_from()),
            deleted_at: instant(coupon.deleted_at),
            purged_at: instant(coupon.purged.map(|purged| purged.at)),
            issued: coupon.purged.map(|purged| purged.issued),
        };
        self.line(&ExportLine::Coupon(line))
    }

    fn claim(&mut self, claim: &ArchivedClaim) -> anyhow::Result<()> {
        let attributes = claim.attributes.as_ref().map(|text| serde_json::from_str(text.as_str()));
        let (redeemed_at, redemption_request) = claim.redeemed.unzip();
        let line = ClaimLine {
            coupon: claim.coupon.to_string(),
            serial: claim.issued.serial.get(),
            user: claim.user.to_string(),
            code: self.secrecy.is_plain().then(|| claim.code.as_str().to_owned()),
            issued_at: rfc3339::format(claim.issued.issued_at),
            attributes: attributes.transpose()?,
            request: claim.request.map(RequestLine::new),
            redeemed_at: redeemed_at.map(rfc3339::format),
            redemption_request: redemption_request.flatten().map(RequestLine::new),
        };
        self.line(&ExportLine::Claim(line))
    }

    fn secret(&mut self, secret: &ArchivedSecret) -> anyhow::Result<()> {
        let line = SecretLine::new(secret, &self.secrecy)?;
        self.line(&ExportLine::Secret(line))
    }

    fn pass_secret(&mut self, secret: &PassSecret) -> anyhow::Result<()> {
        let line = PassSecretLine::new(secret, &self.secrecy)?;
        self.line(&ExportLine::PassSecret(line))
    }

    fn room(&mut self, line: &ArchivedLine) -> anyhow::Result<()> {
        let line = match line {
            ArchivedLine::Room(room) => ExportLine::Room(Box::new(RoomLine::new(room, &self.secrecy)?)),
            ArchivedLine::Ticket(ticket) => ExportLine::Ticket(Box::new(TicketLine::new(ticket))),
        };
        self.line(&line)
    }

    fn head(&mut self, head: &ArchivedHead) -> anyhow::Result<()> {
        self.line(&ExportLine::Head(Box::new(HeadLine::new(head))))
    }

    fn listing(&mut self, listing: &ArchivedListing) -> anyhow::Result<()> {
        self.line(&ExportLine::Listing(Box::new(ListingLine::new(listing))))
    }

    fn record(&mut self, record: &ArchivedRecord) -> anyhow::Result<()> {
        self.line(&ExportLine::Record(Box::new(RecordLine::new(record))))
    }

    fn bid(&mut self, bid: &ArchivedBid) -> anyhow::Result<()> {
        self.line(&ExportLine::Bid(Box::new(BidLine::new(bid))))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.write(&ExportLine::End { lines: self.count })?;
        Ok(self.out.flush()?)
    }
}

fn read_coupon(line: &CouponLine, secrecy: &Secrecy) -> anyhow::Result<ArchivedCoupon> {
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
        acknowledge: line.durability.map_or(Acknowledge::Stored, |DurabilityLine::Redis| Acknowledge::Placed),
    };
    let name = CouponName::parse(&line.coupon).map_err(|error| anyhow!("coupon {error}"))?;
    let voucher_key = VoucherKey::new(secrecy.take("voucher_key", "coupon", name.as_str(), &line.voucher_key)?);
    let voucher_key = match line.codes_bound_from {
        Some(serial) => voucher_key.bound_from(serial),
        None => voucher_key.unbound(),
    };
    let purged = match (instant(&line.purged_at)?, line.issued) {
        (Some(at), Some(issued)) => Some(ArchivedPurge { at, issued }),
        (None, None) => None,
        _ => bail!("purged_at and issued must come together"),
    };
    Ok(ArchivedCoupon { name, settings, voucher_key, deleted_at: instant(&line.deleted_at)?, purged })
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
        code: line.code,
    })
}

/// The content of a line.
enum ParsedLine {
    Row(Incoming),
    Begin(u32),
    End(u64),
}

fn said(text: &str, secrecy: &Secrecy) -> anyhow::Result<ParsedLine> {
    Ok(ParsedLine::Row(match serde_json::from_str(text)? {
        ExportLine::Export { version } => return Ok(ParsedLine::Begin(version)),
        ExportLine::End { lines } => return Ok(ParsedLine::End(lines)),
        ExportLine::Secret(line) => Incoming::Secret(line.read(secrecy)?),
        ExportLine::Coupon(line) => Incoming::Coupon(Box::new(read_coupon(&line, secrecy)?)),
        ExportLine::Claim(line) => Incoming::Claim(Box::new(read_claim(line)?)),
        ExportLine::PassSecret(line) => Incoming::PassSecret(line.read(secrecy)?),
        ExportLine::Room(line) => Incoming::Room(Box::new(line.read(secrecy)?)),
        ExportLine::Ticket(line) => Incoming::Ticket(Box::new(line.read()?)),
        ExportLine::Listing(line) => Incoming::Listing(Box::new(line.read()?)),
        ExportLine::Record(line) => Incoming::Record(Box::new(line.read()?)),
        ExportLine::Bid(line) => Incoming::Bid(Box::new(line.read()?)),
        ExportLine::Head(line) => Incoming::Head(Box::new(line.read()?)),
    }))
}

/// How much of a file was read.
#[derive(Default)]
struct Course {
    rows: u64,
    began: bool,
    ended: bool,
}

impl Course {
    fn next(&mut self, said: &ParsedLine) -> anyhow::Result<()> {
        if self.ended {
            bail!("there is more after the last line");
        }
        match said {
            ParsedLine::Row(_) => self.rows += 1,
            ParsedLine::Begin(version) if VERSION < *version => {
                bail!("the file has version {version}, and this program reads up to {VERSION}: use a later one")
            }
            ParsedLine::Begin(_) if self.began || 0 < self.rows => {
                bail!("a first line in the middle: these are two files")
            }
            ParsedLine::Begin(_) => self.began = true,
            ParsedLine::End(lines) if !self.began || *lines != self.rows => {
                bail!("the file should have {lines} lines between its first and its last, and has {}", self.rows)
            }
            ParsedLine::End(_) => self.ended = true,
        }
        Ok(())
    }
}

/// Reads lines, and passes each to `take` with its number. Stops at the first error.
pub(super) fn read(
    input: impl BufRead,
    secrecy: &Secrecy,
    mut take: impl FnMut(u64, Incoming) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut course, mut last) = (Course::default(), 0);
    for (number, text) in (1..).zip(input.lines()) {
        let text = text.with_context(|| format!("line {number}; nothing was imported"))?;
        last = number;
        if text.trim().is_empty() {
            continue;
        }
        let mut read = || -> anyhow::Result<ParsedLine> {
            let said = said(&text, secrecy)?;
            course.next(&said)?;
            Ok(said)
        };
        if let ParsedLine::Row(row) = read().with_context(|| format!("line {number}; nothing was imported"))? {
            take(number, row)?;
        }
    }
    if course.began && !course.ended {
        bail!("line {last}; nothing was imported: the file breaks off here, before its last line");
    }
    Ok(())
}
