//! `firstcome export` and `firstcome import`: coupons and claims, members, listings and bids as JSON lines or CSV.
//!
//! JSON lines carry everything but waiting rooms: settings, secrets of codes, redemptions, idempotency keys, points; what is imported from them
//! is the same store again. CSV carries the claims, for people and spreadsheets; imported into a coupon that exists, or
//! that `--coupon` makes, it takes over winners from elsewhere.

mod csv_rows;
mod json_lines;
mod market_lines;

use crate::keys::private_file;
use crate::output::progress;
use crate::settings;
use crate::{Failure, Outcome};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use firstcome::core::coupon::{Attributes, CouponLimit, CouponSettings};
use firstcome::core::id::CouponName;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, SystemClock};
use firstcome::sqlite::{
    Archive, ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedListing, ArchivedRecord, Importer, IncomingClaim,
};
use firstcome_server::rfc3339;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// How the data is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object per line: everything
    Jsonl,
    /// Comma-separated values with a head: claims only
    Csv,
}

impl Format {
    fn of(chosen: Option<Self>, path: Option<&Path>) -> Self {
        let csv = path.and_then(Path::extension).is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        chosen.unwrap_or(if csv { Self::Csv } else { Self::Jsonl })
    }
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Directory of the embedded store
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
    /// Only this coupon, and nothing of members and listings
    #[arg(long, value_parser = coupon_name)]
    coupon: Option<CouponName>,
    /// Format [default: by the file's name, else jsonl]
    #[arg(long)]
    format: Option<Format>,
    /// New file to write, readable by you alone: it holds secrets [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Directory of the embedded store; no service may be using it
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
    /// Make this coupon first, for claims that come without their coupon
    #[arg(long, value_name = "NAME=LIMIT", value_parser = settings::coupon)]
    coupon: Option<(CouponName, CouponLimit)>,
    /// Format [default: by the file's name, else jsonl]
    #[arg(long)]
    format: Option<Format>,
    /// File to read; - for standard input
    file: PathBuf,
}

fn coupon_name(text: &str) -> anyhow::Result<CouponName> {
    CouponName::parse(text).map_err(|error| anyhow!("the name {error}"))
}

/// Writes rows in one format.
trait Sink {
    fn coupon(&mut self, coupon: &ArchivedCoupon) -> anyhow::Result<()>;
    fn claim(&mut self, claim: &ArchivedClaim) -> anyhow::Result<()>;

    // What a format does not carry is left out.
    fn listing(&mut self, _listing: &ArchivedListing) -> anyhow::Result<()> {
        Ok(())
    }

    fn record(&mut self, _record: &ArchivedRecord) -> anyhow::Result<()> {
        Ok(())
    }

    fn bid(&mut self, _bid: &ArchivedBid) -> anyhow::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()>;
}

/// A row that was read.
enum Incoming {
    Coupon(Box<ArchivedCoupon>),
    Claim(Box<IncomingClaim>),
    Listing(Box<ArchivedListing>),
    Record(Box<ArchivedRecord>),
    Bid(Box<ArchivedBid>),
}

/// What was written or read of the market, to be told.
#[derive(Default)]
struct MarketCount {
    listings: u64,
    records: u64,
    bids: u64,
}

impl std::fmt::Display for MarketCount {
    /// Nothing where there is nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listings, records, bids } = self;
        if *listings + *records == 0 {
            return Ok(());
        }
        write!(f, ", {listings} listings, {bids} bids and {records} movements of points")
    }
}

pub(crate) fn export(args: &ExportArgs) -> Outcome {
    let archive = Archive::open(&args.data).map_err(Failure::Store)?;
    let format = Format::of(args.format, args.output.as_deref());
    let wanted = |name: &CouponName| args.coupon.as_ref().is_none_or(|only| only == name);
    let mut coupons = archive.coupons().map_err(Failure::Store)?;
    coupons.retain(|(coupon, _)| wanted(&coupon.name));
    if let (Some(name), true) = (&args.coupon, coupons.is_empty()) {
        return Err(Failure::Refused(anyhow!("there is no coupon {name}")));
    }
    let claims: u64 = coupons.iter().map(|(_, claims)| claims).sum();
    let out: Box<dyn Write> = match &args.output {
        Some(path) => {
            let file = private_file(path).with_context(|| format!("cannot make {}", path.display()))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let mut sink: Box<dyn Sink> = match format {
        Format::Jsonl => Box::new(json_lines::Lines::new(out)),
        Format::Csv => Box::new(csv_rows::Rows::new(out)?),
    };
    for (coupon, _) in &coupons {
        sink.coupon(coupon)?;
    }
    let bar = progress(claims, "exporting claims");
    archive.for_each_claim::<anyhow::Error>(|claim| {
        if wanted(&claim.coupon) {
            sink.claim(&claim)?;
            bar.inc(1);
        }
        Ok(())
    })?;
    let market = match (&args.coupon, format) {
        (None, Format::Jsonl) => export_market(&archive, &mut *sink)?,
        _ => MarketCount::default(),
    };
    sink.finish()?;
    bar.finish_and_clear();
    eprintln!("exported {} coupons and {claims} claims{market}", coupons.len());
    Ok(())
}

/// In an order in which it can be read: what a line names came before it.
fn export_market(archive: &Archive, sink: &mut dyn Sink) -> anyhow::Result<MarketCount> {
    let mut count = MarketCount::default();
    for listing in archive.listings()? {
        sink.listing(&listing)?;
        count.listings += 1;
    }
    archive.for_each_record::<anyhow::Error>(|record| {
        count.records += 1;
        sink.record(&record)
    })?;
    archive.for_each_bid::<anyhow::Error>(|bid| {
        count.bids += 1;
        sink.bid(&bid)
    })?;
    Ok(count)
}

pub(crate) fn import(args: &ImportArgs) -> Outcome {
    let stdin = args.file == Path::new("-");
    let (input, length): (Box<dyn Read>, u64) = if stdin {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
        let length = file.metadata()?.len();
        (Box::new(file), length)
    };
    let bar = progress(length, "importing bytes");
    let input = BufReader::new(bar.wrap_read(input));
    let mut importer = Importer::open(&args.data).map_err(Failure::Store)?;
    let now = SystemClock::default().now();
    if let Some((name, limit)) = &args.coupon {
        importer.new_coupon(name.clone(), CouponSettings::with_limit(*limit), now)?;
    }
    let mut taken = Taken { importer, now, coupons: 0, claims: 0, market: MarketCount::default() };
    match Format::of(args.format, Some(&args.file)) {
        Format::Jsonl => json_lines::read(input, now, |line, row| taken.take(line, row))?,
        Format::Csv => csv_rows::read(input, now, |line, row| taken.take(line, row))?,
    }
    let Taken { importer, coupons, claims, market, .. } = taken;
    importer.finish()?;
    bar.finish_and_clear();
    eprintln!("imported {coupons} coupons and {claims} claims{market}");
    Ok(())
}

struct Taken {
    importer: Importer,
    now: Timestamp,
    coupons: u64,
    claims: u64,
    market: MarketCount,
}

impl Taken {
    fn take(&mut self, line: u64, row: Incoming) -> anyhow::Result<()> {
        let taken = match row {
            Incoming::Coupon(coupon) => {
                self.coupons += 1;
                self.importer.coupon(*coupon, self.now)
            }
            Incoming::Claim(claim) => {
                self.claims += 1;
                self.importer.claim(*claim)
            }
            Incoming::Listing(listing) => {
                self.market.listings += 1;
                self.importer.listing(*listing)
            }
            Incoming::Record(record) => {
                self.market.records += 1;
                self.importer.record(*record)
            }
            Incoming::Bid(bid) => {
                self.market.bids += 1;
                self.importer.bid(*bid)
            }
        };
        taken.with_context(|| format!("line {line}; nothing was imported"))
    }
}

/// Attributes in the spelling of the service: without blanks, keys in order.
fn attributes(value: &Value) -> anyhow::Result<Attributes> {
    let object = value.as_object().ok_or_else(|| anyhow!("attributes must be a JSON object"))?;
    Attributes::new(&serde_json::to_string(object)?).ok_or_else(|| anyhow!("attributes are too long"))
}

/// An instant from RFC 3339.
fn read_instant(text: &str) -> anyhow::Result<Timestamp> {
    rfc3339::parse(text).ok_or_else(|| anyhow!("{text:?} is not an RFC 3339 time"))
}
