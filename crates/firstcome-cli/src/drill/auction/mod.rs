//! An event of auctions: what is settled before it, and how it is played.

mod bidders;
mod event;
mod outcome;
mod plan;
pub(crate) mod record;
mod wire;

use super::EventArgs;
use super::facts::Facts;
use super::server::{KeyPair, Server};
use super::{Scratch, address_of, draw_key};
use crate::Failure;
use plan::{OPENS, Size};

/// Everything that is settled before the event.
pub(crate) struct Setting {
    pub(crate) size: Size,
    pub(crate) kills: u32,
    pub(crate) connections: usize,
    pub(crate) keys: KeyPair,
    /// The first part of every name.
    pub(crate) prefix: String,
    /// Where the service keeps members and listings.
    pub(crate) store: &'static str,
}

impl Setting {
    /// When everybody has been charged.
    pub(crate) fn opens_us(&self) -> u64 {
        (self.size.seconds as f64 * OPENS * 1e6) as u64
    }

    pub(crate) const fn ends_us(&self) -> u64 {
        self.size.seconds * 1_000_000
    }
}

fn settle(args: &EventArgs) -> anyhow::Result<Setting> {
    let drawn = |given: &Option<String>| given.clone().map_or_else(draw_key, Ok);
    let store = match (&args.url, &args.sql) {
        (Some(_), _) => "that of the service",
        (None, Some(_)) => "SQL",
        (None, None) => "embedded, on disk",
    };
    Ok(Setting {
        size: Size { seed: args.seed, people: args.people, stock: args.auctions(), seconds: args.seconds() },
        kills: args.kill,
        connections: args.connections as usize,
        keys: KeyPair { admin: drawn(&args.admin_key)?, service: drawn(&args.service_key)? },
        prefix: format!("drill-{}", &draw_key()?[..8]),
        store,
    })
}

/// Plays the event and says what it came to.
pub(crate) fn run(args: &EventArgs) -> Result<Facts, Failure> {
    let setting = settle(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    if let Some(url) = &args.url {
        let address = address_of(url).map_err(Failure::Usage)?;
        let played = local.block_on(&runtime, event::play(&setting, address, None))?;
        return Ok(outcome::facts(&setting, &played, Vec::new()));
    }
    let scratch = Scratch::new(&args.data)?;
    let server = Server::start(&scratch.0, &setting.keys, false, args.sql.as_deref())?;
    let address = server.address;
    let played = local.block_on(&runtime, event::play(&setting, address, Some(server)))?;
    // What is in a database is not in the directory.
    let stored =
        if args.sql.is_none() { firstcome::sqlite::verify(&scratch.0).map_err(Failure::Store)? } else { Vec::new() };
    Ok(outcome::facts(&setting, &played, stored))
}
