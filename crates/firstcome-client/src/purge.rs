//! Purges of a service, for an operator's program.

use crate::HttpStore;
use crate::call::Call;
use crate::instant;
use firstcome_store::core::time::Timestamp;
use firstcome_store::purge::{ClockCheck, PurgeMode};
use firstcome_store::{PurgeAnswer, PurgeRejection, Purged};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct PurgeShown {
    requests: u64,
    tickets: u64,
    admissions: u64,
    claims: u64,
    coupons: u64,
    dead_letters: u64,
    /// A service from before does not say it, and removes none.
    #[serde(default)]
    records: u64,
    /// The same of heads.
    #[serde(default)]
    heads: u64,
}

impl HttpStore {
    /// Has the service purge what it does not keep any longer by its own settings. Needs an admin key.
    ///
    /// After [`StoreError::Unknown`](firstcome_store::StoreError::Unknown) the purge may go on in the service: a repeat is refused as
    /// long as it runs, and then counts what was left.
    pub async fn purge(&self, mode: PurgeMode, clock: ClockCheck) -> PurgeAnswer {
        let body = json!({"dry_run": mode == PurgeMode::Count, "trust_clock": clock == ClockCheck::Skip});
        let told = self.service.call(&Call::post("/v1/purge".to_owned(), &body)).await?;
        if told.is_yes() {
            let PurgeShown { requests, tickets, admissions, claims, coupons, dead_letters, records, heads } =
                told.read()?;
            return Ok(Ok(Purged { requests, tickets, admissions, claims, coupons, dead_letters, records, heads }));
        }
        let problem = told.problem().ok_or_else(|| told.strange())?;
        let last_at: Option<Timestamp> = problem.word("last_at").and_then(instant::parse);
        let rejection = match (problem.word("reason"), last_at) {
            (Some("purge_running"), _) => Some(PurgeRejection::Running),
            (Some("clock_behind"), Some(at)) => Some(PurgeRejection::ClockBehind(at)),
            (Some("clock_ahead"), Some(at)) => Some(PurgeRejection::ClockAhead(at)),
            _ => None,
        };
        rejection.map_or_else(|| Err(told.refused()), |rejection| Ok(Err(rejection)))
    }
}
