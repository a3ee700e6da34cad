//! Sends commands to Redis servers that belong to a group.

use crate::{PAUSE, QUESTION, START, Server, ServerError, never};
use redis::{FromRedisValue, RedisResult};
use std::future::Future;

impl Server {
    /// Returns the port of the server.
    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default()
    }

    /// Returns the port that other servers of its group use.
    pub(crate) fn peer_port(&self) -> u16 {
        self.tls_port.unwrap_or_else(|| self.port())
    }

    /// Returns the host and port of the server.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Sends one command over its own connection. Single spaces separate its words.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> Result<T, ServerError> {
        let mut words = command.split(' ');
        let mut packed = redis::cmd(words.next().unwrap_or_default());
        packed.arg(words.collect::<Vec<_>>());
        let told = async {
            let mut connection = redis::Client::open(self.url())?.get_multiplexed_async_connection().await?;
            packed.query_async(&mut connection).await
        };
        let told: RedisResult<T> = match tokio::time::timeout(QUESTION, told).await {
            Ok(told) => told,
            Err(_) => return Err(never(format!("{}: no answer to {command}", self.address()))),
        };
        told.map_err(|error| never(format!("{}: {command}: {error}", self.address())))
    }

    /// Returns whether the answer to a command has each of these lines.
    pub(crate) async fn says(&self, command: &str, lines: &[&str]) -> bool {
        let told: Result<String, _> = self.ask(command).await;
        told.is_ok_and(|told| lines.iter().all(|line| told.lines().any(|told| told.trim_end() == *line)))
    }
}

/// Repeats a check until it succeeds.
pub(crate) async fn wait_until<F: Future<Output = bool>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<(), ServerError> {
    let seen = async {
        while !look().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(START, seen).await.map_err(|_| never(format!("timed out waiting for {what}")))
}
