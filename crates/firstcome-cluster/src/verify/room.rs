//! Rooms, their tickets and slots, from the rows alone, page by page.

use crate::database::{DRAW_COLUMNS, draw_of, settings_columns, settings_of};
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::room::Draw;
use firstcome_core::room::draw::Turns;
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::{PAGE, Reading};
use firstcome_store::check::Check;
use std::collections::BTreeMap;

/// A room as it is stored.
struct RoomCheck {
    name: String,
    first: i64,
    reached: i64,
    ceiling: i64,
    admissions: i64,
    tickets: u64,
    turns: Option<Turns>,
}

struct Checks {
    owned: Check,
    valid: Check,
    one_place: Check,
    exclusive: Check,
    admitted: Check,
    reached: Check,
    drawn: Check,
    settings: Check,
    renewed: Check,
}

impl Checks {
    const fn new() -> Self {
        Self {
            owned: Check::new("every ticket and slot belongs to a room"),
            valid: Check::new("users of tickets are names"),
            one_place: Check::new("one living place: of a user, and of an idempotency key"),
            exclusive: Check::new("in line, in a slot or gone: only a living ticket has a slot"),
            admitted: Check::new("an admission stands once"),
            reached: Check::new("the line has reached every slot, and no more than was drawn"),
            drawn: Check::new("no number is above the ceiling of its room"),
            settings: Check::new("names and settings of rooms are within their limits"),
            renewed: Check::new("a renewal is of a ticket that is not gone"),
        }
    }

    fn all(self) -> [Check; 9] {
        let Self { owned, valid, one_place, exclusive, admitted, reached, drawn, settings, renewed } = self;
        [owned, valid, one_place, exclusive, admitted, reached, drawn, settings, renewed]
    }
}

pub(super) async fn check(reading: &mut Reading) -> Result<[Check; 9], SqlError> {
    let mut checks = Checks::new();
    let mut seen = rooms(reading, &mut checks).await?;
    tickets(reading, &mut checks, &mut seen).await?;
    slots(reading, &mut checks, &seen).await?;
    gone(reading, &mut checks, &seen).await?;
    renewals(reading, &mut checks, &seen).await?;
    for (id, room) in &seen {
        let (first, reached, ceiling) = (room.first, room.reached, room.ceiling);
        let stands = 1 <= first && first <= reached && reached <= ceiling + 1;
        checks.reached.check(stands, || format!("room {}: {reached} of {first}..{ceiling}", room.name));
        let twice = "SELECT {} FROM firstcome_ticket WHERE room={id} AND number>={first} AND {} IS NOT NULL GROUP BY {} HAVING COUNT(*)>1 LIMIT";
        let mut breaches = 0;
        for column in ["name", "request"] {
            let text =
                twice.replace("{}", column).replace("{id}", &id.to_string()).replace("{first}", &first.to_string());
            breaches += reading.ask_of_all(format!("{text} {PAGE};")).await?.len() as u64;
        }
        checks.one_place.add(room.tickets, breaches, || format!("room {}: {breaches} have two", room.name));
        let text = format!(
            "SELECT number FROM firstcome_slot WHERE room={id} AND ended=0 AND number>={first} GROUP BY number HAVING COUNT(*)>1 LIMIT {PAGE};"
        );
        let rows = reading.ask_of_all(text).await?;
        let two = rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?.unwrap_or(0);
        checks.admitted.add(0, rows.len() as u64, || format!("room {}, number {two}: two slots are alive", room.name));
    }
    Ok(checks.all())
}

async fn rooms(reading: &mut Reading, checks: &mut Checks) -> Result<BTreeMap<i64, RoomCheck>, SqlError> {
    let columns = settings_columns();
    let what =
        format!("SELECT id,name,first_number,reached,ceiling,admissions,{columns},{DRAW_COLUMNS} FROM firstcome_room");
    let mut seen = BTreeMap::new();
    reading
        .numbered(&what, |id, row| {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.unwrap_or_default();
            let [first, reached] = [columns.integer()?, columns.integer()?];
            let [ceiling, admissions] = [columns.integer()?, columns.integer()?];
            let fits = RoomName::parse(&name).is_ok() && settings_of(&mut columns).is_ok();
            checks.settings.check(fits, || format!("room {name}"));
            let draw = if fits { draw_of(&mut columns)? } else { None };
            let is_there =
                |draw: &Draw| draw.is_sound() && first <= i64::from(draw.first) && i64::from(draw.end()) <= ceiling + 1;
            checks.reached.check(draw.as_ref().is_none_or(is_there), || format!("room {name}: its draw"));
            let turns = draw.filter(is_there).map(|draw| draw.turns());
            seen.insert(id, RoomCheck { name, first, reached, ceiling, admissions, tickets: 0, turns });
            Ok(())
        })
        .await?;
    Ok(seen)
}

async fn tickets(
    reading: &mut Reading,
    checks: &mut Checks,
    seen: &mut BTreeMap<i64, RoomCheck>,
) -> Result<(), SqlError> {
    let what = "t.number,t.name,g.number FROM firstcome_ticket t \
                LEFT JOIN firstcome_gone g ON g.room=t.room AND g.number=t.number";
    reading
        .paired(what, ["t.room", "t.number"], |id, columns| {
            let (number, user) = (columns.integer()?, columns.maybe_text()?);
            let is_gone = columns.maybe_integer()?.is_some();
            let known = seen.get_mut(&id);
            checks.owned.check(known.is_some(), || format!("ticket {number} of room number {id}"));
            let Some(room) = known else { return Ok(()) };
            // A closing leaves void rows, which are deleted page by page.
            let is_void = number < room.first;
            room.tickets += 1;
            let here = || format!("room {}, number {number}", room.name);
            checks.valid.check(user.is_none_or(|user| UserId::parse(&user).is_ok()), here);
            checks.exclusive.check(is_void || !is_gone, here);
            checks.drawn.check(number <= room.ceiling, here);
            Ok(())
        })
        .await
}

async fn slots(reading: &mut Reading, checks: &mut Checks, seen: &BTreeMap<i64, RoomCheck>) -> Result<(), SqlError> {
    let what = "s.admission,s.number,s.ended,g.number FROM firstcome_slot s \
                LEFT JOIN firstcome_gone g ON g.room=s.room AND g.number=s.number";
    reading
        .paired(what, ["s.room", "s.admission"], |id, columns| {
            let (admission, number) = (columns.integer()?, columns.integer()?);
            let is_living = columns.integer()? == 0;
            let is_gone = columns.maybe_integer()?.is_some();
            let known = seen.get(&id);
            checks.owned.check(known.is_some(), || format!("admission {admission} of room number {id}"));
            let Some(room) = known else { return Ok(()) };
            let here = || format!("room {}, number {number}, admission {admission}", room.name);
            checks.admitted.check(admission <= room.admissions, here);
            checks.drawn.check(number <= room.ceiling, here);
            if is_living && room.first <= number {
                checks.exclusive.check(!is_gone, here);
                let turn = match (&room.turns, u32::try_from(number)) {
                    (Some(turns), Ok(number)) => turns.turn(number).into(),
                    _ => number,
                };
                checks.reached.check(turn < room.reached, here);
            }
            Ok(())
        })
        .await
}

async fn gone(reading: &mut Reading, checks: &mut Checks, seen: &BTreeMap<i64, RoomCheck>) -> Result<(), SqlError> {
    reading
        .paired("number FROM firstcome_gone", ["room", "number"], |id, columns| {
            let number = columns.integer()?;
            let room = seen.get(&id);
            checks.owned.check(room.is_some(), || format!("ticket {number} of room number {id}"));
            if let Some(room) = room {
                checks.drawn.check(number <= room.ceiling, || format!("room {}, number {number}", room.name));
            }
            Ok(())
        })
        .await
}

async fn renewals(reading: &mut Reading, checks: &mut Checks, seen: &BTreeMap<i64, RoomCheck>) -> Result<(), SqlError> {
    let what = "r.number,g.number FROM firstcome_renewal r \
                LEFT JOIN firstcome_gone g ON g.room=r.room AND g.number=r.number";
    reading
        .paired(what, ["r.room", "r.number"], |id, columns| {
            let (number, is_gone) = (columns.integer()?, columns.maybe_integer()?.is_some());
            let room = seen.get(&id);
            checks.owned.check(room.is_some(), || format!("renewal of ticket {number} of room number {id}"));
            if let Some(room) = room {
                let here = || format!("room {}, number {number}", room.name);
                checks.drawn.check(number <= room.ceiling, here);
                // A closing leaves void rows, which are deleted page by page.
                checks.renewed.check(number < room.first || !is_gone, here);
            }
            Ok(())
        })
        .await
}
