//! Checks every stored invariant of members, listings and bids from the rows alone, by a replay of the history.

use super::auction::{for_each_bid, for_each_record, for_each_stray_record, listings, members};
use firstcome_store::Fault;
use firstcome_store::check::Check;
use firstcome_store::check::auction::Replay;
use rusqlite::Connection;

/// Checks auctions of one snapshot. Memory: about 100 bytes per bid of listings.
pub(super) fn check(snapshot: &Connection) -> Result<Vec<Check>, Fault> {
    let mut replay = Replay::new();
    for member in members(snapshot)? {
        let mut wallet = replay.begin(&member.wallet);
        for_each_record(snapshot, member.id, &member.wallet.member, |record, _| {
            replay.record(&mut wallet, &record);
            Ok(())
        })?;
        replay.member(&wallet, &member.wallet);
    }
    for_each_stray_record(snapshot, |key| {
        replay.ownerless_record(|| format!("record {key} of a member who does not exist"));
    })?;
    for row in listings(snapshot)? {
        replay.listing(row.id.0.into(), row.standing);
    }
    for_each_bid(snapshot, |row| {
        let (listing, bid) = (row.listing.0.into(), row.placed.bid);
        if let Some(request) = row.request {
            replay.key(listing, bid.number, request.key);
        }
        replay.bid(listing, bid);
        Ok(())
    })?;
    Ok(replay.finish())
}
