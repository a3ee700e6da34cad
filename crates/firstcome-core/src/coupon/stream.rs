//! Decides whether the database still holds what it acknowledged, from the marks of node, sequencer and database.
//!
//! A node writes the tickets of one stream to the database in order. The position is the last ticket written. Position and
//! issued never fall, across generations of the sequencer. A database that was restored from a backup, or that failed over
//! to a copy that was behind, shows less than it acknowledged: then nodes would give serials out a second time.

/// How far the database had come when a node read or wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The generation of the sequencer whose stream counted.
    pub generation: i64,
    /// The last ticket written.
    pub position: u64,
    /// The number of issued serials.
    pub issued: u32,
    /// The digest of the entry with that ticket.
    pub anchor: i64,
}

/// The mark of the sequencer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequencerMark {
    /// The generation of the sequencer; `None` if no sequencer is open.
    pub generation: Option<i64>,
    /// The last ticket drawn.
    pub ticket: Option<u64>,
    /// The last ticket that a node has reported to the sequencer as stored. Nodes report it after the commit.
    pub position: Option<u64>,
    /// Whether three things hold: the outbox has the entry at the database's position, later entries follow without a gap, and
    /// the sequencer's settings are not newer than those of the database.
    pub goes_on: GoesOn,
}

/// Whether the stream of a sequencer continues from the database's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoesOn {
    /// It continues.
    Yes,
    /// An entry is missing, or differs.
    No,
}

/// The mark of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatabaseMark {
    /// How far the database is.
    pub at: Known,
    /// The generation that began when an operator accepted the loss of acknowledged rows; 0 if none did.
    pub loss_accepted: i64,
}

/// How the sequencer and the database compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// The database holds a prefix of the sequencer's stream.
    Whole,
    /// The sequencer must be rebuilt from the database: it lost its state, or never had any.
    Rebuild,
    /// The database lacks what it acknowledged. No node may issue anything.
    WentBack,
}

impl DatabaseMark {
    /// Returns whether the database lacks what a node knew before it began to read this row. Order of checks:
    /// 1. A lower generation than the known one: it lacks something.
    /// 2. The same generation: it lacks something if position or issued are lower. It also does if the position is the same with
    ///    another anchor: the database went back and then on, with another stream.
    /// 3. A later generation, and an operator accepted a loss after the known one: it lacks nothing.
    /// 4. A later generation: it lacks something if position or issued are lower.
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

    /// Returns whether the database lacks what a node reported to the sequencer as stored. The row must be read after the mark.
    /// True for a generation below the sequencer's, or a lower position in the same generation.
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

/// Whether a Redis keeps an acknowledged write across a restart, as a node saw it last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Redis syncs each write before it answers.
    Everything,
    /// Redis may lose its last acknowledged writes, or the node does not know.
    NotAll,
}

/// Returns whether a node may acknowledge a claim once its place is certain, before the database holds it. Only a Redis that
/// keeps everything keeps the place.
pub fn may_acknowledge_early(redis: Keeps) -> bool {
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is(crate::planted::Bug::UnfitUnseen) {
        return true;
    }
    redis == Keeps::Everything
}

/// Compares the sequencer and the database. `known` is what the node knew before it read the sequencer. The caller must read
/// the row after both. Order of checks:
/// 1. The database lacks what the node knew, or what a node reported to the sequencer: [`Stream::WentBack`].
/// 2. The sequencer is not open, or has an earlier generation: [`Stream::Rebuild`].
/// 3. The sequencer has drawn fewer tickets than the database has written, or its stream does not continue from there:
///    [`Stream::Rebuild`].
/// 4. Otherwise [`Stream::Whole`].
///
/// A sequencer that lost its state is behind the database, so it never leads to [`Stream::WentBack`].
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
        // Sequencer, row, generation of the accepted loss, verdict.
        let rows = [
            (gate(3, 7, 7), KNOWN, 0, Whole),
            (gate(3, 9, 7), KNOWN, 0, Whole),
            (gate(3, 9, 7), at(3, 9, 8, 90), 0, Whole), // Another node has written on.
            (gate(3, 9, 2), KNOWN, 0, Whole),           // The gate has not heard yet.
            // Redis forgets: only the sequencer is behind.
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
            // The database went back, and a node that knew nothing rebuilt the sequencer.
            (gate(4, 6, 6), at(4, 6, 5, 60), 0, WentBack),
            (gate(4, 6, 6), at(4, 8, 5, 60), 0, WentBack),
            // An operator accepted this loss; a later one; an earlier one.
            (gate(4, 6, 6), at(4, 6, 5, 60), 4, Whole),
            (gate(3, 9, 7), at(9, 2, 2, 20), 9, Rebuild),
            (gate(9, 2, 2), at(9, 2, 2, 20), 3, WentBack),
            // The database went back, and only the sequencer knows it.
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
