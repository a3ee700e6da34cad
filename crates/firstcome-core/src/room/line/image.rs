//! Writes the line as bytes and reads it back.
//!
//! Tickets that are gone cost only their bits. A segment whose tickets are all gone takes a few bytes, plus the bits of which
//! left and which expired, if it has both.

use super::{Bits, Columns, FirstPolls, Line, SEGMENT, Segment, WORDS};
use crate::id::{RequestId, UserId};
use crate::room::bytes::{ImageError, Reader, first_bits, put_bits, put_number, put_request, put_steady, put_user};
use std::hash::RandomState;

const SWEPT: u8 = 1;
const COLUMNS: u8 = 2;
const UNKNOWN: u8 = 4;

fn without(bits: &Bits, others: &Bits) -> Bits {
    std::array::from_fn(|word| bits[word] & !others[word])
}

pub(super) fn each(bits: &Bits) -> impl Iterator<Item = usize> + use<> {
    let bits = *bits;
    (0..WORDS * 64).filter(move |at| bits[at / 64] & (1 << (at % 64)) != 0)
}

impl Segment {
    /// Returns the living tickets: drawn, not gone, not unknown.
    pub(super) fn living(&self) -> Bits {
        let known = without(&first_bits(self.drawn), &self.gone);
        self.unknown.as_deref().map_or(known, |unknown| without(&known, unknown))
    }

    /// Returns the place of the first living ticket in the segment.
    pub(super) fn first_living(&self) -> Option<usize> {
        if self.living_count == 0 { None } else { each(&self.living()).next() }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags =
            [flag(self.swept, SWEPT), flag(self.columns.is_some(), COLUMNS), flag(self.unknown.is_some(), UNKNOWN)];
        out.push(flags.iter().sum());
        let drawn = first_bits(self.drawn);
        put_bits(out, &self.gone, &drawn);
        put_bits(out, &self.left, &self.gone);
        if let Some(unknown) = &self.unknown {
            put_bits(out, unknown, &without(&drawn, &self.gone));
        }
        let living = self.living();
        put_bits(out, &self.waiting, &living);
        let Some(columns) = &self.columns else { return };
        put_steady(out, columns.epoch);
        out.extend_from_slice(&columns.present_until.to_le_bytes());
        for at in each(&living) {
            out.extend_from_slice(&columns.seen[at].to_le_bytes());
            out.extend_from_slice(&columns.told[at].to_le_bytes());
            put_user(out, Some(columns.user(at)));
        }
        let lives = |at: u16| living[usize::from(at) / 64] & (1 << (at % 64)) != 0;
        let requests: Vec<&(u16, RequestId)> = columns.requests.iter().filter(|(at, _)| lives(*at)).collect();
        put_number(out, requests.len() as u64);
        for (at, request) in requests {
            put_number(out, *at);
            put_request(out, *request);
        }
    }
}

impl Line {
    pub(in crate::room) fn put(&self, out: &mut Vec<u8>) {
        assert_eq!(self.gone_before, self.first, "a room with images is never purged");
        put_number(out, self.first);
        put_number(out, self.next - self.first);
        put_number(out, self.reached - self.first);
        self.segments.iter().for_each(|page| page.put(out));
        put_number(out, self.sweeps.len() as u64);
        for &(due, segment) in &self.sweeps {
            put_steady(out, due);
            put_number(out, segment);
        }
    }

    /// Reads a line, which has this time for the first poll.
    pub(in crate::room) fn read(
        reader: &mut Reader<'_>,
        first_polls: Option<FirstPolls>,
        hasher: RandomState,
    ) -> Result<Self, ImageError> {
        let first = reader.number_u32()?;
        let next = first.checked_add(reader.number_u32()?).ok_or(ImageError::Value("next number"))?;
        let reached = first.checked_add(reader.number_u32()?).ok_or(ImageError::Value("reached number"))?;
        if first == 0 || next < reached {
            return Err(ImageError::Value("reached number"));
        }
        let mut line = Self::new(hasher, first).with_first_polls(first_polls);
        while line.next < next {
            line.read_segment(reader, SEGMENT.min(next - line.next))?;
        }
        line.reached = reached;
        let mut swept = vec![false; line.segments.len()];
        for _ in 0..reader.count()? {
            let due = reader.steady()?;
            let segment = reader.number_u32()?;
            match swept.get_mut(segment as usize) {
                Some(swept) if !*swept => *swept = true,
                _ => return Err(ImageError::Value("sweep")),
            }
            line.sweeps.insert((due, segment));
        }
        // A sweep must examine every segment with living tickets. Either an entry schedules it, or the segment is among the last
        // ones, which are scheduled later.
        let forgotten = |(page, swept): (&Segment, &bool)| page.swept && page.columns.is_some() && !swept;
        let in_order = line.segments.is_sorted_by_key(|page| !page.swept);
        if !in_order || line.segments.iter().zip(&swept).any(forgotten) {
            return Err(ImageError::Value("sweep"));
        }
        Ok(line)
    }

    fn read_segment(&mut self, reader: &mut Reader<'_>, drawn: u32) -> Result<(), ImageError> {
        let flags = reader.byte()?;
        if flags & !(SWEPT | COLUMNS | UNKNOWN) != 0 {
            return Err(ImageError::Value("segment"));
        }
        let all = first_bits(drawn);
        let gone = reader.bits(&all)?;
        let left = reader.bits(&gone)?;
        let unknown = if flags & UNKNOWN != 0 { Some(Box::new(reader.bits(&without(&all, &gone))?)) } else { None };
        let mut page = Segment { gone, left, drawn, unknown, swept: flags & SWEPT != 0, ..Segment::new() };
        let living = page.living();
        page.living_count = each(&living).count() as u32;
        page.waiting = reader.bits(&living)?;
        let waiting = each(&page.waiting).count() as u32;
        self.unknown += drawn - each(&gone).count() as u32 - page.living_count;
        let has_columns = flags & COLUMNS != 0;
        let is_over = page.living_count == 0 && drawn == SEGMENT;
        if (page.living_count != 0 && !has_columns) || (is_over && has_columns) {
            return Err(ImageError::Value("segment"));
        }
        let start = self.next;
        self.add_segment();
        self.next += drawn;
        let segment = self.segments.len() - 1;
        self.counts[segment] = waiting;
        if let Some(group) = self.groups.last_mut() {
            *group += waiting;
        }
        self.waiting += waiting;
        self.segments[segment] = page;
        if has_columns {
            self.read_columns(reader, segment, start, &living)?;
        }
        Ok(())
    }

    fn read_columns(
        &mut self,
        reader: &mut Reader<'_>,
        segment: usize,
        start: u32,
        living: &Bits,
    ) -> Result<(), ImageError> {
        let mut columns = Columns::new(reader.steady()?);
        columns.present_until = reader.fixed_u32()?;
        let mut users: Vec<(u32, UserId)> = Vec::new();
        for at in each(living) {
            let (seen, told, user) = (reader.fixed_u32()?, reader.fixed_u16()?, reader.user()?);
            columns.push(at, user.as_ref().map_or("", UserId::as_str), None);
            (columns.seen[at], columns.told[at]) = (seen, told);
            if columns.is_unpolled(at) && self.first_polls.is_none() {
                return Err(ImageError::Value("poll interval"));
            }
            users.extend(user.map(|user| (start + at as u32, user)));
        }
        for _ in 0..reader.count()? {
            let at = u16::try_from(reader.number()?).map_err(|_| ImageError::Value("request"))?;
            let is_living = living.get(usize::from(at) / 64).is_some_and(|word| word & (1 << (at % 64)) != 0);
            if !is_living || columns.requests.last().is_some_and(|(last, _)| at <= *last) {
                return Err(ImageError::Value("request"));
            }
            columns.requests.push((at, reader.request()?));
        }
        let requests = columns.requests.clone();
        columns.users.shrink_to_fit();
        self.segments[segment].columns = Some(Box::new(columns));
        for (number, user) in users {
            if self.of_user(user.as_str()).is_some() {
                return Err(ImageError::Value("user"));
            }
            self.index(number, Some(&user), None);
        }
        for (at, request) in requests {
            if self.of_request(request.key).is_some() {
                return Err(ImageError::Value("request"));
            }
            self.index(start + u32::from(at), None, Some(request));
        }
        Ok(())
    }

    /// Returns the numbers of all tickets in slots.
    pub(in crate::room) fn in_slots(&self) -> impl Iterator<Item = u32> {
        let in_slots = |(segment, page): (usize, &Segment)| {
            let start = self.start + segment as u32 * SEGMENT;
            each(&without(&page.living(), &page.waiting)).map(move |at| start + at as u32)
        };
        self.segments.iter().enumerate().flat_map(in_slots)
    }
}
