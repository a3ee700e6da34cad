//! Which rows show that a database went back, and which do not.

use crate::room::replica::{Lack, Stored, Witness};

const KNOWN: Stored =
    Stored { generation: 3, position: 50, digest: Some(7), ceiling: 900, admissions: 40, loss_accepted: 0 };

#[track_caller]
fn check(known: &Witness, row: Stored, lack: Option<Lack>) {
    assert_eq!(known.judge(&row).err(), lack, "{row:?}");
}

#[test]
fn a_row_that_has_all_that_was_known_is_right_and_any_other_went_back() {
    let known = Witness::new(KNOWN);
    // Later rows, in the same generation and in a later one that begins where the one before ended.
    check(&known, KNOWN, None);
    check(&known, Stored { position: 51, digest: Some(8), ceiling: 901, admissions: 41, ..KNOWN }, None);
    check(&known, Stored { generation: 4, ..KNOWN }, None);
    check(&known, Stored { digest: None, ..KNOWN }, None);
    // Rows that went back, in the order of the checks.
    let old = Stored { generation: 2, position: 49, digest: Some(6), ceiling: 899, admissions: 39, loss_accepted: 0 };
    check(&known, old, Some(Lack::Generation { had: 3, has: 2 }));
    check(&known, Stored { generation: 3, ..old }, Some(Lack::Position { had: 50, has: 49 }));
    // Another node has begun a generation from the old rows.
    check(&known, Stored { generation: 4, ..old }, Some(Lack::Position { had: 50, has: 49 }));
    check(&known, Stored { generation: 4, position: 50, ..old }, Some(Lack::Digest { position: 50 }));
    check(&known, Stored { generation: 4, position: 51, ..old }, Some(Lack::Ceiling { had: 900, has: 899 }));
    let last = Stored { generation: 4, position: 51, ceiling: 900, ..old };
    check(&known, last, Some(Lack::Admissions { had: 40, has: 39 }));
    check(&known, Stored { admissions: 40, ..last }, None);
}

#[test]
fn an_accepted_loss_counts_once_and_never_for_numbers_and_admissions() {
    let mut known = Witness::new(KNOWN);
    let accepted =
        Stored { generation: 4, position: 20, digest: Some(1), ceiling: 900, admissions: 40, loss_accepted: 4 };
    check(&known, accepted, None);
    check(&known, Stored { generation: 9, ..accepted }, None);
    // A loss that an operator accepted before this state was known does not count.
    check(&known, Stored { loss_accepted: 3, ..accepted }, Some(Lack::Position { had: 50, has: 20 }));
    check(&known, Stored { ceiling: 899, ..accepted }, Some(Lack::Ceiling { had: 900, has: 899 }));
    check(&known, Stored { admissions: 39, ..accepted }, Some(Lack::Admissions { had: 40, has: 39 }));
    known.learn(&accepted);
    check(&known, accepted, None);
    check(&known, Stored { position: 19, ..accepted }, Some(Lack::Position { had: 20, has: 19 }));
    // Earlier positions of the log do not count any more; its numbers do.
    known.learn_log(3, 50, Some(7), 950);
    check(&known, accepted, Some(Lack::Ceiling { had: 950, has: 900 }));
    check(&known, Stored { ceiling: 950, ..accepted }, None);
    known.learn_log(4, 21, None, 0);
    check(&known, Stored { ceiling: 950, ..accepted }, Some(Lack::Position { had: 21, has: 20 }));
}

#[test]
fn what_is_learned_never_falls() {
    let mut known = Witness::new(KNOWN);
    known.learn(&Stored { generation: 3, position: 10, digest: Some(1), ceiling: 1, admissions: 1, loss_accepted: 0 });
    known.learn_log(3, 50, None, 900);
    assert_eq!(known, Witness::new(KNOWN));
    // A later position replaces the digest, even if it has none.
    known.learn_log(3, 60, None, 900);
    check(&known, Stored { position: 60, digest: Some(99), ..KNOWN }, None);
    known.learn(&Stored { position: 60, digest: Some(99), ..KNOWN });
    check(&known, Stored { position: 60, digest: Some(98), ..KNOWN }, Some(Lack::Digest { position: 60 }));
    known.learn(&Stored { generation: 4, admissions: 41, ..KNOWN });
    check(&known, Stored { position: 60, ..KNOWN }, Some(Lack::Generation { had: 4, has: 3 }));
}
