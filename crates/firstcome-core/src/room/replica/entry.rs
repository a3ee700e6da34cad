//! Entries of the log, and their form as bytes.

use super::record::{put_join, read_join, read_ticket};
use crate::id::UserId;
use crate::limits::ROOM_NUMBER_MAX;
use crate::revision::Revision;
use crate::room::bytes::{ImageError, Reader, put_bits, put_number, put_rising, put_user};
use crate::room::image::{put_settings, read_settings};
use crate::room::{Join, RoomSettings, TicketNumber};

/// What a process wants of a room, or says of it.
///
/// A `tag` names the request that it is for: a number that the process which appends it draws, and under which it finds
/// the outcome. A node that does not know whether an append went through appends the same entry again.
///
/// So each may stand in the log twice, and still has one effect. Of [`Self::Join`], [`Self::Put`] and [`Self::Close`]
/// this is seen to by the tag: a second join would draw a second number; a second setting would undo what was set in
/// between, or open what was closed. Why the others need no memory is said at each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A node wants a place.
    Join {
        /// Who.
        join: Join,
        /// For which request.
        tag: u64,
    },
    /// A poll has to be decided: takes the slot that is offered. A second one is one more poll of the same person just
    /// after the first: it finds decided what the first one has decided.
    Look {
        /// Whose.
        number: TicketNumber,
        /// For which request.
        tag: u64,
    },
    /// A node gives up their ticket. A ticket goes once; a second one finds it gone.
    Leave {
        /// Whose.
        number: TicketNumber,
        /// For which request.
        tag: u64,
    },
    /// A node gives up a slot. It names the admission, and no two are alike: a second one finds it over.
    Release {
        /// Whose.
        number: TicketNumber,
        /// Which admission.
        admission: u64,
        /// For which request.
        tag: u64,
    },
    /// A slot whose time is over ends, before anybody is told. A second one finds it ended; what is over by then is over
    /// too.
    EndOver {
        /// Whose.
        number: TicketNumber,
        /// For which request.
        tag: u64,
    },
    /// These were here, in line or inside. A second one says that they were here as long ago as it takes to append.
    Contacts {
        /// Who, each once, rising.
        numbers: Vec<TicketNumber>,
    },
    /// Bit `i` of a segment says that the holder of `segment · 4 096 + 1 + i` was here. As [`Self::Contacts`].
    Alive {
        /// Which 4 096 numbers.
        segment: u32,
        /// Who of them.
        bits: Box<[u64; 64]>,
    },
    /// What time has made due is done. A second one finds it done.
    Tick,
    /// No node was heard for a while, a node that was there: all count as just seen. A second one finds them just seen.
    Resumed,
    /// Other settings, which have passed their check; a closed room opens.
    Put {
        /// Which, and what they may replace.
        revision: Box<Revision<RoomSettings>>,
        /// For which request.
        tag: u64,
    },
    /// The room closes.
    Close {
        /// For which request.
        tag: u64,
    },
    /// Numbers up to this one may be drawn: that is durable. The highest one counts, however often it is said.
    Ceiling(u32),
    /// A node came with a ticket, whose signature is good, of a number that is unknown. A second one finds it known,
    /// and is a [`Self::Look`].
    Readmit {
        /// Which.
        number: TicketNumber,
        /// Its user.
        user: Option<UserId>,
        /// For which request.
        tag: u64,
    },
    /// Everything that followed in the log may be lost: the server is another one, or has started anew; or others may have drawn
    /// numbers who go on with what was lost. Nothing of it was told but numbers up to a ceiling, which are unknown from now
    /// on ([`Room::lose_end`](crate::room::Room::lose_end)). A second one finds them unknown, and tells copies apart once
    /// more.
    Lost {
        /// The highest number that may have been drawn. Where the ceiling is higher in the log, that counts.
        ceiling: u32,
        /// No node is admitted for so long.
        grace_ms: u64,
        /// Another one each time, so that the copies of those who saw what is lost never agree with those of others.
        branch: u64,
    },
    /// All up to this position is durable. A second one says nothing new.
    Durable {
        /// Which: one of [`Replica::mark_up_to`](super::Replica::mark_up_to).
        position: u64,
        /// The digest of the copy at that position from which it was written.
        digest: u64,
    },
}

/// In the upper half of the first byte.
const VERSION: u8 = 1;

const JOIN: u8 = 0;
const LOOK: u8 = 1;
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
/// A put that may replace only the settings that follow first.
const REVISE: u8 = 15;

const ALL: [u64; 64] = [u64::MAX; 64];
const SEGMENT_MAX: u32 = u32::MAX / 4_096;

impl Entry {
    /// Contacts of these, in any order and however often they are named.
    pub fn contacts(mut numbers: Vec<TicketNumber>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self::Contacts { numbers }
    }

    /// The request that it is for.
    pub const fn tag(&self) -> Option<u64> {
        match self {
            Self::Join { tag, .. }
            | Self::Look { tag, .. }
            | Self::Leave { tag, .. }
            | Self::Release { tag, .. }
            | Self::EndOver { tag, .. }
            | Self::Put { tag, .. }
            | Self::Close { tag }
            | Self::Readmit { tag, .. } => Some(*tag),
            Self::Contacts { .. }
            | Self::Alive { .. }
            | Self::Tick
            | Self::Resumed
            | Self::Ceiling(_)
            | Self::Lost { .. }
            | Self::Durable { .. } => None,
        }
    }

    /// The one ticket that it is about.
    pub(super) const fn number(&self) -> Option<TicketNumber> {
        match self {
            Self::Look { number, .. }
            | Self::Leave { number, .. }
            | Self::Release { number, .. }
            | Self::EndOver { number, .. }
            | Self::Readmit { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Adds it to `out`, as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
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
            Self::Look { number, .. } => ticket(out, LOOK, *number),
            Self::Leave { number, .. } => ticket(out, LEAVE, *number),
            Self::Release { number, admission, .. } => {
                ticket(out, RELEASE, *number);
                put_number(out, *admission);
            }
            Self::EndOver { number, .. } => ticket(out, END_OVER, *number),
            Self::Contacts { numbers } if !numbers.is_sorted_by(|a, b| a < b) => {
                return Self::contacts(numbers.clone()).encode(out);
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
            Self::Readmit { number, user, .. } => {
                ticket(out, READMIT, *number);
                put_user(out, user.as_ref().map(UserId::as_str));
            }
            Self::Lost { ceiling, grace_ms, branch } => {
                out.push(head(LOST));
                put_number(out, *ceiling);
                put_number(out, *grace_ms);
                out.extend_from_slice(&branch.to_le_bytes());
            }
            Self::Durable { position, digest } => {
                out.push(head(DURABLE));
                put_number(out, *position);
                out.extend_from_slice(&digest.to_le_bytes());
            }
        }
        if let Some(tag) = self.tag() {
            out.extend_from_slice(&tag.to_le_bytes());
        }
    }

    /// The entry of which these are the bytes. Never panics.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(bytes);
        let head = reader.byte()?;
        if head >> 4 != VERSION {
            return Err(ImageError::Version);
        }
        let entry = Self::read(head & 0xf, &mut reader)?;
        reader.end()?;
        Ok(entry)
    }

    fn read(kind: u8, reader: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(match kind {
            JOIN => Self::Join { join: read_join(reader)?, tag: reader.fixed_u64()? },
            LOOK => Self::Look { number: read_ticket(reader)?, tag: reader.fixed_u64()? },
            LEAVE => Self::Leave { number: read_ticket(reader)?, tag: reader.fixed_u64()? },
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
            READMIT => Self::Readmit { number: read_ticket(reader)?, user: reader.user()?, tag: reader.fixed_u64()? },
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
