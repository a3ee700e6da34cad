//! The proofs of what the search finds: the receipt of a place or a claim as a file, and the record of points that backs a bid.
//!
//! # What it promises
//! - A file is the receipt that the visitor or a back end gets, and checks without this service.
//! - It has no ticket and no voucher code: a ticket stands in it as a digest.
//!
//! # What it does not promise
//! - The receipt of a place that has ended by its number: the room no longer knows whom the ticket names. By the ticket there is
//!   one.
//! - A receipt whose heads a purge removed. The page says so.

use super::Visit;
use super::find::{READ, Search};
use super::view::{Datum, Fact, fact, path_segment};
use crate::api::{body, receipt};
use crate::error::Problem;
use crate::pages::receipt::file;
use axum::response::Response;
use firstcome::ClaimRecord;
use firstcome::core::id::{CouponName, ListingName, MemberName, RoomName};
use firstcome::core::points::{Kind, Record, Reference};
use firstcome::core::room::{PlaceState, PlaceView, TicketNumber};

const PROOF: &str = "Proof";

/// Leads to the receipt of a place. `ticket` is what the operator looked for, if that is a ticket.
pub(super) fn of_place(room: &RoomName, place: &PlaceView, ticket: Option<&str>) -> Fact {
    let is_over = matches!(place.state, PlaceState::Gone(_) | PlaceState::Unknown);
    let number = place.number.get().to_string();
    match if is_over { ticket } else { Some(number.as_str()) } {
        Some(named) => to_receipt(&format!("rooms/{}/receipts/{named}", path_segment(room.as_str()))),
        None => fact(PROOF, Datum::soft("a receipt, if you look for the ticket instead")),
    }
}

/// Leads to the receipt of a claim.
pub(super) fn of_claim(coupon: &CouponName, record: &ClaimRecord) -> Fact {
    let [coupon, user] = [coupon.as_str(), record.user.as_ref()].map(path_segment);
    to_receipt(&format!("coupons/{coupon}/receipts/{user}"))
}

fn to_receipt(path: &str) -> Fact {
    fact(PROOF, Datum::leads("receipt", format!("/dashboard/{path}")))
}

impl Visit<'_> {
    /// Leads to the record of the points that a bid holds, or has held. Its hash covers all records of the member before it.
    pub(super) async fn hold_of(
        &self,
        member: &MemberName,
        listing: &ListingName,
        bid: u32,
    ) -> Result<Vec<Fact>, Problem> {
        let about = Reference { listing: listing.clone(), bid: Some(bid) };
        let mut search = Search::new();
        let is_it = |record: &Record| record.kind == Kind::Hold && record.about.as_ref() == Some(&about);
        while search.goes_on(self.app.auctions.records(member, search.after, READ).await?, is_it) {}
        Ok(search.last.map_or_else(Vec::new, |record| {
            let (member, before) = (path_segment(member.as_str()), record.number - 1);
            let address = format!("/dashboard/members/{member}?after={before}");
            vec![
                fact(PROOF, Datum::leads(format!("record {} of the member", record.number), address)),
                fact("Hash of the record", Datum::soft(record.chain.to_string())),
            ]
        }))
    }

    /// Gives the receipt of a place that is named by its number or its ticket.
    pub(super) async fn place_receipt(&self, name: &str, place: &str) -> Result<Response, Problem> {
        let name = body::room(name)?;
        let receipt = match place.parse().ok().and_then(TicketNumber::new) {
            Some(number) => receipt::of_place(self.app, &name, number).await?,
            None => receipt::of_ticket(self.app, &name, place).await?,
        };
        Ok(file(&receipt))
    }

    /// Gives the receipt of the claim of a user.
    pub(super) async fn claim_receipt(&self, coupon: &str, user: &str) -> Result<Response, Problem> {
        Ok(file(&*receipt::of_claim(self.app, &body::coupon(coupon)?, user).await?))
    }
}
