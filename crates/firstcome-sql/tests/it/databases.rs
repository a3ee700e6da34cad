//! Database servers of a test's own: PostgreSQL, and MariaDB.

use firstcome_test_servers::{Durability, Kind, Options, Server, ServerCopy, machine_has};
use sqlx::{MySqlPool, PgPool};

/// A server with a directory and a port of its own; ended when it is dropped.
pub(crate) struct Running(Server);

impl Running {
    /// Its address.
    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// Kills it: no caller is told, and what is not on disk is gone.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Kills it if it still runs, and starts it again in the same directory, at the same port. Returns when it answers.
    pub(crate) async fn restart(&mut self) {
        self.0.restart().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops it, keeps a copy of its files, and starts it again.
    pub(crate) async fn keep_copy(&mut self) -> ServerCopy {
        let copy = self.0.keep_copy().await.unwrap_or_else(|error| panic!("{error}"));
        self.restart().await;
        copy
    }

    /// Kills it, puts a copy in the place of its files, and starts it again at the same port.
    pub(crate) async fn restore(&mut self, copy: &ServerCopy) {
        self.0.restore(copy).await.unwrap_or_else(|error| panic!("{error}"));
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
    start(Kind::Postgres, settings).await
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
    start(Kind::MariaDb, settings).await
}

async fn start(kind: Kind, settings: &[&str]) -> Option<Running> {
    if !machine_has(&kind.to_string(), Server::is_installed(kind)) {
        return None;
    }
    let mut options = Options::new(Durability::Quick);
    options.settings = settings.iter().map(ToString::to_string).collect();
    Some(Running(Server::start(kind, &options).await.unwrap_or_else(|error| panic!("{error}"))))
}
