//! Writes the whole state of a room as bytes and reads it back, so that another process can go on from it.

use super::bytes::{
    ImageError, Reader, put_bool, put_number, put_option, put_rising, put_signed, put_steady, put_text,
};
use super::draw::{Draw, DrawKey, DrawSeed};
use super::line::{FirstPolls, Line, TicketPlace};
use super::pace::{Bucket, Meter};
use super::renewal::Renewals;
use super::slots::Slots;
use super::steer::Steering;
use super::{Admit, Room, RoomOrder, RoomSettings};
use crate::time::{Steady, Timestamp};
use std::collections::BTreeSet;
use std::hash::RandomState;

const VERSION: u8 = 2;
/// What credit of an image of the first version lacks: it counted tenths.
const CREDIT_SCALE: u32 = 100_000;

const CLOSED: u8 = 1;
/// The draw took place.
const DRAWN: u8 = 2;
/// The room has a key of draws.
const KEYED: u8 = 4;
/// A ticket was renewed. An image without this flag has the bytes that it always had.
const RENEWED: u8 = 8;

/// Flags of settings.
const PAUSED: u8 = 1;
const DRAWS: u8 = 2;
/// The settings end with the time for the first poll.
const FIRST_POLL: u8 = 4;

impl Room {
    /// Returns the complete state of the room as bytes. The room that [`Self::from_image`] makes of them answers and changes
    /// exactly like this one, for ever. Equal rooms have equal images, with any hash seeds.
    ///
    /// It contains the secret key of the room's draws. Costs about 8 bytes for each living ticket, plus its user and request.
    pub fn image(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.put_image(&mut out);
        out
    }

    pub(super) fn put_image(&self, out: &mut Vec<u8>) {
        put_settings(out, &self.settings);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let is_renewed = !self.renewals.is_empty();
        let draws = flag(self.draw.is_some(), DRAWN) | flag(self.draw_key.is_some(), KEYED);
        out.push(flag(self.closed, CLOSED) | draws | flag(is_renewed, RENEWED));
        for is in [self.was_open, self.was_busy] {
            put_bool(out, is);
        }
        if let Some(draw) = &self.draw {
            put_draw(out, draw);
        }
        if let Some(key) = &self.draw_key {
            out.extend_from_slice(key.as_bytes());
        }
        put_number(out, self.admissions);
        put_steady(out, self.ticked);
        put_option(out, self.grace_until, put_steady);
        // A room without the setting has the bytes that it always had.
        if let Some(first_polls) = self.line.first_polls() {
            put_steady(out, first_polls.grace_until);
        }
        if let Some(bucket) = &self.bucket {
            bucket.put(out);
        }
        self.steering.put(out);
        self.meter.put(out);
        self.slots.put_image(out);
        self.line.put(out);
        put_rising(out, self.returned.iter().copied());
        if is_renewed {
            self.renewals.put(out);
        }
    }

    /// Restores the room from its image. `hasher` carries the seed of this process.
    ///
    /// Never panics. Refuses bytes that are no image of a room. Does not notice the image of another room, or a forged one
    /// that is consistent.
    pub fn from_image(image: &[u8], hasher: RandomState) -> Result<Self, ImageError> {
        let mut reader = Reader::new(image);
        let is_first = match reader.byte()? {
            VERSION => false,
            1 => true,
            _ => return Err(ImageError::Version),
        };
        let room = Self::read_image(&mut reader, is_first, hasher)?;
        reader.end()?;
        Ok(room)
    }

    /// Reads an image; `is_first` says that it is of the first version, which steers nothing.
    pub(super) fn read_image(reader: &mut Reader<'_>, is_first: bool, hasher: RandomState) -> Result<Self, ImageError> {
        let settings = read_settings(reader)?;
        let head = reader.byte()?;
        if head & !(CLOSED | DRAWN | KEYED | RENEWED) != 0 {
            return Err(ImageError::Value("flag"));
        }
        let (closed, was_open, was_busy) = (head & CLOSED != 0, reader.bool()?, reader.bool()?);
        let draw = if head & DRAWN != 0 { Some(read_draw(reader)?) } else { None };
        let draw_key = if head & KEYED != 0 { Some(DrawKey::new(reader.fixed_32()?)) } else { None };
        let admissions = reader.number()?;
        let ticked = reader.steady()?;
        let grace_until = reader.option(Reader::steady)?;
        let first_polls = match settings.first_poll_ms {
            Some(ms) => Some(FirstPolls { ms, grace_until: reader.steady()? }),
            None => None,
        };
        let scale = if is_first { CREDIT_SCALE } else { 1 };
        let bucket = settings.admit.map(|admit| Bucket::read(reader, admit, scale)).transpose()?;
        let steering = if is_first { Steering::new(ticked) } else { Steering::read(reader)? };
        let meter = Meter::read(reader, !is_first)?;
        let slots = Slots::read_image(reader, hasher.clone(), settings.idle_ttl_ms)?;
        let mut line = Line::read(reader, first_polls, hasher)?;
        if draw.as_ref().is_some_and(|draw| !line.draw_lots(draw)) {
            return Err(ImageError::Value("draw"));
        }
        let returned = BTreeSet::from_iter(reader.rising()?);
        let renewals = if head & RENEWED != 0 { Renewals::read(reader)? } else { Renewals::default() };
        let may_be_renewed = |number| !matches!(line.place(number), None | Some(TicketPlace::Gone(_)));
        if !renewals.numbers().all(may_be_renewed) {
            return Err(ImageError::Value("renewal"));
        }
        // Sums with these values must not overflow.
        if i64::MAX as u64 <= admissions || slots.admissions().any(|(_, admission)| admissions < admission) {
            return Err(ImageError::Value("admission"));
        }
        if line.in_slots().count() != slots.count() as usize || line.in_slots().any(|it| slots.get(it).is_none()) {
            return Err(ImageError::Value("slot"));
        }
        if slots.admissions().any(|(number, _)| line.reached() <= line.turn(number)) {
            return Err(ImageError::Value("reached number"));
        }
        if returned.iter().any(|&turn| !line.is_passed_over(turn)) {
            return Err(ImageError::Value("passed over"));
        }
        Ok(Self {
            settings,
            closed,
            draw_key,
            draw,
            line,
            unpolled_count: 0,
            returned,
            slots,
            renewals,
            admissions,
            bucket,
            steering,
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
        // A room without a draw, or without a time for the first poll, has the digest that it always had.
        let drawn = self.draw.map(|draw| [draw.first.into(), draw.entrants.into(), draw.drawn_at.as_us() as u64]);
        let first_polls = self.line.first_polls().map(|it| [it.ms, it.grace_until.as_us() as u64 | 1]);
        let order = (settings.order == RoomOrder::Draw).then(|| drawn.unwrap_or_default());
        let all = counted
            .into_iter()
            .map(u64::from)
            .chain(flags.into_iter().map(u64::from))
            .chain(rest)
            .chain(order.or(drawn).into_iter().flatten())
            .chain(first_polls.into_iter().flatten())
            .chain(self.steering.digest())
            .chain(self.renewals.digest());
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
    // One byte for all, so that settings without a draw and a time for the first poll have the bytes that they always had. A
    // program that does not know a bit refuses the settings.
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let (draws, first_poll) = (settings.order == RoomOrder::Draw, settings.first_poll_ms.is_some());
    out.push(flag(settings.paused, PAUSED) | flag(draws, DRAWS) | flag(first_poll, FIRST_POLL));
    put_option(out, settings.message.as_deref(), put_text);
    put_option(out, settings.target_url.as_deref(), put_text);
    if let Some(first_poll_ms) = settings.first_poll_ms {
        put_number(out, first_poll_ms);
    }
}

/// Reads settings, which must pass their check.
pub(super) fn read_settings(reader: &mut Reader<'_>) -> Result<RoomSettings, ImageError> {
    let instant = |reader: &mut Reader<'_>| {
        reader.signed().and_then(|us| Timestamp::from_us(us).ok_or(ImageError::Value("instant")))
    };
    let mut settings = RoomSettings {
        admit: reader.option(|it| Ok(Admit { count: it.number_u32()?, every_ms: it.number()? }))?,
        max_active: reader.option(Reader::number_u32)?,
        max_waiting: reader.number_u32()?,
        waiting_ttl_ms: reader.number()?,
        active_ttl_ms: reader.number()?,
        claim_window_ms: reader.number()?,
        idle_ttl_ms: reader.option(Reader::number)?,
        opens_at: reader.option(instant)?,
        ..RoomSettings::defaults()
    };
    let flags = reader.byte()?;
    if flags & !(PAUSED | DRAWS | FIRST_POLL) != 0 {
        return Err(ImageError::Value("flag"));
    }
    settings.paused = flags & PAUSED != 0;
    settings.order = if flags & DRAWS != 0 { RoomOrder::Draw } else { RoomOrder::FirstCome };
    settings.message = reader.option(|it| it.text().map(Into::into))?;
    settings.target_url = reader.option(|it| it.text().map(Into::into))?;
    settings.first_poll_ms = if flags & FIRST_POLL != 0 { Some(reader.number()?) } else { None };
    if settings.check().is_err() {
        return Err(ImageError::Value("settings"));
    }
    Ok(settings)
}

pub(super) fn put_draw(out: &mut Vec<u8>, draw: &Draw) {
    out.extend_from_slice(draw.seed.as_bytes());
    put_number(out, draw.first);
    put_number(out, draw.entrants);
    put_signed(out, draw.drawn_at.as_us());
}

/// Reads a draw, which must be sound.
pub(super) fn read_draw(reader: &mut Reader<'_>) -> Result<Draw, ImageError> {
    let seed = reader.fixed_32()?;
    let (first, entrants) = (reader.number_u32()?, reader.number_u32()?);
    let drawn_at = Timestamp::from_us(reader.signed()?).ok_or(ImageError::Value("instant"))?;
    let draw = Draw { seed: DrawSeed::new(seed), first, entrants, drawn_at };
    if draw.is_sound() { Ok(draw) } else { Err(ImageError::Value("draw")) }
}
