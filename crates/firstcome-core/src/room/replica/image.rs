//! Writes a replica as bytes and reads it back, so that a new node need not replay the whole log.

use super::record::{Record, read_ticket};
use super::{Drawn, Replica, TAGS_MAX, Tags};
use crate::room::bytes::{ImageError, Reader, put_number, put_option, put_signed, put_steady};
use crate::room::{Change, Room, TicketNumber};
use crate::time::{Now, Timestamp};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::hash::RandomState;

const VERSION: u8 = 3;
/// The version before: its rooms steer nothing.
const VERSION_BEFORE: u8 = 2;

impl Replica {
    /// Returns the complete state of this replica as bytes: see [`Room::image`]. Replicas at one position have equal images.
    pub fn image(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.position);
        put_number(&mut out, self.position - self.durable);
        put_number(&mut out, self.ceiling);
        put_signed(&mut out, self.now.wall.as_us());
        put_steady(&mut out, self.now.steady);
        out.extend_from_slice(&self.story.to_le_bytes());
        put_number(&mut out, self.settings_at);
        put_number(&mut out, self.closed_at);
        put_number(&mut out, self.tags.order.len() as u64);
        for tag in &self.tags.order {
            out.extend_from_slice(&tag.to_le_bytes());
            put_option(&mut out, self.tags.find(*tag).flatten(), |out, (number, drawn)| {
                put_number(out, number.0);
                out.push(drawn as u8);
            });
        }
        put_number(&mut out, self.marks.len() as u64);
        for (position, digest) in &self.marks {
            put_number(&mut out, position - self.durable);
            out.extend_from_slice(&digest.to_le_bytes());
        }
        put_number(&mut out, self.pending.len() as u64);
        for (position, record) in &self.pending {
            put_number(&mut out, position - self.durable);
            record.put(&mut out);
        }
        self.room.put_image(&mut out);
        out
    }

    /// Restores a replica from its image: see [`Room::from_image`]. Never panics.
    pub fn from_image(image: &[u8], hasher: RandomState) -> Result<Self, ImageError> {
        let mut reader = Reader::new(image);
        let is_first = match reader.byte()? {
            VERSION => false,
            VERSION_BEFORE => true,
            _ => return Err(ImageError::Version),
        };
        let position = reader.number()?;
        let durable = position.checked_sub(reader.number()?).ok_or(ImageError::Value("position"))?;
        let ceiling = reader.number_u32()?;
        let wall = Timestamp::from_us(reader.signed()?).ok_or(ImageError::Value("instant"))?;
        let now = Now { wall, steady: reader.steady()? };
        let story = reader.fixed_u64()?;
        let (settings_at, closed_at) = (reader.number()?, reader.number()?);
        // Sums with these values must not overflow.
        if i64::MAX as u64 <= position || position < settings_at || settings_at < closed_at {
            return Err(ImageError::Value("position"));
        }
        let tags = read_tags(&mut reader, hasher.clone())?;
        let marks = read_marks(&mut reader, durable, position)?;
        let pending = read_pending(&mut reader, durable, position)?;
        // A pending position without a mark could never become durable.
        let is_marked = |at: &u64| marks.binary_search_by_key(at, |mark| mark.0).is_ok();
        if !pending.iter().all(|(at, _)| is_marked(at)) {
            return Err(ImageError::Value("digest"));
        }
        let room = Room::read_image(&mut reader, is_first, hasher.clone())?;
        reader.end()?;
        if ceiling < room.drawn() {
            return Err(ImageError::Value("ceiling"));
        }
        let mut unsettled = HashMap::with_hasher(hasher);
        let mut drawn_at = 0;
        for (at, record) in &pending {
            if matches!(record, Record::Change(Change::Drawn(_))) {
                drawn_at = *at;
            }
            let number = if let Record::Change(change) = record { change.number() } else { None };
            unsettled.extend(number.map(|number| (number.0, *at)));
        }
        Ok(Self {
            room,
            position,
            durable,
            ceiling,
            now,
            story,
            settings_at,
            closed_at,
            drawn_at,
            tags,
            marks,
            pending,
            unsettled,
        })
    }
}

fn read_drawn(reader: &mut Reader<'_>) -> Result<(TicketNumber, Drawn), ImageError> {
    let number = read_ticket(reader)?;
    let known = [Drawn::New, Drawn::SameRequest, Drawn::SameUser];
    let kind = reader.byte()?;
    let drawn = known.into_iter().find(|drawn| *drawn as u8 == kind);
    Ok((number, drawn.ok_or(ImageError::Value("tag"))?))
}

fn read_tags(reader: &mut Reader<'_>, hasher: RandomState) -> Result<Tags, ImageError> {
    let mut tags = Tags::new(hasher);
    let count = reader.count()?;
    if TAGS_MAX < count {
        return Err(ImageError::Value("tag"));
    }
    for _ in 0..count {
        let tag = reader.fixed_u64()?;
        let number = reader.option(read_drawn)?;
        if tags.find(tag).is_some() {
            return Err(ImageError::Value("tag"));
        }
        tags.remember(tag, number);
    }
    Ok(tags)
}

fn read_marks(reader: &mut Reader<'_>, durable: u64, position: u64) -> Result<VecDeque<(u64, u64)>, ImageError> {
    let mut marks: VecDeque<(u64, u64)> = VecDeque::new();
    for _ in 0..reader.count()? {
        let at = durable.saturating_add(reader.number()?);
        let last = marks.back().map_or(durable, |(last, _)| *last);
        if at <= last || position < at {
            return Err(ImageError::Value("digest"));
        }
        marks.push_back((at, reader.fixed_u64()?));
    }
    Ok(marks)
}

fn read_pending(reader: &mut Reader<'_>, durable: u64, position: u64) -> Result<VecDeque<(u64, Record)>, ImageError> {
    let mut pending: VecDeque<(u64, Record)> = VecDeque::new();
    for _ in 0..reader.count()? {
        let at = durable.saturating_add(reader.number()?);
        let earliest = pending.back().map_or(durable + 1, |(last, _)| *last);
        if at < earliest || position < at {
            return Err(ImageError::Value("position"));
        }
        pending.push_back((at, Record::read(reader)?));
    }
    Ok(pending)
}
