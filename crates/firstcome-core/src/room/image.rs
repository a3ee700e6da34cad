//! Writes the whole state of a room as bytes and reads it back, so that another process can go on from it.

use super::bytes::{
    ImageError, Reader, put_bool, put_number, put_option, put_rising, put_signed, put_steady, put_text,
};
use super::line::Line;
use super::pace::{Bucket, Meter};
use super::slots::Slots;
use super::{Admit, Room, RoomSettings};
use crate::time::{Steady, Timestamp};
use std::collections::BTreeSet;
use std::hash::RandomState;

const VERSION: u8 = 1;

impl Room {
    /// Returns the complete state of the room as bytes. The room that [`Self::from_image`] makes of them answers and changes
    /// exactly like this one, for ever. Equal rooms have equal images, with any hash seeds.
    ///
    /// Costs about 8 bytes for each living ticket, plus its user and request.
    pub fn image(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.put_image(&mut out);
        out
    }

    pub(super) fn put_image(&self, out: &mut Vec<u8>) {
        put_settings(out, &self.settings);
        for is in [self.closed, self.was_open, self.was_busy] {
            put_bool(out, is);
        }
        put_number(out, self.admissions);
        put_steady(out, self.ticked);
        put_option(out, self.grace_until, put_steady);
        if let Some(bucket) = &self.bucket {
            bucket.put(out);
        }
        self.meter.put(out);
        self.slots.put_image(out);
        self.line.put(out);
        put_rising(out, self.returned.iter().copied());
    }

    /// Restores the room from its image. `hasher` carries the seed of this process.
    ///
    /// Never panics. Refuses bytes that are no image of a room. Does not notice the image of another room, or a forged one
    /// that is consistent.
    pub fn from_image(image: &[u8], hasher: RandomState) -> Result<Self, ImageError> {
        let mut reader = Reader::new(image);
        if reader.byte()? != VERSION {
            return Err(ImageError::Version);
        }
        let room = Self::read_image(&mut reader, hasher)?;
        reader.end()?;
        Ok(room)
    }

    pub(super) fn read_image(reader: &mut Reader<'_>, hasher: RandomState) -> Result<Self, ImageError> {
        let settings = read_settings(reader)?;
        let (closed, was_open, was_busy) = (reader.bool()?, reader.bool()?, reader.bool()?);
        let admissions = reader.number()?;
        let ticked = reader.steady()?;
        let grace_until = reader.option(Reader::steady)?;
        let bucket = settings.admit.map(|admit| Bucket::read(reader, admit)).transpose()?;
        let meter = Meter::read(reader)?;
        let slots = Slots::read_image(reader, hasher.clone(), settings.idle_ttl_ms)?;
        let line = Line::read(reader, hasher)?;
        let returned = BTreeSet::from_iter(reader.rising()?);
        // Sums with these values must not overflow.
        if i64::MAX as u64 <= admissions || slots.admissions().any(|(_, admission)| admissions < admission) {
            return Err(ImageError::Value("admission"));
        }
        if line.in_slots().count() != slots.count() as usize || line.in_slots().any(|it| slots.get(it).is_none()) {
            return Err(ImageError::Value("slot"));
        }
        if slots.admissions().any(|(number, _)| line.reached() <= number) {
            return Err(ImageError::Value("reached number"));
        }
        if returned.iter().any(|&number| !line.is_passed_over(number)) {
            return Err(ImageError::Value("passed over"));
        }
        Ok(Self {
            settings,
            closed,
            line,
            returned,
            slots,
            admissions,
            bucket,
            meter,
            ticked,
            was_open,
            was_busy,
            grace_until,
            ends: Vec::new(),
        })
    }

    /// Returns a number that all replicas of a room share at one point of its history. Rooms with different digests differ.
    /// Equal digests mean that all counts are equal. Does not examine each ticket.
    pub fn digest(&self) -> u64 {
        let settings = &self.settings;
        let (credit, earned_at) = self.bucket.as_ref().map_or((0, self.ticked), Bucket::credit);
        let instant = |at: Option<Steady>| at.map_or(0, |at| at.as_us() as u64 | 1);
        let counted = [
            self.line.first(),
            self.line.next(),
            self.line.reached(),
            self.line.waiting(),
            self.line.unknown(),
            self.slots.count(),
            self.returned.len() as u32,
            settings.max_waiting,
            settings.max_active.unwrap_or(0),
            settings.admit.map_or(0, |admit| admit.count),
        ];
        let flags = [self.closed, self.was_open, self.was_busy, settings.paused];
        let rest = [
            self.admissions,
            credit as u64,
            (credit >> 64) as u64,
            earned_at.as_us() as u64,
            self.ticked.as_us() as u64,
            instant(self.grace_until),
            settings.waiting_ttl_ms,
            settings.active_ttl_ms,
            settings.claim_window_ms,
            settings.idle_ttl_ms.unwrap_or(0),
            settings.admit.map_or(0, |admit| admit.every_ms),
            settings.opens_at.map_or(0, |at| at.as_us() as u64 | 1),
        ];
        let all = counted.into_iter().map(u64::from).chain(flags.into_iter().map(u64::from)).chain(rest);
        all.fold(0, mixed)
    }
}

/// Mixes one more number into a digest.
pub(super) const fn mixed(digest: u64, number: u64) -> u64 {
    let sum = (digest ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let part = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let part = (part ^ (part >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    part ^ (part >> 31)
}

pub(super) fn put_settings(out: &mut Vec<u8>, settings: &RoomSettings) {
    put_option(out, settings.admit, |out, admit| {
        put_number(out, admit.count);
        put_number(out, admit.every_ms);
    });
    put_option(out, settings.max_active, put_number);
    put_number(out, settings.max_waiting);
    put_number(out, settings.waiting_ttl_ms);
    put_number(out, settings.active_ttl_ms);
    put_number(out, settings.claim_window_ms);
    put_option(out, settings.idle_ttl_ms, put_number);
    put_option(out, settings.opens_at, |out, at| put_signed(out, at.as_us()));
    put_bool(out, settings.paused);
    put_option(out, settings.message.as_deref(), put_text);
    put_option(out, settings.target_url.as_deref(), put_text);
}

/// Reads settings, which must pass their check.
pub(super) fn read_settings(reader: &mut Reader<'_>) -> Result<RoomSettings, ImageError> {
    let instant = |reader: &mut Reader<'_>| {
        reader.signed().and_then(|us| Timestamp::from_us(us).ok_or(ImageError::Value("instant")))
    };
    let settings = RoomSettings {
        admit: reader.option(|it| Ok(Admit { count: it.number_u32()?, every_ms: it.number()? }))?,
        max_active: reader.option(Reader::number_u32)?,
        max_waiting: reader.number_u32()?,
        waiting_ttl_ms: reader.number()?,
        active_ttl_ms: reader.number()?,
        claim_window_ms: reader.number()?,
        idle_ttl_ms: reader.option(Reader::number)?,
        opens_at: reader.option(instant)?,
        paused: reader.bool()?,
        message: reader.option(|it| it.text().map(Into::into))?,
        target_url: reader.option(|it| it.text().map(Into::into))?,
    };
    if settings.check().is_err() {
        return Err(ImageError::Value("settings"));
    }
    Ok(settings)
}
