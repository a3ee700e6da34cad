//! `firstcome doctor`: checks that the disk, Redis and the database of a service keep what it acknowledges, and a store of locks
//! too. Writes nothing, except that it takes a lease of etcd and gives it back.

mod encryption;
mod locks;

use crate::clocks::{SKEW_MS_MAX, skew_ms};
use crate::deployment_secret::SecretArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use crate::settings::ConfigArgs;
use crate::store_address::{LockStoreArgs, StoreAddressArgs};
use crate::{file_system, health};
use anyhow::anyhow;
use clap::Args;
use comfy_table::{Cell, Color};
use firstcome::cluster::{DeploymentSecret, Examined, examine};
use firstcome::edge::{Clock, SystemClock, draw_id};
use firstcome::redis::{Eviction, Fsync, Link, LinkError, LinkOptions, OpenError, Role, Script, ServerFacts};
use firstcome::sql::Replication;
use firstcome::sqlite::{DATABASE_FILE, RESTORE_DIRECTORY};
use firstcome_tls::Trust;
use redis::Value;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

static TIME: Script = Script::new("return redis.call('TIME')");
static MARK: Script = Script::new("return redis.call('GET', KEYS[1])");

/// The key that holds the number of the deployment whose keys are on this Redis.
const MARK_KEY: &[u8] = b"fc:deployment";

/// The advice about replicas that may lack acknowledged commits.
const ASYNCHRONOUS: &str = "a copy that takes over may lack the last commits, and nodes then stop the coupons and rooms that this concerns: set \
                            synchronous_standby_names on PostgreSQL, semi-synchronous replication on MySQL and MariaDB";

/// The default directory of the embedded store.
const DATA: &str = "./firstcome-data";
/// The longest time for a service to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The verdict on a server that could not be reached.
const UNREACHED: Verdict = Verdict::Unsafe("start it, or correct its address; doctor could not check it");

/// The help of `--store`, which has no default here.
const STORE: &str = "Store of locks to check, as `firstcome lock` takes it: a directory, redis://…, etcd://…, postgres://…; redis:// 3 \
                     to 9 times for a quorum";
/// What follows in the long help.
const STORE_ALONE: &str = "It may stand alone, and the default directory of --data is not checked then. It may also stand beside --data, \
                           or --redis and --sql. In FIRSTCOME_STORE spaces separate the addresses of a quorum.\n\nThe command asks each \
                           server of etcd for a lease, and gives it back at once. It writes nothing to other stores.";

#[derive(Args)]
#[command(mut_arg("store", |store| store.help(STORE).long_help(format!("{STORE}\n\n{STORE_ALONE}"))))]
pub(crate) struct DoctorArgs {
    /// Directory of the embedded store [default: ./firstcome-data]
    #[arg(long, env = "FIRSTCOME_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    servers: StoreAddressArgs,
    #[command(flatten)]
    locks: LockStoreArgs,
    #[command(flatten)]
    secret: SecretArgs,
    /// A running service, such as http://127.0.0.1:8080, which is asked as well
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    _settings: ConfigArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// The verdict on one finding.
enum Verdict {
    Fine,
    /// Loses nothing, but an operator may want to know.
    Note(&'static str),
    /// Acknowledged data may be lost or contradicted. Holds the advice.
    Unsafe(&'static str),
}

struct Finding {
    of: String,
    what: String,
    is: String,
    verdict: Verdict,
}

/// The findings so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn say(&mut self, of: &str, what: impl Into<String>, is: impl Into<String>, verdict: Verdict) {
        self.0.push(Finding { of: of.to_owned(), what: what.into(), is: is.into(), verdict });
    }
}

/// What a Redis is used for, which decides what its loss costs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedisUse {
    /// By the nodes of a cluster.
    Cluster {
        /// Whether a coupon has the durability `redis`.
        is_early: bool,
    },
    /// By locks on this Redis alone.
    Locks,
    /// By a quorum, for which a server has forgotten everything after each start.
    Quorum,
}

impl RedisUse {
    /// Returns the prefix of its keys and channels. The server may allow its user no others. A layout of another library has its
    /// own, which is not considered: a user who may use those alone counts as not reached.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Cluster { .. } | Self::Locks => "fc",
            Self::Quorum => "fcq",
        }
    }
}

/// Checks everything and prints the findings. Fails if any finding is unsafe.
pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    let mut findings = Findings::default();
    findings.say("firstcome", "version", env!("CARGO_PKG_VERSION"), Verdict::Fine);
    let transport = args.servers.transport.settled()?;
    encryption::of_rule(transport.plaintext, &mut findings);
    let addresses = args.servers.read_over(&transport)?;
    let locks = match locks::read(&args.locks, &transport) {
        // Meant for `firstcome lock`: it must not hide what is wrong with the service.
        Err(Failure::Usage(error)) if !args.locks.are_on_command_line() => {
            let advice = "correct FIRSTCOME_STORE or the settings file: `firstcome lock` refuses it too";
            findings.say("store", "address", error.to_string(), Verdict::Note(advice));
            None
        }
        read => read?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut looked = match &addresses.sql {
        Some(sql) => {
            let secret = if addresses.redis.is_some() { args.secret.read_maybe()? } else { None };
            runtime.block_on(of_servers(addresses.redis.as_deref(), sql, secret, &mut findings))
        }
        None => data_of(args, locks.is_some()).map_or(Ok(()), |data| of_directory(data, &mut findings)),
    };
    if let Some(store) = &locks {
        looked = looked.and(runtime.block_on(locks::check(store, &mut findings)));
    }
    if let Some(url) = &args.url {
        of_service(url, transport.trust(), &mut findings)?;
    }
    if let Err(failure @ Failure::Usage(_)) = looked {
        return Err(failure);
    }
    // Prints the findings that preceded a failure before it returns the failure.
    let count = findings.0.iter().filter(|finding| matches!(finding.verdict, Verdict::Unsafe(_))).count();
    if wants_table(args.json) {
        print_table(&findings)?;
    } else {
        print_json(&findings, count)?;
    }
    looked?;
    if count == 0 { Ok(()) } else { Err(Failure::Refused(anyhow!("{count} unsafe"))) }
}

/// Returns the directory to check if no server of a service is named. Leaves the default one out beside a store of locks on the command
/// line, and beside another store or a service if it is not there.
fn data_of(args: &DoctorArgs, has_locks: bool) -> Option<&Path> {
    let data = Path::new(DATA);
    match args.data.as_deref() {
        Some(data) => Some(data),
        None if args.locks.are_on_command_line() => None,
        // A store that a variable or the settings file names is mostly meant for `firstcome lock`: it hides no directory.
        None if (args.url.is_some() || has_locks) && !data.is_dir() => None,
        None => Some(data),
    }
}

/// Asks a running service for its readiness, faults and warnings.
fn of_service(url: &str, trust: &Trust, findings: &mut Findings) -> Outcome {
    let url = format!("{}/readyz", url.trim_end_matches('/').trim_end_matches("/readyz"));
    let (status, body) = match health::get(&url, ANSWER_MAX, trust) {
        Ok(answer) => answer,
        Err(Failure::Unreachable(error)) => {
            findings.say("service", "reached", error.to_string(), UNREACHED);
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let told: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let listed = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (is, verdict) = match (status, told["ready"].as_bool()) {
        (200, Some(true)) => ("yes".to_owned(), Verdict::Fine),
        (_, Some(false)) => {
            (text(&told["reason"]), Verdict::Unsafe("see its log, and the faults here if there are any"))
        }
        _ => (
            format!("status {status}"),
            Verdict::Unsafe("the server at this address is not firstcome: correct the address"),
        ),
    };
    findings.say("service", "ready", is, verdict);
    if let Some(host) = url.strip_prefix("https://").and_then(health::host_in) {
        encryption::of_service(&host, findings);
    }
    for fault in listed("faults") {
        let says = text(&fault["says"]);
        findings.say("service", text(&fault["object"]), says, Verdict::Unsafe("do what its log says"));
    }
    for warning in listed("warnings") {
        let verdict = Verdict::Note("name your proxy with --trusted-proxy, if it is one of yours");
        findings.say("service", text(&warning["code"]), text(&warning["says"]), verdict);
    }
    Ok(())
}

/// Checks the database and Redis. Without a Redis it checks only what a service of members and listings needs.
async fn of_servers(
    redis: Option<&str>,
    sql: &str,
    secret: Option<DeploymentSecret>,
    findings: &mut Findings,
) -> Outcome {
    let clock = SystemClock::default();
    let before = clock.now().as_us();
    let found = match examine(sql, secret).await {
        Ok(found) => {
            skew(findings, "database", found.now.as_us(), before, clock.now().as_us());
            of_database(&found, redis.is_some(), findings);
            encryption::of_database("database", sql, Some(found.tls_version.as_deref()), findings)?;
            Some(found)
        }
        Err(error) => {
            findings.say("database", "reached", error.to_string(), UNREACHED);
            encryption::of_database("database", sql, None, findings)?;
            None
        }
    };
    let Some(redis) = redis else { return Ok(()) };
    let deployment = found.as_ref().and_then(|found| found.deployment.as_ref());
    let is_early = deployment.is_some_and(|deployment| deployment.early_coupon.is_some());
    let mark = of_link("redis", redis, RedisUse::Cluster { is_early }, findings).await?;
    if found.is_some() {
        of_both(mark, deployment.and_then(|deployment| deployment.number), findings);
    }
    Ok(())
}

/// The mark of a deployment that a Redis holds.
enum Mark {
    /// The Redis was not asked, or gave no answer.
    NotSeen,
    None,
    Of(i64),
}

/// Checks a Redis, and how it is reached.
async fn of_link(of: &str, redis: &str, used: RedisUse, findings: &mut Findings) -> Result<Mark, Failure> {
    let mut reached = Vec::new();
    let mark = of_servers_behind(of, redis, used, &mut reached, findings).await?;
    // Blocks this runtime, which has nothing else to do.
    encryption::of_redis(of, redis, &reached, findings)?;
    Ok(mark)
}

/// Checks the servers of a link, and collects their addresses. Asks for clock and mark only for a cluster.
async fn of_servers_behind(
    of: &str,
    redis: &str,
    used: RedisUse,
    reached: &mut Vec<String>,
    findings: &mut Findings,
) -> Result<Mark, Failure> {
    let clock = SystemClock::default();
    let mut options = LinkOptions::default();
    options.allow_eviction = Eviction::Allow;
    let channel = format!("{}:doctor:{:016x}", used.prefix(), draw_id()?);
    let link = match Link::open(redis, &channel, options).await {
        Ok((link, _)) => link,
        Err(error @ OpenError::Address { .. }) => return Err(Failure::Usage(error.into())),
        Err(OpenError::ReadOnlyReplica) => {
            findings.say(of, "role", "replica", Verdict::Unsafe("name its primary"));
            return Ok(Mark::NotSeen);
        }
        Err(error @ (OpenError::TooOld { .. } | OpenError::Cluster)) => {
            findings.say(of, "verdict", error.to_string(), Verdict::Unsafe("use a server that will do"));
            return Ok(Mark::NotSeen);
        }
        Err(error) => {
            findings.say(of, "reached", error.to_string(), UNREACHED);
            return Ok(Mark::NotSeen);
        }
    };
    let looked = async {
        for facts in link.servers().await? {
            of_redis(of, &facts, used, findings);
            reached.push(facts.address);
        }
        if !matches!(used, RedisUse::Cluster { .. }) {
            return Ok(Mark::NotSeen);
        }
        let before = clock.now().as_us();
        let told = link.run(&TIME, &[MARK_KEY], &[]).await?;
        let after = clock.now().as_us();
        if let Ok((seconds, micros)) = redis::from_redis_value::<(i64, i64)>(told) {
            skew(findings, of, seconds * 1_000_000 + micros, before, after);
        }
        Ok::<_, LinkError>(match link.run(&MARK, &[MARK_KEY], &[]).await? {
            Value::Nil => Mark::None,
            // Deployments have no negative numbers: a value that is not a number belongs to another application.
            told => Mark::Of(redis::from_redis_value::<i64>(told).unwrap_or(-1)),
        })
    };
    match looked.await {
        Ok(mark) => Ok(mark),
        Err(error) => {
            findings.say(of, "reached", error.to_string(), UNREACHED);
            Ok(Mark::NotSeen)
        }
    }
}

/// Checks that Redis and the database belong to the same deployment.
fn of_both(mark: Mark, number: Option<i64>, findings: &mut Findings) {
    let (is, verdict) = match (mark, number) {
        (Mark::NotSeen, _) => return,
        (Mark::None, None) => ("none yet", Verdict::Fine),
        (Mark::None, Some(_)) => (
            "not on Redis",
            Verdict::Note(
                "it is empty, and the nodes fill it from the database; check that it is the same Redis as before",
            ),
        ),
        (Mark::Of(mark), Some(number)) if mark == number => ("the same on both", Verdict::Fine),
        (Mark::Of(_), _) => (
            "Redis belongs to another deployment",
            Verdict::Unsafe("name the Redis and the database that belong together"),
        ),
    };
    findings.say("both", "deployment", is, verdict);
}

/// Reports the settings of a database, and how copies of it are kept. `asynchronous` is the advice about copies that may be behind.
fn of_settings(of: &str, found: &Examined, asynchronous: &'static str, findings: &mut Findings) {
    for (name, value) in &found.settings {
        findings.say(of, name, value, Verdict::Fine);
    }
    if let Some(why) = &found.unfit {
        findings.say(of, "verdict", why, Verdict::Unsafe("set it so: what was told could be lost"));
    }
    let (is, verdict) = match found.replication {
        Replication::None => ("none is seen".to_owned(), Verdict::Fine),
        Replication::Synchronous { replicas } => (format!("{replicas} copies, synchronous"), Verdict::Fine),
        Replication::Asynchronous { replicas } => {
            (format!("{replicas} copies, asynchronous"), Verdict::Note(asynchronous))
        }
    };
    findings.say(of, "replication", is, verdict);
}

fn of_database(found: &Examined, with_redis: bool, findings: &mut Findings) {
    of_settings("database", found, ASYNCHRONOUS, findings);
    for part in found.tables.iter().filter(|part| with_redis || part.part == "market") {
        let (version, known) = (part.standing.version, part.known);
        let verdict = match version.cmp(&known) {
            Ordering::Equal => Verdict::Fine,
            Ordering::Less => Verdict::Unsafe("run `firstcome migrate --sql URL`"),
            Ordering::Greater if part.standing.admits(known) => {
                Verdict::Note("of a later version, which this one may use")
            }
            Ordering::Greater => Verdict::Unsafe("use the version of firstcome that made them, or a later one"),
        };
        findings.say("database", format!("tables of {}", part.part), format!("{version} of {known}"), verdict);
    }
    let Some(deployment) = found.deployment.as_ref().filter(|_| with_redis) else { return };
    let (is, verdict) = match deployment.is_secret_right {
        Some(true) if deployment.is_rewrap_due == Some(true) => {
            ("its fallback", Verdict::Note("run `firstcome rewrap` once every node has the new FIRSTCOME_SECRET"))
        }
        Some(true) => ("that of the deployment", Verdict::Fine),
        Some(false) => ("another one", Verdict::Unsafe("give this node the secret that the others have")),
        None if deployment.number.is_none() => ("none yet", Verdict::Fine),
        None => ("not compared", Verdict::Note("give it in FIRSTCOME_SECRET or with --secret-file")),
    };
    findings.say("database", "secret", is, verdict);
    for (coupon, count) in &deployment.dead_letters {
        let verdict = Verdict::Note("see GET /v1/coupons/{coupon}/dead-letters: something else writes to this Redis");
        findings.say("database", format!("dead letters of {coupon}"), count.to_string(), verdict);
    }
}

fn of_redis(of: &str, facts: &ServerFacts, used: RedisUse, findings: &mut Findings) {
    let version = facts.version.map_or("unknown".to_owned(), |version| version.to_string());
    findings.say(of, "version", version, Verdict::Fine);
    let role = match facts.role {
        Role::Primary => ("primary", Verdict::Fine),
        Role::Replica => ("replica", Verdict::Unsafe("name its primary")),
    };
    findings.say(of, "role", role.0, role.1);
    let policy = facts.eviction_policy.as_deref().unwrap_or("unknown");
    let is_kept = policy == "noeviction";
    let verdict = if is_kept { Verdict::Fine } else { Verdict::Unsafe("set maxmemory-policy noeviction") };
    findings.say(of, "maxmemory-policy", policy, verdict);
    let (sync, is_durable) = match facts.fsync {
        _ if !facts.append_only => ("no appendonly", false),
        Some(Fsync::Always) => ("always", true),
        Some(Fsync::EverySecond) => ("everysec", false),
        Some(Fsync::Never) => ("no", false),
        None => ("unknown", false),
    };
    let verdict = match used {
        _ if is_durable => Verdict::Fine,
        RedisUse::Cluster { is_early: true } => {
            Verdict::Unsafe("a coupon has the durability redis: set appendonly yes and appendfsync always")
        }
        RedisUse::Cluster { is_early: false } => {
            Verdict::Note("a restart costs a rebuild, and the locks that are held; no coupon is lost")
        }
        RedisUse::Locks => Verdict::Note(
            "a restart may forget locks that are held, and slots of `firstcome once`: set appendonly yes and appendfsync always",
        ),
        RedisUse::Quorum => Verdict::Fine,
    };
    findings.say(of, "appendfsync", sync, verdict);
    let needed = facts.replicas_needed.map_or("unknown".to_owned(), |needed| needed.to_string());
    let verdict = match facts.replicas_needed {
        Some(0) if 0 < facts.replicas => Verdict::Note("a replica that takes over may lack the last grants of locks"),
        _ => Verdict::Fine,
    };
    findings.say(of, "min-replicas-to-write", format!("{needed}, {} replicas", facts.replicas), verdict);
}

/// Reports how far a remote clock is from this machine's, which was read before and after it.
fn skew(findings: &mut Findings, of: &str, there_us: i64, before_us: i64, after_us: i64) {
    let ms = skew_ms(there_us, before_us, after_us);
    let far = Verdict::Unsafe("synchronise the clocks of all machines");
    let verdict = if ms <= SKEW_MS_MAX { Verdict::Fine } else { far };
    findings.say(of, "clock", format!("{ms} ms from this machine's"), verdict);
}

/// Reports where a directory is, and whether it lies on a disk.
fn of_disk(of: &str, directory: &Path, findings: &mut Findings) {
    findings.say(of, "path", directory.display().to_string(), Verdict::Fine);
    let file_system = file_system::type_at(directory).unwrap_or_else(|_| "unknown".to_owned());
    let in_memory = file_system::is_in_memory(&file_system);
    let verdict =
        if in_memory { Verdict::Unsafe("it lies in memory: name a directory on a disk") } else { Verdict::Fine };
    findings.say(of, "file system", file_system, verdict);
}

fn of_directory(data: &Path, findings: &mut Findings) -> Outcome {
    let unreachable = |says: String| Failure::Unreachable(anyhow!("{}: {says}", data.display()));
    if !data.is_dir() {
        return Err(unreachable(
            "there is no such directory; name one with --data, servers with --redis and --sql, or a store of locks with --store".into(),
        ));
    }
    of_disk("directory", data, findings);
    let private = |path: &Path| -> std::io::Result<bool> {
        use std::os::unix::fs::PermissionsExt;
        Ok(fs::metadata(path)?.permissions().mode() & 0o077 == 0)
    };
    for (name, path) in [("directory", data.to_owned()), ("keys.toml", data.join("keys.toml"))] {
        match private(&path) {
            Ok(true) => findings.say("directory", name, "its owner's alone", Verdict::Fine),
            Ok(false) => {
                let verdict = Verdict::Unsafe("take the rights of others away: chmod go= of it");
                findings.say("directory", name, "other users can read it", verdict);
            }
            // The keys may come from the environment.
            Err(_) => findings.say("directory", name, "none", Verdict::Fine),
        }
    }
    if data.join(RESTORE_DIRECTORY).exists() {
        let verdict = Verdict::Unsafe("run `firstcome restore` into it again: no service starts on it before");
        findings.say("directory", "restore", "not finished", verdict);
    }
    findings.say("sqlite", "version", rusqlite::version(), Verdict::Fine);
    let file = data.join(DATABASE_FILE);
    if file.exists() {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let look = Connection::open_with_flags(&file, flags)
            .and_then(|file| file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)));
        let version = look.map_err(|error| unreachable(error.to_string()))?;
        findings.say("sqlite", "tables", format!("version {version}"), Verdict::Fine);
    } else {
        findings.say("sqlite", "tables", "none yet", Verdict::Fine);
    }
    Ok(())
}

fn print_json(findings: &Findings, count: usize) -> Outcome {
    let entry = |finding: &Finding| {
        let (verdict, advice) = match finding.verdict {
            Verdict::Fine => ("fine", None),
            Verdict::Note(advice) => ("note", Some(advice)),
            Verdict::Unsafe(advice) => ("unsafe", Some(advice)),
        };
        json!({"of": finding.of, "what": finding.what, "is": finding.is, "verdict": verdict, "advice": advice})
    };
    let checks: Vec<_> = findings.0.iter().map(entry).collect();
    write_out(format!("{:#}\n", json!({"unsafe": count, "checks": checks})).as_bytes())?;
    Ok(())
}

fn print_table(findings: &Findings) -> Outcome {
    let mut table = table(&["Of", "What", "Is", "Verdict"]);
    for Finding { of, what, is, verdict } in &findings.0 {
        let verdict = match verdict {
            Verdict::Fine => Cell::new("fine").fg(Color::Green),
            Verdict::Note(advice) => Cell::new(advice).fg(Color::Yellow),
            Verdict::Unsafe(advice) => Cell::new(format!("unsafe: {advice}")).fg(Color::Red),
        };
        table.add_row([Cell::new(of), Cell::new(what), Cell::new(is), verdict]);
    }
    write_out(format!("{table}\n").as_bytes())?;
    Ok(())
}
