//! Servers of one's own, for benchmarks, drills and tests: PostgreSQL, MariaDB, Redis and etcd, each a child process with a
//! directory and a port of its own; and several that belong together: [`Sentinels`] and [`Cluster`] of Redis, [`EtcdCluster`].
//!
//! # Promises
//! - What [`Server::start`] returns answers, and it is this server that answers: not one that took the port meanwhile.
//! - A server is ended, by its id, when its value is dropped, and its directory is removed then.
//! - [`Server::kill`] and [`Server::restart`] keep files and port: what a [`Durability::Durable`] server has acknowledged
//!   is there again, what a [`Durability::Quick`] one has acknowledged mostly. [`Server::restart_empty`] keeps the port alone.
//! - [`Server::keep_copy`] keeps the files of a server as they are; [`Server::restore`] starts it on them again, as after a
//!   fail-over to a copy that was behind, or a restored backup.
//!
//! # Not promised
//! - An end of the server if this process is killed: no process is left then who could end it.
//! - Any secrecy: everybody on this machine may connect, without a password.

mod cluster;
mod copies;
mod etcd_cluster;
mod install;
mod launch;
mod redis_node;
mod sentinels;
mod skip;

pub use cluster::{Cluster, SLOTS};
pub use copies::ServerCopy;
pub use etcd_cluster::EtcdCluster;
pub use sentinels::{GONE_SOON, PRIMARY_NAME, Sentinels};
pub use skip::{SKIPPED_FILE, machine_has};

use install::{Installation, Part};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fmt, fs, io};
use tempfile::TempDir;

/// How long a server may take until it answers, its recovery included.
const START: Duration = Duration::from_secs(60);
/// How long one question to it may take.
const QUESTION: Duration = Duration::from_secs(5);
/// Between two looks whether it answers.
const PAUSE: Duration = Duration::from_millis(5);
/// Ports that are tried: between the look at one and the start another process may take it.
const PORTS: u32 = 10;
/// How much of what a server said is repeated.
const SAYS_BYTES_MAX: usize = 1_000;

/// What kind of server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// Redis.
    Redis,
    /// etcd; by itself one member alone.
    Etcd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::Redis => "Redis",
            Self::Etcd => "etcd",
        })
    }
}

/// What an acknowledged write is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It is on the disk: it survives a crash of the machine.
    Durable,
    /// It survives a crash of the server at most, of Redis not even that. Small and fast, for tests. (etcd cannot be told to be less
    /// durable; it is told to have leases as short as a second.)
    Quick,
}

/// How a server is started.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What an acknowledged write is worth.
    pub durability: Durability,
    /// Where its directory is made: a directory on a disk. That of the system for temporary files without this. As root,
    /// PostgreSQL runs as the user postgres, who must be able to get there.
    pub parent: Option<PathBuf>,
    /// More settings, after which nothing is set: `fsync=off` for PostgreSQL, `innodb-flush-log-at-trx-commit=2` for
    /// MariaDB, `maxmemory=10mb` for Redis, `quota-backend-bytes=16777216` for etcd.
    pub settings: Vec<String>,
}

impl Options {
    /// So durable, and nothing else.
    pub const fn new(durability: Durability) -> Self {
        Self { durability, parent: None, settings: Vec::new() }
    }

    /// With its directory in this one.
    #[must_use]
    pub fn within(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Its program is not on this machine.
    #[error("{0} is not installed on this machine")]
    NotInstalled(Kind),
    /// It does not start, or does not answer.
    #[error("{kind} does not start: {says}")]
    Start {
        /// Which.
        kind: Kind,
        /// The end of what it said.
        says: String,
    },
    /// Its directory cannot be made, or its program cannot be run.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A server that runs as a child process.
pub struct Server {
    kind: Kind,
    child: Child,
    command: Command,
    url: String,
    data: PathBuf,
    log: PathBuf,
    /// How many copies of its files were made.
    copies: u32,
    // Removed after the server has ended: see `drop`.
    _directory: TempDir,
}

impl Server {
    /// Whether one of this kind can be started here.
    pub fn is_installed(kind: Kind) -> bool {
        Installation::find(kind).is_some()
    }

    /// Starts an empty one and returns when it answers. Within a Tokio runtime with time and IO; holds up its thread for
    /// the second or so in which the files of a database are made.
    ///
    /// Cancel-safe: a future that is dropped ends what it has started.
    pub async fn start(kind: Kind, options: &Options) -> Result<Self, ServerError> {
        Self::start_as(Part::Alone, kind, options).await
    }

    async fn start_as(part: Part<'_>, kind: Kind, options: &Options) -> Result<Self, ServerError> {
        let installation = Installation::find(kind).ok_or(ServerError::NotInstalled(kind))?;
        let mut says = String::new();
        for _ in 0..PORTS {
            let directory = make_directory(options)?;
            let data = directory.path().join("data");
            fs::create_dir(&data)?;
            installation.prepare(directory.path(), &data)?;
            let port = part.free_port()?;
            let mut command = installation.command(part, directory.path(), &data, port, options)?;
            let log = directory.path().join("log");
            let child = spawn(&mut command, &log)?;
            let url = url(kind, port);
            let mut server = Self { kind, child, command, url, data, log, copies: 0, _directory: directory };
            if server.comes_up().await? {
                return Ok(server);
            }
            says = server.said();
        }
        Err(ServerError::Start { kind, says })
    }

    /// What kind it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its address, with a user and a database where there are such.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The id of its process: of the first one, where there are several.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it: no process is told, and what is not on disk is gone. No effect if it has ended.
    pub fn kill(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it still runs, and starts it again at the same port without anything that it had: as after the loss of its
    /// disk. Returns when it answers.
    ///
    /// An error may leave it ended, with its files or without.
    pub async fn restart_empty(&mut self) -> Result<(), ServerError> {
        let installation = Installation::find(self.kind).ok_or(ServerError::NotInstalled(self.kind))?;
        self.kill();
        let directory = self.data.parent().ok_or_else(|| io::Error::other("its files have no directory"))?.to_owned();
        empty(&self.data).await?;
        installation.prepare(&directory, &self.data)?;
        self.restart().await
    }

    /// Kills it if it still runs, and starts it again on the same files and the same port. Returns when it answers.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        let again = async {
            loop {
                self.child = spawn(&mut self.command, &self.log)?;
                // What the killed one left may still run for a moment, and hold the files: then the new one ends.
                if self.comes_up().await? {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let told = tokio::time::timeout(START, again).await;
        told.unwrap_or_else(|_| Err(ServerError::Start { kind: self.kind, says: self.said() }))
    }

    /// Waits until it answers, and it is this one that answers. `false` if it ends instead.
    async fn comes_up(&mut self) -> Result<bool, ServerError> {
        let (kind, url, data) = (self.kind, self.url.clone(), self.data.clone());
        let process = self.child.id();
        let up = async {
            while self.child.try_wait()?.is_none() {
                let asked = tokio::time::timeout(QUESTION, launch::answers(kind, &url, &data, process)).await;
                if asked == Ok(true) {
                    return Ok(true);
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(false)
        };
        match tokio::time::timeout(START, up).await {
            Ok(up) => up,
            Err(_) => Err(ServerError::Start { kind, says: self.said() }),
        }
    }

    /// As what a member of etcd knows itself.
    fn name(&self) -> String {
        install::name_of(&self.data)
    }

    /// The end of what it has said.
    fn said(&self) -> String {
        end_of(&fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // PostgreSQL then ends at once, and takes its other processes and its shared memory along, which a kill would leave.
        let signal = if self.kind == Kind::Postgres { Signal::QUIT } else { Signal::KILL };
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let told = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).map(|id| kill_process(id, signal));
            if told.is_none_or(|told| told.is_err()) {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

/// Removes all files of a server that was killed, whose other processes may still write for a moment.
async fn empty(data: &Path) -> Result<(), ServerError> {
    let emptied = async {
        while fs::remove_dir_all(data).is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    if tokio::time::timeout(QUESTION, emptied).await.is_err() {
        return Err(io::Error::other(format!("cannot remove {}", data.display())).into());
    }
    Ok(fs::create_dir(data)?)
}

fn end_of(log: &[u8]) -> String {
    String::from_utf8_lossy(&log[log.len().saturating_sub(SAYS_BYTES_MAX)..]).trim().to_owned()
}

fn make_directory(options: &Options) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("firstcome-server-");
    match &options.parent {
        // The server has its own idea of what a relative path is relative to.
        Some(parent) => builder.tempdir_in(parent.canonicalize()?),
        None => builder.tempdir(),
    }
}

/// What it says goes into a file, so that it can be repeated if it does not start.
fn spawn(command: &mut Command, log: &Path) -> io::Result<Child> {
    let out = fs::OpenOptions::new().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn()
}

fn url(kind: Kind, port: u16) -> String {
    match kind {
        Kind::Postgres => format!("postgres://{}@127.0.0.1:{port}/postgres", install::USER),
        Kind::MariaDb => format!("mysql://root@127.0.0.1:{port}/{}", install::DATABASE),
        Kind::Redis => format!("redis://127.0.0.1:{port}"),
        Kind::Etcd => format!("etcd://127.0.0.1:{port}"),
    }
}

/// A program that comes with PostgreSQL, as `pg_receivewal`; `None` if it is not on this machine.
pub fn postgres_program(name: &str) -> Option<PathBuf> {
    install::postgres_program(name)
}

/// A port at which no process listens.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What will not become of several servers that belong together.
fn never(says: impl Into<String>) -> ServerError {
    ServerError::Start { kind: Kind::Redis, says: says.into() }
}
