//! Auctions in their world: how the store is asked and started, and how every auction must end after the heal.

use super::history::{AuctionReply, Command, Operation};
use super::recovery as restore;
use super::rows::Stored;
use super::workload::{AuctionAction, Auctions};
use crate::history::Request;
use crate::invariants::{self, Evidence, Violation};
use crate::journal::Call;
use crate::primitive::{Breach, Primitive};
use crate::recovery;
use crate::report::Report;
use crate::world::World;
use firstcome_core::auction::{Phase, Terms};
use firstcome_core::time::{Now, Timestamp};
use firstcome_store::edge::{Clock, ManualClock};
use firstcome_store::embedded::{Backing, Embedded};
use firstcome_store::{AuctionStore, Purchase};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// After so long every auction that was put is over, late bids included.
const ALL_OVER_MS: u64 = 60_000;
/// After so long no winner has time to settle.
const SETTLED_MS: u64 = 60_001;
const HOUR_US: i64 = 3_600_000_000;
/// So far at most an operator sets the wall clock ahead of steady time. For so long keys of movements may be remembered beyond
/// their time.
pub(crate) const WALL_AHEAD_MS_MAX: u64 = 20 * 3_600_000;
/// A day longer than keys of movements are remembered.
const KEYS_OVER_MS: u64 = 31 * 86_400_000;

impl Primitive for Auctions {
    type Stored = Stored;

    const FAULT: &'static str = "auctions fault";
    const COMMIT: &'static str = "auctions commit";
    const VISITORS_MAX: u64 = 4;
    const WRITES_IN_STEPS: bool = true;

    fn call(store: &Embedded, runtime: &Arc<Runtime>, ((), command): Request<Self>) -> Call<Self> {
        let (store, runtime) = (store.clone(), Arc::clone(runtime));
        Box::pin(async move {
            let told = match command {
                Command::Put(listing, settings) => store.put_listing(&listing, *settings).await?.map(AuctionReply::Put),
                Command::View(listing) => store.listing(&listing).await?.map(|view| AuctionReply::View(Box::new(view))),
                Command::Bids(listing, after, count) => {
                    runtime.block_on(store.bids(&listing, after, count))?.map(AuctionReply::Bids)
                }
                Command::Bid(listing, bid) => store.place_bid(&listing, bid).await?.map(AuctionReply::Placed),
                Command::Purchase(listing, purchase) => {
                    store.purchase(&listing, purchase).await?.map(AuctionReply::Bought)
                }
                Command::Move(member, movement) => store.move_points(&member, movement).await?.map(AuctionReply::Moved),
                Command::Balance(member) => Ok(AuctionReply::Balance(store.balance(&member).await?)),
                Command::Records(member, after, count) => {
                    Ok(AuctionReply::Records(runtime.block_on(store.records(&member, after, count))?))
                }
                Command::CloseDue => Ok(store.close_due().await.map(|()| AuctionReply::Closed)?),
            };
            Ok(told.unwrap_or_else(AuctionReply::Refused))
        })
    }

    fn recover(stored: &Stored, clock: &ManualClock) -> Result<Backing, Breach> {
        // As the store does it: keys are forgotten once both clocks say so.
        let Now { wall, steady } = clock.both();
        let now = Timestamp::clamped_us(wall.as_us().min(steady.as_us()));
        let recover = |stored: &Stored| restore::recover(stored, now);
        let auctions = recovery::twice(stored, recover, restore::written_again, restore::difference)?;
        Ok(Backing { auctions, ..Backing::memory() })
    }

    fn check_started(store: &Embedded, stored: &Stored) -> Result<(), Breach> {
        let counts = (stored.listings.len(), stored.members.len());
        if store.auction_counts() == counts {
            return Ok(());
        }
        Err(("recovery", format!("(listings, members) {counts:?} became {:?}", store.auction_counts())))
    }

    fn check(evidence: &Evidence<'_, Self>) -> Result<(), Violation> {
        invariants::check_auctions(evidence)
    }

    fn trace(_: &Operation, now: Now, report: &mut Report) {
        report.trace(now.wall.as_us() as u64);
    }

    fn act(world: &mut World<Self>, action: AuctionAction) -> Result<(), Violation> {
        match action {
            AuctionAction::Snipe => snipe(world)?,
            AuctionAction::SetClock if world.rng.chance(300) => set_clock(world),
            AuctionAction::SetClock => {}
            AuctionAction::Tick => world.ask((), Command::CloseDue),
        }
        Ok(())
    }

    /// Members repeat what is unclear, and every auction must come to an end at which nothing is held any more.
    fn heal(world: &mut World<Self>) -> Result<(), Violation> {
        for command in world.clients.unclear() {
            world.ask((), command);
        }
        world.settle()?;
        close_due_after(world, ALL_OVER_MS)?;
        let stored = world.disk.lock().stored.clone();
        for row in stored.listings.values() {
            let won = row.standing.highest.clone().filter(|_| matches!(row.standing.phase, Phase::Ended(_)));
            if let Some(bid) = won.filter(|_| may_settle(world, &row.standing.terms)) {
                let purchase = Purchase { buyer: bid.bidder, request: None };
                world.ask((), Command::Purchase(row.standing.name.clone(), purchase));
            }
        }
        world.settle()?;
        close_due_after(world, SETTLED_MS)?;
        read_all(world);
        world.settle()?;
        world.restart()?;
        all_is_over(world)
    }
}

/// An operator sets the wall clock forward by an hour, or a month passes, after which keys of movements are forgotten.
fn set_clock(world: &mut World<Auctions>) {
    let Now { wall, steady } = world.clock.both();
    let ahead_us = wall.as_us() - steady.as_us();
    if world.rng.chance(500) {
        world.clock.pass_ms(KEYS_OVER_MS);
        world.report.count(Auctions::FAULT, "a month");
    } else if ahead_us + HOUR_US <= WALL_AHEAD_MS_MAX as i64 * 1_000 {
        world.clock.step_forward_ms(HOUR_US as u64 / 1_000);
        world.report.count(Auctions::FAULT, "clock set forward");
    }
}

/// Members come at an instant that matters, and the writer judges them at it.
fn snipe(world: &mut World<Auctions>) -> Result<(), Violation> {
    let Some((instant, commands)) = world.clients.snipe(&mut world.rng, world.clock.now()) else {
        return Ok(());
    };
    world.report.count(Auctions::FAULT, "asked at an instant that matters");
    world.clock.set(instant);
    commands.into_iter().for_each(|command| world.ask((), command));
    if world.rng.chance(300) {
        world.ask((), Command::CloseDue);
    }
    world.step()
}

fn close_due_after(world: &mut World<Auctions>, ms: u64) -> Result<(), Violation> {
    world.clock.pass_ms(ms);
    world.ask((), Command::CloseDue);
    world.settle()
}

/// A winner without a time limit settles in the end; of the others some do not.
fn may_settle(world: &mut World<Auctions>, terms: &Terms) -> bool {
    let for_ever = matches!(terms, Terms::Auction(terms) if terms.settle_within_ms.is_none());
    for_ever || world.rng.chance(500)
}

fn read_all(world: &mut World<Auctions>) {
    for name in world.clients.listings.clone() {
        world.ask((), Command::View(name.clone()));
        world.ask((), Command::Bids(name, None, usize::MAX));
    }
    for member in world.clients.members.clone() {
        world.ask((), Command::Balance(member.clone()));
        world.ask((), Command::Records(member, None, usize::MAX));
    }
}

fn all_is_over(world: &mut World<Auctions>) -> Result<(), Violation> {
    let disk = world.disk.lock();
    for row in disk.stored.listings.values() {
        let how = match (&row.standing.phase, row.standing.terms) {
            (Phase::Sold(_), Terms::Auction(_)) => "sold to the winner",
            (Phase::Sold(_), Terms::FixedPrice) => "sold at its price",
            (Phase::Unsold(_), _) if row.standing.highest.is_some() => "not settled",
            (Phase::Unsold(_), _) => "unsold",
            (_, Terms::FixedPrice) => "still for sale",
            (_, Terms::Auction(_)) => {
                let detail = format!("{} did not come to an end: {:?}", row.standing.name, row.standing);
                return Err(world.liveness(detail));
            }
        };
        world.report.count("auctions heal", how);
    }
    match disk.stored.members.values().find(|wallet| wallet.balance.held() != 0) {
        Some(wallet) => {
            let detail = format!("points of {} are held when all auctions are over", wallet.member);
            Err(world.liveness(detail))
        }
        None => Ok(()),
    }
}
