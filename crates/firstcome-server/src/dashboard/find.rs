//! Finds the place, the claim or the bid of a user, and its proof. A look has no effect: it is no contact of a visitor, takes no slot and
//! writes nothing.

use super::items::claim_facts;
use super::view::{Datum, Fact, FindPage, Frame, Kind, fact, grouped, lasting, shown_at};
use super::{Visit, page, proof};
use crate::api::{self, answered, body};
use crate::error::Problem;
use axum::http::StatusCode;
use axum::response::Response;
use firstcome::core::auction::Bid;
use firstcome::core::room::{Departure, PlaceKey, PlaceState, PlaceView, TicketNumber};
use firstcome::{CouponStore, Numbered, RoomStore};
use std::pin::pin;

/// How many bids or records are looked through: those after are not found here.
const LOOKED_MAX: usize = 10_000;
/// How many of them are read at once.
pub(super) const READ: usize = 1_000;

const KINDS: [Kind; 4] = [
    Kind { name: "user", label: "The place of a user in a room" },
    Kind { name: "ticket", label: "The place of a ticket or number in a room" },
    Kind { name: "claim", label: "The claim of a user of a coupon" },
    Kind { name: "bid", label: "The last bid of a member on a listing" },
];

fn place_facts(place: &PlaceView, wait_ms: Option<u64>) -> Vec<Fact> {
    let mut facts = vec![fact("Number", Datum::of(grouped(place.number.get().into())))];
    if let Some(user) = &place.user {
        facts.push(fact("User", Datum::of(user.as_ref())));
    }
    let presence = |is_present| if is_present { "polls" } else { "silent: is passed over until the next poll" };
    let state = match place.state {
        PlaceState::InDraw { is_present } => {
            facts.push(fact("Visitor", Datum::of(presence(is_present))));
            "in the draw: its place is not drawn yet"
        }
        PlaceState::Waiting { position, is_present } => {
            facts.push(fact("Ahead", Datum::of(grouped(position.into()))));
            facts.push(fact("Visitor", Datum::of(presence(is_present))));
            facts.push(fact("Wait at the end of the line", super::lists::wait(wait_ms)));
            "in line"
        }
        PlaceState::Inside { admission, is_taken } => {
            facts.push(fact("Admission", Datum::of(grouped(admission))));
            if is_taken { "inside" } else { "admitted: the next poll takes the slot" }
        }
        PlaceState::Gone(Departure::Left) => "left",
        PlaceState::Gone(_) => "its time is over",
        _ => "not known since a loss of Redis: the next poll tells",
    };
    facts.push(fact("State", Datum::of(state)));
    facts
}

/// Looks through pages of bids or records for the last one that fits.
pub(super) struct Search<T> {
    pub(super) last: Option<T>,
    pub(super) after: Option<u64>,
    looked: usize,
}

impl<T> Search<T> {
    pub(super) const fn new() -> Self {
        Self { last: None, after: None, looked: 0 }
    }

    /// Looks through the page after `after`. Returns whether to read another one.
    pub(super) fn goes_on(&mut self, page: Numbered<T>, fits: impl Fn(&T) -> bool) -> bool {
        self.looked += page.items.len();
        if let Some(found) = page.items.into_iter().rfind(fits) {
            self.last = Some(found);
        }
        self.after = page.next;
        self.after.is_some() && self.looked < LOOKED_MAX
    }
}

/// What names a place.
#[derive(Clone, Copy)]
enum By {
    User,
    /// A ticket, or its number.
    Ticket,
}

impl Visit<'_> {
    /// Finds a place by its ticket or number, or by its user.
    async fn find_place(&self, room: &str, what: &str, by: By) -> Result<Option<Vec<Fact>>, Problem> {
        let room = body::room(room)?;
        // On a cluster it also brings the room to this node.
        let summary = answered(self.app, pin!(self.app.rooms.room(&room))).await?.map_err(api::room::refused)?;
        let by_number = || what.parse().ok().and_then(TicketNumber::new);
        let ticket = self.app.rooms.ticket_id(&room, what).filter(|_| matches!(by, By::Ticket));
        let key = match by {
            By::User => PlaceKey::User(body::looked_up_user(what)?),
            By::Ticket => match ticket.map(|id| id.number).or_else(by_number) {
                Some(number) => PlaceKey::Number(number),
                None => return Ok(None),
            },
        };
        let place = answered(self.app, pin!(self.app.rooms.place(&room, key))).await?.map_err(api::room::refused)?;
        let Some(place) = place else { return Ok(None) };
        let mut facts = place_facts(&place, summary.view.wait_at_tail_ms);
        facts.push(fact("Room", Datum::link("rooms", room.as_str())));
        facts.push(proof::of_place(&room, &place, ticket.map(|_| what)));
        Ok(Some(facts))
    }

    async fn find_claim(&self, coupon: &str, user: &str) -> Result<Option<Vec<Fact>>, Problem> {
        let (coupon, user) = (body::coupon(coupon)?, body::looked_up_user(user)?);
        let found = answered(self.app, pin!(self.app.coupons.claim_of(&coupon, user))).await?;
        let found = found.map_err(|refusal| api::coupon::refused(self.app, &coupon, user, &refusal))?;
        Ok(found.map(|record| {
            let mut facts = claim_facts(&record);
            facts.push(fact("Coupon", Datum::link("coupons", coupon.as_str())));
            facts.push(proof::of_claim(&coupon, &record));
            facts
        }))
    }

    async fn find_bid(&self, listing: &str, bidder: &str) -> Result<Option<Vec<Fact>>, Problem> {
        let (listing, bidder) = (body::listing(listing)?, body::member("bidder", bidder)?);
        let mut search = Search::new();
        loop {
            let page = answered(self.app, pin!(self.app.auctions.bids(&listing, search.after, READ))).await?;
            let page = page.map_err(|rejection| api::listing::refused(&rejection))?;
            if !search.goes_on(page, |bid: &Bid| bid.bidder == bidder) {
                break;
            }
        }
        let Some(bid) = search.last else { return Ok(None) };
        let view = answered(self.app, pin!(self.app.auctions.listing(&listing))).await?;
        let view = view.map_err(|rejection| api::listing::refused(&rejection))?;
        let is_highest = view.standing.highest.as_ref().is_some_and(|highest| highest.number == bid.number);
        let left_ms = (view.standing.effective_ends_at.as_us() - view.now.as_us()).max(0).unsigned_abs() / 1_000;
        let mut facts = vec![
            fact("Member", Datum::link("members", bidder.as_str())),
            fact("Price", Datum::of(grouped(bid.price.get()))),
            fact("Number among the bids", Datum::of(grouped(bid.number.into()))),
            fact("At", Datum::of(shown_at(bid.at))),
            fact("Is the highest", Datum::of(if is_highest { "yes" } else { "no" })),
            fact("The auction ends in", Datum::of(lasting(left_ms))),
            fact("Listing", Datum::link("listings", listing.as_str())),
        ];
        facts.extend(self.hold_of(&bidder, &listing, bid.number).await?);
        Ok(Some(facts))
    }

    pub(super) async fn find(&self) -> Result<Response, Problem> {
        let kind = self.parameter("kind").unwrap_or_else(|| "user".into());
        let text = |name| self.parameter(name).unwrap_or_default().trim().to_owned();
        let (place, what) = (text("in"), text("what"));
        let is_asked = !place.is_empty() && !what.is_empty();
        let found = match kind.as_str() {
            _ if !is_asked => None,
            "ticket" => Some(self.find_place(&place, &what, By::Ticket).await),
            "claim" => Some(self.find_claim(&place, &what).await),
            "bid" => Some(self.find_bid(&place, &what).await),
            _ => Some(self.find_place(&place, &what, By::User).await),
        };
        let (found, status) = match found {
            None => (None, StatusCode::OK),
            Some(Ok(Some(facts))) => (Some(Ok(facts)), StatusCode::OK),
            Some(Ok(None)) => (Some(Err("Nothing of that name is there.".to_owned())), StatusCode::NOT_FOUND),
            Some(Err(problem)) if problem.code().status() < 500 => {
                let status = StatusCode::from_u16(problem.code().status()).unwrap_or(StatusCode::BAD_REQUEST);
                (Some(Err(format!("{}. {}", problem.code().title(), problem.says()))), status)
            }
            Some(Err(problem)) => return Err(problem),
        };
        let frame = Frame::of(self, "find");
        Ok(page(status, &FindPage { frame, kinds: &KINDS, kind: &kind, place: &place, what: &what, found }))
    }
}
