//! Records that must become durable, and their form in an image.

use crate::room::bytes::{ImageError, Reader, put_number, put_option, put_request, put_signed, put_steady, put_user};
use crate::room::image::{put_draw, put_settings, read_draw, read_settings};
use crate::room::renewal::{put_renewal, read_renewal};
use crate::room::slots::{put_slot, read_slot};
use crate::room::{Change, Departure, Join, RoomSettings, TicketNumber};
use crate::time::Timestamp;

/// One record that must become durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A change of a ticket, or of how far the line went.
    Change(Change),
    /// New settings; a closed room is open again.
    Settings(Box<RoomSettings>),
    /// An operator closed the room.
    Closed {
        /// The first number that is not void.
        first: u32,
    },
}

const JOINED: u8 = 0;
const ADMITTED: u8 = 1;
const TAKEN: u8 = 2;
const LAPSED: u8 = 3;
const LEFT: u8 = 4;
const EXPIRED: u8 = 5;
const REACHED: u8 = 6;
const SETTINGS: u8 = 7;
const CLOSED: u8 = 8;
const DRAWN: u8 = 9;
const RENEWED: u8 = 10;

impl Record {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Change(change) => put_change(out, change),
            Self::Settings(settings) => {
                out.push(SETTINGS);
                put_settings(out, settings);
            }
            Self::Closed { first } => {
                out.push(CLOSED);
                put_number(out, *first);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(match reader.byte()? {
            SETTINGS => Self::Settings(Box::new(read_settings(reader)?)),
            CLOSED => Self::Closed { first: reader.number_u32()? },
            kind => Self::Change(read_change(kind, reader)?),
        })
    }
}

pub(super) fn put_join(out: &mut Vec<u8>, join: &Join) {
    put_user(out, join.user.as_ref().map(|user| user.as_str()));
    put_option(out, join.request, put_request);
}

pub(super) fn read_join(reader: &mut Reader<'_>) -> Result<Join, ImageError> {
    Ok(Join { user: reader.user()?, request: reader.option(Reader::request)? })
}

pub(super) fn read_ticket(reader: &mut Reader<'_>) -> Result<TicketNumber, ImageError> {
    TicketNumber::new(reader.number_u32()?).ok_or(ImageError::Value("ticket"))
}

fn put_change(out: &mut Vec<u8>, change: &Change) {
    let mut head = |kind: u8, number: u32| {
        out.push(kind);
        put_number(out, number);
    };
    match change {
        Change::Joined { number, join, joined_at } => {
            head(JOINED, number.0);
            put_join(out, join);
            put_signed(out, joined_at.as_us());
        }
        Change::Admitted { number, slot } => {
            head(ADMITTED, number.0);
            put_slot(out, *slot);
        }
        Change::Taken { number, until } => {
            head(TAKEN, number.0);
            put_steady(out, *until);
        }
        Change::Lapsed { number } => head(LAPSED, number.0),
        Change::Gone { number, how: Departure::Left } => head(LEFT, number.0),
        Change::Gone { number, how: Departure::Expired } => head(EXPIRED, number.0),
        Change::Renewed { number, renewal } => {
            head(RENEWED, number.0);
            put_renewal(out, *renewal);
        }
        Change::Reached(reached) => head(REACHED, *reached),
        Change::Drawn(draw) => {
            out.push(DRAWN);
            put_draw(out, draw);
        }
    }
}

fn read_change(kind: u8, reader: &mut Reader<'_>) -> Result<Change, ImageError> {
    if kind == REACHED {
        return Ok(Change::Reached(reader.number_u32()?));
    }
    if kind == DRAWN {
        return read_draw(reader).map(Change::Drawn);
    }
    let number = read_ticket(reader)?;
    Ok(match kind {
        JOINED => {
            let join = read_join(reader)?;
            let joined_at = Timestamp::from_us(reader.signed()?).ok_or(ImageError::Value("instant"))?;
            Change::Joined { number, join, joined_at }
        }
        ADMITTED => Change::Admitted { number, slot: read_slot(reader)? },
        TAKEN => Change::Taken { number, until: reader.steady()? },
        LAPSED => Change::Lapsed { number },
        LEFT => Change::Gone { number, how: Departure::Left },
        RENEWED => Change::Renewed { number, renewal: read_renewal(reader)? },
        EXPIRED => Change::Gone { number, how: Departure::Expired },
        _ => return Err(ImageError::Value("change")),
    })
}
