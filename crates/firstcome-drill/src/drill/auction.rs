//! An auction event: its settings, and how it is played.

mod bidders;
mod event;
mod messages;
mod outcome;
mod plan;
pub(crate) mod record;

use super::EventArgs;
use super::chaos::DrillTarget;
use super::cluster::{Backing, auctions_are_sound};
use super::facts::Facts;
use super::server::{KeyPair, Server, Stores};
use super::{Scratch, draw_key, no_browser};
use crate::database::{Named, OwnDatabase};
use crate::failure::Failure;
use crate::stop::{unless_stopped, when_ended};
use anyhow::anyhow;
use plan::{OPENS, Size};
use std::path::Path;
use std::rc::Rc;

/// The settings of an event.
pub(crate) struct Setting {
    pub(crate) size: Size,
    pub(crate) kills: u32,
    pub(crate) connections: usize,
    pub(crate) keys: KeyPair,
    /// The prefix of every name.
    pub(crate) prefix: String,
    /// The store of members and listings.
    pub(crate) store: String,
}

impl Setting {
    /// The instant at which every member has been charged.
    pub(crate) fn opens_us(&self) -> u64 {
        (self.size.seconds as f64 * OPENS * 1e6) as u64
    }

    pub(crate) const fn ends_us(&self) -> u64 {
        self.size.seconds * 1_000_000
    }
}

fn settle(args: &EventArgs) -> Result<Setting, Failure> {
    let bids = args.bids.unwrap_or(0);
    Ok(Setting {
        size: Size { seed: args.seed, people: args.people, stock: args.auctions(), bids, seconds: args.seconds() },
        kills: args.kill,
        connections: args.connections as usize,
        keys: args.keys()?,
        prefix: format!("drill-{}", &draw_key()?[..8]),
        store: if args.url.is_some() { "that of the service" } else { "embedded, on disk" }.to_owned(),
    })
}

/// Plays the event, and returns the facts.
pub(crate) fn run(args: &EventArgs) -> Result<Facts, Failure> {
    if args.rate.is_some() {
        return Err(Failure::Usage(anyhow!("--rate is for drill concert: auctions have no admissions")));
    }
    if args.browser.is_some() {
        return Err(no_browser());
    }
    let mut setting = settle(args)?;
    let named = args.sql.as_deref().map(Named::parse).transpose().map_err(Failure::Usage)?;
    let scratch = Scratch::unless_elsewhere(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let Some(Scratch(directory)) = &scratch else {
        let place = Rc::new(DrillTarget::at(args.address()?));
        let played = local.block_on(&runtime, event::play(&setting, place))?;
        return Ok(outcome::facts(&setting, &played, Vec::new()));
    };
    if args.nodes.is_some() {
        return local.block_on(&runtime, on_nodes(args, &mut setting, directory));
    }
    if let Some(named) = &named {
        return local.block_on(&runtime, on_database(&mut setting, named, directory));
    }
    let server = Server::start(directory, &setting.keys, false, &Stores::Directory)?;
    let played = local.block_on(&runtime, event::play(&setting, Rc::new(DrillTarget::alone(server))))?;
    let stored = firstcome::sqlite::verify(directory).map_err(Failure::Store)?;
    Ok(outcome::facts(&setting, &played, stored))
}

/// Plays the event against a service over a database, which survives the kills of the service.
async fn on_database(setting: &mut Setting, named: &Named, scratch: &Path) -> Result<Facts, Failure> {
    let database = OwnDatabase::open(named, scratch).await.map_err(Failure::Unreachable)?;
    let playing = async {
        setting.store = database.version().await?;
        let server = Server::start(scratch, &setting.keys, false, &Stores::Auctions(database.url.clone()))?;
        let played = event::play(setting, Rc::new(DrillTarget::alone(server))).await?;
        Ok(outcome::facts(setting, &played, auctions_are_sound(&database.url).await?))
    };
    let facts = unless_stopped(playing).await;
    when_ended(facts, database.end()).await
}

/// Plays the event against a cluster.
async fn on_nodes(args: &EventArgs, setting: &mut Setting, scratch: &Path) -> Result<Facts, Failure> {
    let mut backing = Backing::open(args, scratch).await?;
    let playing = async {
        setting.store = backing.store();
        let place = Rc::new(backing.start_nodes(scratch, &setting.keys, false)?);
        let played = event::play(setting, Rc::clone(&place)).await?;
        let (stored, not_checked) = backing.sound().await?;
        let mut facts = outcome::facts(setting, &played, stored);
        facts.conditions.extend(not_checked);
        facts.conditions.push(backing.nodes());
        Ok(facts)
    };
    let facts = unless_stopped(playing).await;
    when_ended(facts, backing.end()).await
}
