//! Claims as comma-separated values with a header row.

use super::{Sink, attributes, read_instant};
use anyhow::{Context, anyhow};
use firstcome::archive::{ArchivedClaim, ArchivedCoupon, Incoming, IncomingClaim};
use firstcome::core::coupon::Serial;
use firstcome::core::id::{CouponName, UserId};
use firstcome::core::time::Timestamp;
use firstcome_server::rfc3339;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};

/// One claim. An import needs only `coupon` and `user`: serials then number the rows, and the time is that of the
/// import.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    coupon: String,
    #[serde(default)]
    serial: Option<u32>,
    user: String,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    issued_at: Option<String>,
    #[serde(default)]
    attributes: Option<String>,
    #[serde(default)]
    redeemed_at: Option<String>,
}

/// Writes rows.
pub(super) struct Rows<W: Write> {
    out: csv::Writer<W>,
}

impl<W: Write> Rows<W> {
    /// Writes the header row, even if no claim follows.
    pub(super) fn new(out: W) -> anyhow::Result<Self> {
        let mut out = csv::WriterBuilder::new().has_headers(false).from_writer(out);
        out.write_record(["coupon", "serial", "user", "code", "issued_at", "attributes", "redeemed_at"])?;
        Ok(Self { out })
    }
}

impl<W: Write> Sink for Rows<W> {
    fn coupon(&mut self, _: &ArchivedCoupon) -> anyhow::Result<()> {
        Ok(())
    }

    fn claim(&mut self, claim: &ArchivedClaim) -> anyhow::Result<()> {
        let redeemed_at = claim.redeemed.map(|(at, _)| rfc3339::format(at));
        self.out.serialize(Row {
            coupon: claim.coupon.to_string(),
            serial: Some(claim.issued.serial.get()),
            user: claim.user.to_string(),
            code: Some(claim.code.as_str().to_owned()),
            issued_at: Some(rfc3339::format(claim.issued.issued_at)),
            attributes: claim.attributes.as_ref().map(|text| text.as_str().to_owned()),
            redeemed_at,
        })?;
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }
}

fn read_row(row: Row, now: Timestamp) -> anyhow::Result<IncomingClaim> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let serial = row.serial.map(|serial| Serial::new(serial).ok_or_else(|| anyhow!("serial must be 1 to 100000000")));
    let redeemed_at = filled(row.redeemed_at).map(|text| read_instant(&text)).transpose()?;
    Ok(IncomingClaim {
        coupon: CouponName::parse(&row.coupon).map_err(|error| anyhow!("coupon {error}"))?,
        serial: serial.transpose()?,
        issued_at: filled(row.issued_at).map_or(Ok(now), |text| read_instant(&text))?,
        user: UserId::restore(&row.user).map_err(|error| anyhow!("user {error}"))?,
        attributes: filled(row.attributes)
            .map(|text| attributes(&serde_json::from_str(&text).context("attributes")?))
            .transpose()?,
        request: None,
        redeemed: redeemed_at.map(|at| (at, None)),
        code: filled(row.code),
    })
}

/// Explains a row that is not valid CSV, with its line.
fn unreadable(error: csv::Error) -> anyhow::Error {
    let line = error.position().map_or(0, csv::Position::line);
    anyhow::Error::from(error).context(format!("line {line}; nothing was imported"))
}

/// Reads rows, and passes each to `take` with its line. Stops at the first error.
pub(super) fn read(
    input: impl Read,
    now: Timestamp,
    mut take: impl FnMut(u64, Incoming) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_reader(input);
    let head = reader.headers()?.clone();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(unreadable)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = record.deserialize(Some(&head)).map_err(anyhow::Error::from).and_then(|row| read_row(row, now));
        let row = row.with_context(|| format!("line {line}; nothing was imported"))?;
        take(line, Incoming::Claim(Box::new(row)))?;
    }
    Ok(())
}
