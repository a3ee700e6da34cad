//! Invariant 8, over a cluster: what callers were told stays true, except for what an operator took away.
//!
//! - No serial is told to two people, unless the database went back in between.
//! - A claim that was told to be stored is stored, with its serial, unless the operator put an older database back.
//! - A claim that was told early is stored in the end, unless the operator took it away, or Redis crashed and had stopped to sync its writes
//!   no longer before the answer than a node needs to notice.
//! - "Sold out" is told only when all are issued.

use super::{NodesEvidence, Violation};
use crate::cluster::history::{Answer, CHECK_EVERY, ClusterReply, History};
use crate::cluster::sql::{Sql, User};
use std::collections::BTreeMap;

const NAME: &str = "acknowledged_nodes";

/// Looks for an answer that did not stay true.
pub fn check(evidence: &NodesEvidence<'_>) -> Result<(), Violation> {
    let found = |detail| Violation::new(NAME, evidence.seed, detail);
    serials_differ(evidence.history).map_err(found)?;
    let Some(stored) = evidence.stored else { return Ok(()) };
    for answer in &evidence.history.answers {
        is_true(evidence.history, stored, answer).map_err(found)?;
    }
    Ok(())
}

fn serials_differ(history: &History) -> Result<(), String> {
    if history.went_back {
        return Ok(());
    }
    let mut told: BTreeMap<u32, User> = BTreeMap::new();
    for answer in &history.answers {
        let ClusterReply::Issued(serial) = answer.told else { continue };
        let first = *told.entry(serial).or_insert(answer.user);
        if first != answer.user {
            return Err(format!("serial {serial} was told to {first} and to {}", answer.user));
        }
    }
    Ok(())
}

fn is_true(history: &History, stored: &Sql, answer: &Answer) -> Result<(), String> {
    let Answer { user, tag, at, told } = *answer;
    let claim = stored.claims.get(&user);
    match told {
        ClusterReply::Issued(serial) if !history.went_back && claim.map(|claim| claim.serial) != Some(serial) => {
            Err(format!("{user} was told serial {serial}, and {claim:?} is stored"))
        }
        ClusterReply::Placed if claim.is_none() => {
            let is_excused = history.went_back
                || history.taken_back.contains(&tag)
                || history.forgotten.contains(&tag)
                || history.accepted_at.is_some_and(|accepted| at <= accepted)
                || history.crashed.get(&tag).is_some_and(|unfit_since| at <= unfit_since + CHECK_EVERY);
            if is_excused { Ok(()) } else { Err(format!("{user} was told of a place at step {at}, and has no claim")) }
        }
        ClusterReply::SoldOut if !history.went_back && stored.row.issued < stored.limit() => {
            Err(format!("{user} was told that all are issued, and {} of {} are", stored.row.issued, stored.limit()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::redis::Entry;

    fn stored(users: &[User]) -> Sql {
        let mut sql = Sql::new(2);
        for (user, ticket) in users.iter().zip(1..) {
            let entry = Entry { ticket, user: *user, tag: u64::from(*user), at: 1 };
            sql.write(sql.row, &[entry]).unwrap();
        }
        sql
    }

    #[track_caller]
    fn check_answers(answers: &[(User, ClusterReply)], change: impl FnOnce(&mut History), stored: &Sql, is_fine: bool) {
        let answers =
            answers.iter().map(|(user, told)| Answer { user: *user, tag: u64::from(*user), at: 1_000, told: *told });
        let mut history = History { answers: answers.collect(), ..History::default() };
        change(&mut history);
        let checked = check(&NodesEvidence { seed: 0, history: &history, stored: Some(stored) });
        assert_eq!(checked.is_ok(), is_fine, "{checked:?}");
    }

    #[test]
    fn answers_that_did_not_stay_true_are_found() {
        let (none, one, two) = (stored(&[]), stored(&[7]), stored(&[7, 8]));
        check_answers(&[(7, ClusterReply::Issued(1)), (8, ClusterReply::Issued(2))], |_| {}, &two, true);
        check_answers(&[(7, ClusterReply::Issued(1)), (8, ClusterReply::Issued(1))], |_| {}, &two, false);
        check_answers(&[(7, ClusterReply::Issued(1))], |_| {}, &none, false);
        check_answers(&[(7, ClusterReply::Issued(1))], |history| history.went_back = true, &none, true);
        check_answers(&[(7, ClusterReply::SoldOut)], |_| {}, &one, false);
        check_answers(&[(9, ClusterReply::SoldOut)], |_| {}, &two, true);
    }

    #[test]
    fn a_place_that_came_to_nothing_is_found_unless_it_could_not_be_known() {
        let none = stored(&[]);
        let told = [(7, ClusterReply::Placed)];
        check_answers(&told, |_| {}, &none, false);
        check_answers(&told, |_| {}, &stored(&[7]), true);
        let crashed = |unfit_since: u64| move |history: &mut History| history.crashed.extend([(7, unfit_since)]);
        check_answers(&told, crashed(1_000 - CHECK_EVERY), &none, true);
        check_answers(&told, crashed(999 - CHECK_EVERY), &none, false);
        check_answers(&told, |history| history.forgotten.extend([7]), &none, true);
        check_answers(&told, |history| history.accepted_at = Some(1_000), &none, true);
        check_answers(&told, |history| history.accepted_at = Some(999), &none, false);
    }
}
