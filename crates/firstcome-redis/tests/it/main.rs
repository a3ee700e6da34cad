//! The adapter for Redis on servers of the tests' own.

mod cluster;
mod inbox;
mod link;
mod lock;
mod opening;
mod outages;
mod quorum;
mod redisson;
mod replaced;
mod replicas;
mod sentinel;
mod server;
mod several;
mod single_key;
mod tls;
mod unfit;

use firstcome_redis::{Inbox, InboxEvent, Link, LinkError, LinkOptions, Script};
use redis::Value;
use server::{PATIENCE, Server, wait_for};
use std::future::Future;
use std::time::Duration;

/// The channel of the tests' inboxes.
const INBOX: &str = "inbox:test";

/// Answers with its argument.
static ECHO: Script = Script::new("return ARGV[1]");
/// Counts.
static COUNT: Script = Script::new("return redis.call('INCR', KEYS[1])");

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(240), test).await.expect("the test hangs")
}

/// Times so long that only a hang can reach them.
fn patient() -> LinkOptions {
    let mut options = LinkOptions::default();
    options.connect_timeout = PATIENCE;
    options.answer_timeout = PATIENCE;
    options
}

/// Times that a test is ready to wait for.
fn hasty() -> LinkOptions {
    let mut options = LinkOptions::default();
    options.connect_timeout = Duration::from_millis(500);
    options.answer_timeout = Duration::from_millis(500);
    options.ping_interval = Duration::from_millis(50);
    options
}

/// A link, and its inbox after its first word.
async fn open(server: &Server, options: LinkOptions) -> (Link, Inbox) {
    let (link, mut inbox) = Link::open(&server.url(), INBOX, options).await.expect("the server can be used");
    assert_eq!(inbox.next().await, InboxEvent::Connected);
    (link, inbox)
}

/// Sends a word, and gets it back.
async fn echo(link: &Link, word: &str) -> Result<Value, LinkError> {
    link.run(&ECHO, &[], &[word.as_bytes()]).await
}

/// A word as the server answers it.
fn word(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

/// Waits until the link works.
async fn wait_until_it_works(link: &Link) {
    wait_for("the link to work", async || echo(link, "again").await.ok()).await;
}
