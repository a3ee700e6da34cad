//! What outlived the log of a room, page by page: a caller that makes it anew must be heard of meanwhile.

use super::renewal::{RENEWALS, renewal_of};
use super::{Database, RoomRow};
use firstcome_core::id::{RequestId, UserId};
use firstcome_core::room::{Departure, GoneNumbers, Hold, Join, Known, Slot, TicketNumber};
use firstcome_core::time::Steady;
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::{Reader, wrong};
use std::collections::{BTreeMap, BTreeSet};

fn number(columns: &mut Reader<'_>) -> Result<TicketNumber, SqlError> {
    TicketNumber::new(columns.small()?).ok_or_else(|| wrong("a number out of its range"))
}

/// A living ticket: number, name, request, body.
pub(crate) fn ticket_of(row: &Row) -> Result<(TicketNumber, Join), SqlError> {
    let mut columns = Reader::at(row, 0);
    let number = number(&mut columns)?;
    let user = columns.maybe_text()?.map(|user| UserId::parse(&user).map_err(|_| wrong("a user"))).transpose()?;
    let key = columns.maybe_blob()?.and_then(|key| <[u8; 16]>::try_from(key).ok()).map(u128::from_be_bytes);
    let body = columns.maybe_integer()?.map(i64::cast_unsigned);
    Ok((number, Join { user, request: key.zip(body).map(|(key, body)| RequestId { key, body }) }))
}

/// A slot: number, admission, admitted_at, taken, until_steady.
pub(crate) fn slot_of(row: &Row) -> Result<(TicketNumber, Slot), SqlError> {
    let mut columns = Reader::at(row, 0);
    let number = number(&mut columns)?;
    let (admission, admitted_at) = (columns.count()?, columns.instant()?);
    let taken = columns.integer()? == 1;
    let until = Steady::from_us(columns.integer()?);
    let hold = if taken { Hold::Taken { until } } else { Hold::Offered { until } };
    Ok((number, Slot { admission, admitted_at, hold }))
}

/// Who is gone: number, how.
pub(crate) fn gone_of(row: &Row) -> Result<(TicketNumber, Departure), SqlError> {
    let mut columns = Reader::at(row, 0);
    let number = number(&mut columns)?;
    Ok((number, if columns.integer()? == 1 { Departure::Left } else { Departure::Expired }))
}

impl Database {
    /// All that outlived the log of a room, whose generation has just begun, so that no caller writes. Numbers that no caller wrote
    /// down are unknown. `rows_max` at once.
    pub(crate) async fn known_room(&self, row: &RoomRow, rows_max: u32) -> Result<Known, SqlError> {
        // Rows before the first number are void: a closing has left them, and they are deleted later.
        let before = row.first.saturating_sub(1);
        let tickets = "number,name,request,body FROM firstcome_ticket WHERE";
        let tickets = self.pages(row.id, tickets, before, rows_max, ticket_of, |it| it.0).await?;
        let slots = "number,admission,admitted_at,taken,until_steady FROM firstcome_slot WHERE ended=0 AND";
        let slots = self.pages(row.id, slots, before, rows_max, slot_of, |it| it.0).await?;
        let numbers = "number,how FROM firstcome_gone WHERE";
        let numbers = self.pages(row.id, numbers, before, rows_max, gone_of, |it| it.0).await?;
        let mut gone = BTreeMap::<u32, GoneNumbers>::new();
        // Their rows were removed. A visitor who came back after a loss has a place all the same.
        let has_place: BTreeSet<u32> =
            tickets.iter().map(|it| it.0.get()).chain(slots.iter().map(|it| it.0.get())).collect();
        let purged = (row.first..row.gone_before).filter(|number| !has_place.contains(number));
        let purged = purged.filter_map(TicketNumber::new).map(|number| (number, Departure::Expired));
        for (number, how) in purged.chain(numbers) {
            let (segment, at) = ((number.get() - 1) / 4_096, (number.get() - 1) % 4_096);
            let first_number = segment * 4_096 + 1;
            let row = gone.entry(segment).or_insert(GoneNumbers { first_number, gone: [0; 64], left: [0; 64] });
            let (word, mask) = (at as usize / 64, 1 << (at % 64));
            row.gone[word] |= mask;
            row.left[word] |= if how == Departure::Left { mask } else { 0 };
        }
        let renewals = format!("{RENEWALS} WHERE");
        let renewals = self.pages(row.id, &renewals, before, rows_max, renewal_of, |it| it.0).await?;
        Ok(Known {
            settings: row.settings.clone(),
            standing: row.standing,
            first: row.first,
            ceiling: row.ceiling,
            draw: row.draw,
            reached: row.reached,
            admissions: row.admissions,
            tickets,
            slots,
            gone: gone.into_values().collect(),
            renewals,
            grace_until: None,
        })
    }

    /// All rows of a room with numbers after this one, in their order.
    async fn pages<T>(
        &self,
        room: i64,
        what: &str,
        mut after: u32,
        rows_max: u32,
        read: impl Fn(&Row) -> Result<T, SqlError>,
        number: impl Fn(&T) -> TicketNumber,
    ) -> Result<Vec<T>, SqlError> {
        let mut all = Vec::new();
        loop {
            let text = format!("SELECT {what} room={room} AND number>{after} ORDER BY number LIMIT {rows_max};");
            let rows = self.base.read(text).await?;
            for row in &rows {
                all.push(read(row)?);
            }
            match all.last() {
                Some(last) if rows_max as usize <= rows.len() => after = number(last).get(),
                _ => return Ok(all),
            }
        }
    }
}
