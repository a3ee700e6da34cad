//! What a room remembers across a restart beside its rows: who was present, and what reports of the origin left of the rate.
//!
//! The rows of a room say who waits, and not who is still there. A store keeps this memory a part at a time, a few seconds
//! old. It is advice: a room that lacks it, or a part of it, takes all visitors there for present. Wrong memory delays or
//! hastens an admission, and never loses a place.

use super::Room;
use crate::time::{Now, Steady};

/// How often the parts are stored by their distance from the front of the line, in segments.
const PERIODS_MS: [(usize, u64); 2] = [(2, 1_000), (16, 5_000)];
/// How often the other parts are stored.
const PERIOD_MS: u64 = 15_000;

/// A part of what a room remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The number of the first ticket that it is about. 0 for what reports of the origin left of the rate.
    pub first_number: u32,
    /// For how many seconds each visitor from there on still counts as present; 0 for one who does not. Empty if there is
    /// nothing to remember: no visitor there waits any more, or the rate is whole.
    pub bytes: Box<[u8]>,
}

/// Chooses which part of a room's memory to store next. Each store of a room has its own.
#[derive(Default, Debug)]
pub struct MemoryRounds {
    /// When each segment was stored last.
    stored: Vec<Option<Steady>>,
    /// The number of the first ticket of the first segment.
    first: u32,
    /// What is stored of the part that is no segment's; `None` if that is not known.
    share: Option<Box<[u8]>>,
}

impl MemoryRounds {
    /// Returns the part that is most overdue, if any is due. The parts near the front are due every second, others up to every
    /// 15 s; after a draw all are due every 5 s. One call per tick bounds the work: it encodes at most 4 096 tickets, and looks once at each 4 096 others.
    pub fn next(&mut self, room: &Room, now: Now) -> Option<Memory> {
        let line = &room.line;
        let share = room.remember_share();
        if self.share.as_ref().is_none_or(|stored| *stored != share.bytes) {
            let is_needed = self.share.is_some() || !share.bytes.is_empty();
            self.share = Some(share.bytes.clone());
            if is_needed {
                return Some(share);
            }
        }
        let start = line.first_of(0);
        if self.first != start {
            // A purge released the first parts; without one, the room was closed, and all parts are new.
            let released = line.released_since(self.first).unwrap_or(usize::MAX).min(self.stored.len());
            self.stored.drain(..released);
            self.first = start;
        }
        self.stored.resize(line.segments(), None);
        let front = line.segment_of(line.reached());
        let mut next = None;
        for (segment, stored) in self.stored.iter().enumerate() {
            let (distance, is_empty) = (segment.abs_diff(front), line.waiting_in(segment) == 0);
            // Of a part that was never stored, the one nearest to the front is first.
            let lateness = match stored {
                None if is_empty => continue,
                None => u64::MAX - distance as u64,
                Some(stored) => {
                    let waited_ms = now.steady.since_us(*stored) / 1_000;
                    let period_ms = match room.draw {
                        // A draw spreads the front over all parts.
                        Some(_) => PERIODS_MS[1].1,
                        None if segment < front => PERIOD_MS,
                        None => period_ms(distance),
                    };
                    if waited_ms < period_ms {
                        continue;
                    }
                    waited_ms * 1_000 / period_ms
                }
            };
            if next.is_none_or(|(latest, _)| latest < lateness) {
                next = Some((lateness, segment));
            }
        }
        let (_, segment) = next?;
        let is_empty = line.waiting_in(segment) == 0;
        self.stored[segment] = if is_empty { None } else { Some(now.steady) };
        let left_s = if is_empty { Vec::new() } else { line.presence(segment, now.steady) };
        Some(Memory { first_number: line.first_of(segment), bytes: left_s.into() })
    }
}

fn period_ms(distance: usize) -> u64 {
    PERIODS_MS.into_iter().find(|(within, _)| distance < *within).map_or(PERIOD_MS, |(_, period_ms)| period_ms)
}

impl Room {
    /// Restores a part of what the room remembers, after [`Self::restored`]. A part that does not fit the room has no effect.
    pub fn recall(&mut self, memory: &Memory, now: Now) {
        if memory.first_number == 0 {
            self.steering.recall(&memory.bytes, now.steady);
        } else {
            self.line.recall(memory.first_number, &memory.bytes, self.settings.waiting_ttl_ms, now.steady);
        }
    }
}
