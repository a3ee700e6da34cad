//! Locks that are shared with other libraries, which are the real ones: each runs in a program of `bench/peers`, and does
//! what it is told. `bench/peers/install target/peers` puts them where they are looked for, and `cargo xtask test` does so;
//! where one is missing its tests are skipped with a word, and with CI=true that is a fault.

#![cfg(unix)]

mod peer;
mod redisson;
mod single_key;

use firstcome::lock::LinkOptions;
use firstcome_test_servers::{Durability, Kind, Options, Server, machine_has};
use redis::Value;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough to see that a caller waits.
const WHILE: Duration = Duration::from_millis(400);

/// A server of the test's own. `None`, and a word about it, where there is none; in CI it must be there.
async fn start() -> Option<Server> {
    if !machine_has(&Kind::Redis.to_string(), Server::is_installed(Kind::Redis)) {
        return None;
    }
    Some(Server::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("the server starts"))
}

fn patient() -> LinkOptions {
    let mut options = LinkOptions::default();
    (options.connect_timeout, options.answer_timeout) = (PATIENCE, PATIENCE);
    options
}

/// Sends one command over a connection of its own.
async fn ask(server: &Server, command: &[&str]) -> Value {
    let client = redis::Client::open(server.url()).expect("the address can be read");
    let mut connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    let mut packed = redis::cmd(command[0]);
    packed.arg(&command[1..]);
    packed.query_async(&mut connection).await.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Looks again and again, at most [`PATIENCE`] long, until it is so.
async fn wait_for(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !look().await {
        assert!(Instant::now() < until, "timed out waiting for {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that comes.
async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it comes in time")
}

/// Sees that something does not come for a while.
async fn assert_waits<T>(what: impl Future<Output = T>) {
    assert!(timeout(WHILE, what).await.is_err(), "somebody else has the lock");
}

/// A number in a file, which is counted up by the caller that has the lock, in two steps that nothing else protects.
struct Counter {
    directory: tempfile::TempDir,
}

impl Counter {
    fn new() -> Self {
        let counter = Self { directory: tempfile::tempdir().expect("a directory") };
        std::fs::write(counter.path(), "0").expect("a file");
        counter
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("counter")
    }

    fn read(&self) -> u32 {
        read(&self.path())
    }
}

fn read(path: &Path) -> u32 {
    std::fs::read_to_string(path).expect("it is there").trim().parse().expect("a number")
}

/// Counts one up as the programs do: renamed, so that a caller that reads it without the lock sees a number too.
async fn count_up(path: &Path, task: u32) {
    let number = read(path);
    tokio::task::yield_now().await;
    let aside = path.with_extension(format!("ours-{task}"));
    std::fs::write(&aside, (number + 1).to_string()).expect("a file");
    std::fs::rename(&aside, path).expect("it is replaced");
}
