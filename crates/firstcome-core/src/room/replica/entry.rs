//! Entries of the log, and their form as bytes.

use super::record::{put_join, read_join, read_ticket};
use crate::id::UserId;
use crate::limits::ROOM_NUMBER_MAX;
use crate::revision::Revision;
use crate::room::bytes::{ImageError, Reader, put_bits, put_number, put_rising, put_user};
use crate::room::image::{put_settings, read_settings};
use crate::room::{Join, OriginReport, RenewalKey, RoomSettings, TicketId, TicketNumber};

/// A command to a room, or a fact about it.
///
/// A `tag` names the request behind the entry. The node that appends the entry draws the tag, and finds the outcome by it. A
/// node that does not know whether an append succeeded appends the same entry again.
///
/// So each entry may stand in the log twice, and still has one effect. For [`Self::Join`], [`Self::Put`] and [`Self::Close`]
/// replicas remember the tag: a second join would draw a second number, and second settings would undo later ones or open
/// a closed room. Each of the other variants says why it needs no memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A visitor wants a place.
    Join {
        /// The user and the request.
        join: Join,
        /// The tag of the request.
        tag: u64,
    },
    /// A poll needs a decision: takes an offered slot. A repeat is one more poll of the same visitor just after the first one,
    /// which has decided already.
    Poll {
        /// The ticket that the visitor showed.
        ticket: TicketId,
        /// The tag of the request.
        tag: u64,
    },
    /// A visitor gives up the ticket. A ticket goes once; a repeat finds it gone.
    Leave {
        /// The ticket that the visitor showed.
        ticket: TicketId,
        /// The tag of the request.
        tag: u64,
    },
    /// A visitor gives up a slot. The entry names the admission, which is unique: a repeat finds the slot over.
    Release {
        /// The ticket.
        number: TicketNumber,
        /// The admission.
        admission: u64,
        /// The tag of the request.
        tag: u64,
    },
    /// Ends a slot whose time is over, before a node reports that it is over. A repeat finds it ended; it ends a newer slot only
    /// if that is over too.
    EndOver {
        /// The ticket.
        number: TicketNumber,
        /// The tag of the request.
        tag: u64,
    },
    /// Contacts of visitors in line or in slots. A repeat makes them count as seen a moment later.
    Contacts {
        /// The tickets, each once, in rising order.
        numbers: Vec<TicketNumber>,
    },
    /// Contacts of one segment: bit `i` stands for the visitor of `segment · 4 096 + 1 + i`. Like [`Self::Contacts`].
    Alive {
        /// The segment of 4 096 numbers.
        segment: u32,
        /// The visitors who made contact.
        bits: Box<[u64; 64]>,
    },
    /// Does everything that is due. A repeat finds it done.
    Tick,
    /// No contact could arrive for a while, so all visitors count as just seen. A repeat has the same effect a moment later.
    Resumed,
    /// Puts settings in force, which have passed their check. A closed room opens.
    Put {
        /// The settings, and those that they may replace.
        revision: Box<Revision<RoomSettings>>,
        /// The tag of the request.
        tag: u64,
    },
    /// Closes the room.
    Close {
        /// The tag of the request.
        tag: u64,
    },
    /// Numbers up to this one may be drawn: that is durable. Only the highest ceiling counts, so a repeat changes nothing.
    Ceiling(u32),
    /// A visitor came with a ticket of an unknown number, and a node checked its signature. A repeat finds the number known, and
    /// works as a [`Self::Poll`].
    Readmit {
        /// The ticket that the visitor showed.
        ticket: TicketId,
        /// The user of the ticket.
        user: Option<UserId>,
        /// The tag of the request.
        tag: u64,
    },
    /// A visitor wants another ticket for a place. A repeat has the same key, and finds what the first one led to.
    Renew {
        /// The ticket that the visitor showed, which is void afterwards.
        ticket: TicketId,
        /// The digest of the request.
        key: RenewalKey,
        /// The tag of the request.
        tag: u64,
    },
    /// The end of the log may be lost: the log's server is another one, or was restarted, or nodes that go on with the lost part
    /// may have drawn numbers. Nodes have reported nothing of it, except numbers up to a ceiling, which are unknown from now on
    /// ([`Room::lose_end`](crate::room::Room::lose_end)). A repeat finds them unknown, and changes the digest of all copies once
    /// more.
    Lost {
        /// The highest number that may have been drawn. The log's own ceiling counts if it is higher.
        ceiling: u32,
        /// How long the room admits no visitor.
        grace_ms: u64,
        /// A different number each time, so that copies with the lost part never agree with copies without it.
        branch: u64,
    },
    /// The origin said how it is. A repeat comes within the time in which a second report has no effect.
    Report {
        /// The report.
        report: OriginReport,
        /// The tag of the request.
        tag: u64,
    },
    /// Everything up to this position is durable. A repeat changes nothing.
    Durable {
        /// The position: one of [`Replica::mark_up_to`](super::Replica::mark_up_to).
        position: u64,
        /// The digest at that position of the copy that was written to SQL.
        digest: u64,
    },
}

/// The version of the encoding, in the upper half of the first byte.
const VERSION: u8 = 1;

const JOIN: u8 = 0;
const POLL: u8 = 1;
const LEAVE: u8 = 2;
const RELEASE: u8 = 3;
const END_OVER: u8 = 4;
const CONTACTS: u8 = 5;
const ALIVE: u8 = 6;
const TICK: u8 = 7;
const PUT: u8 = 8;
const CLOSE: u8 = 9;
const CEILING: u8 = 10;
const READMIT: u8 = 11;
const DURABLE: u8 = 12;
const RESUMED: u8 = 13;
const LOST: u8 = 14;
/// A put with the settings that it may replace, which come first.
const REVISE: u8 = 15;

/// The version of entries whose kinds do not fit the first one: each has its kind there.
const VERSION_MORE: u8 = 2;
const REPORT: u8 = 0;
const RENEW: u8 = 1;
/// Stands before an entry of the first version that is about a renewed ticket: its generation. A first ticket has none, so its
/// entry has the bytes that it always had.
const SHOWN: u8 = 2;

const ALL: [u64; 64] = [u64::MAX; 64];
const SEGMENT_MAX: u32 = u32::MAX / 4_096;

impl Entry {
    /// Makes an entry from the tickets of visitors, in any order and with repeats.
    pub fn contacts(mut numbers: Vec<TicketNumber>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self::Contacts { numbers }
    }

    /// Returns the tag of the request behind the entry.
    pub const fn tag(&self) -> Option<u64> {
        match self {
            Self::Join { tag, .. }
            | Self::Poll { tag, .. }
            | Self::Leave { tag, .. }
            | Self::Release { tag, .. }
            | Self::EndOver { tag, .. }
            | Self::Put { tag, .. }
            | Self::Close { tag }
            | Self::Report { tag, .. }
            | Self::Readmit { tag, .. }
            | Self::Renew { tag, .. } => Some(*tag),
            Self::Contacts { .. }
            | Self::Alive { .. }
            | Self::Tick
            | Self::Resumed
            | Self::Ceiling(_)
            | Self::Lost { .. }
            | Self::Durable { .. } => None,
        }
    }

    /// Returns the ticket, if the entry is about one.
    pub(super) const fn number(&self) -> Option<TicketNumber> {
        match self {
            Self::Release { number, .. } | Self::EndOver { number, .. } => Some(*number),
            Self::Poll { ticket, .. }
            | Self::Leave { ticket, .. }
            | Self::Readmit { ticket, .. }
            | Self::Renew { ticket, .. } => Some(ticket.number),
            _ => None,
        }
    }

    /// Returns the ticket that a visitor showed for the entry, which must not be void. A renewal judges its ticket itself.
    pub const fn shown(&self) -> Option<TicketId> {
        match self {
            Self::Poll { ticket, .. } | Self::Leave { ticket, .. } | Self::Readmit { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    /// Appends the entry to `out` as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(shown) = self.shown().filter(|shown| shown.generation != 0) {
            out.push(VERSION_MORE << 4 | SHOWN);
            put_number(out, shown.generation);
        }
        self.put(out);
        if let Some(tag) = self.tag() {
            out.extend_from_slice(&tag.to_le_bytes());
        }
    }

    /// Appends kind and content, without the tag.
    fn put(&self, out: &mut Vec<u8>) {
        let head = |kind: u8| VERSION << 4 | kind;
        let ticket = |out: &mut Vec<u8>, kind: u8, number: TicketNumber| {
            out.push(head(kind));
            put_number(out, number.0);
        };
        match self {
            Self::Join { join, .. } => {
                out.push(head(JOIN));
                put_join(out, join);
            }
            Self::Poll { ticket: shown, .. } => ticket(out, POLL, shown.number),
            Self::Leave { ticket: shown, .. } => ticket(out, LEAVE, shown.number),
            Self::Release { number, admission, .. } => {
                ticket(out, RELEASE, *number);
                put_number(out, *admission);
            }
            Self::EndOver { number, .. } => ticket(out, END_OVER, *number),
            Self::Contacts { numbers } if !numbers.is_sorted_by(|a, b| a < b) => {
                Self::contacts(numbers.clone()).put(out);
            }
            Self::Contacts { numbers } => {
                out.push(head(CONTACTS));
                put_rising(out, numbers.iter().map(|number| number.0));
            }
            Self::Alive { segment, bits } => {
                out.push(head(ALIVE));
                put_number(out, *segment);
                put_bits(out, bits, &ALL);
            }
            Self::Tick => out.push(head(TICK)),
            Self::Resumed => out.push(head(RESUMED)),
            Self::Put { revision, .. } => {
                out.push(head(if revision.replaces.is_some() { REVISE } else { PUT }));
                if let Some(replaces) = &revision.replaces {
                    put_settings(out, replaces);
                }
                put_settings(out, &revision.settings);
            }
            Self::Close { .. } => out.push(head(CLOSE)),
            Self::Ceiling(ceiling) => {
                out.push(head(CEILING));
                put_number(out, *ceiling);
            }
            Self::Readmit { ticket: shown, user, .. } => {
                ticket(out, READMIT, shown.number);
                put_user(out, user.as_ref().map(UserId::as_str));
            }
            Self::Lost { ceiling, grace_ms, branch } => {
                out.push(head(LOST));
                put_number(out, *ceiling);
                put_number(out, *grace_ms);
                out.extend_from_slice(&branch.to_le_bytes());
            }
            Self::Report { report, .. } => {
                out.push(VERSION_MORE << 4 | REPORT);
                out.push(report.code());
            }
            Self::Renew { ticket: shown, key, .. } => put_renew(out, *shown, *key),
            Self::Durable { position, digest } => {
                out.push(head(DURABLE));
                put_number(out, *position);
                out.extend_from_slice(&digest.to_le_bytes());
            }
        }
    }

    /// Reads an entry from its bytes. Never panics.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(bytes);
        let head = reader.byte()?;
        let entry = match (head >> 4, head & 0xf) {
            (VERSION, kind) => Self::read(kind, 0, &mut reader)?,
            (VERSION_MORE, REPORT) => {
                Self::Report { report: OriginReport::of_code(reader.byte()?)?, tag: reader.fixed_u64()? }
            }
            (VERSION_MORE, RENEW) => {
                let ticket = TicketId { number: read_ticket(&mut reader)?, generation: reader.number_u32()? };
                let (low, high) = (reader.fixed_u64()?, reader.fixed_u64()?);
                let key = RenewalKey::new(u128::from(high) << 64 | u128::from(low));
                Self::Renew { ticket, key, tag: reader.fixed_u64()? }
            }
            (VERSION_MORE, SHOWN) => {
                let (generation, head) = (reader.number_u32()?, reader.byte()?);
                let is_shown = matches!(head & 0xf, POLL | LEAVE | READMIT) && head >> 4 == VERSION;
                if !is_shown || generation == 0 {
                    return Err(ImageError::Value("generation"));
                }
                Self::read(head & 0xf, generation, &mut reader)?
            }
            _ => return Err(ImageError::Version),
        };
        reader.end()?;
        Ok(entry)
    }

    fn read(kind: u8, generation: u32, reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        let shown = |reader: &mut Reader<'_>| Ok(TicketId { number: read_ticket(reader)?, generation });
        Ok(match kind {
            JOIN => Self::Join { join: read_join(reader)?, tag: reader.fixed_u64()? },
            POLL => Self::Poll { ticket: shown(reader)?, tag: reader.fixed_u64()? },
            LEAVE => Self::Leave { ticket: shown(reader)?, tag: reader.fixed_u64()? },
            RELEASE => {
                Self::Release { number: read_ticket(reader)?, admission: reader.number()?, tag: reader.fixed_u64()? }
            }
            END_OVER => Self::EndOver { number: read_ticket(reader)?, tag: reader.fixed_u64()? },
            CONTACTS => {
                let number = |number| TicketNumber::new(number).ok_or(ImageError::Value("ticket"));
                Self::Contacts { numbers: reader.rising()?.into_iter().map(number).collect::<Result<_, _>>()? }
            }
            ALIVE => {
                let segment = reader.number_u32()?;
                if SEGMENT_MAX < segment {
                    return Err(ImageError::Value("segment"));
                }
                Self::Alive { segment, bits: Box::new(reader.bits(&ALL)?) }
            }
            TICK => Self::Tick,
            RESUMED => Self::Resumed,
            PUT | REVISE => {
                let replaces = if kind == REVISE { Some(read_settings(reader)?) } else { None };
                let revision = Revision { settings: read_settings(reader)?, replaces };
                Self::Put { revision: Box::new(revision), tag: reader.fixed_u64()? }
            }
            CLOSE => Self::Close { tag: reader.fixed_u64()? },
            CEILING => Self::Ceiling(reader.number_u32()?),
            READMIT => Self::Readmit { ticket: shown(reader)?, user: reader.user()?, tag: reader.fixed_u64()? },
            LOST => {
                let ceiling = reader.number_u32()?;
                if ROOM_NUMBER_MAX < ceiling {
                    return Err(ImageError::Value("ceiling"));
                }
                Self::Lost { ceiling, grace_ms: reader.number()?, branch: reader.fixed_u64()? }
            }
            DURABLE => Self::Durable { position: reader.number()?, digest: reader.fixed_u64()? },
            _ => return Err(ImageError::Value("entry")),
        })
    }
}

fn put_renew(out: &mut Vec<u8>, shown: TicketId, key: RenewalKey) {
    out.push(VERSION_MORE << 4 | RENEW);
    put_number(out, shown.number.0);
    put_number(out, shown.generation);
    out.extend_from_slice(&key.get().to_le_bytes());
}
