//! Starts servers for benchmarks, drills and tests: PostgreSQL, MariaDB, Redis and etcd. Each is a child process with its own
//! directory and port. [`Sentinels`] and [`Cluster`] of Redis and [`EtcdCluster`] consist of several servers.
//!
//! # Promises
//! - When [`Server::start`] returns, this very server answers, not a process that took the port in the meantime.
//! - The drop of a [`Server`] ends its process, by the process id, and removes its directory.
//! - [`Server::kill`] and [`Server::restart`] keep files and port. A [`Durability::Durable`] server keeps all acknowledged
//!   writes, a [`Durability::Quick`] one most of them. [`Server::restart_empty`] keeps only the port.
//! - [`Server::keep_copy`] copies the files of a server. [`Server::restore`] starts it on the copy, as after a fail-over to a
//!   replica that was behind, or after a restored backup.
//!
//! # Not promised
//! - An end of the server if this process is killed: then no process is left to end it.
//! - Secrecy: every user of this machine may connect, without a password.

#[cfg(feature = "certificates")]
mod certificates;
mod cluster;
mod copies;
mod etcd_cluster;
mod install;
mod launch;
mod redis_node;
mod sentinels;
mod skip;
mod tls;

#[cfg(feature = "certificates")]
pub use certificates::{Authority, Flaw};
pub use cluster::{Cluster, SLOTS};
pub use copies::ServerCopy;
pub use etcd_cluster::EtcdCluster;
pub use sentinels::{GONE_SOON, PRIMARY_NAME, Sentinels};
pub use skip::{SKIPPED_FILE, machine_has};
pub use tls::CertificateFiles;

use install::{Installation, Part};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fmt, fs, io};
use tempfile::TempDir;

/// The longest time until a server answers, with its recovery.
const START: Duration = Duration::from_secs(60);
/// The longest time of one request to a server.
const QUESTION: Duration = Duration::from_secs(5);
/// The pause between two checks whether a server answers.
const PAUSE: Duration = Duration::from_millis(5);
/// How many ports are tried: another process may take a port between its choice and the start.
const PORTS: u32 = 10;
/// How many bytes of a server's output an error repeats.
const SAYS_BYTES_MAX: usize = 1_000;

/// The kind of a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// Redis.
    Redis,
    /// etcd; a single member unless it is part of a cluster.
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

/// Which failures an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It is on the disk: it survives a crash of the machine.
    Durable,
    /// It survives a crash of the server at most, and for Redis not even that. Small and fast, for tests. (etcd has no such
    /// setting; here it only allows leases as short as a second.)
    Quick,
}

/// The options of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which failures an acknowledged write survives.
    pub durability: Durability,
    /// The directory in which the server's directory is created; without it, the system's directory for temporary files. If this
    /// process is root, PostgreSQL runs as the user postgres, who needs access to it.
    pub parent: Option<PathBuf>,
    /// More settings, which override all others: `fsync=off` for PostgreSQL, `innodb-flush-log-at-trx-commit=2` for MariaDB,
    /// `maxmemory=10mb` for Redis, `quota-backend-bytes=16777216` for etcd.
    pub settings: Vec<String>,
    /// The certificate with which Redis and a single etcd offer TLS at a second port ([`Server::tls_port`]), and which sentinels,
    /// replicas and nodes of a cluster then use among themselves. Other kinds offer TLS by [`CertificateFiles::settings`].
    pub tls: Option<CertificateFiles>,
}

impl Options {
    /// Makes options with this durability and no other settings.
    pub const fn new(durability: Durability) -> Self {
        Self { durability, parent: None, settings: Vec::new(), tls: None }
    }

    /// Sets the directory in which the server's directory is created.
    #[must_use]
    pub fn within(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Its program is not on this machine.
    #[error("{0} is not installed on this machine")]
    NotInstalled(Kind),
    /// The server does not start, or does not answer.
    #[error("{kind} does not start: {says}")]
    Start {
        /// The kind of the server.
        kind: Kind,
        /// The end of its output.
        says: String,
    },
    /// The directory cannot be created, or the program cannot be run.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Where a server listens.
#[derive(Clone, Copy)]
struct Ports {
    port: u16,
    /// The port for TLS, of a Redis or an etcd that has one.
    tls_port: Option<u16>,
}

/// A server that runs as a child process.
pub struct Server {
    kind: Kind,
    child: Child,
    command: Command,
    url: String,
    /// The port for TLS, of a Redis or an etcd that has one.
    tls_port: Option<u16>,
    data: PathBuf,
    log: PathBuf,
    /// How many copies of its files were made.
    copies: u32,
    // Removed after the server has ended: see `drop`.
    _directory: TempDir,
}

impl Server {
    /// Returns whether this machine can start a server of this kind.
    pub fn is_installed(kind: Kind) -> bool {
        Installation::find(kind).is_some()
    }

    /// Starts an empty server, and returns when it answers. Call it within a Tokio runtime with time and IO. Blocks its thread
    /// for about a second while it creates the files of a database.
    ///
    /// Cancel-safe: a dropped future ends the server that it has started.
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
            let tls_port = options
                .tls
                .as_ref()
                .filter(|_| matches!(kind, Kind::Redis | Kind::Etcd))
                .map(|_| part.free_port())
                .transpose()?;
            let ports = Ports { port, tls_port };
            let mut command = installation.command(part, directory.path(), &data, ports, options)?;
            let log = directory.path().join("log");
            let child = spawn(&mut command, &log)?;
            let url = url(kind, port);
            let mut server = Self { kind, child, command, url, tls_port, data, log, copies: 0, _directory: directory };
            if server.comes_up().await? {
                return Ok(server);
            }
            says = server.said();
        }
        Err(ServerError::Start { kind, says })
    }

    /// Returns the kind of the server.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the address of the server, with a user and a database if the kind has these.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the port for TLS of a Redis or an etcd that was started with [`Options::tls`].
    pub const fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// Returns the id of the server's process: of the first one, if there are several.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server without a shutdown: what is not on disk is lost. Does nothing if it has ended.
    pub fn kill(&mut self) {
        // An error means that the server has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills the server if it still runs, and starts it again at the same port without its files, as after the loss of its disk.
    /// Returns when it answers.
    ///
    /// After an error the server may have ended, with its files or without.
    pub async fn restart_empty(&mut self) -> Result<(), ServerError> {
        let installation = Installation::find(self.kind).ok_or(ServerError::NotInstalled(self.kind))?;
        self.kill();
        let directory = self.data.parent().ok_or_else(|| io::Error::other("its files have no directory"))?.to_owned();
        empty(&self.data).await?;
        installation.prepare(&directory, &self.data)?;
        self.restart().await
    }

    /// Kills the server if it still runs, and starts it again on the same files and port. Returns when it answers.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        let again = async {
            loop {
                self.child = spawn(&mut self.command, &self.log)?;
                // Other processes of the killed server may hold the files for a moment. Then the new one ends, and starts again.
                if self.comes_up().await? {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let told = tokio::time::timeout(START, again).await;
        told.unwrap_or_else(|_| Err(ServerError::Start { kind: self.kind, says: self.said() }))
    }

    /// Waits until this very server answers. Returns false if it ends instead.
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

    /// Returns the name of a member of etcd.
    fn name(&self) -> String {
        install::name_of(&self.data)
    }

    /// Returns the end of the server's output.
    fn said(&self) -> String {
        end_of(&fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT makes PostgreSQL end its other processes and its shared memory at once, which SIGKILL would leave.
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

/// Removes all files of a killed server, whose other processes may still write for a moment.
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
        // The server may resolve a relative path from another directory.
        Some(parent) => builder.tempdir_in(parent.canonicalize()?),
        None => builder.tempdir(),
    }
}

/// Starts the server. Its output goes into a file, so that an error can repeat it.
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

/// Finds a program that comes with PostgreSQL, like `pg_receivewal`; `None` if it is not on this machine.
pub fn postgres_program(name: &str) -> Option<PathBuf> {
    install::postgres_program(name)
}

/// Finds a port at which no process listens.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Makes the error for a group of servers that does not come up.
fn never(says: impl Into<String>) -> ServerError {
    ServerError::Start { kind: Kind::Redis, says: says.into() }
}
