//! Decides whether a database still holds what it once acknowledged.
//!
//! A database that was restored from a backup, or that failed over to a copy that was behind, goes back. It then does not
//! know numbers and admissions that nodes have reported, and would give them to other visitors. Each process remembers the
//! highest state of a room that the database has shown, by its rows or by durable marks in the log. It compares each later
//! row with that state.
//!
//! # Invariants
//! - In a database that keeps what it acknowledged, generation, position, ceiling and admissions of a room never fall, in any
//!   generation: a rebuilt log goes on at the position of the rows. At one position the digest is one number.
//! - An operator who accepts a loss begins a generation above all others. From then on earlier positions and digests do not
//!   count, but no earlier number and no earlier admission is given again.

use std::fmt;

/// What a database shows of a room at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The generation of the log that counts.
    pub generation: i64,
    /// The position up to which the log is written to SQL.
    pub position: u64,
    /// The digest of the room at that position. `None` if only the log reports the position, without a digest.
    pub digest: Option<u64>,
    /// The highest number that may be drawn.
    pub ceiling: u32,
    /// The highest admission.
    pub admissions: u64,
    /// The generation that began when an operator accepted a loss; 0 if none did.
    pub loss_accepted: i64,
}

/// What a database held once and lacks now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The room is missing.
    Room,
    /// The row names an earlier generation.
    Generation {
        /// The generation before.
        had: i64,
        /// The generation now.
        has: i64,
    },
    /// The row has an earlier position.
    Position {
        /// The position before.
        had: u64,
        /// The position now.
        has: u64,
    },
    /// The row has another digest at the same position.
    Digest {
        /// The position.
        position: u64,
    },
    /// The row has a lower ceiling, so numbers above it may have been drawn.
    Ceiling {
        /// The ceiling before.
        had: u32,
        /// The ceiling now.
        has: u32,
    },
    /// The row has fewer admissions, so later ones were reported.
    Admissions {
        /// The highest admission before.
        had: u64,
        /// The highest admission now.
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

/// The highest state of a room that is known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness(Stored);

impl Witness {
    /// Makes the witness of a process that has seen this row, and nothing before.
    pub const fn new(stored: Stored) -> Self {
        Self(stored)
    }

    /// Compares a row with the known state. The caller must have read the row after everything that this witness knows.
    ///
    /// Order of checks: generation, position, digest, ceiling, admissions. The first three count only if no operator has
    /// accepted a loss since.
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
        // Not even an operator may give one number to two visitors: accepting a loss raises the ceiling above all of them.
        if row.ceiling < known.ceiling {
            return Err(Lack::Ceiling { had: known.ceiling, has: row.ceiling });
        }
        if row.admissions < known.admissions {
            return Err(Lack::Admissions { had: known.admissions, has: row.admissions });
        }
        Ok(())
    }

    /// Remembers a durable state from a row that was judged, or from the log. No known value falls, except for the position
    /// after an accepted loss.
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

    /// Remembers that a log marks everything up to a position as durable. The position of a log from before an accepted loss
    /// does not count.
    pub fn learn_log(&mut self, generation: i64, position: u64, digest: Option<u64>, ceiling: u32) {
        let Self(known) = self;
        known.ceiling = known.ceiling.max(ceiling);
        if known.loss_accepted <= generation {
            let said = Stored { generation, position, digest, ..*known };
            self.learn(&said);
        }
    }
}
