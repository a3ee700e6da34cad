//! Invariant 8, for auctions: what was told of a bid, a sale or points is on disk and stays true, and a refusal agrees
//! with how things stood while it was asked for.
//!
//! - What was told to be done came into force between question and answer, once, as it was told. A client that repeats a
//!   request under its key gets the same reply, and has no second effect ([`effects`]).
//! - What is stored was asked for: nothing happens twice, nor after "not done".
//! - Bids follow each other, and ends are exactly what accepted late bids and settings lead to
//!   ([`crate::auction::replay`]).
//! - A refusal is the first that applies at some moment of the question ([`refusals`]).
//! - What was read was in force at some moment of the question; what was due is closed after a tick ([`reads`]).

mod effects;
mod reads;
mod refusals;

use super::{AuctionEvidence, Violation};
use crate::auction::history::{AuctionReply, Command, Operation};
use crate::auction::ledger::Ledger;
use crate::auction::replay::Replay;

const NAME: &str = "acknowledged_auctions";

/// Looks for a reply that did not stay true.
pub fn check(evidence: &AuctionEvidence<'_>, ledger: &Ledger) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    let replay = Replay::play(evidence.history, evidence.log, ledger);
    if let Some(breach) = ledger.breaches.first().or_else(|| replay.breaches.first()) {
        return Err(found(breach.clone()));
    }
    for operation in evidence.history.operations() {
        let Some(told) = operation.told() else { continue };
        judge(operation, told, ledger, &replay)
            .map_err(|detail| found(format!("{:?}: {detail}", operation.command)))?;
    }
    effects::are_asked_for(evidence.history, ledger).map_err(found)
}

fn judge(operation: &Operation, told: &AuctionReply, ledger: &Ledger, replay: &Replay) -> Result<(), String> {
    match (&operation.command, told) {
        (Command::Put(listing, settings), AuctionReply::Put(put)) => {
            effects::put_is_in_force(operation, listing, settings, replay)?;
            effects::put_is_what_it_was(operation, *put, ledger.listings.get(listing))
        }
        (Command::Bid(listing, ask), AuctionReply::Placed(effect)) => {
            effects::bid_is_stored(operation, ask, effect, ledger.listings.get(listing))
        }
        (Command::Purchase(listing, ask), AuctionReply::Bought(effect)) => {
            effects::sale_is_stored(operation, ask, effect, ledger.listings.get(listing))
        }
        (Command::Move(member, ask), AuctionReply::Moved(effect)) => {
            effects::movement_is_stored(operation, ask, effect, ledger.members.get(member))
        }
        (_, AuctionReply::Refused(rejection)) => {
            refusals::refusal_is_right(&refusals::Question { operation, rejection, ledger, replay })
        }
        (Command::View(listing), AuctionReply::View(view)) => {
            reads::view_is_in_force(operation, view, ledger.listings.get(listing))
        }
        (Command::Bids(listing, after, count), AuctionReply::Bids(page)) => {
            reads::bids_are_in_force(operation, (*after, *count), page, ledger.listings.get(listing))
        }
        (Command::Balance(member), AuctionReply::Balance(balance)) => {
            reads::balance_is_in_force(operation, *balance, ledger.members.get(member))
        }
        (Command::Records(member, after, count), AuctionReply::Records(page)) => {
            reads::records_are_in_force(operation, (*after, *count), page, ledger.members.get(member))
        }
        (Command::CloseDue, AuctionReply::Closed) => reads::due_is_closed(operation, ledger),
        _ => Err(format!("was told {told:?}, which is no answer to it")),
    }
}

#[cfg(test)]
mod tests;
