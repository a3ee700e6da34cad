//! Compares the acknowledged claims and numbers with the database of a cluster.

use super::super::facts::AuditCheck;
use super::super::messages::holder;
use super::super::record::{Call, History, Holder};
use super::CheckCounter;
use std::collections::{BTreeSet, HashMap};

/// The content of the database.
#[derive(Default)]
pub(crate) struct Recorded {
    /// The counter in the coupon's row.
    pub(crate) issued: u32,
    /// Serials and names, in the order of serials.
    pub(crate) claims: Vec<(u32, String)>,
    /// The ceiling of the room: no node draws a higher number. Absent without a room.
    pub(crate) ceiling: Option<u32>,
    /// The numbers that were admitted.
    pub(crate) admitted: BTreeSet<u32>,
}

pub(crate) fn all(history: &History, recorded: &Recorded) -> Vec<AuditCheck> {
    let mut checks = vec![claims_in_sql(history, recorded), serials_in_sql(history, recorded)];
    checks.extend(recorded.ceiling.map(|ceiling| room_in_sql(history, recorded, ceiling)));
    checks
}

/// Checks that every acknowledged claim is in the database, with its serial and holder.
fn claims_in_sql(history: &History, recorded: &Recorded) -> AuditCheck {
    let mut counter =
        CheckCounter::new("claims_in_sql", "every claim that was told is in the database, with its serial and holder");
    let rows: HashMap<u32, Holder> = recorded.claims.iter().map(|(serial, name)| (*serial, holder(name))).collect();
    for told in &history.told {
        let row = rows.get(&told.serial);
        counter.check(row == Some(&told.holder), || {
            format!("{:?} was told serial {}, and the database has {row:?} there", told.holder, told.serial)
        });
    }
    counter.done()
}

/// Checks that serials have no gap, no holder has two, and the service lists the same claims.
fn serials_in_sql(history: &History, recorded: &Recorded) -> AuditCheck {
    let says = "the database has serials 1..N without a gap, one for each holder, and the service lists the same";
    let mut counter = CheckCounter::new("serials_in_sql", says);
    let (count, stock) = (recorded.claims.len(), history.rules.stock as usize);
    counter.check(count == recorded.issued as usize, || format!("{count} rows, and {} are counted", recorded.issued));
    counter.check(count <= stock, || format!("{count} rows of {stock}"));
    counter.check(count == history.listed.len(), || format!("{count} rows, and {} are listed", history.listed.len()));
    let mut names = BTreeSet::new();
    for ((serial, name), due) in recorded.claims.iter().zip(1..) {
        counter.check(*serial == due, || format!("serial {serial} stands where {due} belongs"));
        counter.check(names.insert(name.as_str()), || format!("{name} has two serials, one of them {serial}"));
        let listed = history.listed.get(due as usize - 1);
        counter.check(listed.is_some_and(|listed| (listed.serial, listed.holder) == (*serial, holder(name))), || {
            format!("serial {serial} is that of {name}, and {listed:?} is listed")
        });
    }
    counter.done()
}

/// Checks that every acknowledged admission is in the database, and that no number is above the ceiling.
fn room_in_sql(history: &History, recorded: &Recorded, ceiling: u32) -> AuditCheck {
    let says = "every admission that was told is in the database, and no number that was told is above its ceiling";
    let mut counter = CheckCounter::new("room_in_sql", says);
    for seen in &history.admissions {
        let number = seen.number;
        counter.check(recorded.admitted.contains(&number), || {
            format!("number {number} was let in, and has no slot there")
        });
    }
    for record in history.records.iter().filter(|record| record.call == Call::Join && 0 < record.number) {
        let number = record.number;
        counter.check(number <= ceiling, || format!("number {number} was told, and the ceiling is {ceiling}"));
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    fn sold() -> (Story, Recorded) {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).admitted(1, 2, 3, 2, 90).claims(1, 4, 5, 1).claims(2, 6, 7, 2).listed(1, 1).listed(2, 2);
        let claims = vec![(1, "pass:1".to_owned()), (2, "pass:2".to_owned())];
        (story, Recorded { issued: 2, claims, ceiling: Some(10), admitted: BTreeSet::from([1]) })
    }

    fn breaches(change: impl FnOnce(&mut Recorded)) -> Vec<(&'static str, u64)> {
        let (story, mut recorded) = sold();
        change(&mut recorded);
        let checks = all(&story.history, &recorded);
        checks.iter().filter(|check| 0 < check.breaches).map(|check| (check.invariant, check.breaches)).collect()
    }

    #[test]
    fn what_was_told_is_there() {
        assert_eq!(breaches(|_| ()), []);
        let lost = breaches(|recorded| {
            recorded.claims.pop();
        });
        assert_eq!(lost, [("claims_in_sql", 1), ("serials_in_sql", 2)]);
        let other = breaches(|recorded| recorded.claims[0].1 = "pass:9".to_owned());
        assert_eq!(other, [("claims_in_sql", 1), ("serials_in_sql", 1)]);
        assert_eq!(breaches(|recorded| recorded.admitted.clear()), [("room_in_sql", 1)]);
        assert_eq!(breaches(|recorded| recorded.ceiling = Some(0)), [("room_in_sql", 1)]);
    }

    #[test]
    fn serials_there_have_no_gap_and_no_person_has_two() {
        assert_eq!(breaches(|recorded| recorded.claims[1].0 = 3), [("claims_in_sql", 1), ("serials_in_sql", 2)]);
        let twice = breaches(|recorded| {
            recorded.claims.push((3, "pass:1".to_owned()));
            recorded.issued = 3;
        });
        // It is not listed either.
        assert_eq!(twice, [("serials_in_sql", 3)]);
        assert_eq!(breaches(|recorded| recorded.issued = 4), [("serials_in_sql", 1)]);
    }
}
