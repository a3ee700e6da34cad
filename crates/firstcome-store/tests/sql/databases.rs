//! Database servers of a test's own: PostgreSQL, and MariaDB.

use crate::server::{PATIENCE, free_port, wait_for};
use sqlx::{Connection, MySqlConnection, MySqlPool, PgConnection, PgPool};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server that runs as a child process with a directory of its own; ended, by its id, when it is dropped.
pub(crate) struct Running {
    child: Child,
    command: Command,
    kind: Kind,
    data: PathBuf,
    url: String,
    _directory: TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    MariaDb,
}

impl Running {
    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Kills it: nobody is told, and what is not on disk is gone.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it still runs, and starts it again in the same directory, at the same port. Returns when it answers.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        // What the killed one left may still run for a moment: then the new one ends.
        wait_for("the server to start again", async || {
            self.child = self.command.spawn().expect("the server starts");
            self.comes_up().await.then_some(())
        })
        .await;
    }

    /// Waits until it answers, and it is this one that answers: it names its directory. `false` if it ends instead, because
    /// somebody else took the port.
    async fn comes_up(&mut self) -> bool {
        wait_for("the server to answer", async || {
            if self.child.try_wait().expect("the child can be asked").is_some() {
                return Some(false);
            }
            let answered = tokio::time::timeout(PATIENCE, where_is(self.kind, &self.url)).await;
            let is_ours = |there: String| Path::new(there.trim_end_matches('/')) == self.data;
            answered.ok()?.is_ok_and(is_ours).then_some(true)
        })
        .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // PostgreSQL ends at once, and takes its shared memory along, which a kill would leave.
        let signal = if self.kind == Kind::Postgres { "-QUIT" } else { "-KILL" };
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        }
        let _ = self.child.wait();
    }
}

async fn where_is(kind: Kind, url: &str) -> Result<String, sqlx::Error> {
    match kind {
        Kind::Postgres => {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await
        }
        Kind::MariaDb => {
            let mut connection = MySqlConnection::connect(url).await?;
            sqlx::query_scalar("SELECT CONVERT(@@datadir USING utf8mb4)").fetch_one(&mut connection).await
        }
    }
}

/// Starts an empty PostgreSQL that is fast and forgets what a crash of the machine would lose. `None`, and a word about it,
/// where there is none; in CI it must be there.
pub(crate) async fn postgres() -> Option<(Running, PgPool)> {
    let running = postgres_with(&[]).await?;
    let pool = PgPool::connect(running.url()).await.expect("it answers");
    Some((running, pool))
}

/// The same with settings of one's own, such as `fsync=on`.
pub(crate) async fn postgres_with(settings: &[&str]) -> Option<Running> {
    let programs = postgres_programs();
    needed("PostgreSQL", programs.is_some())?;
    let programs = programs?;
    for _ in 0..10 {
        let (directory, data) = directory();
        let mut initdb = as_postgres(&programs.join("initdb"), directory.path(), &data);
        initdb.args(["--username=test", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--pgdata"]);
        assert!(initdb.arg(&data).status().expect("initdb runs").success(), "initdb fails");
        let port = free_port();
        let mut server = as_postgres(&programs.join("postgres"), directory.path(), &data);
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        let ours = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB"];
        // Of two settings of the same the later one counts.
        server.args(ours.iter().chain(settings).flat_map(|setting| ["-c", setting]));
        let url = format!("postgres://test@127.0.0.1:{port}/postgres");
        if let Some(running) = start(server, Kind::Postgres, url, directory, data).await {
            return Some(running);
        }
    }
    panic!("PostgreSQL does not start");
}

/// Starts an empty MariaDB that is fast and forgets what a crash of the machine would lose. `None`, and a word about it,
/// where there is none; in CI it must be there.
pub(crate) async fn mariadb() -> Option<(Running, MySqlPool)> {
    let running = mariadb_with(&[]).await?;
    let pool = MySqlPool::connect(running.url()).await.expect("it answers");
    Some((running, pool))
}

/// The same with settings of one's own, such as `innodb-flush-log-at-trx-commit=1`.
pub(crate) async fn mariadb_with(settings: &[&str]) -> Option<Running> {
    let program = find("mariadbd");
    needed("MariaDB", program.is_some())?;
    let program = program?;
    for _ in 0..10 {
        let (directory, data) = directory();
        // A directory is a database. Without tables of rights the server needs no preparation, and asks nobody who he is.
        fs::create_dir(data.join("test")).expect("a database");
        let port = free_port();
        let mut server = Command::new(&program);
        server.args(["--no-defaults", "--skip-grant-tables", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        server.args([&format!("--port={port}"), &format!("--datadir={}", data.display())]);
        server.args(["socket", "pid-file"].map(|file| format!("--{file}={}", directory.path().join(file).display())));
        server.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--skip-log-bin"]);
        server.args(settings.iter().map(|setting| format!("--{setting}")));
        if is_root() {
            server.arg("--user=root");
        }
        let url = format!("mysql://root@127.0.0.1:{port}/test");
        if let Some(running) = start(server, Kind::MariaDb, url, directory, data).await {
            return Some(running);
        }
    }
    panic!("MariaDB does not start");
}

async fn start(mut command: Command, kind: Kind, url: String, directory: TempDir, data: PathBuf) -> Option<Running> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the server starts");
    let mut running = Running { child, command, kind, data, url, _directory: directory };
    running.comes_up().await.then_some(running)
}

/// A directory for a server, and one in it for its data, which it owns.
fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory for the server");
    let data = directory.path().join("data");
    fs::create_dir(&data).expect("a directory for its data");
    (directory, data)
}

/// PostgreSQL does not run as root: there it is another user's.
fn as_postgres(program: &Path, directory: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(directory);
    if is_root() {
        let (user, group) = (number_of(&["-u", "postgres"]), number_of(&["-g", "postgres"]));
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("others may look into it");
        chown(data, Some(user), Some(group)).expect("root gives it away");
        command.uid(user).gid(group);
    }
    command
}

/// Where Debian has them is on nobody's path.
fn postgres_programs() -> Option<PathBuf> {
    if let Some(initdb) = find("initdb") {
        return initdb.parent().map(Path::to_owned);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|version| version.path().join("bin"));
    let version = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    versions.filter(|path| path.join("initdb").exists()).max_by_key(version)
}

fn find(program: &str) -> Option<PathBuf> {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\" || PATH=/usr/sbin:/sbin command -v \"$0\"", program])
        .output();
    let path = String::from_utf8(found.expect("sh runs").stdout).expect("a path is text");
    let path = path.trim();
    (!path.is_empty()).then(|| PathBuf::from(path))
}

fn is_root() -> bool {
    number_of(&["-u"]) == 0
}

fn number_of(arguments: &[&str]) -> u32 {
    let said = Command::new("id").args(arguments).output().expect("id runs").stdout;
    String::from_utf8_lossy(&said).trim().parse().unwrap_or_else(|_| panic!("id {arguments:?} says no number"))
}

#[track_caller]
fn needed(what: &str, there: bool) -> Option<()> {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests are set up from outside")]
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(there || !in_ci, "CI needs {what}");
    if !there {
        println!("skipped: this machine has no {what}");
    }
    there.then_some(())
}
