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
    ends_with: &'static str,
    url: String,
    _directory: TempDir,
}

impl Running {
    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has ended by itself.
        let _ = Command::new("kill").args([self.ends_with, &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Starts an empty PostgreSQL. `None`, and a word about it, where there is none; in CI it must be there.
pub(crate) async fn postgres() -> Option<(Running, PgPool)> {
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
        let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB"];
        server.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let url = format!("postgres://test@127.0.0.1:{port}/postgres");
        // Ends at once, and takes its shared memory along, which a kill would leave.
        let running = start(server, "-QUIT", url, directory);
        let is_ours = async |url: String| {
            let mut connection = PgConnection::connect(&url).await?;
            sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await
        };
        if let Some(running) = comes_up(running, &data, is_ours).await {
            let pool = PgPool::connect(running.url()).await.expect("it answers");
            return Some((running, pool));
        }
    }
    panic!("PostgreSQL does not start");
}

/// Starts an empty MariaDB. `None`, and a word about it, where there is none; in CI it must be there.
pub(crate) async fn mariadb() -> Option<(Running, MySqlPool)> {
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
        if is_root() {
            server.arg("--user=root");
        }
        let url = format!("mysql://root@127.0.0.1:{port}/test");
        let running = start(server, "-KILL", url, directory);
        let is_ours = async |url: String| {
            let mut connection = MySqlConnection::connect(&url).await?;
            sqlx::query_scalar("SELECT CONVERT(@@datadir USING utf8mb4)").fetch_one(&mut connection).await
        };
        if let Some(running) = comes_up(running, &data, is_ours).await {
            let pool = MySqlPool::connect(running.url()).await.expect("it answers");
            return Some((running, pool));
        }
    }
    panic!("MariaDB does not start");
}

fn start(mut server: Command, ends_with: &'static str, url: String, directory: TempDir) -> Running {
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = server.spawn().expect("the server starts");
    Running { child, ends_with, url, _directory: directory }
}

/// Waits until it answers, and it is this one that answers: it names its directory. `None` if it ends instead, because
/// somebody else took the port.
async fn comes_up(
    mut running: Running,
    data: &Path,
    where_is: impl AsyncFn(String) -> Result<String, sqlx::Error>,
) -> Option<Running> {
    let url = running.url.clone();
    let up = wait_for("the server to answer", async || {
        if running.child.try_wait().expect("the child can be asked").is_some() {
            return Some(false);
        }
        let answered = tokio::time::timeout(PATIENCE, where_is(url.clone())).await;
        answered.ok()?.is_ok_and(|there| Path::new(there.trim_end_matches('/')) == data).then_some(true)
    });
    up.await.then_some(running)
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
