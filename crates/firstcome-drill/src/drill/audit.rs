//! The audit judges every recorded answer from the outside. Only certain facts count: an effect happened between sent
//! and received, and a lost request may or may not have had one.

mod admissions;
mod answers;
pub(crate) mod auction;
mod claims;
mod fenwick;
pub(crate) mod in_sql;
mod numbers;
mod order;
mod pages;
mod positions;
mod slots;
#[cfg(test)]
mod story;
mod tickets;

use super::facts::AuditCheck;
use super::record::History;
pub(crate) use admissions::admission_speed;
use firstcome::Check;
pub(crate) use in_sql::Recorded;
use tickets::Tickets;

/// The most examples that a check keeps.
const EXAMPLES_MAX: usize = 5;

/// How long a person without any contact counts as present, at least.
pub(crate) const PRESENT_US: u64 = 30_000_000;

/// A check while it counts.
pub(crate) struct CheckCounter(AuditCheck);

impl CheckCounter {
    pub(crate) const fn new(invariant: &'static str, says: &'static str) -> Self {
        Self(AuditCheck { invariant, says, checked: 0, breaches: 0, examples: Vec::new() })
    }

    /// Counts one case, and keeps the example if it is a breach.
    pub(crate) fn check(&mut self, fine: bool, example: impl FnOnce() -> String) {
        self.0.checked += 1;
        if !fine {
            self.0.breaches += 1;
            if self.0.examples.len() < EXAMPLES_MAX {
                self.0.examples.push(example());
            }
        }
    }

    pub(crate) fn done(self) -> AuditCheck {
        self.0
    }
}

/// Formats an instant for an example, in seconds since the start.
pub(crate) fn seconds(at_us: u64) -> String {
    format!("{:.6} s", at_us as f64 / 1e6)
}

/// Every check of an event, with or without a room.
pub(crate) fn all(history: &History, room: bool) -> Vec<AuditCheck> {
    let mut checks = vec![
        claims::no_oversell(history),
        claims::one_each(history),
        claims::fifo_serials(history),
        answers::cheats_refused(history),
        answers::answers_known(history, room),
    ];
    let tickets = Tickets::of(history);
    checks.push(answers::acknowledged_stays(history));
    if room {
        checks.extend([
            numbers::number_once(history),
            numbers::fifo_numbers(&tickets),
            positions::position_falls(&tickets),
            positions::position_true(&tickets),
            admissions::admission_rate(&tickets),
            admissions::active_cap(&tickets),
            order::admitted_in_order(&tickets),
            order::absent_not_admitted(&tickets),
            slots::one_state(&tickets),
            slots::pass_lives_with_slot(&tickets),
            slots::pass_dies_with_slot(&tickets),
            slots::slot_returns(history),
        ]);
    }
    if !history.pages.is_empty() {
        checks.extend([pages::own_number(history), pages::place_falls(history), pages::end_is_true(history)]);
    }
    checks
}

/// Turns the results of the offline check of the stores into one check of the audit.
pub(crate) fn stored(stored: Vec<Check>) -> AuditCheck {
    let mut counter = CheckCounter::new(
        "verify",
        "every stored invariant holds after the event, in the data directory or the database",
    );
    for check in stored {
        counter.0.checked += check.checked;
        counter.0.breaches += check.breaches;
        if 0 < check.breaches && counter.0.examples.len() < EXAMPLES_MAX {
            counter.0.examples.push(format!("{}: {}", check.invariant, check.examples.join("; ")));
        }
    }
    counter.done()
}
