//! The addresses of Redis and of the database: given as such, or in files, since an address may contain a password.
//!
//! Arguments are in the list of processes, which all users of a machine can read. A file is not.

use crate::failure::Failure;
use crate::output::say;
use crate::settings::Problems;
use crate::transport::{Transport, TransportArgs};
use anyhow::{Context, anyhow, ensure};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use firstcome::lock::LockAddress;
use std::path::{Path, PathBuf};

/// Redis and the database of a command, and how they are reached.
#[derive(Args)]
pub(crate) struct StoreAddressArgs {
    #[command(flatten)]
    servers: ServerAddressArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
}

/// Redis and the database of a command.
#[derive(Args)]
pub(crate) struct ServerAddressArgs {
    #[command(flatten)]
    redis: RedisAddressArgs,
    #[command(flatten)]
    sql: SqlAddressArgs,
}

/// The addresses that [`StoreAddressArgs`] names, with the files of TLS that they lack. Redis alone is refused, and plain text that
/// is not allowed.
#[derive(Default)]
pub(crate) struct StoreAddresses {
    pub(crate) redis: Option<String>,
    pub(crate) sql: Option<String>,
}

impl StoreAddressArgs {
    /// Reads the files that are named. Warns of a password in the arguments.
    pub(crate) fn read(&self) -> Result<StoreAddresses, Failure> {
        self.servers.read_over(&self.transport.settled()?)
    }

    /// [`Self::read`], for a command that needs the transport for more.
    pub(crate) fn read_over(&self, transport: &Transport) -> Result<StoreAddresses, Failure> {
        self.servers.read_over(transport)
    }

    /// Returns whether Redis and the database are named, by any source.
    pub(crate) const fn are_both_named(&self) -> bool {
        !matches!(self.servers.redis.0, NamedAddress::None) && !matches!(self.servers.sql.0, NamedAddress::None)
    }

    /// Drops addresses that the command line does not name.
    pub(crate) fn forget_environment(&mut self) {
        for named in [&mut self.servers.redis.0, &mut self.servers.sql.0] {
            if !named.is_on_command_line() {
                *named = NamedAddress::default();
            }
        }
    }
}

impl ServerAddressArgs {
    /// Returns whether the command line names a server; one in the environment alone is of other commands.
    pub(crate) fn are_on_command_line(&self) -> bool {
        self.redis.0.is_on_command_line() || self.sql.0.is_on_command_line()
    }

    /// Reads the files that are named. Warns of a password in the arguments. Fails with the problems of both addresses.
    pub(crate) fn read_over(&self, transport: &Transport) -> Result<StoreAddresses, Failure> {
        let mut problems = Problems::default();
        let (redis, sql) = (problems.take(self.redis.read()), problems.take(self.sql.read()));
        problems.end()?;
        let (redis, sql) = (redis.flatten(), sql.flatten());
        if redis.is_some() && sql.is_none() {
            return Err(Failure::Usage(anyhow!(
                "--redis needs --sql: Redis decides the order, and what was told is kept in a database"
            )));
        }
        let mut problems = Problems::default();
        let redis = redis.and_then(|url| problems.take(transport.redis(&url)));
        let sql = sql.and_then(|url| problems.take(transport.sql(&url)));
        problems.end()?;
        Ok(StoreAddresses { redis, sql })
    }
}

/// Redis or Valkey: `--redis` or `--redis-file`.
pub(crate) struct RedisAddressArgs(NamedAddress);

#[derive(Args)]
struct RedisFlags {
    /// Redis or Valkey of a cluster, as redis://…, redis+sentinel://… or redis+cluster://…, with rediss for TLS; with --sql
    #[arg(long, env = "FIRSTCOME_REDIS", value_name = "URL", hide_env_values = true)]
    redis: Option<String>,
    /// File that contains the address of Redis, for an address with a password
    #[arg(long, env = "FIRSTCOME_REDIS_FILE", value_name = "FILE")]
    redis_file: Option<PathBuf>,
}

impl RedisAddressArgs {
    /// Reads the address, if one is named.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        self.0.read("--redis", PerFile::One)
    }
}

/// The database: `--sql` or `--sql-file`.
pub(crate) struct SqlAddressArgs(NamedAddress);

#[derive(Args)]
struct SqlFlags {
    /// Database, as postgres://… or mysql://…. With --redis it has everything, else members and listings alone; keys of callers
    /// are then in --data
    #[arg(long, env = "FIRSTCOME_SQL", value_name = "URL", hide_env_values = true)]
    sql: Option<String>,
    /// File that contains the address of the database, for an address with a password
    #[arg(long, env = "FIRSTCOME_SQL_FILE", value_name = "FILE")]
    sql_file: Option<PathBuf>,
}

impl SqlAddressArgs {
    /// Reads the address, if one is named.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        self.0.read("--sql", PerFile::One)
    }

    /// Reads the address, for a command that needs one.
    pub(crate) fn read_required(&self) -> Result<String, Failure> {
        self.read()?.ok_or_else(missing_sql)
    }
}

/// Returns the failure of a command that needs a database.
pub(crate) fn missing_sql() -> Failure {
    Failure::Usage(anyhow!("the database is missing: give --sql URL or --sql-file FILE"))
}

/// The stores of locks: `--store` or `--store-file`.
pub(crate) struct LockStoreArgs(NamedAddress);

#[derive(Args)]
struct LockStoreFlags {
    /// Where the locks are: a directory, redis://…, etcd://…, postgres://…; redis:// 3 to 9 times for a quorum [default:
    /// a directory of the user]
    ///
    /// Without it all commands of one user on this machine share a directory, which is made when it is first used: for root
    /// /var/lib/firstcome/locks, else $XDG_STATE_HOME/firstcome/locks or ~/.local/state/firstcome/locks. Commands of different
    /// users, and those under sudo, need a --store to exclude each other.
    ///
    /// Over several independent servers the lock belongs to the caller to which a majority of them has granted it. In
    /// FIRSTCOME_STORE their addresses are separated by spaces.
    #[arg(long, env = "FIRSTCOME_STORE", value_name = "DIR|URL", hide_env_values = true)]
    store: Vec<String>,
    /// File that contains the addresses of the store, for an address with a password
    #[arg(long, env = "FIRSTCOME_STORE_FILE", value_name = "FILE")]
    store_file: Option<PathBuf>,
}

impl LockStoreFlags {
    /// Returns the given addresses, a line each: no address contains the end of a line.
    fn addresses(&self) -> Option<String> {
        (!self.store.is_empty()).then(|| self.store.join("\n"))
    }
}

impl LockStoreArgs {
    /// Returns whether the command line names a store.
    pub(crate) fn are_on_command_line(&self) -> bool {
        self.0.is_on_command_line()
    }

    /// Reads the addresses: none for the default directory.
    pub(crate) fn read(&self) -> Result<Vec<String>, Failure> {
        let texts = self.0.read("--store", PerFile::Several)?;
        Ok(texts.iter().flat_map(|texts| texts.split('\n')).map(str::to_owned).collect())
    }
}

/// Implements the traits of clap for a pair of flags, one of which names an address and the other one its file.
macro_rules! named_address {
    ($args:ident, $flags:ident, $given:expr, $address:ident, $file:ident) => {
        impl FromArgMatches for $args {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                let flags = $flags::from_arg_matches(matches)?;
                let source = |name| matches.value_source(name);
                let given: fn(&$flags) -> Option<String> = $given;
                let address = given(&flags).zip(source(stringify!($address)));
                Ok(Self(NamedAddress::of(address, flags.$file.zip(source(stringify!($file))))))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Args for $args {
            fn augment_args(command: Command) -> Command {
                $flags::augment_args(command)
            }

            fn augment_args_for_update(command: Command) -> Command {
                $flags::augment_args_for_update(command)
            }
        }
    };
}

named_address!(RedisAddressArgs, RedisFlags, |flags| flags.redis.clone(), redis, redis_file);
named_address!(SqlAddressArgs, SqlFlags, |flags| flags.sql.clone(), sql, sql_file);
named_address!(LockStoreArgs, LockStoreFlags, LockStoreFlags::addresses, store, store_file);

/// How an address is named. A flag takes precedence over a variable, and that over the settings file, whether they
/// name the address or its file.
#[derive(Default)]
enum NamedAddress {
    #[default]
    None,
    Url(String, ValueSource),
    File(PathBuf, ValueSource),
    /// By the same source as an address and as a file.
    Both(ValueSource),
}

impl NamedAddress {
    fn of(url: Option<(String, ValueSource)>, file: Option<(PathBuf, ValueSource)>) -> Self {
        match (url, file) {
            (None, None) => Self::None,
            (Some((_, by)), Some((_, of_file))) if by == of_file => Self::Both(by),
            (Some((url, by)), file) if file.as_ref().is_none_or(|(_, of_file)| *of_file < by) => Self::Url(url, by),
            (_, Some((file, by))) => Self::File(file, by),
            (Some((url, by)), None) => Self::Url(url, by),
        }
    }

    fn is_on_command_line(&self) -> bool {
        match self {
            Self::None => false,
            Self::Url(_, by) | Self::File(_, by) | Self::Both(by) => *by == ValueSource::CommandLine,
        }
    }

    fn read(&self, flag: &str, per_file: PerFile) -> Result<Option<String>, Failure> {
        match self {
            Self::None => Ok(None),
            Self::Url(url, by) => {
                if *by == ValueSource::CommandLine && has_password(url) {
                    warn(&format!(
                        "the password in {flag} can be read by other users of this machine, in the list of processes: put the address \
                         into a file that only this user can read, and name it with {flag}-file"
                    ));
                }
                Ok(Some(url.clone()))
            }
            Self::File(path, _) => of_file(path, flag, per_file).map(Some).map_err(Failure::Usage),
            Self::Both(by) => Err(Failure::Usage(both(flag, *by))),
        }
    }
}

fn both(flag: &str, by: ValueSource) -> anyhow::Error {
    let key = flag.trim_start_matches('-');
    let (address, file) = match by {
        ValueSource::CommandLine => (flag.to_owned(), format!("{flag}-file")),
        ValueSource::EnvVariable => {
            let variable = format!("FIRSTCOME_{}", key.to_ascii_uppercase());
            (variable.clone(), format!("{variable}_FILE"))
        }
        _ => (format!("{key} in the settings file"), format!("{key}-file")),
    };
    anyhow!("set {address} or {file}, not both")
}

/// How many addresses a file contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PerFile {
    One,
    /// One or more, separated by spaces or ends of lines.
    Several,
}

/// Reads the address in a file. No error repeats its content.
fn of_file(path: &Path, flag: &str, per_file: PerFile) -> anyhow::Result<String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{flag}-file: cannot read {shown}"))?;
    let addresses: Vec<&str> = text.split_whitespace().collect();
    ensure!(!addresses.is_empty(), "{flag}-file: {shown} is empty; write one address into it");
    ensure!(
        addresses.len() == 1 || per_file == PerFile::Several,
        "{flag}-file: {shown} contains more than one address; write one address into it, without a name before it"
    );
    Ok(addresses.join(" "))
}

/// Returns the value of a flag without user and password.
pub(crate) fn shown(flag: &str, value: &str) -> String {
    if !value.contains("://") {
        // An address that is none may be a password.
        return if ["redis", "sql"].contains(&flag) { "***".to_owned() } else { value.to_owned() };
    }
    match value.parse::<LockAddress>() {
        Ok(address) if value.contains('@') => address.to_string().replacen("://", "://***@", 1),
        Ok(address) => address.to_string(),
        Err(_) => "***".to_owned(),
    }
}

/// Warns of keys and passwords in the arguments of `firstcome drill`.
pub(crate) fn warn_of_drill(matches: &ArgMatches) {
    let event = matches.subcommand_matches("drill").and_then(ArgMatches::subcommand);
    let Some((_, event)) = event else { return };
    for (flag, name) in [("--admin-key", "admin_key"), ("--service-key", "service_key")] {
        if event.value_source(name) == Some(ValueSource::CommandLine) {
            let variable = format!("FIRSTCOME_DRILL_{}", name.to_ascii_uppercase());
            warn(&format!(
                "the key in {flag} can be read by other users of this machine, in the list of processes: put it into a file that \
                 only this user can read, and name it with {flag}-file, or set {variable}"
            ));
        }
    }
    for (flag, name) in [("--redis", "redis"), ("--sql", "sql")] {
        let url = event.get_one::<String>(name).filter(|url| has_password(url));
        if url.is_some() && event.value_source(name) == Some(ValueSource::CommandLine) {
            let variable = format!("FIRSTCOME_DRILL_{}", name.to_ascii_uppercase());
            warn(&format!(
                "the password in {flag} can be read by other users of this machine, in the list of processes: set {variable} instead"
            ));
        }
    }
}

/// Whether an address contains a password. An address that cannot be parsed counts as one with a password if it may
/// contain one.
fn has_password(urls: &str) -> bool {
    urls.split_whitespace().any(one_has_password)
}

fn one_has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let of_user = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    of_user || rest.to_ascii_lowercase().contains("password=")
}

/// Tells the operator of a danger: in the log of a service, else on standard error.
pub(crate) fn warn(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{line}");
    } else {
        say(&format!("warning: {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_seen_in_every_form_of_address() {
        for (url, expected) in [
            ("redis://h:1", false),
            ("redis://user@h:1", false),
            ("redis://:s3cret@h", true),
            ("redis+sentinel://h/main?sentinel_password=s3cret", true),
            ("postgres://ann:s3:c@ret@h/shop", true),
            ("postgres://ann@h/shop?sslmode=require", false),
            ("ann:s3cret@h", true),
        ] {
            assert_eq!(has_password(url), expected, "{url}");
        }
    }

    #[test]
    fn a_nearer_source_decides_and_one_source_names_one_of_both() {
        let chosen = |url: Option<ValueSource>, file: Option<ValueSource>| match NamedAddress::of(
            url.map(|by| ("u".into(), by)),
            file.map(|by| ("f".into(), by)),
        ) {
            NamedAddress::None => "none",
            NamedAddress::Url(..) => "url",
            NamedAddress::File(..) => "file",
            NamedAddress::Both(_) => "both",
        };
        let (flag, variable) = (Some(ValueSource::CommandLine), Some(ValueSource::EnvVariable));
        let settings = Some(ValueSource::DefaultValue);
        for (url, file, expected) in [
            (None, None, "none"),
            (flag, None, "url"),
            (None, settings, "file"),
            (flag, flag, "both"),
            (variable, variable, "both"),
            (settings, settings, "both"),
            (flag, variable, "url"),
            (variable, flag, "file"),
            (variable, settings, "url"),
            (settings, variable, "file"),
        ] {
            assert_eq!(chosen(url, file), expected, "{url:?} {file:?}");
        }
    }
}
