//! Compares the log of one room with the database: replays it from its image.

use super::{Found, Inspection, Lost, PAGE, State, Tried, is_held, room_log, text_of};
use crate::ClusterError;
use crate::database::renewal::renewal;
use crate::database::{settings_columns, settings_of};
use crate::sequencer::{Sequencer, number, parts_of, unreadable};
use firstcome_core::room::replica::{Outcome, Replica};
use firstcome_core::room::{Change, Departure, Poll, Room, RoomSettings, RoomState, TicketNumber, TicketState};
use firstcome_redis::{LinkError, Script};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::Reader;
use firstcome_store::edge::draw_hasher;
use redis::Value;
use room_log::{ITEMS_MAX, Item, Keys, item};

static LOOK: Script = Script::new(include_str!("../lua/log_look.lua"));

/// Differences that are named.
const NAMED_MAX: usize = 5;

/// A room as it stands in its table, without its secret.
struct RoomRow {
    id: i64,
    name: String,
    settings: RoomSettings,
    is_closed: bool,
    first: u32,
    ceiling: u32,
    generation: i64,
    position: u64,
    digest: u64,
}

impl RoomRow {
    fn read(row: &Row) -> Result<Self, SqlError> {
        let mut columns = Reader::at(row, 0);
        Ok(Self {
            id: columns.integer()?,
            name: columns.maybe_text()?.unwrap_or_default(),
            settings: settings_of(&mut columns)?,
            is_closed: columns.integer()? == 1,
            first: columns.small()?,
            ceiling: columns.small()?,
            generation: columns.integer()?,
            position: columns.count()?,
            digest: columns.integer()?.cast_unsigned(),
        })
    }
}

/// How a log stands.
#[derive(Default)]
pub(crate) struct LogSnapshot {
    pub(crate) name: String,
    /// The generation that the database names.
    pub(crate) generation: i64,
    /// Nothing if all agrees.
    pub(crate) found: Vec<Found>,
    /// Entries that were played again.
    pub(crate) applied: u64,
    /// Admissions among them, and those above the cap.
    pub(crate) admitted: (u64, u64),
    /// What of the database was compared: the room, its tickets, slots and who is gone.
    pub(crate) compared: u64,
    /// Why it was not compared, though nothing is wrong: a log that begins after what the database has.
    pub(crate) not_compared: Option<&'static str>,
    /// Whether it has moved on at every look: all else is unknown.
    pub(crate) is_moving: bool,
    /// What the database lacks, if it went back and the log can be read to its end.
    pub(crate) lost: Option<Lost>,
}

impl LogSnapshot {
    fn new(row: &RoomRow) -> Self {
        Self { name: row.name.clone(), generation: row.generation, ..Self::default() }
    }

    pub(super) fn moving(self, found: Found) -> Self {
        Self { found: vec![found], is_moving: true, ..self }
    }

    pub(crate) fn is(&self, states: &[State]) -> bool {
        self.found.iter().any(|found| states.contains(&found.state))
    }
}

/// What a log is in one moment, and items after some position.
struct LogReading {
    generation: Option<i64>,
    position: Option<u64>,
    image: Option<u64>,
    is_written_by_somebody: bool,
    is_rebuilt: bool,
    /// `None` if something among them is no item of ours.
    items: Option<Vec<Item>>,
}

/// What differs between a room in the database and its log.
#[derive(Default)]
struct Differences {
    compared: u64,
    count: u64,
    named: Vec<String>,
}

impl Differences {
    fn check(&mut self, holds: bool, differs: impl FnOnce() -> String) {
        self.compared += 1;
        if !holds {
            self.count += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(differs());
            }
        }
    }
}

fn torn(says: impl Into<String>) -> Option<Found> {
    Some(Found::new(State::Torn, says))
}

/// The database was restored to a state older than the log.
fn went_back(row: &RoomRow, replica: &Replica, seen: &mut LogSnapshot) -> Option<Found> {
    seen.compared += 1;
    let says = format!("the database was at position {}, and is at {}", replica.durable(), row.position);
    Some(Found::new(State::WentBack, says))
}

impl Sequencer {
    async fn read_log_page(&self, keys: Keys, generation: i64, after: u64) -> Result<LogReading, LinkError> {
        let mut run = LOOK.with_keys(4);
        run.add(keys.key("log")).add(keys.of("entries", generation));
        run.add(keys.of("image", generation)).add(keys.key("lease"));
        let parts = parts_of(self.link.invoke(run.add(after).add(ITEMS_MAX)).await?);
        let [log, lease, now, image, items] =
            parts.and_then(|parts| <[Value; 5]>::try_from(parts).ok()).ok_or_else(unreadable)?;
        let now = number(now).ok_or_else(unreadable)?;
        let fields: Vec<Option<i64>> =
            parts_of(log).ok_or_else(unreadable)?.into_iter().map(|field| text_of(field)?.parse().ok()).collect();
        let [generation, position, until] = fields[..] else { return Err(unreadable()) };
        Ok(LogReading {
            generation,
            position: position.and_then(|position| u64::try_from(position).ok()),
            image: number(image).and_then(|image| u64::try_from(image).ok()),
            is_written_by_somebody: is_held(until, now),
            is_rebuilt: is_held(number(lease), now),
            items: parts_of(items).ok_or_else(unreadable)?.into_iter().map(item).collect(),
        })
    }
}

impl Inspection {
    /// A room in the state of the database that has been begun.
    async fn room(&mut self, id: i64) -> Result<Option<RoomRow>, SqlError> {
        let text = format!(
            "SELECT id,name,{},closed,first_number,ceiling,generation,position,digest FROM firstcome_room WHERE id={id};",
            settings_columns()
        );
        self.reading.ask(text).await?.first().map(RoomRow::read).transpose()
    }

    /// Begins another state of the database, and gives the room in it if it is of the same generation.
    async fn room_now(&mut self, row: &RoomRow) -> Result<Option<RoomRow>, SqlError> {
        self.reading.end().await?;
        self.reading.begin().await?;
        Ok(self.room(row.id).await?.filter(|now| now.generation == row.generation))
    }

    /// Compares once, in one state of the database that has been begun. What has moved on is told beside what is known all the
    /// same.
    pub(super) async fn try_log(&mut self, id: i64) -> Result<Option<(LogSnapshot, Tried<()>)>, ClusterError> {
        let Some(row) = self.room(id).await? else { return Ok(None) };
        let mut seen = LogSnapshot::new(&row);
        let look = self.sequencer.read_log_page(Keys { room: id }, row.generation, 0).await?;
        let moved = || Tried::Moved(Found::new(State::UnderWay, "a node is rebuilding it"));
        let found = match look.generation {
            Some(generation) if generation == row.generation => match look.position {
                Some(position) if row.position <= position => self.replay(&row, &mut seen).await?,
                _ => {
                    let says = format!("it is at {}, and the database at {}", look.position.unwrap_or(0), row.position);
                    Some(Found::new(State::Behind, says))
                }
            },
            _ if look.is_rebuilt => return Ok(Some((seen, moved()))),
            // Another one has begun after the state of the database that is looked at.
            Some(generation) if row.generation < generation && self.is_since(id, generation).await? => {
                return Ok(Some((seen, moved())));
            }
            Some(generation) if row.generation < generation => {
                let says = format!("the database was at generation {generation}, and is at {}", row.generation);
                Some(Found::new(State::WentBack, says))
            }
            Some(generation) => {
                let says = format!("it is of generation {generation}, and the database is at {}", row.generation);
                Some(Found::new(State::OtherGeneration, says))
            }
            None => Some(Found::new(State::Missing, "it is not there, or closed")),
        };
        let found = match found {
            Some(found) if found.state == State::WentBack => {
                seen.lost = self.lost_of_room(row.id, look.generation.unwrap_or(row.generation)).await?;
                Some(seen.lost.as_ref().map_or(found.clone(), |lost| lost.found(&found)))
            }
            found => found,
        };
        match found {
            // Only what moves is looked at again.
            Some(found) if found.state == State::UnderWay && found.count == 0 => {
                return Ok(Some((seen, Tried::Moved(found))));
            }
            found => seen.found.extend(found),
        }
        Ok(Some((seen, Tried::Read(()))))
    }

    /// Whether the database names at least this generation now.
    async fn is_since(&mut self, id: i64, generation: i64) -> Result<bool, SqlError> {
        self.reading.end().await?;
        let rows = self.reading.ask(format!("SELECT generation FROM firstcome_room WHERE id={id};")).await?;
        self.reading.begin().await?;
        Ok(rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?.is_some_and(|now| generation <= now))
    }

    /// Plays a log again from its image to its end, and compares the room with the database on the way.
    async fn replay(&mut self, row: &RoomRow, seen: &mut LogSnapshot) -> Result<Option<Found>, ClusterError> {
        let keys = Keys { room: row.id };
        let moving =
            || Some(Found { state: State::UnderWay, count: 0, says: "its image is replaced again and again".into() });
        let image = self.sequencer.load_image(keys, row.generation).await?.bytes;
        let mut replica = match Replica::from_image(&image, draw_hasher()) {
            Ok(replica) => replica,
            Err(_) if image.is_empty() => return Ok(torn("it has no image")),
            Err(error) => return Ok(torn(format!("its image cannot be read: {error}"))),
        };
        let begins = replica.position();
        let mut changes = Vec::new();
        if row.position <= begins
            && let Some(found) = self.compare_image(row, &replica, seen).await?
        {
            return Ok(Some(found));
        }
        loop {
            let look = self.sequencer.read_log_page(keys, row.generation, replica.position()).await?;
            let Some(position) = look.position.filter(|_| look.generation == Some(row.generation)) else {
                return Ok(moving());
            };
            let Some(items) = look.items else { return Ok(torn("an entry of it cannot be read")) };
            let is_last = items.len() < ITEMS_MAX;
            for Item { first, now, entries, .. } in items {
                for (at, entry) in (first..).zip(&entries) {
                    if at <= replica.position() {
                        continue;
                    }
                    changes.clear();
                    let Ok(applied) = replica.apply(at, now, entry, &mut changes) else {
                        // An image that was kept meanwhile makes entries before it go.
                        let is_moving = look.image.is_some_and(|image| replica.position() < image);
                        let says = format!("between its entries {} and {at} one is gone", replica.position());
                        return Ok(if is_moving { moving() } else { torn(says) });
                    };
                    if applied.outcome == Outcome::Diverged {
                        return Ok(torn(format!("its entry {at} says that another room is in the database")));
                    }
                    seen.applied += 1;
                    count_admissions(&replica, &changes, seen);
                    if at == row.position {
                        self.compare_room(row, &replica, begins < at, seen).await?;
                    }
                }
            }
            if !is_last {
                continue;
            }
            if replica.position() < position {
                let is_moving = look.image.is_some_and(|image| replica.position() < image);
                let says = format!("its entries {}..{position} are gone", replica.position() + 1);
                return Ok(if is_moving { moving() } else { torn(says) });
            }
            if row.position < replica.durable() {
                // The database has what it was said to have before that was said, unless it has lost it.
                let Some(now) = self.room_now(row).await? else { return Ok(moving()) };
                if now.position < replica.durable() {
                    return Ok(went_back(&now, &replica, seen));
                }
            }
            let pending = replica.pending_changes_after(replica.durable().max(row.position)).count() as u64;
            let state = if look.is_written_by_somebody { State::UnderWay } else { State::Undrained };
            let says = format!("{pending} changes wait for the database");
            return Ok((0 < pending).then_some(Found { state, count: pending, says }));
        }
    }

    /// Compares the room in the database with an image that is at its position, or further if nothing that the database is to
    /// have came in between: of people without user and key it has only a ceiling. Something if the image cannot be that of
    /// this database, or that has moved on.
    async fn compare_image(
        &mut self,
        row: &RoomRow,
        image: &Replica,
        seen: &mut LogSnapshot,
    ) -> Result<Option<Found>, ClusterError> {
        if row.position == image.position() {
            self.compare_room(row, image, false, seen).await?;
            return Ok(None);
        }
        let now = self.room_now(row).await?;
        // What was written before the image was read is in the state that is compared.
        let Some(now) = now.filter(|now| (now.position, now.ceiling) == (row.position, row.ceiling)) else {
            let says = "it is written to without a pause".into();
            return Ok(Some(Found { state: State::UnderWay, count: 0, says }));
        };
        if now.position < image.durable() {
            return Ok(went_back(&now, image, seen));
        }
        if image.pending_changes_after(now.position).next().is_some() {
            seen.not_compared = Some("it begins after what the database has, and changes between them are not written");
        } else {
            self.compare_room(&now, image, false, seen).await?;
        }
        Ok(None)
    }

    /// Compares the room in the database with a copy that is at the same position.
    async fn compare_room(
        &mut self,
        row: &RoomRow,
        replica: &Replica,
        with_digest: bool,
        seen: &mut LogSnapshot,
    ) -> Result<(), ClusterError> {
        let (room, now) = (replica.room(), replica.now());
        let mut differs = Differences::default();
        // A log begins with another digest than the one before it has ended with.
        differs.check(!with_digest || replica.digest() == row.digest, || "the digest".into());
        differs.check(*room.settings() == row.settings, || "the settings".into());
        differs.check((room.state(now.wall) == RoomState::Closed) == row.is_closed, || "whether it is closed".into());
        let (drawn, ceiling) = (room.drawn(), replica.ceiling());
        differs.check(drawn <= ceiling && ceiling <= row.ceiling, || {
            format!("{drawn} numbers were drawn up to a ceiling of {ceiling}, and the database has {}", row.ceiling)
        });
        let (mut slots, id) = (0, row.id);
        // Rows before it are void.
        let living = format!(" AND number>={}", row.first);
        self.numbers("number,name FROM firstcome_ticket", id, &living, |number, columns| {
            let user = columns.maybe_text()?;
            let lives = is_living(room.peek(number, now)) && !room.is_unknown(number);
            differs.check(lives && room.user(number) == user.as_deref(), || format!("ticket {}", number.get()));
            Ok(())
        })
        .await?;
        self.numbers("number FROM firstcome_slot", id, &format!("{living} AND ended=0"), |number, _| {
            slots += 1;
            let is_inside = match room.peek(number, now) {
                Some(Poll::Answer(view)) => matches!(view.state, TicketState::Admitted { .. }),
                poll => poll.is_some() && !room.is_unknown(number),
            };
            differs.check(is_inside, || format!("the slot of ticket {}", number.get()));
            Ok(())
        })
        .await?;
        let active = room.view(now).active;
        differs.check(slots == active, || format!("{active} slots, and {slots} in the database"));
        let renewed = "number,generation,request FROM firstcome_renewal";
        self.numbers(renewed, id, &living, |number, columns| {
            let is_same = room.renewal(number) == Some(renewal(columns)?);
            differs.check(is_same, || format!("the renewal of ticket {}", number.get()));
            Ok(())
        })
        .await?;
        self.numbers("number,how FROM firstcome_gone", id, &living, |number, columns| {
            let how = if columns.integer()? == 1 { Departure::Left } else { Departure::Expired };
            differs.check(is_gone(room, number, how, now), || format!("that ticket {} is gone", number.get()));
            Ok(())
        })
        .await?;
        seen.compared += differs.compared;
        if 0 < differs.count {
            let says = format!("not the same as in the database: {}", differs.named.join(", "));
            seen.found.push(Found { state: State::Differs, count: differs.count, says });
        }
        Ok(())
    }

    /// The rows of a room by their numbers.
    pub(super) async fn numbers(
        &mut self,
        what: &str,
        room: i64,
        which: &str,
        mut visit: impl FnMut(TicketNumber, &mut Reader<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut after = 0;
        loop {
            let text =
                format!("SELECT {what} WHERE room={room} AND number>{after}{which} ORDER BY number LIMIT {PAGE};");
            let rows = self.reading.ask(text).await?;
            for row in &rows {
                let mut columns = Reader::at(row, 0);
                after = columns.small()?;
                if let Some(number) = TicketNumber::new(after) {
                    visit(number, &mut columns)?;
                }
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }
}

fn is_living(poll: Option<Poll>) -> bool {
    match poll {
        Some(Poll::Answer(view)) => !matches!(view.state, TicketState::Gone(_)),
        Some(Poll::Decide) => true,
        None => false,
    }
}

fn is_gone(room: &Room, number: TicketNumber, how: Departure, now: firstcome_core::time::Now) -> bool {
    matches!(room.peek(number, now), Some(Poll::Answer(view)) if view.state == TicketState::Gone(how))
}

fn count_admissions(replica: &Replica, changes: &[Change], seen: &mut LogSnapshot) {
    let admitted = changes.iter().filter(|change| matches!(change, Change::Admitted { .. })).count() as u64;
    if admitted == 0 {
        return;
    }
    seen.admitted.0 += admitted;
    let room = replica.room();
    let above = room.settings().max_active.map_or(0, |cap| room.view(replica.now()).active.saturating_sub(cap));
    seen.admitted.1 += u64::from(above).min(admitted);
}
