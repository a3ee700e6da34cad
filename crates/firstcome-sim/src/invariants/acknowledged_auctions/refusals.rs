//! A refusal is the first that applies, in the documented order, at some moment of the question.

use super::effects;
use crate::auction::history::{Command, Operation};
use crate::auction::ledger::Ledger;
use crate::auction::replay::Replay;
use crate::auction::rules::ListingRules;
use firstcome_core::auction::Rejection;
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::Amount;
use firstcome_core::time::Timestamp;
use firstcome_store::Transfer;

/// A refusal, and what it is held against.
pub(super) struct Question<'a> {
    pub(super) operation: &'a Operation,
    pub(super) rejection: &'a Rejection,
    pub(super) ledger: &'a Ledger,
    pub(super) replay: &'a Replay,
}

pub(super) fn refusal_is_right(question: &Question<'_>) -> Result<(), String> {
    let right = match &question.operation.command {
        Command::View(listing) | Command::Bids(listing, ..) => question.is_unknown(listing),
        Command::Put(listing, settings) => question.refuses_put(listing, settings),
        Command::Bid(listing, ask) => {
            let used = || effects::first_bid(question.ledger, listing, ask.request, question.operation.end());
            let reused = || used().is_some_and(|first| Some(first.body) != ask.request.map(|request| request.body));
            question.refuses_on(listing, &ask.bidder, reused, |listing, at| {
                (listing.refuses_bid(&ask.bidder, ask.price, at), Some(ask.price))
            })
        }
        Command::Purchase(listing, ask) => {
            let used = || effects::first_sale(question.ledger, listing, ask.request, question.operation.end());
            let reused = || used().is_some_and(|first| Some(first.body) != ask.request.map(|request| request.body));
            question.refuses_on(listing, &ask.buyer, reused, |listing, at| {
                (listing.refuses_purchase(&ask.buyer, at), listing.price_to_have())
            })
        }
        Command::Move(member, ask) => match question.rejection {
            Rejection::KeyReused => ask
                .request
                .is_some_and(|request| effects::is_reused_movement(question.ledger, question.operation, request)),
            Rejection::InsufficientPoints(_) => {
                ask.transfer == Transfer::Refund && question.lacks_points(member, ask.amount)
            }
            // No member of a run comes near to more than fits.
            _ => false,
        },
        Command::Balance(_) | Command::Records(..) | Command::CloseDue => false,
    };
    if right {
        return Ok(());
    }
    Err(format!("was refused with {:?}, which was never so while it was asked", question.rejection))
}

impl Question<'_> {
    /// Whether the listing was nowhere at the beginning.
    fn is_unknown(&self, listing: &ListingName) -> bool {
        let known = self.ledger.listings.get(listing).and_then(|story| story.row_before(self.operation.asked));
        *self.rejection == Rejection::UnknownListing && known.is_none()
    }

    /// How the listing can have stood, and when.
    fn moments(&self, listing: &ListingName) -> impl Iterator<Item = (&ListingRules, Timestamp)> {
        let operation = self.operation;
        let (from, to) = ((operation.asked, operation.asked_at), (operation.end(), operation.ended_at));
        let during = self.replay.during(listing, from, to);
        during.flat_map(|(listing, lo, hi)| listing.instants(lo, hi).into_iter().map(move |at| (listing, at)))
    }

    fn refuses_put(&self, listing: &ListingName, settings: &firstcome_core::auction::ListingSettings) -> bool {
        let rejection = Err(self.rejection.clone());
        let known = self.ledger.listings.get(listing).and_then(|story| story.row_before(self.operation.asked));
        let instants = [self.operation.asked_at, self.operation.ended_at];
        let new =
            known.is_none() && instants.iter().any(|now| ListingRules::new(settings, *now).map(drop) == rejection);
        new || self.moments(listing).any(|(listing, at)| listing.put(settings, at).map(drop) == rejection)
    }

    /// A bid or a purchase: what the listing says first, then what the member has. `judge` says why the listing refuses it, and
    /// how many points must be there for it that are not held yet.
    fn refuses_on(
        &self,
        listing: &ListingName,
        member: &MemberName,
        key_is_reused: impl Fn() -> bool,
        judge: impl Fn(&ListingRules, Timestamp) -> (Option<Rejection>, Option<Amount>),
    ) -> bool {
        match self.rejection {
            Rejection::UnknownListing => self.is_unknown(listing),
            Rejection::KeyReused => key_is_reused(),
            Rejection::InsufficientPoints(_) => self.moments(listing).any(|(listing, at)| {
                let (refused, price) = judge(listing, at);
                refused.is_none() && price.is_some_and(|price| self.lacks_points(member, price))
            }),
            rejection => self.moments(listing).any(|(listing, at)| judge(listing, at).0.as_ref() == Some(rejection)),
        }
    }

    /// Whether the member had just as much available as was told, which is less.
    fn lacks_points(&self, member: &MemberName, amount: Amount) -> bool {
        let Rejection::InsufficientPoints(available) = *self.rejection else { return false };
        let is_so = match self.ledger.members.get(member) {
            Some(story) => {
                let mut balances = story.balances_within(self.operation.asked, self.operation.end());
                balances.any(|balance| balance.available() == available)
            }
            None => available == 0,
        };
        is_so && available < amount.get()
    }
}
