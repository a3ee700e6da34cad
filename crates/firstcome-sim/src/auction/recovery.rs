//! Brings auctions back from their rows, as a start of the store in a file does, and shows that nothing is changed by it.

use super::rows::{ListingRow, Stored};
use firstcome_core::auction::Listing;
use firstcome_core::limits::POINTS_KEY_MS;
use firstcome_core::points::Wallet;
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::{KeyedMovement, StoredAuctions, StoredListing, StoredMember};

/// Rebuilds members and listings from their rows, through the rules: balances from records, highest bids from bids.
pub fn recover(stored: &Stored, now: Timestamp) -> Result<StoredAuctions, String> {
    let mut auctions = StoredAuctions::default();
    for (&id, row) in &stored.members {
        let mut wallet = Wallet::empty(row.member.clone());
        for found in stored.records.range((id, 0)..=(id, u64::MAX)).map(|(_, found)| found) {
            let restored = wallet.restore(&found.record);
            restored.map_err(|damage| format!("{}: {}", row.member, damage.as_str()))?;
        }
        auctions.members.push(StoredMember { id, wallet });
    }
    for (&id, row) in &stored.listings {
        let bids = || stored.bids.range((id, 0)..=(id, u32::MAX)).map(|(_, bid)| bid);
        let highest = bids().next_back().map(|bid| bid.placed.bid.clone());
        let name = &row.standing.name;
        let listing = Listing::restore(firstcome_core::auction::ListingStanding { highest, ..row.standing.clone() });
        let listing = listing.map_err(|damage| format!("{name}: {}", damage.as_str()))?;
        let keyed_bids = bids().filter_map(|bid| Some((bid.request?, bid.placed.clone()))).collect();
        auctions.listings.push(StoredListing { id, listing, keyed_bids, sale_request: row.sale_request });
    }
    let keyed = stored.records.iter().filter_map(|(&(member, _), row)| {
        let (balance, at) = (row.record.balance, row.record.at);
        Some(KeyedMovement { member, request: row.request?, balance, at })
    });
    auctions.keyed_movements = keyed.filter(|keyed| now <= keyed.at.plus_ms(POINTS_KEY_MS)).collect();
    auctions.keyed_movements.sort_by_key(|keyed| keyed.at);
    Ok(auctions)
}

/// What recovered auctions would write, were they to write everything again. Of movements only what the rules keep: the
/// chain that is in each wallet.
pub fn written_again(auctions: &StoredAuctions, stored: &Stored) -> Stored {
    let members = auctions.members.iter().map(|member| (member.id, member.wallet.clone())).collect();
    let row = |found: &StoredListing| {
        let (standing, sale_request) = (found.listing.standing().clone(), found.sale_request);
        (found.id, ListingRow { standing, sale_request })
    };
    let listings = auctions.listings.iter().map(row).collect();
    let mut bids = stored.bids.clone();
    for ((id, number), bid) in &mut bids {
        let found = auctions.listings.iter().find(|found| found.id == *id);
        let keyed = found.and_then(|found| found.keyed_bids.iter().find(|(_, placed)| placed.bid.number == *number));
        bid.request = keyed.map(|(request, _)| *request);
    }
    Stored { members, listings, bids, records: stored.records.clone() }
}

/// Why two sets of rows differ, if they do.
pub fn difference(before: &Stored, after: &Stored) -> Option<String> {
    let member = before.members.iter().find(|(id, wallet)| after.members.get(id) != Some(wallet));
    if let Some((id, wallet)) = member {
        return Some(format!("{wallet:?} became {:?}", after.members.get(id)));
    }
    let listing = before.listings.iter().find(|(id, row)| after.listings.get(id) != Some(row));
    if let Some((id, row)) = listing {
        return Some(format!("{row:?} became {:?}", after.listings.get(id)));
    }
    (before != after).then(|| "bids, records, members or listings came or went".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auction::rows::{BidRow, RecordRow};
    use firstcome_core::auction::{ListingSettings, PlacedBid};
    use firstcome_core::id::{ListingName, MemberName, RequestId};
    use firstcome_core::points::{Amount, Balance, Kind};
    use firstcome_store::embedded::journal::{ListingId, MemberId};

    struct OneWallet(Wallet);

    impl firstcome_core::auction::Wallets for OneWallet {
        fn balance(&self, _: &MemberName) -> Balance {
            self.0.balance
        }

        fn wallet(&mut self, _: &MemberName) -> &mut Wallet {
            &mut self.0
        }
    }

    /// One member with a charge under a key, who has bid under a key.
    fn stored() -> Stored {
        let at = Timestamp::clamped_us(1_000_000);
        let member = MemberName::parse("ann").unwrap();
        let (ten, end) = (Amount::new(10).unwrap(), at.plus_ms(1_000));
        let request = Some(RequestId { key: 7, body: 7 });
        let mut wallet = OneWallet(Wallet::empty(member.clone()));
        let mut records = vec![wallet.0.apply(Kind::Charge, ten, None, at).unwrap()];
        let owner = MemberName::parse("owner").unwrap();
        let settings = ListingSettings::auction(owner, ten, end);
        let mut lamp = Listing::new(ListingName::parse("lamp").unwrap(), settings, at).unwrap();
        let placed: PlacedBid = lamp.bid(&member, ten, &mut wallet, at, &mut records).unwrap();
        let mut stored = Stored::default();
        stored.members.insert(MemberId(1), wallet.0);
        let row = ListingRow { standing: lamp.standing().clone(), sale_request: None };
        stored.listings.insert(ListingId(1), row);
        stored.bids.insert((ListingId(1), 1), BidRow { member: MemberId(1), placed, request });
        for record in records {
            let request = if record.kind == Kind::Charge { request } else { None };
            stored.records.insert((MemberId(1), record.number), RecordRow { listing: None, record, request });
        }
        stored
    }

    #[test]
    fn what_comes_back_is_what_was_stored() {
        let stored = stored();
        let auctions = recover(&stored, Timestamp::clamped_us(2_000_000)).unwrap_or_else(|damage| panic!("{damage}"));
        assert_eq!(difference(&stored, &written_again(&auctions, &stored)), None);
        assert_eq!(auctions.keyed_movements.len(), 1);
    }

    #[test]
    fn the_key_of_a_movement_is_forgotten_when_its_time_is_over() {
        let last = Timestamp::clamped_us(1_000_000).plus_ms(POINTS_KEY_MS);
        let count = |now| recover(&stored(), now).map(|auctions| auctions.keyed_movements.len());
        assert_eq!(count(last), Ok(1));
        assert_eq!(count(Timestamp::clamped_us(last.as_us() + 1)), Ok(0));
    }

    #[test]
    fn rows_that_contradict_each_other_are_refused_or_a_difference() {
        let now = Timestamp::clamped_us(2_000_000);
        let mut gap = stored();
        gap.records.remove(&(MemberId(1), 1));
        assert!(recover(&gap, now).is_err());
        let mut no_bid = stored();
        no_bid.bids.clear();
        assert!(recover(&no_bid, now).is_err());
        let mut other = stored();
        if let Some(wallet) = other.members.get_mut(&MemberId(1)) {
            wallet.balance = Balance::default();
        }
        let auctions = recover(&other, now).unwrap_or_else(|damage| panic!("{damage}"));
        assert!(difference(&other, &written_again(&auctions, &other)).is_some());
    }
}
