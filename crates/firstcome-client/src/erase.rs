//! The erasure of persons over HTTP.

use crate::HttpStore;
use crate::call::Call;
use firstcome_store::core::erase::{Erased, Rejection};
use firstcome_store::core::id::{ListingName, UserId};
use firstcome_store::{EraseAnswer, EraseStore};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct ErasureShown {
    claims: u64,
    tickets: u64,
    members: u64,
    records: u64,
    listings: u64,
}

/// Needs an admin key. A lost answer is asked for again: a repeat erases the rest, and then counts only what was left.
impl EraseStore for HttpStore {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        let told = self.service.call(&Call::post("/v1/erasures".to_owned(), &json!({"user": user.as_str()}))).await?;
        if told.is_yes() {
            let ErasureShown { claims, tickets, members, records, listings } = told.read()?;
            return Ok(Ok(Erased { claims, tickets, members, records, listings }));
        }
        let problem = told.problem().ok_or_else(|| told.strange())?;
        let rejection = match problem.code() {
            "points_held" => problem.number("points").map(Rejection::PointsHeld),
            "owns_auction" => {
                problem.word("listing").and_then(|name| ListingName::parse(name).ok()).map(Rejection::OwnsAuction)
            }
            _ => None,
        };
        rejection.map_or_else(|| Err(told.refused()), |rejection| Ok(Err(rejection)))
    }
}
