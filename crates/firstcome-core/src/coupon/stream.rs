//! Decides whether the database still holds what it acknowledged, from the marks of node, sequencer and database.
//!
//! A node writes tickets of one stream to the database in their order. The position is the last ticket that is written. Position and
//! issued never fall, across generations of the sequencer. A database that was restored from a backup, or that failed over to a
//! copy that was behind, shows less than it acknowledged: then serials would be given out a second time.

/// How far the database had come when a node read or wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Of the gate whose stream counted.
    pub generation: i64,
    /// The last ticket that was written.
    pub position: u64,
    /// Serials that were given out.
    pub issued: u32,
    /// The digest of the entry with that ticket.
    pub anchor: i64,
}

/// What the gate says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequencerMark {
    /// `None` if no gate is open.
    pub generation: Option<i64>,
    /// The last ticket that was drawn.
    pub ticket: Option<u64>,
    /// The last ticket that the gate was told to be in the database. A node tells it after the commit.
    pub position: Option<u64>,
    /// Whether the outbox has the entry with the database's position, what follows it follows without a gap, and the gate judges
    /// by no later settings than the database has.
    pub goes_on: GoesOn,
}

/// Whether the stream of a gate goes on where the database is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoesOn {
    /// It does.
    Yes,
    /// Something is missing, or is another one.
    No,
}

/// What the database says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatabaseMark {
    /// How far it is.
    pub at: Known,
    /// The generation that began when an operator accepted that acknowledged rows are gone; 0 if none ever did.
    pub loss_accepted: i64,
}

/// How gate and database stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// The database holds a prefix of the gate's stream.
    Whole,
    /// The gate must be made anew from the database: it has forgotten something, or never was.
    Rebuild,
    /// The database lacks what it acknowledged. No node may issue anything.
    WentBack,
}

impl DatabaseMark {
    /// Whether the database lacks what a node knew before it began to read this row. Order of checks:
    /// 1. A generation below the known one: it lacks it.
    /// 2. The same generation: it lacks it if the position or the issued are lower, or the position is the same and the anchor is
    ///    another one: then the database has gone back and on, by another stream.
    /// 3. A later generation, and an operator accepted a loss after the known one: it lacks nothing.
    /// 4. A later generation: it lacks it if the position or the issued are lower.
    pub fn lacks(&self, known: &Known) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::WentBackUnseen) {
            return false;
        }
        let at = &self.at;
        let is_lower = at.position < known.position || at.issued < known.issued;
        if at.generation < known.generation {
            return true;
        }
        if at.generation == known.generation {
            return is_lower || (at.position == known.position && at.anchor != known.anchor);
        }
        self.loss_accepted <= known.generation && is_lower
    }

    /// Whether the database lacks what the gate was told to be in it, if the row was read after the gate: a generation below that
    /// of the gate, or a position below in the same generation.
    pub fn lacks_of(&self, gate: &SequencerMark) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::WentBackUnseen) {
            return false;
        }
        let Some(generation) = gate.generation else { return false };
        let has_heard = gate.position.is_some_and(|position| self.at.position < position);
        self.at.generation < generation || (self.at.generation == generation && has_heard)
    }
}

/// Whether a Redis that has answered a write finds it again after a restart, as a node saw it last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// It syncs each write before it answers.
    Everything,
    /// It may lose what it has answered last, or the node does not know.
    NotAll,
}

/// Whether a node may acknowledge a claim once its place is certain, before the database holds it: only a Redis that keeps
/// everything keeps the place.
pub fn may_acknowledge_early(redis: Keeps) -> bool {
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is(crate::planted::Bug::UnfitUnseen) {
        return true;
    }
    redis == Keeps::Everything
}

/// How gate and database stand. `known` is what the node knew before it looked at the gate, and the row was read after both. Order
/// of checks:
/// 1. The database lacks what the node knew, or what the gate was told: [`Stream::WentBack`].
/// 2. The gate is not open, or is of an earlier generation: [`Stream::Rebuild`].
/// 3. The gate has drawn fewer tickets than the database has written, or its stream does not go on there: [`Stream::Rebuild`].
/// 4. Otherwise [`Stream::Whole`].
///
/// A gate that has forgotten is behind the database, so it never leads to [`Stream::WentBack`].
pub fn judge(known: &Known, gate: &SequencerMark, row: &DatabaseMark) -> Stream {
    if row.lacks(known) || row.lacks_of(gate) {
        return Stream::WentBack;
    }
    if gate.generation != Some(row.at.generation) {
        return Stream::Rebuild;
    }
    let has_drawn = gate.ticket.is_some_and(|ticket| row.at.position <= ticket);
    if has_drawn && gate.goes_on == GoesOn::Yes { Stream::Whole } else { Stream::Rebuild }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(generation: i64, position: u64, issued: u32, anchor: i64) -> Known {
        Known { generation, position, issued, anchor }
    }

    const fn gate(generation: i64, ticket: u64, position: u64) -> SequencerMark {
        let (ticket, position) = (Some(ticket), Some(position));
        SequencerMark { generation: Some(generation), ticket, position, goes_on: GoesOn::Yes }
    }

    const NO_GATE: SequencerMark =
        SequencerMark { generation: None, ticket: None, position: None, goes_on: GoesOn::No };
    const TORN: SequencerMark = SequencerMark { goes_on: GoesOn::No, ..gate(3, 9, 7) };
    /// What the node knows in all rows.
    const KNOWN: Known = at(3, 7, 6, 70);

    #[test]
    fn only_a_database_that_lacks_what_was_told_has_gone_back() {
        use Stream::{Rebuild, WentBack, Whole};
        // Gate, row, accepted, verdict.
        let rows = [
            (gate(3, 7, 7), KNOWN, 0, Whole),
            (gate(3, 9, 7), KNOWN, 0, Whole),
            (gate(3, 9, 7), at(3, 9, 8, 90), 0, Whole), // Another node has written on.
            (gate(3, 9, 2), KNOWN, 0, Whole),           // The gate has not heard yet.
            // Redis forgets: nothing but the gate is behind.
            (NO_GATE, KNOWN, 0, Rebuild),
            (gate(2, 9, 9), KNOWN, 0, Rebuild),
            (gate(3, 5, 5), KNOWN, 0, Rebuild),
            (TORN, KNOWN, 0, Rebuild),
            (gate(3, 7, 7), at(4, 7, 6, 71), 0, Rebuild), // Another node makes it anew.
            // The database went back, and the node knows it.
            (NO_GATE, at(3, 6, 5, 60), 0, WentBack),
            (gate(3, 7, 7), at(3, 6, 5, 60), 0, WentBack),
            (NO_GATE, at(2, 7, 6, 70), 0, WentBack),
            (NO_GATE, at(3, 7, 5, 70), 0, WentBack),
            (NO_GATE, at(3, 7, 6, 71), 0, WentBack),
            // It went back, and a node that knew nothing made the gate anew.
            (gate(4, 6, 6), at(4, 6, 5, 60), 0, WentBack),
            (gate(4, 6, 6), at(4, 8, 5, 60), 0, WentBack),
            // An operator accepted the loss, and another one later, or only one before.
            (gate(4, 6, 6), at(4, 6, 5, 60), 4, Whole),
            (gate(3, 9, 7), at(9, 2, 2, 20), 9, Rebuild),
            (gate(9, 2, 2), at(9, 2, 2, 20), 3, WentBack),
            // It went back, and the gate alone knows it.
            (gate(3, 9, 8), KNOWN, 0, WentBack),
            (gate(4, 7, 7), KNOWN, 0, WentBack),
            (gate(4, 0, 0), KNOWN, 3, WentBack),
        ];
        for (gate, at, loss_accepted, verdict) in rows {
            assert_eq!(
                judge(&KNOWN, &gate, &DatabaseMark { at, loss_accepted }),
                verdict,
                "{gate:?} {at:?} {loss_accepted}"
            );
        }
    }
}
