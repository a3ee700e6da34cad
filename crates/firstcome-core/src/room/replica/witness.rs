//! Decides whether a database still holds what it once acknowledged.
//!
//! A database that was restored from a backup, or that failed over to a copy that was behind, goes back. Then numbers and
//! admissions that were told are unknown to it, and it would give them to other people. Each process remembers the highest state of
//! a room that the database has shown, by its rows or by what the log says is durable, and compares each later row with it.
//!
//! # Invariants
//! - In a database that keeps what it acknowledged, generation, position, ceiling and admissions of a room never fall, in any
//!   generation: a log that is made anew goes on at the position of the rows. At one position the digest is one number.
//! - An operator who accepts a loss begins a generation above all others. From then on positions and digests of before say nothing,
//!   but no number and no admission of before is given again.

use std::fmt;

/// What a database shows of a room in one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The log that counts.
    pub generation: i64,
    /// How far it is written down.
    pub position: u64,
    /// The digest of the room there. `None` if only the log says so, without it.
    pub digest: Option<u64>,
    /// The highest number that may be drawn.
    pub ceiling: u32,
    /// The highest admission.
    pub admissions: u64,
    /// The generation that began when an operator accepted a loss; 0 if none ever did.
    pub loss_accepted: i64,
}

/// What a database lacks that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The room is not there at all.
    Room,
    /// It names an earlier generation.
    Generation {
        /// What it had.
        had: i64,
        /// What it has.
        has: i64,
    },
    /// It ends earlier.
    Position {
        /// What it had.
        had: u64,
        /// What it has.
        has: u64,
    },
    /// It has another room at this position.
    Digest {
        /// Where.
        position: u64,
    },
    /// Numbers above its ceiling may have been drawn.
    Ceiling {
        /// What it had.
        had: u32,
        /// What it has.
        has: u32,
    },
    /// Admissions above its highest one were told.
    Admissions {
        /// What it had.
        had: u64,
        /// What it has.
        has: u64,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room => f.write_str("the room was in the database, and is not there any more"),
            Self::Generation { had, has } => write!(f, "the database was at generation {had}, and is at {has}"),
            Self::Position { had, has } => write!(f, "the database was at position {had}, and is at {has}"),
            Self::Digest { position } => {
                write!(f, "the database holds another room at position {position} than before")
            }
            Self::Ceiling { had, has } => {
                write!(f, "numbers up to {had} may have been told, and the database has a ceiling of {has}")
            }
            Self::Admissions { had, has } => {
                write!(f, "admissions up to {had} were told, and the database has {has}")
            }
        }
    }
}

/// The highest state of a room that is known to have been durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness(Stored);

impl Witness {
    /// Of a process that has seen this, and nothing before.
    pub const fn new(stored: Stored) -> Self {
        Self(stored)
    }

    /// Says what the database lacks. The row must have been read after everything that is known here became known.
    ///
    /// Order of checks: generation, position, digest, ceiling, admissions; the first three only if no operator has accepted a loss
    /// since.
    pub fn judge(&self, row: &Stored) -> Result<(), Lack> {
        let Self(known) = self;
        if row.loss_accepted <= known.generation {
            if row.generation < known.generation {
                return Err(Lack::Generation { had: known.generation, has: row.generation });
            }
            if row.position < known.position {
                return Err(Lack::Position { had: known.position, has: row.position });
            }
            let is_other = known.digest.zip(row.digest).is_some_and(|(known, now)| known != now);
            if row.position == known.position && is_other {
                return Err(Lack::Digest { position: row.position });
            }
        }
        // Not even an operator can let two people have one number: who accepts a loss goes above all of them.
        if row.ceiling < known.ceiling {
            return Err(Lack::Ceiling { had: known.ceiling, has: row.ceiling });
        }
        if row.admissions < known.admissions {
            return Err(Lack::Admissions { had: known.admissions, has: row.admissions });
        }
        Ok(())
    }

    /// Remembers what was seen to be durable, by a row that was judged, or by the log. Nothing that is known ever falls, except for
    /// positions of before an accepted loss.
    pub fn learn(&mut self, seen: &Stored) {
        let Self(known) = self;
        let is_accepted = known.generation < seen.loss_accepted;
        if is_accepted || known.position < seen.position {
            (known.position, known.digest) = (seen.position, seen.digest);
        } else if known.position == seen.position {
            known.digest = known.digest.or(seen.digest);
        }
        known.generation = known.generation.max(seen.generation);
        known.loss_accepted = known.loss_accepted.max(seen.loss_accepted);
        known.ceiling = known.ceiling.max(seen.ceiling);
        known.admissions = known.admissions.max(seen.admissions);
    }

    /// Remembers that a log says that the database holds all of it up to a position. A log of before an accepted loss says
    /// nothing of positions any more.
    pub fn learn_log(&mut self, generation: i64, position: u64, digest: Option<u64>, ceiling: u32) {
        let Self(known) = self;
        known.ceiling = known.ceiling.max(ceiling);
        if known.loss_accepted <= generation {
            let said = Stored { generation, position, digest, ..*known };
            self.learn(&said);
        }
    }
}
