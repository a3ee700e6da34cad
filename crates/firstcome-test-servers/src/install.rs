//! Finds the servers' programs, and builds their command lines.

use crate::{Durability, Kind, Options, Ports, ServerError};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// The user who owns the data in PostgreSQL.
pub(crate) const USER: &str = "firstcome";
/// The database of MariaDB.
pub(crate) const DATABASE: &str = "firstcome";
/// The distance from a node's port to the port for other nodes. Redis 6.2 cannot use another one.
const BUS: u16 = 10_000;
/// The system user that PostgreSQL runs as if this process is root: PostgreSQL refuses to run as root.
const POSTGRES_USER: &str = "postgres";

/// The role of a server among others.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    /// The only server.
    Alone,
    /// A node of a Redis Cluster.
    Node,
    /// A member of etcd with this port for other members. `others` are the earlier members, each as `NAME=URL`.
    Member { peer: u16, others: &'a [String] },
    /// A sentinel with these settings.
    Sentinel(&'a [String]),
}

impl Part<'_> {
    /// Finds a port at which no process listens. For a node, the port for other nodes is free too.
    pub(crate) fn free_port(self) -> io::Result<u16> {
        loop {
            let port = crate::free_port()?;
            let second = || TcpListener::bind(("127.0.0.1", port.checked_add(BUS)?)).ok();
            if !matches!(self, Self::Node) || second().is_some() {
                return Ok(port);
            }
        }
    }
}

/// The programs of one kind of server.
pub(crate) struct Installation {
    kind: Kind,
    /// The program of the server itself.
    program: PathBuf,
}

impl Installation {
    pub(crate) fn find(kind: Kind) -> Option<Self> {
        let program = match kind {
            Kind::Postgres => postgres(),
            Kind::MariaDb => on_path("mariadbd"),
            Kind::Redis => on_path("redis-server"),
            Kind::Etcd => on_path("etcd"),
        };
        program.map(|program| Self { kind, program })
    }

    /// Creates the files that the server needs in an empty directory.
    pub(crate) fn prepare(&self, directory: &Path, data: &Path) -> Result<(), ServerError> {
        match self.kind {
            Kind::Postgres => self.initdb(directory, data),
            Kind::MariaDb => self.bootstrap(directory, data),
            Kind::Redis | Kind::Etcd => Ok(()),
        }
    }

    fn initdb(&self, directory: &Path, data: &Path) -> Result<(), ServerError> {
        let root = rustix::process::geteuid().is_root();
        if root {
            let (user, group) = (number_of("-u")?, number_of("-g")?);
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
            chown(data, Some(user), Some(group))?;
        }
        let mut initdb = self.as_postgres(&self.program.with_file_name("initdb"), directory)?;
        initdb.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--username", USER, "--pgdata"]);
        let output = initdb.arg(data).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let mut says = crate::end_of(&output.stderr);
        if root && says.contains("ermission denied") {
            says.push_str(&format!(" (as root it runs as the user {POSTGRES_USER}, who must be able to get there)"));
        }
        Err(ServerError::Start { kind: self.kind, says })
    }

    /// Creates the database, which is only a directory. Without grant tables the server needs no other tables, and no logins.
    /// Starts and ends the server once: a server that is killed during its first run cannot recover its files.
    fn bootstrap(&self, directory: &Path, data: &Path) -> Result<(), ServerError> {
        fs::create_dir(data.join(DATABASE))?;
        let mut bootstrap = Command::new(&self.program);
        bootstrap.args(["--no-defaults", "--bootstrap", "--skip-grant-tables", "--skip-log-bin"]);
        bootstrap.args(["--innodb-buffer-pool-size=16M", &format!("--datadir={}", data.display())]);
        bootstrap.arg(format!("--tmpdir={}", directory.display()));
        if rustix::process::geteuid().is_root() {
            bootstrap.arg("--user=root");
        }
        // The server reads statements from its input, which is empty.
        let output = bootstrap.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(ServerError::Start { kind: self.kind, says: crate::end_of(&output.stderr) })
    }

    fn as_postgres(&self, program: &Path, directory: &Path) -> io::Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(directory);
        if rustix::process::geteuid().is_root() {
            command.uid(number_of("-u")?).gid(number_of("-g")?);
        }
        Ok(command)
    }

    /// Builds the command line of the server.
    pub(crate) fn command(
        &self,
        part: Part<'_>,
        directory: &Path,
        data: &Path,
        Ports { port, tls_port }: Ports,
        options: &Options,
    ) -> io::Result<Command> {
        let secure = options.tls.as_ref().zip(tls_port).map(|(files, port)| files.of_redis(port)).unwrap_or_default();
        match (self.kind, part) {
            (Kind::Postgres, _) => self.postgres(directory, data, port, options),
            (Kind::MariaDb, _) => Ok(self.mariadb(directory, data, port, options)),
            (Kind::Etcd, Part::Member { peer, others }) => Ok(self.etcd(data, port, (peer, others), &[], options)),
            // A single member talks to no other member, so any port will do.
            (Kind::Etcd, _) => {
                let tls = options.tls.as_ref().zip(tls_port).map(|(files, port)| files.of_etcd(port));
                Ok(self.etcd(data, port, (0, &[]), &tls.unwrap_or_default(), options))
            }
            (Kind::Redis, Part::Sentinel(settings)) => {
                let settings: Vec<String> = settings
                    .iter()
                    .cloned()
                    .chain(secure.iter().map(|(name, value)| format!("{name} {value}")))
                    .collect();
                self.sentinel(directory, data, port, &settings)
            }
            (Kind::Redis, part) => {
                let mut command = self.redis(data, port, &secure, options);
                if matches!(part, Part::Node) {
                    command.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]);
                }
                Ok(command)
            }
        }
    }

    /// Builds the command line of a sentinel. It writes its state into its configuration file, and reads it at the next start.
    fn sentinel(&self, directory: &Path, data: &Path, port: u16, settings: &[String]) -> io::Result<Command> {
        let file = directory.join("sentinel.conf");
        let own = [format!("port {port}"), "bind 127.0.0.1".to_owned(), format!("dir \"{}\"", data.display())];
        let lines = own.iter().chain(settings).map(|line| format!("{line}\n"));
        fs::write(&file, lines.collect::<String>())?;
        let mut command = Command::new(&self.program);
        command.arg(file).arg("--sentinel");
        Ok(command)
    }

    fn postgres(&self, directory: &Path, data: &Path, port: u16, options: &Options) -> io::Result<Command> {
        let mut command = self.as_postgres(&self.program, directory)?;
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let always = ["listen_addresses=127.0.0.1", "unix_socket_directories="];
        let quick: &[&str] = match options.durability {
            Durability::Durable => &["fsync=on", "synchronous_commit=on"],
            Durability::Quick => &["fsync=off", "shared_buffers=16MB"],
        };
        // If a setting occurs twice, the later one counts.
        let settings = always.iter().chain(quick).copied().chain(options.settings.iter().map(String::as_str));
        command.args(settings.flat_map(|setting| ["-c", setting]));
        Ok(command)
    }

    fn mariadb(&self, directory: &Path, data: &Path, port: u16, options: &Options) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--no-defaults", "--skip-grant-tables", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args([format!("--port={port}"), format!("--datadir={}", data.display())]);
        command.args(["socket", "pid-file"].map(|file| format!("--{file}={}", directory.join(file).display())));
        // A server that starts deletes what others have in the system's directory for temporary tables.
        command.args(["--skip-log-bin", &format!("--tmpdir={}", directory.display())]);
        // MariaDB 11.4 otherwise makes an RSA key of 4 096 bits at each start, which takes up to 11 s here. A later `ssl-cert` turns
        // TLS on again.
        command.arg("--skip-ssl");
        command.args(match options.durability {
            Durability::Durable => ["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=128M"],
            Durability::Quick => ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"],
        });
        command.args(options.settings.iter().map(|setting| format!("--{setting}")));
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        command
    }

    fn etcd(
        &self,
        data: &Path,
        port: u16,
        (peer, others): (u16, &[String]),
        secure: &[(&str, String)],
        options: &Options,
    ) -> Command {
        let (name, mut clients) = (name_of(data), format!("http://127.0.0.1:{port}"));
        let peers = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(&self.program);
        for (name, value) in secure {
            match *name {
                "url" => clients.push_str(&format!(",{value}")),
                name => drop(command.arg(format!("--{name}={value}"))),
            }
        }
        command.arg(format!("--data-dir={}", data.display())).arg(format!("--name={name}"));
        command.args(["listen", "advertise"].map(|which| format!("--{which}-client-urls={clients}")));
        command.args(["listen", "initial-advertise"].map(|which| format!("--{which}-peer-urls={peers}")));
        let all: Vec<String> = others.iter().cloned().chain([format!("{name}={peers}")]).collect();
        command.arg(format!("--initial-cluster={}", all.join(",")));
        // A member that was just added counts before it runs. Without this, the cluster would refuse the next one.
        command.arg("--strict-reconfig-check=false");
        if !others.is_empty() {
            command.arg("--initial-cluster-state=existing");
        }
        if cfg!(target_arch = "aarch64") {
            // Version 3.4 requires this variable on arm64.
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        if options.durability == Durability::Quick {
            // The shortest lease is one and a half times the election timeout, in whole seconds.
            command.args(["--heartbeat-interval=50", "--election-timeout=500"]);
        }
        command.args(options.settings.iter().map(|setting| format!("--{setting}")));
        command
    }

    fn redis(&self, data: &Path, port: u16, secure: &[(&str, String)], options: &Options) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--dir"]);
        command.arg(data).args(match options.durability {
            Durability::Durable => ["--appendonly", "yes", "--appendfsync", "always"],
            Durability::Quick => ["--appendonly", "no", "--appendfsync", "no"],
        });
        for (name, value) in secure {
            command.args([&format!("--{name}"), value]);
        }
        for setting in &options.settings {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            command.args([&format!("--{name}"), value]);
        }
        command
    }
}

/// Returns the name of an etcd member, which no other server has.
pub(crate) fn name_of(data: &Path) -> String {
    data.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

/// Finds the server of PostgreSQL. Debian installs it outside the path.
fn postgres() -> Option<PathBuf> {
    let beside = |program: &Path| program.with_file_name("initdb").exists();
    if let Some(program) = on_path("postgres").filter(|program| beside(program)) {
        return Some(program);
    }
    let versions =
        fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|version| version.path().join("bin/postgres"));
    let version = |path: &PathBuf| path.parent()?.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    versions.filter(|path| path.exists() && beside(path)).max_by_key(version)
}

/// Finds a program that comes with PostgreSQL.
pub(crate) fn postgres_program(name: &str) -> Option<PathBuf> {
    // The server on the path may be a link into the directory with all programs.
    let beside = postgres().and_then(|server| fs::canonicalize(server).ok()).map(|server| server.with_file_name(name));
    beside.filter(|program| program.is_file()).or_else(|| on_path(name))
}

/// Finds a program on the path, or in the system's directories.
fn on_path(program: &str) -> Option<PathBuf> {
    let mut directories: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    directories.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.into_iter().map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Returns the ids of the user as whom PostgreSQL runs if this process is root, and of its group.
#[cfg(feature = "certificates")]
pub(crate) fn postgres_user() -> io::Result<(u32, u32)> {
    Ok((number_of("-u")?, number_of("-g")?))
}

/// Returns the id of the user [`POSTGRES_USER`], or of its group.
fn number_of(what: &str) -> io::Result<u32> {
    let said = Command::new("id").args([what, POSTGRES_USER]).output()?.stdout;
    let number = String::from_utf8_lossy(&said).trim().parse().ok();
    number.ok_or_else(|| io::Error::other(format!("there is no user {POSTGRES_USER}, as whom PostgreSQL is to run")))
}
