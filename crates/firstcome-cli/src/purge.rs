//! `firstcome purge`: removes what is over from a running service, from a directory that no service has open, or from a cluster or a
//! database beside its services. And the settings of how long a store keeps what is over.

use crate::arguments::duration;
use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::keys::command::{ServiceAddressArgs, unanswered};
use crate::output::{grouped, ongoing, table, wants_table, write_out};
use crate::store_address::{ServerAddressArgs, StoreAddresses, missing_sql};
use crate::transport::TransportArgs;
use anyhow::{anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use firstcome::cluster::{Cluster, ClusterOptions};
use firstcome::edge::SystemClock;
use firstcome::purge::{ClockCheck, PurgeMode, RETAIN_HEADS_MIN, RETAIN_RECORDS_MIN, RETAIN_REQUESTS_MIN};
use firstcome::sql::{SqlAuctions, Tables};
use firstcome::{PurgeAnswer, PurgeRequest, PurgeStore, Purged, Retention, StoreError};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DAY_S: u64 = 86_400;

/// How long something is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    For(Duration),
    Forever,
}

impl Kept {
    const fn time(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Forever => None,
        }
    }
}

/// Parses `30d`, another duration, or `forever`.
fn kept(text: &str) -> anyhow::Result<Kept> {
    if text == "forever" {
        return Ok(Kept::Forever);
    }
    let days =
        text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()).and_then(|days| days.checked_mul(DAY_S));
    let time = days.map(Duration::from_secs).map_or_else(|| duration(text), Ok);
    time.map(Kept::For).map_err(|_| anyhow!("{text:?} is no time to keep: write 12h, 30d or forever"))
}

fn kept_requests(text: &str) -> anyhow::Result<Kept> {
    match kept(text)? {
        Kept::For(time) if time < RETAIN_REQUESTS_MIN => {
            bail!("it must be 1d at least: clients repeat a request within it")
        }
        time => Ok(time),
    }
}

fn kept_records(text: &str) -> anyhow::Result<Kept> {
    match kept(text)? {
        Kept::For(time) if time < RETAIN_RECORDS_MIN => {
            bail!("it must be 31d at least: idempotency keys of charges and refunds name records for 30 days")
        }
        time => Ok(time),
    }
}

fn kept_heads(text: &str) -> anyhow::Result<Kept> {
    match kept(text)? {
        Kept::For(time) if time < RETAIN_HEADS_MIN => {
            bail!("it must be 1d at least: visitors ask for their receipts within it")
        }
        time => Ok(time),
    }
}

/// The settings of how long a store keeps what is over.
#[derive(Args)]
pub(crate) struct RetentionArgs {
    /// How long idempotency keys are kept, such as 30d; 1d at least, or forever. Those of charges and refunds stay 30d at least
    #[arg(long, env = "FIRSTCOME_RETAIN_REQUESTS", value_name = "TIME", value_parser = kept_requests, default_value = "30d")]
    retain_requests: Kept,
    /// How long tickets are kept that left or expired, and admissions that ended, such as 7d, or forever
    #[arg(long, env = "FIRSTCOME_RETAIN_TICKETS", value_name = "TIME", value_parser = kept, default_value = "7d")]
    retain_tickets: Kept,
    /// How long the claims of a coupon that is over are kept, such as 365d, or forever. They count from the last instant at which a
    /// code of it can be redeemed; if it was deleted and has no such instant, from its deletion, and until they go its codes can be
    /// redeemed
    #[arg(long, env = "FIRSTCOME_RETAIN_CLAIMS", value_name = "TIME", value_parser = kept, default_value = "forever")]
    retain_claims: Kept,
    /// How long claims are kept that a node of a cluster could not read and put aside, such as 90d, or forever
    #[arg(long, env = "FIRSTCOME_RETAIN_DEAD_LETTERS", value_name = "TIME", value_parser = kept, default_value = "90d")]
    retain_dead_letters: Kept,
    /// How long records of members' points are kept, such as 365d; 31d at least, or forever
    #[arg(long, env = "FIRSTCOME_RETAIN_RECORDS", value_name = "TIME", value_parser = kept_records, default_value = "forever")]
    retain_records: Kept,
    /// How long published heads of rooms and coupons are kept, such as 90d; 1d at least, or forever. They count from the next head
    /// on, and the newest one of each stays. A receipt that names a removed head can no longer be made; one that was given out still
    /// verifies
    #[arg(long, env = "FIRSTCOME_RETAIN_HEADS", value_name = "TIME", value_parser = kept_heads, default_value = "forever")]
    retain_heads: Kept,
}

impl RetentionArgs {
    /// Returns what is kept for how long.
    pub(crate) const fn retention(&self) -> Retention {
        Retention {
            requests: self.retain_requests.time(),
            tickets: self.retain_tickets.time(),
            claims: self.retain_claims.time(),
            dead_letters: self.retain_dead_letters.time(),
            records: self.retain_records.time(),
            heads: self.retain_heads.time(),
        }
    }
}

/// [`RetentionArgs`], and those of them that the command line names. Variables and the file may be the settings of a service.
struct PurgeRetentionArgs {
    kept: RetentionArgs,
    /// The arguments that the command line names, by their ids.
    named: Vec<String>,
}

impl FromArgMatches for PurgeRetentionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let settings = RetentionArgs::augment_args(Command::new("settings"));
        let ids = settings.get_arguments().map(|argument| argument.get_id().to_string());
        let named = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine)).collect();
        Ok(Self { kept: RetentionArgs::from_arg_matches(matches)?, named })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for PurgeRetentionArgs {
    fn augment_args(command: Command) -> Command {
        RetentionArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        RetentionArgs::augment_args_for_update(command)
    }
}

impl PurgeRetentionArgs {
    /// Refuses flags that a running service would not follow.
    fn check_unnamed(&self) -> Outcome {
        let says = |id: &String| {
            format!(
                "--{} is the service's own setting: leave it out, or name a store with --data DIR or with --redis URL and --sql URL",
                id.replace('_', "-")
            )
        };
        let lines: Vec<String> = self.named.iter().map(says).collect();
        if lines.is_empty() { Ok(()) } else { Err(Failure::Usage(anyhow!(lines.join("\n")))) }
    }
}

#[derive(Args)]
pub(crate) struct PurgeArgs {
    /// Directory of an embedded store that no service has open, instead of a service
    #[arg(long, value_name = "DIR", conflicts_with_all = ["key_file", "redis", "redis_file", "sql", "sql_file"])]
    data: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceAddressArgs,
    #[command(flatten)]
    servers: ServerAddressArgs,
    #[command(flatten)]
    secret: SecretArgs,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    retention: PurgeRetentionArgs,
    /// Count what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Believe the clock, also if it is earlier than the last record or a year ahead of the last purge
    #[arg(long)]
    trust_clock: bool,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// Purges, and prints how many rows were removed.
pub(crate) fn run(args: &PurgeArgs) -> Outcome {
    let mode = if args.dry_run { PurgeMode::Count } else { PurgeMode::Remove };
    let clock = if args.trust_clock { ClockCheck::Skip } else { ClockCheck::Refuse };
    let request = PurgeRequest { mode, clock, ..PurgeRequest::new(args.retention.kept.retention()) };
    let doing = if args.dry_run { "counting what would be removed" } else { "purging" };
    let bar = ongoing(doing);
    let answer = match &args.data {
        Some(data) => of_directory(data, request),
        None if args.servers.are_on_command_line() => of_servers(args, request, |purged| {
            bar.set_message(format!("{doing}: {}", told(purged)));
        }),
        None => of_service(args, request),
    };
    bar.finish_and_clear();
    let purged = purged(answer?).map_err(|failure| args.service.explain(failure))?;
    print(&purged, mode, args.json)
}

fn of_directory(data: &Path, request: PurgeRequest) -> Result<PurgeAnswer, Failure> {
    if !data.join(firstcome::sqlite::DATABASE_FILE).exists() {
        return Err(Failure::Usage(anyhow!("{} holds no store: give the directory of one", data.display())));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = firstcome::sqlite::open(data, Arc::new(SystemClock::default())).map_err(Failure::Store)?;
    let answer = runtime.block_on(store.purge(request));
    store.close();
    Ok(answer)
}

/// Has a running service purge, by its own settings.
fn of_service(args: &PurgeArgs, request: PurgeRequest) -> Result<PurgeAnswer, Failure> {
    args.retention.check_unnamed()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = args.service.open_over(&args.transport.settled()?)?;
    Ok(runtime.block_on(service.purge(request.mode, request.clock)))
}

/// Purges a cluster as one of its nodes does, or a database of members and listings alone.
fn of_servers(
    args: &PurgeArgs,
    request: PurgeRequest,
    progress: impl FnMut(&Purged) + Send,
) -> Result<PurgeAnswer, Failure> {
    let StoreAddresses { redis, sql } = args.servers.read_over(&args.transport.settled()?)?;
    let sql = sql.ok_or_else(missing_sql)?;
    let mut options = ClusterOptions::default();
    options.database.tables = Tables::Require;
    let secret = redis.as_ref().map(|_| args.secret.read()).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let auctions = SqlAuctions::open_with(&sql, options.database.clone()).await;
        let auctions = auctions.map_err(|error| Failure::Unreachable(error.into()))?;
        let Some((redis, secret)) = redis.zip(secret) else { return Ok(auctions.purge(request).await) };
        let cluster = Cluster::open(&redis, &sql, secret, options).await.map_err(Failure::of_cluster)?;
        let of_cluster = cluster.purge_with(request, progress).await;
        let clock = match &of_cluster {
            // The cluster has judged the clock, by the rows of members and listings too.
            Ok(Ok(_)) => ClockCheck::Skip,
            Ok(Err(_)) => return Ok(of_cluster),
            // It may have failed before that. Members and listings are purged all the same.
            Err(_) => request.clock,
        };
        let of_auctions = auctions.purge(PurgeRequest { clock, ..request }).await;
        Ok(match (of_cluster, of_auctions) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(of_cluster), Ok(of_auctions)) => Ok(of_cluster.and_then(|mut purged| {
                purged += of_auctions?;
                Ok(purged)
            })),
        })
    })
}

/// What was removed up to now, for a line of progress.
fn told(purged: &Purged) -> String {
    let kinds = purged.kinds();
    let kinds = kinds.iter().filter(|(_, count)| 0 < *count);
    let kinds: Vec<String> =
        kinds.map(|(kind, count)| format!("{} {}", kind.replace('_', " "), grouped(*count))).collect();
    if kinds.is_empty() { "nothing yet".to_owned() } else { kinds.join(", ") }
}

/// Tells a refusal, a store that cannot be reached, and an unknown outcome apart.
fn purged(answer: PurgeAnswer) -> Result<Purged, Failure> {
    match answer {
        Ok(Ok(purged)) => Ok(purged),
        Ok(Err(rejection)) => Err(Failure::Refused(anyhow!("{}: {rejection}", rejection.code()))),
        Err(StoreError::Unknown) => Err(Failure::Unreachable(anyhow!(
            "the purge may go on in the service, whose log tells its end: run the same command again later"
        ))),
        Err(error) => Err(unanswered(&error)),
    }
}

fn print(purged: &Purged, mode: PurgeMode, json: bool) -> Outcome {
    if !wants_table(json) {
        let rows: Map<String, Value> =
            purged.kinds().iter().map(|(kind, count)| ((*kind).to_owned(), Value::from(*count))).collect();
        write_out(format!("{}\n", Value::Object(rows)).as_bytes())?;
        return Ok(());
    }
    let mut table = table(&["Kind", if mode == PurgeMode::Count { "Would be removed" } else { "Removed" }]);
    for (kind, count) in purged.kinds() {
        table.add_row([kind.replace('_', " "), count.to_string()]);
    }
    write_out(format!("{table}\n").as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_keep_is_in_days_or_another_unit_or_for_ever() {
        assert_eq!(kept("30d").unwrap(), Kept::For(Duration::from_secs(30 * DAY_S)));
        assert_eq!(kept("12h").unwrap(), Kept::For(Duration::from_secs(43_200)));
        assert_eq!(kept("forever").unwrap(), Kept::Forever);
        for text in ["", "d", "30", "-1d", "1.5d", "99999999999999999d", "never"] {
            assert!(kept(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_of_requests_stay_for_a_day_at_least() {
        assert_eq!(kept_requests("1d").unwrap(), Kept::For(RETAIN_REQUESTS_MIN));
        assert_eq!(kept_requests("forever").unwrap(), Kept::Forever);
        assert!(kept_requests("23h").is_err());
    }

    #[test]
    fn records_stay_for_31_days_at_least() {
        assert_eq!(kept_records("31d").unwrap(), Kept::For(RETAIN_RECORDS_MIN));
        assert_eq!(kept_records("forever").unwrap(), Kept::Forever);
        assert!(kept_records("30d").is_err());
    }

    #[test]
    fn published_heads_stay_for_a_day_at_least() {
        assert_eq!(kept_heads("1d").unwrap(), Kept::For(RETAIN_HEADS_MIN));
        assert_eq!(kept_heads("forever").unwrap(), Kept::Forever);
        assert!(kept_heads("23h").is_err());
    }

    #[test]
    fn progress_names_the_kinds_that_were_removed() {
        assert_eq!(told(&Purged::default()), "nothing yet");
        let purged = Purged { tickets: 12_345, dead_letters: 1, ..Purged::default() };
        assert_eq!(told(&purged), "tickets 12 345, dead letters 1");
    }
}
