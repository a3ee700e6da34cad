//! Locks of other libraries. Each is a program that works like a worker of firstcome: one of `bench/`, or any other.

use super::strategy::{ALL, Strategy};
use anyhow::{bail, ensure};
use std::path::PathBuf;

/// The prefix of the peers' names that a target refers to.
pub(super) const RSLOCK: &str = "rslock";

/// A lock of another library.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl Peer {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        ensure!(!name.trim().is_empty(), "a name, =, and a program are wanted");
        let taken = ALL.iter().chain(&[Strategy::Redisson]).any(|strategy| strategy.says() == name);
        ensure!(!taken, "that is the name of a strategy of this benchmark");
        let found = PathBuf::from(program).canonicalize().ok().filter(|path| path.is_file());
        match found {
            Some(program) => Ok(Self { name: name.to_owned(), program, arguments: words.map(str::to_owned).collect() }),
            None => bail!("there is no program {program:?}; bench/README.md says how those of this project are built"),
        }
    }
}

/// A lock to measure.
#[derive(Clone, Copy)]
pub(super) enum Entrant<'a> {
    Ours(Strategy),
    Peer(&'a Peer),
}

impl<'a> Entrant<'a> {
    pub(super) fn is(self, strategy: Strategy) -> bool {
        matches!(self, Self::Ours(ours) if ours == strategy)
    }

    pub(super) fn says(self) -> &'a str {
        match self {
            Self::Ours(strategy) => strategy.says(),
            Self::Peer(peer) => &peer.name,
        }
    }

    /// Whether it uses the Redis server.
    pub(super) const fn is_on_redis(self) -> bool {
        match self {
            Self::Ours(strategy) => strategy.is_on_redis(),
            Self::Peer(_) => true,
        }
    }

    /// Whether several processes can exclude each other by it.
    pub(super) const fn spans_processes(self) -> bool {
        match self {
            Self::Ours(strategy) => strategy.spans_processes(),
            Self::Peer(_) => true,
        }
    }
}
