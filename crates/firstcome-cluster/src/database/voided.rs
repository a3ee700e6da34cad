//! Rows of tickets that a closing made void: those with a number below the first number of their room.
//!
//! Such rows have no effect: each reader of a room leaves them out. No row of such a number is ever added, so they can be deleted
//! at any time, by any node, and twice.

use super::Database;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::Reader;
use std::fmt::Write as _;
use tokio::time::Instant;

/// Numbers whose rows are deleted in one transaction: four rows each at most. Other transactions never wait longer for the
/// disk than one page takes.
pub(crate) const VOIDED_NUMBERS: u32 = 2_048;

/// How many sorts of rows a room has.
pub(crate) const SORT_COUNT: usize = 4;

/// The rows that a room has, each sort with its condition.
const SORTS: [(&str, &str); SORT_COUNT] =
    [("firstcome_ticket", ""), ("firstcome_gone", ""), ("firstcome_slot", " AND ended=0"), ("firstcome_renewal", "")];

/// Void rows of a room that are left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Voided {
    pub(crate) room: i64,
    first: u32,
    /// The lowest number of each sort.
    lowest: [Option<u32>; SORT_COUNT],
}

impl Voided {
    fn read(row: &Row) -> Result<Self, SqlError> {
        let mut columns = Reader::at(row, 0);
        let (room, first) = (columns.integer()?, columns.small()?);
        let mut lowest = [None; SORT_COUNT];
        for lowest in &mut lowest {
            *lowest = columns.maybe_count()?.and_then(|number| u32::try_from(number).ok());
        }
        Ok(Self { room, first, lowest })
    }

    /// Whether any row is left.
    pub(crate) fn is_any(&self) -> bool {
        self.lowest.iter().any(Option::is_some)
    }

    /// The first and the last number of each sort that the next page deletes.
    fn page(&self) -> [Option<(u32, u32)>; SORT_COUNT] {
        let last = self.first.saturating_sub(1);
        self.lowest.map(|lowest| lowest.map(|from| (from, from.saturating_add(VOIDED_NUMBERS - 1).min(last))))
    }

    /// Up to which number of each sort nothing is left once the page is deleted.
    pub(crate) fn after(&self) -> [u32; SORT_COUNT] {
        let last = self.first.saturating_sub(1);
        self.page().map(|page| page.map_or(last, |(_, to)| to))
    }
}

/// What reads the void rows after these numbers.
fn select(after: [u32; SORT_COUNT]) -> String {
    let mut text = "SELECT r.id,r.first_number".to_owned();
    for ((table, which), after) in SORTS.iter().zip(after) {
        let _ = write!(
            text,
            ",(SELECT t.number FROM {table} t WHERE t.room=r.id{which} AND t.number>{after} AND t.number<r.first_number \
             ORDER BY t.number LIMIT 1)"
        );
    }
    text.push_str(" FROM firstcome_room r WHERE ");
    text
}

impl Database {
    /// The rooms after this number that were closed at some time, with the void rows that each still has. One look into an index
    /// for each sort and room.
    pub(crate) async fn voided_rooms(&self, after: i64, count: u32) -> Result<Vec<Voided>, SqlError> {
        let text = format!("{}r.id>{after} AND r.first_number>1 ORDER BY r.id LIMIT {count};", select([0; SORT_COUNT]));
        self.base.read(text).await?.iter().map(Voided::read).collect()
    }

    /// The void rows of one room after these numbers.
    pub(crate) async fn voided(&self, room: i64, after: [u32; SORT_COUNT]) -> Result<Option<Voided>, SqlError> {
        let rows = self.base.read(format!("{}r.id={room};", select(after))).await?;
        let voided = rows.first().map(Voided::read).transpose()?;
        Ok(voided.filter(Voided::is_any))
    }

    /// Deletes one page of void rows, and ends void slots, whose rows stay as a record of all admissions. One short transaction that
    /// locks nothing else.
    pub(crate) async fn delete_voided(&self, voided: &Voided) -> Result<(), SqlError> {
        let mut text = self.dialect().words().begin.to_owned();
        for ((table, which), page) in SORTS.iter().zip(voided.page()) {
            let Some((from, to)) = page else { continue };
            let what =
                if which.is_empty() { format!("DELETE FROM {table}") } else { format!("UPDATE {table} SET ended=1") };
            let _ = write!(text, "{what} WHERE room={}{which} AND number BETWEEN {from} AND {to};", voided.room);
        }
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        session.run(text).await?;
        self.commit(session).await
    }
}
