//! `firstcome export` and `firstcome import`: coupons and claims, waiting rooms, members, listings and bids as JSON
//! lines or CSV, from and to a directory or a deployment of a cluster.
//!
//! JSON lines carry everything that lasts: settings, secrets, redemptions, idempotency keys, visitors in line, points,
//! digests of callers' keys. An import of them makes an equal store. CSV carries the claims only, for people and
//! spreadsheets. An import of CSV into a coupon of a directory, or into one that `--coupon` makes, takes over winners
//! from another system. A deployment refuses an import into a coupon that it has already, since the coupon's sequencer
//! would not know of the new claims.

mod auction_lines;
mod csv_rows;
mod head_lines;
mod json_lines;
mod room_lines;
mod secrecy;
mod source;
mod target;

pub(crate) use secrecy::bytes;

use crate::cluster::Servers;
use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::keys::private_file;
use crate::output::{progress, say};
use crate::settings;
use crate::store_address::{StoreAddressArgs, StoreAddresses};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use firstcome::archive::{
    ArchivedBid, ArchivedClaim, ArchivedCoupon, ArchivedHead, ArchivedLine, ArchivedListing, ArchivedRecord,
    ArchivedSecret, ArchivedTicket, Incoming, TicketState,
};
use firstcome::core::coupon::{Attributes, CouponLimit, CouponSettings};
use firstcome::core::id::CouponName;
use firstcome::core::receipt::Object;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, SystemClock};
use firstcome::embedded::journal::PassSecret;
use firstcome_server::rfc3339;
use secrecy::Secrecy;
use serde_json::Value;
use source::Source;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use target::Target;
use tokio::runtime::Runtime;

/// The format of the data.
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

/// The store to export from or import into.
#[derive(Args)]
struct ArchiveStoreArgs {
    /// Directory of the embedded store
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR", default_value = "./firstcome-data")]
    data: PathBuf,
    #[command(flatten)]
    servers: StoreAddressArgs,
    // It wraps the secrets in the data; without it they are in plain text.
    #[command(flatten)]
    secret: SecretArgs,
}

impl ArchiveStoreArgs {
    /// Returns the servers, if the store is a deployment, and how the data holds secrets.
    fn read(&self) -> Result<(Option<Servers>, Secrecy), Failure> {
        let StoreAddresses { redis, sql } = self.servers.read()?;
        if sql.is_some() && redis.is_none() {
            return Err(Failure::Usage(anyhow!("--sql needs --redis: an export reads both servers of a cluster")));
        }
        let Some((redis, sql)) = redis.zip(sql) else {
            return Ok((None, Secrecy(self.secret.read_maybe()?)));
        };
        let secret = self.secret.read()?;
        let servers = Servers { redis, sql, secret: secret.clone() };
        Ok((Some(servers), Secrecy(Some(secret))))
    }
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    place: ArchiveStoreArgs,
    /// Only this coupon, and nothing else
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
    /// The store. No service may be using a directory; the nodes of a deployment may be running
    #[command(flatten)]
    place: ArchiveStoreArgs,
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

    // A format skips the rows that it does not carry.
    fn secret(&mut self, _secret: &ArchivedSecret) -> anyhow::Result<()> {
        Ok(())
    }

    fn pass_secret(&mut self, _secret: &PassSecret) -> anyhow::Result<()> {
        Ok(())
    }

    fn room(&mut self, _line: &ArchivedLine) -> anyhow::Result<()> {
        Ok(())
    }

    fn head(&mut self, _head: &ArchivedHead) -> anyhow::Result<()> {
        Ok(())
    }

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

/// Counts what was written or read, for the message at the end.
#[derive(Default)]
struct Count {
    coupons: u64,
    claims: u64,
    rooms: u64,
    tickets: u64,
    /// Numbers whose tickets are unknown.
    lost: u64,
    listings: u64,
    records: u64,
    bids: u64,
}

impl std::fmt::Display for Count {
    /// Omits rooms and auctions if there are none.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { coupons, claims, rooms, tickets, lost, listings, records, bids } = self;
        write!(f, "{coupons} coupons and {claims} claims")?;
        if 0 < *rooms {
            write!(f, ", {rooms} rooms with {tickets} tickets")?;
        }
        if 0 < *lost {
            write!(
                f,
                " ({lost} numbers of tickets that the export does not know: a visitor who has one keeps the place)"
            )?;
        }
        if 0 < *listings + *records {
            write!(f, ", {listings} listings, {bids} bids and {records} movements of points")?;
        }
        Ok(())
    }
}

impl Count {
    fn line(&mut self, line: &ArchivedLine) {
        match line {
            ArchivedLine::Room(_) => self.rooms += 1,
            ArchivedLine::Ticket(ticket) => self.ticket(ticket),
        }
    }

    fn ticket(&mut self, ticket: &ArchivedTicket) {
        match ticket.state {
            TicketState::Lost(last) => self.lost += u64::from(last.get().saturating_sub(ticket.number.get())) + 1,
            _ => self.tickets += 1,
        }
    }

    fn row(&mut self, row: &Incoming) {
        match row {
            Incoming::Coupon(_) => self.coupons += 1,
            Incoming::Claim(_) => self.claims += 1,
            Incoming::Room(_) => self.rooms += 1,
            Incoming::Ticket(ticket) => self.ticket(ticket),
            Incoming::Listing(_) => self.listings += 1,
            Incoming::Record(_) => self.records += 1,
            Incoming::Bid(_) => self.bids += 1,
            Incoming::PassSecret(_) | Incoming::Secret(_) | Incoming::Head(_) => {}
        }
    }
}

pub(crate) fn export(args: &ExportArgs) -> Outcome {
    let (servers, secrecy) = args.place.read()?;
    let runtime = runtime()?;
    // Connections close in this runtime.
    let _context = runtime.enter();
    let mut source = match &servers {
        Some(servers) => Source::deployment(servers, &runtime)?,
        None => Source::directory(&args.place.data)?,
    };
    let format = Format::of(args.format, args.output.as_deref());
    let wanted = |name: &CouponName| args.coupon.as_ref().is_none_or(|only| only == name);
    let mut coupons = source.coupons()?;
    coupons.retain(|(coupon, _)| wanted(&coupon.name));
    if let (Some(name), true) = (&args.coupon, coupons.is_empty()) {
        return Err(Failure::Refused(anyhow!("there is no coupon {name}")));
    }
    if format == Format::Csv {
        refuse_purged(args.coupon.as_ref(), &coupons)?;
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
        Format::Jsonl => Box::new(json_lines::Lines::new(out, secrecy)?),
        Format::Csv => Box::new(csv_rows::Rows::new(out)?),
    };
    let mut count = Count { coupons: coupons.len() as u64, claims, ..Count::default() };
    let is_all = args.coupon.is_none() && format == Format::Jsonl;
    if is_all {
        source.secrets()?.iter().try_for_each(|secret| sink.secret(secret))?;
    }
    for (coupon, _) in &coupons {
        sink.coupon(coupon)?;
    }
    let bar = progress(claims, "exporting claims");
    source.for_each_claim(|claim| {
        if wanted(&claim.coupon) {
            sink.claim(&claim)?;
            bar.inc(1);
        }
        Ok(())
    })?;
    if is_all {
        export_rest(&mut source, &mut *sink, &mut count)?;
    }
    // With their objects: a store that goes on signs with the same keys.
    source.for_each_head(|head| match &head.signed.head.object {
        Object::Coupon(name) if wanted(name) => sink.head(&head),
        Object::Room(_) if is_all => sink.head(&head),
        _ => Ok(()),
    })?;
    sink.finish()?;
    bar.finish_and_clear();
    eprintln!("exported {count}");
    Ok(())
}

/// Refuses to export no claims of a purged coupon as if it had none; warns of such coupons among others.
fn refuse_purged(only: Option<&CouponName>, coupons: &[(ArchivedCoupon, u64)]) -> Outcome {
    let purged = coupons.iter().filter_map(|(coupon, _)| Some((&coupon.name, coupon.purged?.at)));
    for (name, at) in purged {
        let at = rfc3339::format(at);
        if only.is_some() {
            return Err(Failure::Refused(anyhow!("purged: the claims of coupon {name} are not kept since {at}")));
        }
        say(&format!("the claims of coupon {name} are not kept since {at}: none of them is exported"));
    }
    Ok(())
}

/// Builds the runtime for calls to the servers. Only the transfer runs in it.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Exports rooms and auctions, each row after the rows that it refers to.
fn export_rest(source: &mut Source<'_>, sink: &mut dyn Sink, count: &mut Count) -> anyhow::Result<()> {
    source.pass_secrets()?.iter().try_for_each(|secret| sink.pass_secret(secret))?;
    source.for_each_ticket(|line| {
        count.line(&line);
        sink.room(&line)
    })?;
    for listing in source.listings()? {
        sink.listing(&listing)?;
        count.listings += 1;
    }
    source.for_each_record(|record| {
        count.records += 1;
        sink.record(&record)
    })?;
    source.for_each_bid(|bid| {
        count.bids += 1;
        sink.bid(&bid)
    })
}

pub(crate) fn import(args: &ImportArgs) -> Outcome {
    let (servers, secrecy) = args.place.read()?;
    let stdin = args.file == Path::new("-");
    let (input, length): (Box<dyn Read>, u64) = if stdin {
        (Box::new(io::stdin()), 0)
    } else {
        let unread = || format!("cannot read {}", args.file.display());
        let file = File::open(&args.file).with_context(unread).map_err(Failure::Usage)?;
        let length = file.metadata()?.len();
        (Box::new(file), length)
    };
    let bar = progress(length, "importing bytes");
    let input = BufReader::new(bar.wrap_read(input));
    let now = SystemClock::default().now();
    let runtime = runtime()?;
    // Connections close in this runtime.
    let _context = runtime.enter();
    let mut target = match &servers {
        Some(servers) => Target::deployment(servers, &runtime)?,
        None => Target::directory(&args.place.data, now)?,
    };
    if let Some((name, limit)) = &args.coupon {
        target.new_coupon(name.clone(), CouponSettings::with_limit(*limit))?;
    }
    let mut count = Count::default();
    let take = |line: u64, row: Incoming| {
        count.row(&row);
        target.take(row).with_context(|| format!("line {line}; nothing was imported"))
    };
    match Format::of(args.format, Some(&args.file)) {
        Format::Jsonl => json_lines::read(input, &secrecy, take)?,
        Format::Csv => csv_rows::read(input, now, take)?,
    }
    target.finish().map_err(|error| {
        // A commit without a reply: importing again shows whether it succeeded.
        let what = if source::is_unknown(&error) {
            "the outcome is unknown: import the same file again to find out"
        } else {
            "nothing was imported"
        };
        error.context(format!("at the end; {what}"))
    })?;
    bar.finish_and_clear();
    eprintln!("imported {count}");
    Ok(())
}

/// Returns attributes in the service's canonical form: without blanks, keys in order.
fn attributes(value: &Value) -> anyhow::Result<Attributes> {
    let object = value.as_object().ok_or_else(|| anyhow!("attributes must be a JSON object"))?;
    Attributes::new(&serde_json::to_string(object)?).ok_or_else(|| anyhow!("attributes are too long"))
}

/// Parses an RFC 3339 instant.
fn read_instant(text: &str) -> anyhow::Result<Timestamp> {
    rfc3339::parse(text).ok_or_else(|| anyhow!("{text:?} is not an RFC 3339 time"))
}
