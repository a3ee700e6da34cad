//! Notices a database that went back: one that lacks what it had acknowledged to this process, because a backup was restored or a
//! copy took over that was behind.
//!
//! This process remembers its last acknowledged commits, the *witness*. A database that goes back loses the end of its commits,
//! so the last ones tell. Every new connection is held against the witness before anything else is sent over it, and one
//! connection every [`LOOK_EVERY`]: a commit itself costs no round trip more.
//!
//! # Not promised
//! - A process that starts afterwards remembers nothing, and notices nothing.
//! - Behind a pooler that changes servers without closing our connections, the loss is noticed up to [`LOOK_EVERY`] late.

use super::SqlError;
use super::dialect::{LentConnection, Row, quoted};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_store::Faults;
use firstcome_store::{Fault, FaultKind};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// The fault's object.
const OBJECT: &str = "members and listings";
/// Commits that are remembered. More only lengthen the list of what is gone.
const TOLD_MAX: usize = 64;
/// Commits that are named when they are gone.
const NAMED_MAX: usize = 8;
/// How often one connection is held against the witness, everything else that happens.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The same while the database lacks something: until an operator accepts that, or all is there again.
pub const LOOK_EVERY_WHILE_BACK: Duration = Duration::from_millis(500);
/// A server of a cluster may show a commit of another one a moment late. So often it is asked again, after such a pause.
const AGAIN: u32 = 3;
/// See [`AGAIN`].
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A commit that was acknowledged.
#[derive(Clone, Debug)]
pub struct AcknowledgedCommit {
    /// Which row it is about.
    pub of: CommittedRow,
    /// The number that the transaction drew. No other transaction has it.
    pub writer: i64,
}

/// The row that shows it.
#[derive(Clone, Debug)]
pub enum CommittedRow {
    /// A record, which stays as it is.
    Record {
        /// Whose.
        member: MemberName,
        /// The number of the member's row.
        id: i64,
        /// The place of the record among the member's.
        number: u64,
    },
    /// This version of a listing, or a later one.
    Listing {
        /// Its name.
        name: ListingName,
        /// How often it has changed.
        version: u64,
    },
}

impl fmt::Display for AcknowledgedCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            CommittedRow::Record { member, number, .. } => write!(f, "member {member} record {number}"),
            CommittedRow::Listing { name, version } => write!(f, "listing {name} version {version}"),
        }
    }
}

impl AcknowledgedCommit {
    /// Whether a row shows it: its writer, and the version of a listing.
    const fn is_shown(&self, writer: i64, shown: u64) -> bool {
        match &self.of {
            CommittedRow::Record { .. } => writer == self.writer,
            CommittedRow::Listing { version, .. } => *version < shown || *version == shown && writer == self.writer,
        }
    }
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// All that was acknowledged is there, or an operator has accepted that it is not.
    Whole,
    /// Something is gone, and the fault is raised.
    Lacks,
}

/// What this process remembers of a database.
#[derive(Default)]
pub struct Watch {
    memory: Mutex<Memory>,
    went_back: AtomicBool,
    /// How many looks have begun.
    looks: AtomicU64,
    /// Whether something was acknowledged while a look was under way that did not know of it.
    is_due: AtomicBool,
    /// Where a database that went back is reported.
    pub faults: Faults,
}

firstcome_core::debug_by_name!(Watch);

#[derive(Clone, Default)]
struct Memory {
    /// Raised by an operator who accepts a loss. `None`: nothing is watched yet.
    generation: Option<i64>,
    told: VecDeque<AcknowledgedCommit>,
}

impl Watch {
    /// Begins to watch tables of this generation.
    pub fn begin(&self, generation: i64) {
        self.memory.lock().generation = Some(generation);
    }

    /// A number that grows with each look.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    /// Remembers a commit. To be called before it is told; `looks` is of a time before the commit.
    pub fn note(&self, told: AcknowledgedCommit, looks: u64) {
        let mut memory = self.memory.lock();
        if TOLD_MAX <= memory.told.len() {
            memory.told.pop_front();
        }
        memory.told.push_back(told);
        drop(memory);
        if looks != self.looks() {
            self.is_due.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a look is due before the next use of the database. The caller that asks takes it on.
    pub fn takes_look(&self) -> bool {
        self.is_due.load(Ordering::SeqCst) && self.is_due.swap(false, Ordering::SeqCst)
    }

    /// Whether the database lacks something, by what was seen last.
    pub fn is_back(&self) -> bool {
        self.went_back.load(Ordering::SeqCst)
    }

    /// Refuses while the database lacks something.
    pub fn allow(&self) -> Result<(), SqlError> {
        if !self.is_back() {
            return Ok(());
        }
        let says =
            self.faults.of(OBJECT).map_or_else(|| "the database went back".to_owned(), |fault| fault.detail.clone());
        Err(SqlError::Unavailable { kind: FaultKind::WentBack, says })
    }

    /// Holds what a connection shows against the witness, and raises the fault if something is gone. One round trip, or none
    /// while nothing is watched. An error says that nothing is known: the connection must not be used.
    pub async fn look(&self, mut connection: LentConnection<'_>) -> Result<Shown, sqlx::Error> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let mut gone = Vec::new();
        for _ in 0..AGAIN {
            let mut memory = self.memory.lock().clone();
            let Some(known) = memory.generation else { return Ok(Shown::Whole) };
            let rows = match connection.ask(question(&memory.told)).await {
                Ok(rows) => rows,
                Err(error) => match SqlError::in_transaction(&error) {
                    // The server answers, and the tables are not there.
                    SqlError::Broken { says } => {
                        self.raise(&says, memory.told.make_contiguous());
                        return Ok(Shown::Lacks);
                    }
                    _ => return Err(error),
                },
            };
            let (generation, missing) = judge(&rows, memory.told);
            if let Some(generation) = generation.filter(|generation| known < *generation) {
                self.accept(generation);
                return Ok(Shown::Whole);
            }
            gone = missing;
            if gone.is_empty() && generation == Some(known) {
                return Ok(Shown::Whole);
            }
            sleep(AGAIN_AFTER).await;
        }
        self.raise("it lacks what it had acknowledged to this process", &gone);
        Ok(Shown::Lacks)
    }

    /// Takes the fault back, after a look that found nothing missing.
    pub fn is_whole(&self) {
        self.went_back.store(false, Ordering::SeqCst);
        self.faults.clear_kind(OBJECT, FaultKind::WentBack);
    }

    /// An operator has accepted what is gone: this process goes on with what is there.
    fn accept(&self, generation: i64) {
        *self.memory.lock() = Memory { generation: Some(generation), told: VecDeque::new() };
        if self.is_back() {
            tracing::warn!(generation, "an operator accepted that acknowledged commits are gone");
        }
        self.is_whole();
    }

    fn raise(&self, says: &str, gone: &[AcknowledgedCommit]) {
        let mut list = gone.iter().rev().take(NAMED_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if NAMED_MAX < gone.len() {
            list.push_str(&format!(" and {} more", gone.len() - NAMED_MAX));
        }
        let says = format!("{says}; told and gone: {}", if list.is_empty() { "the generation" } else { &list });
        self.faults.raise(OBJECT, Fault::new(FaultKind::WentBack, says));
        self.went_back.store(true, Ordering::SeqCst);
    }
}

/// The generation, and which commits are gone. What cannot be read is not there.
fn judge(rows: &[Row], told: VecDeque<AcknowledgedCommit>) -> (Option<i64>, Vec<AcknowledgedCommit>) {
    let mut generation = None;
    let mut told: Vec<_> = told.into_iter().map(Some).collect();
    for row in rows {
        let (Ok(at), Ok(of), Ok(version)) = (row.integer(0), row.integer(1), row.integer(2)) else { continue };
        let Some(place) = usize::try_from(at).ok().and_then(|at| at.checked_sub(1)) else {
            generation = Some(of);
            continue;
        };
        if let Some(told) = told.get_mut(place)
            && told.as_ref().is_some_and(|told| told.is_shown(of, version.cast_unsigned()))
        {
            *told = None;
        }
    }
    (generation, told.into_iter().flatten().collect())
}

/// Asks for the generation as row 0, and for each commit as its place from 1 on.
fn question(told: &VecDeque<AcknowledgedCommit>) -> String {
    let mut text = "SELECT 0,generation,0 FROM firstcome_market_state WHERE id=1;".to_owned();
    for (at, told) in (1_usize..).zip(told) {
        match &told.of {
            // An anchor at that number or a later one was made from the record, and shows it as well.
            CommittedRow::Record { id, number, .. } => text.push_str(&format!(
                "SELECT {at},writer,0 FROM firstcome_record WHERE member={id} AND number={number};\
                 SELECT {at},{},0 FROM firstcome_anchor WHERE member={id} AND {number}<=number;",
                told.writer
            )),
            CommittedRow::Listing { name, .. } => {
                text.push_str(&format!("SELECT {at},writer,version FROM firstcome_listing WHERE name="));
                quoted(&mut text, name.as_str());
                text.push(';');
            }
        }
    }
    text
}
