//! Checks the records of members: a hash chain that the audit recomputes.

use super::super::CheckCounter;
use super::who;
use crate::drill::auction::record::{History, Kind, Movement, STRANGER};
use crate::drill::facts::AuditCheck;
use sha2::{Digest, Sha256};

/// Checks that records have numbers without gaps, rising instants, deltas of their kind, and correct hashes.
pub(super) fn records_chained(history: &History) -> AuditCheck {
    let says =
        "the records of a member are 1..N, each with the deltas of its kind and the hash of itself and all before it";
    let mut counter = CheckCounter::new("records_chained", says);
    for (member, records) in (0..).zip(&history.records) {
        let (mut chain, mut last_us) = ([0; 32], i64::MIN);
        for (number, record) in (1..).zip(records) {
            let fits = record.number == number && last_us <= record.at_us && deltas_fit(record);
            chain = chained(history, member, record, chain);
            counter.check(fits && chain == record.hash, || {
                let hash = if chain == record.hash { "right" } else { "wrong" };
                format!("{}: record {} where {number} belongs, hash {hash}: {record:?}", who(member), record.number)
            });
            // A wrong record must not make all later ones wrong.
            (chain, last_us) = (record.hash, record.at_us);
        }
    }
    counter.done()
}

fn deltas_fit(record: &Movement) -> bool {
    let (total, available) = record.kind.signs();
    let amount = record.available_delta * available;
    0 < amount && record.total_delta == total * amount
}

/// Returns the chain's hash after this record, as the documentation of the store defines it.
pub(super) fn chained(history: &History, member: u32, record: &Movement, before: [u8; 32]) -> [u8; 32] {
    let kind = Kind::ALL.iter().find(|(kind, ..)| *kind == record.kind).map_or(0, |(_, _, number)| *number);
    let listing = if record.listing == STRANGER { String::new() } else { history.names.listing(record.listing) };
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(record.number.to_be_bytes());
    hash.update([kind]);
    hash.update(record.available_delta.unsigned_abs().to_be_bytes());
    hash.update((history.start_wall_us + record.at_us).to_be_bytes());
    hash.update(record.bid.to_be_bytes());
    for name in [history.names.member(member), listing] {
        // A name has 128 bytes at most.
        hash.update([name.len() as u8]);
        hash.update(name.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn no_record_can_be_changed_or_left_out() {
        let mut story = Story::new();
        story.charge(1, 100, 1).charge(2, 100, 1).bid(1, 10, 100).bid(2, 15, 200);
        story.chain();
        assert_eq!(records_chained(&story.history).breaches, 0);
        let changes: [fn(&mut Vec<Movement>); 6] = [
            |records| records[1].available_delta -= 1,
            |records| records[1].at_us += 1,
            |records| records[1].bid += 1,
            |records| records[1].kind = Kind::Release,
            |records| records[0].hash[31] ^= 1,
            |records| records.retain(|record| record.number != 2),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut other = story.clone();
            change(&mut other.history.records[1]);
            assert!(0 < records_chained(&other.history).breaches, "change {at}");
        }
    }
}
