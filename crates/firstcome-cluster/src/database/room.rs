//! Reads and writes the rows of rooms, which outlive their logs.

use super::draw::{UNDRAWN, draw_of, drawn};
use super::renewal::write_renewals;
use super::{Database, tag};
use crate::room::Floor;
use firstcome_core::id::RoomName;
use firstcome_core::room::replica::Record;
use firstcome_core::room::{
    Admit, Change, Departure, Draw, Hold, Join, RoomOrder, RoomPhase, RoomSettings, Slot, TicketNumber,
};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_sql::SqlError;
use firstcome_sql::base::ROLL_BACK;
use firstcome_sql::dialect::{Dialect, Row, list, quoted};
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::TicketKey;
use firstcome_store::edge::draw_secret;
use std::fmt::{self, Write as _};
use tokio::time::Instant;

/// Numbers by which the ceiling is raised.
pub(crate) const CEILING_BLOCK: u32 = 65_536;

/// The columns of the settings.
pub(super) const SETTINGS: [&str; 14] = [
    "admit_count",
    "admit_every_ms",
    "max_active",
    "max_waiting",
    "waiting_ttl_ms",
    "active_ttl_ms",
    "claim_window_ms",
    "idle_ttl_ms",
    "opens_at",
    "paused",
    "message",
    "target_url",
    "draws",
    "first_poll_ms",
];
const COLUMNS: &str = "ticket_key,closed,first_number,reached,ceiling,admissions,clock_wall,clock_steady,generation,position,\
    digest,loss_accepted,gone_before,draw_seed,draw_first,draw_entrants,drawn_at";

/// The columns of the settings, as [`settings_of`] reads them.
pub(crate) fn settings_columns() -> String {
    SETTINGS.join(",")
}

/// A room as it stands in its table.
#[derive(Clone, Debug)]
pub(crate) struct RoomRow {
    pub(crate) id: i64,
    pub(crate) name: RoomName,
    pub(crate) settings: RoomSettings,
    pub(crate) ticket_key: TicketKey,
    pub(crate) standing: RoomPhase,
    pub(crate) first: u32,
    pub(crate) reached: u32,
    pub(crate) ceiling: u32,
    pub(crate) admissions: u64,
    /// At [`Self::position`].
    pub(crate) now: Now,
    /// Of the log that counts.
    pub(crate) generation: i64,
    /// Up to which its entries are written down.
    pub(crate) position: u64,
    /// The digest of the room there.
    pub(crate) digest: u64,
    /// The generation that began when an operator accepted a loss; 0 if none ever did.
    pub(crate) loss_accepted: i64,
    /// Every number below it is gone, whether a row says so or not.
    pub(crate) gone_before: u32,
    /// The draw, once it took place.
    pub(crate) draw: Option<Draw>,
}

/// What is written down of a room, up to a position.
pub(crate) struct Page {
    pub(crate) position: u64,
    pub(crate) digest: u64,
    pub(crate) now: Now,
    pub(crate) ceiling: u32,
    pub(crate) records: Vec<Record>,
}

impl Page {
    /// Whether it makes tickets void.
    pub(crate) fn closes(&self) -> bool {
        self.records.iter().any(|record| matches!(record, Record::Closed { .. }))
    }

    /// The highest admission, and how far the line is, after these records; neither ever falls.
    pub(crate) fn further(&self, row: &RoomRow) -> (u64, u32) {
        self.records.iter().fold((row.admissions, row.reached), |(admissions, reached), record| match record {
            Record::Change(Change::Admitted { slot, .. }) => (admissions.max(slot.admission), reached),
            Record::Change(Change::Reached(number)) | Record::Closed { first: number } => {
                (admissions, reached.max(*number))
            }
            _ => (admissions, reached),
        })
    }
}

/// For what the secret of its tickets is wrapped.
pub(crate) fn place(name: impl fmt::Display) -> String {
    format!("room:{name}:ticket_key")
}

/// For what a secret of passes is wrapped.
pub(crate) fn pass_place(id: i64) -> String {
    format!("pass:{id}")
}

pub(super) fn values(dialect: Dialect, settings: &RoomSettings) -> [String; 14] {
    let maybe = |number: Option<i64>| number.map_or("NULL".to_owned(), |number| number.to_string());
    let text = |text: &Option<Box<str>>| {
        let mut value = String::new();
        match text {
            Some(text) => dialect.bytes(&mut value, text.as_bytes()),
            None => value.push_str("NULL"),
        }
        value
    };
    let ms = |ms: u64| ms.to_string();
    [
        maybe(settings.admit.map(|admit| admit.count.into())),
        maybe(settings.admit.map(|admit| admit.every_ms.cast_signed())),
        maybe(settings.max_active.map(i64::from)),
        settings.max_waiting.to_string(),
        ms(settings.waiting_ttl_ms),
        ms(settings.active_ttl_ms),
        ms(settings.claim_window_ms),
        maybe(settings.idle_ttl_ms.map(u64::cast_signed)),
        maybe(settings.opens_at.map(Timestamp::as_us)),
        u8::from(settings.paused).to_string(),
        text(&settings.message),
        text(&settings.target_url),
        u8::from(settings.order == RoomOrder::Draw).to_string(),
        maybe(settings.first_poll_ms.map(u64::cast_signed)),
    ]
}

/// Reads the settings.
pub(crate) fn settings_of(columns: &mut Reader<'_>) -> Result<RoomSettings, SqlError> {
    let small =
        |number: Option<u64>| number.map(|number| u32::try_from(number).map_err(|_| wrong("a number"))).transpose();
    let (admit_count, every_ms) = (small(columns.maybe_count()?)?, columns.maybe_count()?);
    let max_active = small(columns.maybe_count()?)?;
    let max_waiting = columns.small()?;
    let (waiting_ttl_ms, active_ttl_ms, claim_window_ms) = (columns.count()?, columns.count()?, columns.count()?);
    let idle_ttl_ms = columns.maybe_count()?;
    let opens_at = columns.maybe_instant()?;
    let paused = columns.integer()? == 1;
    let mut text = || -> Result<Option<Box<str>>, SqlError> {
        let text = columns.maybe_blob()?.map(|text| String::from_utf8(text).map_err(|_| wrong("an invalid text")));
        Ok(text.transpose()?.map(Into::into))
    };
    let (message, target_url) = (text()?, text()?);
    let order = if columns.integer()? == 1 { RoomOrder::Draw } else { RoomOrder::FirstCome };
    let first_poll_ms = columns.maybe_count()?;
    let settings = RoomSettings {
        admit: admit_count.zip(every_ms).map(|(count, every_ms)| Admit { count, every_ms }),
        max_active,
        max_waiting,
        waiting_ttl_ms,
        first_poll_ms,
        active_ttl_ms,
        claim_window_ms,
        idle_ttl_ms,
        opens_at,
        order,
        paused,
        message,
        target_url,
    };
    settings.check().map_err(|_| wrong("settings of a room that no rule allows"))?;
    Ok(settings)
}

impl Database {
    pub(super) fn select_room() -> String {
        format!("SELECT {},id,name,{},{COLUMNS} FROM firstcome_room WHERE ", tag::COUPON, SETTINGS.join(","))
    }

    pub(super) fn room_of(&self, row: &Row) -> Result<RoomRow, SqlError> {
        let mut columns = Reader::at(row, 1);
        let id = columns.integer()?;
        let name = RoomName::parse(&columns.maybe_text()?.unwrap_or_default());
        let name = name.map_err(|_| wrong("an invalid name of a room"))?;
        let settings = settings_of(&mut columns)?;
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        let secret = self.secret.unwrap(&wrapped, &place(&name)).ok_or_else(super::deployment::other_secret)?;
        let standing = if columns.integer()? == 1 { RoomPhase::Closed } else { RoomPhase::Running };
        let (first, reached, ceiling) = (columns.small()?, columns.small()?, columns.small()?);
        let admissions = columns.count()?;
        let now = Now { wall: columns.instant()?, steady: Steady::from_us(columns.integer()?) };
        let (generation, position) = (columns.integer()?, columns.count()?);
        let digest = columns.integer()?.cast_unsigned();
        let loss_accepted = columns.integer()?;
        let gone_before = columns.small()?;
        let draw = draw_of(&mut columns)?;
        let ticket_key = TicketKey::new(secret);
        Ok(RoomRow {
            id,
            name,
            settings,
            ticket_key,
            standing,
            first,
            reached,
            ceiling,
            admissions,
            now,
            generation,
            position,
            digest,
            loss_accepted,
            gone_before,
            draw,
        })
    }

    /// A room, if there is one.
    pub(crate) async fn room(&self, name: &RoomName) -> Result<Option<RoomRow>, SqlError> {
        let mut text = Self::select_room();
        text.push_str("name=");
        quoted(&mut text, name.as_str());
        text.push(';');
        self.base.read(text).await?.first().map(|row| self.room_of(row)).transpose()
    }

    /// The room of this number as it is now. A room is closed and never deleted.
    pub(crate) async fn room_by_id(&self, id: i64) -> Result<Option<RoomRow>, SqlError> {
        let rows = self.base.read(format!("{}id={id};", Self::select_room())).await?;
        rows.first().map(|row| self.room_of(row)).transpose()
    }

    /// Those of these rooms that are there, in any order.
    pub(crate) async fn rooms_again(&self, ids: &[i64]) -> Result<Vec<RoomRow>, SqlError> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let text = format!("{}id IN ({});", Self::select_room(), ids.join(","));
        self.base.read(text).await?.iter().map(|row| self.room_of(row)).collect()
    }

    /// The same where it must be there.
    pub(crate) async fn room_again(&self, id: i64) -> Result<RoomRow, SqlError> {
        self.room_by_id(id).await?.ok_or_else(super::coupon::gone)
    }

    /// Makes a room if there is none of that name; whether this call made it, and the room. Brings the first secret of
    /// passes with it.
    pub(crate) async fn make_room(
        &self,
        name: &RoomName,
        settings: &RoomSettings,
    ) -> Result<(bool, RoomRow), SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_make_room(name, settings, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_make_room(
        &self,
        name: &RoomName,
        settings: &RoomSettings,
        until: Instant,
    ) -> Result<(bool, RoomRow), SqlError> {
        let broken = |fault: firstcome_store::Fault| SqlError::broken(fault.to_string());
        let [ticket, pass] = [draw_secret().map_err(broken)?, draw_secret().map_err(broken)?];
        let mut text = format!(
            "{}INSERT INTO firstcome_room ({},name,ceiling,ticket_key) VALUES ({},",
            self.dialect().words().begin,
            SETTINGS.join(","),
            values(self.dialect(), settings).join(",")
        );
        quoted(&mut text, name.as_str());
        let _ = write!(text, ",{CEILING_BLOCK},");
        self.dialect().bytes(&mut text, &self.secret.wrap(&ticket, &place(name)).map_err(broken)?);
        let _ = write!(text, ") {};", self.dialect().words().unless_there);
        let mut session = self.base.session(until).await?;
        let is_new = session.run(text).await? == 1;
        let mut text = String::from("INSERT INTO firstcome_pass_secret (id,secret,created_at) SELECT 1,");
        self.dialect().bytes(&mut text, &self.secret.wrap(&pass, &pass_place(1)).map_err(broken)?);
        let _ = write!(
            text,
            ",{} FROM (SELECT 1 AS one) AS first_one WHERE NOT EXISTS (SELECT 1 FROM firstcome_pass_secret);",
            self.clock()
        );
        session.run(text).await?;
        let mut text = Self::select_room();
        text.push_str("name=");
        quoted(&mut text, name.as_str());
        text.push(';');
        let rows = session.ask(text).await?;
        let row = self.room_of(rows.first().ok_or_else(super::coupon::gone)?)?;
        self.commit(session).await?;
        Ok((is_new, row))
    }

    /// Begins the next generation of a room's log, if this one still counts. From now on nothing of the log before it is
    /// written down. `None` if another node has begun one.
    pub(crate) async fn next_log(&self, id: i64, generation: i64) -> Result<Option<RoomRow>, SqlError> {
        let text = format!(
            "{}UPDATE firstcome_room SET generation=generation+1 WHERE id={id} AND generation={generation};",
            self.dialect().words().begin
        );
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        if session.run(text).await? != 1 {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(None);
        }
        let rows = session.ask(format!("{}id={id};", Self::select_room())).await?;
        let row = self.room_of(rows.first().ok_or_else(super::coupon::gone)?)?;
        self.commit(session).await?;
        Ok(Some(row))
    }

    /// Begins a generation above all that the log ever named, in which what the database lacks is lost, and from which on no number
    /// and no admission is given again. False, and nothing, if the room is not as it was read.
    pub(crate) async fn accept_room_loss(&self, row: &RoomRow, floor: &Floor) -> Result<bool, SqlError> {
        let generation = row.generation.max(floor.generation) + 1;
        let reached = row.reached.max(floor.reached).max(floor.first);
        let text = format!(
            "{}UPDATE firstcome_room SET generation={generation},loss_accepted={generation},ceiling={},admissions={},\
             first_number={},reached={reached}{} WHERE id={} AND generation={} AND position={};",
            self.dialect().words().begin,
            row.ceiling.max(floor.ceiling),
            row.admissions.max(floor.admissions),
            row.first.max(floor.first),
            floor.draw.filter(|_| row.draw.is_none()).map_or_else(String::new, |draw| drawn(self.dialect(), &draw)),
            row.id,
            row.generation,
            row.position,
        );
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        if session.run(text).await? != 1 {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(false);
        }
        self.commit(session).await?;
        Ok(true)
    }

    /// Writes down what has to outlive the log, if the room is as it was read. False, and nothing, if it is not.
    ///
    /// [`SqlError::Unknown`]: it may be written. The room as it is then tells.
    pub(crate) async fn write_room(&self, row: &RoomRow, page: &Page) -> Result<bool, SqlError> {
        let (admissions, reached) = page.further(row);
        let text = format!(
            "{}UPDATE firstcome_room SET position={},digest={},clock_wall={},clock_steady={},ceiling={},admissions={},\
             reached={} WHERE id={} AND generation={} AND position={} AND digest={};",
            self.dialect().words().begin,
            page.position,
            page.digest.cast_signed(),
            page.now.wall.as_us(),
            page.now.steady.as_us(),
            page.ceiling,
            admissions,
            reached,
            row.id,
            row.generation,
            row.position,
            row.digest.cast_signed(),
        );
        let mut session = self.base.session(Instant::now() + self.base.options.patience).await?;
        if session.run(text).await? != 1 {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(false);
        }
        let text = records(self.dialect(), row.id, &page.records);
        if !text.is_empty() {
            session.run(text).await?;
        }
        self.commit(session).await?;
        Ok(true)
    }
}

/// Rows of one statement that are still open.
struct Writing {
    text: String,
    /// The statement whose rows follow each other.
    open: Option<&'static str>,
}

impl Writing {
    /// Begins a statement, or goes on with one that is the same.
    fn row(&mut self, head: &'static str) {
        if self.open == Some(head) {
            self.text.push(',');
        } else {
            self.end();
            self.text.push_str(head);
            self.open = Some(head);
        }
    }

    fn end(&mut self) {
        if self.open.take().is_some() {
            self.text.push(';');
        }
    }
}

pub(super) const TICKETS: &str = "INSERT INTO firstcome_ticket (room,number,name,joined_at,request,body) VALUES ";
pub(super) const SLOTS: &str =
    "INSERT INTO firstcome_slot (room,admission,number,admitted_at,taken,until_steady) VALUES ";
pub(super) const GONE: &str = "INSERT INTO firstcome_gone (room,number,how) VALUES ";

/// The statements that write records down, in their order.
fn records(dialect: Dialect, room: i64, records: &[Record]) -> String {
    let mut writing = Writing { text: String::new(), open: None };
    let mut departed = Vec::new();
    for record in records {
        match record {
            Record::Change(change) => change_of(dialect, &mut writing, &mut departed, room, change),
            Record::Settings(settings) => {
                writing.end();
                let values =
                    SETTINGS.iter().zip(values(dialect, settings)).map(|(name, value)| format!("{name}={value}"));
                let values: Vec<String> = values.collect();
                let _ =
                    write!(writing.text, "UPDATE firstcome_room SET {},closed=0 WHERE id={room};", values.join(","));
            }
            Record::Closed { first } => {
                writing.end();
                departed.clear();
                // Rows of numbers before the first one are void from here on. They are deleted later: see `voided`.
                let _ = write!(
                    writing.text,
                    "UPDATE firstcome_room SET closed=1,first_number={first}{UNDRAWN} WHERE id={room};"
                );
            }
        }
    }
    writing.end();
    if !departed.is_empty() {
        let numbers = list(&departed, |text, number: &u32| {
            let _ = write!(text, "{number}");
        });
        let _ = write!(
            writing.text,
            "UPDATE firstcome_slot SET ended=1 WHERE room={room} AND ended=0 AND number IN ({numbers});\
             DELETE FROM firstcome_ticket WHERE room={room} AND number IN ({numbers});\
             DELETE FROM firstcome_renewal WHERE room={room} AND number IN ({numbers});"
        );
    }
    writing.text
}

/// A row of [`TICKETS`].
pub(super) fn ticket(
    dialect: Dialect,
    text: &mut String,
    room: i64,
    number: TicketNumber,
    join: &Join,
    joined_at: Timestamp,
) {
    let _ = write!(text, "({room},{},", number.get());
    match &join.user {
        Some(user) => quoted(text, user.as_str()),
        None => text.push_str("NULL"),
    }
    let _ = write!(text, ",{},", joined_at.as_us());
    match join.request {
        Some(request) => {
            dialect.bytes(text, &request.key.to_be_bytes());
            let _ = write!(text, ",{})", request.body.cast_signed());
        }
        None => text.push_str("NULL,NULL)"),
    }
}

/// A row of [`SLOTS`].
pub(super) fn slot(text: &mut String, room: i64, number: TicketNumber, slot: &Slot) {
    let (Hold::Offered { until } | Hold::Taken { until }) = slot.hold;
    let taken = u8::from(matches!(slot.hold, Hold::Taken { .. }));
    let (admitted_at, until) = (slot.admitted_at.as_us(), until.as_us());
    let _ = write!(text, "({room},{},{},{admitted_at},{taken},{until})", slot.admission, number.get());
}

/// A row of [`GONE`].
pub(super) fn gone(text: &mut String, room: i64, number: TicketNumber, how: Departure) {
    let how = if how == Departure::Left { 1 } else { 2 };
    let _ = write!(text, "({room},{},{how})", number.get());
}

fn change_of(dialect: Dialect, writing: &mut Writing, departed: &mut Vec<u32>, room: i64, change: &Change) {
    match change {
        Change::Joined { number, join, joined_at } => {
            writing.row(TICKETS);
            ticket(dialect, &mut writing.text, room, *number, join, *joined_at);
        }
        Change::Admitted { number, slot } => {
            writing.row(SLOTS);
            self::slot(&mut writing.text, room, *number, slot);
        }
        Change::Taken { number, until } => {
            writing.end();
            let (number, until) = (number.get(), until.as_us());
            let _ = write!(
                writing.text,
                "UPDATE firstcome_slot SET taken=1,until_steady={until} WHERE room={room} AND number={number} AND ended=0;"
            );
        }
        Change::Lapsed { number } => {
            writing.end();
            let number = number.get();
            let _ = write!(
                writing.text,
                "UPDATE firstcome_slot SET ended=1 WHERE room={room} AND number={number} AND ended=0;"
            );
        }
        Change::Gone { number, how } => {
            departed.push(number.get());
            writing.row(GONE);
            gone(&mut writing.text, room, *number, *how);
        }
        Change::Renewed { number, renewal } => {
            writing.end();
            writing.text.push_str(&write_renewals(dialect, &[(room, *number, *renewal)]));
        }
        Change::Reached(_) => {}
        Change::Drawn(draw) => {
            writing.end();
            let set = drawn(dialect, draw);
            let _ = write!(writing.text, "UPDATE firstcome_room SET {} WHERE id={room};", &set[1..]);
        }
    }
}
