//! The part of a line whose order was drawn: a bitmap by turn beside the columns by number.
//!
//! It costs one bit per entrant and the tables of the permutation. The draw sets the bits of those who wait; nothing else
//! moves. Latecomers have their own numbers as turns, so the rest of the line is as it was.

use super::{Columns, GROUP, Line, SEGMENT, Search, TicketPlace, WORDS, absent_admitted, below};
use crate::room::draw::{Draw, Turns};
use crate::time::Steady;

/// How many tickets of the line one look at a drawn turn counts as: its columns lie anywhere.
const LOT_LOOKS: u32 = 8;

/// The drawn order of the numbers that took part in a draw.
pub(super) struct DrawnLine {
    turns: Turns,
    /// The turns whose tickets are in line, from `first` on.
    waiting: Vec<u64>,
    /// How many there are per segment of turns, and per group of segments.
    counts: Vec<u32>,
    groups: Vec<u32>,
}

impl DrawnLine {
    fn new(draw: &Draw) -> Self {
        let segments = draw.entrants.div_ceil(SEGMENT) as usize;
        Self {
            turns: draw.turns(),
            waiting: vec![0; segments * WORDS],
            counts: vec![0; segments],
            groups: vec![0; segments.div_ceil(GROUP)],
        }
    }

    fn enter(&mut self, turn: u32) {
        let at = (turn - self.turns.first()) as usize;
        self.waiting[at / 64] |= 1 << (at % 64);
        self.counts[at / SEGMENT as usize] += 1;
        self.groups[at / (SEGMENT as usize * GROUP)] += 1;
    }

    fn leave(&mut self, turn: u32) {
        let at = (turn - self.turns.first()) as usize;
        self.waiting[at / 64] &= !(1 << (at % 64));
        self.counts[at / SEGMENT as usize] -= 1;
        self.groups[at / (SEGMENT as usize * GROUP)] -= 1;
    }

    fn is_waiting(&self, turn: u32) -> bool {
        let at = (turn - self.turns.first()) as usize;
        self.waiting[at / 64] & (1 << (at % 64)) != 0
    }

    /// Counts the tickets in line whose turn is before this one.
    fn before(&self, turn: u32) -> u32 {
        let at = (turn - self.turns.first()) as usize;
        let (word, segment) = (at / 64, at / SEGMENT as usize);
        let group = segment / GROUP;
        let sum = |counts: &[u32]| -> u32 { counts.iter().sum() };
        let ones = |words: &[u64]| -> u32 { words.iter().map(|bits| bits.count_ones()).sum() };
        let rest = self.waiting.get(word).map_or(0, |bits| (bits & below(at as u32 % 64)).count_ones());
        let words = ones(&self.waiting[segment * WORDS..word]);
        sum(&self.groups[..group]) + sum(&self.counts[group * GROUP..segment]) + words + rest
    }

    /// Counts the tickets in line from one turn up to another.
    pub(super) fn between(&self, from: u32, to: u32) -> u32 {
        self.before(to) - self.before(from)
    }

    /// Finds the first turn in line from this one on, within its segment. Else returns the first turn of the next segment, at
    /// most the end of the line.
    fn next_waiting(&self, turn: u32) -> Result<u32, u32> {
        let at = (turn - self.turns.first()) as usize;
        let segment = at / SEGMENT as usize;
        let end = (segment + 1) * WORDS;
        if self.counts[segment] != 0 {
            let mut skip = below(at as u32 % 64);
            for word in at / 64..end {
                let bits = self.waiting[word] & !skip;
                if bits != 0 {
                    return Ok(self.turns.first() + (word * 64) as u32 + bits.trailing_zeros());
                }
                skip = 0;
            }
        }
        Err((self.turns.first() + (end * 64) as u32).min(self.turns.end()))
    }

    /// Returns the bytes on the heap, by the capacities of the collections.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let sums = (self.counts.capacity() + self.groups.capacity()) * 4;
        self.waiting.capacity() * 8 + sums + size_of::<Self>() + self.turns.bytes()
    }

    /// Checks every bit against the line, and every count against the bits that it counts.
    #[cfg(test)]
    #[track_caller]
    pub(super) fn assert_sound(&self, line: &Line) {
        let (mut counts, mut groups) = (vec![0; self.counts.len()], vec![0; self.groups.len()]);
        for turn in self.turns.first()..self.turns.end() {
            let waits = line.place(self.turns.number(turn)) == Some(TicketPlace::Waiting);
            assert_eq!(self.is_waiting(turn), waits, "turn {turn}");
            let segment = ((turn - self.turns.first()) / SEGMENT) as usize;
            counts[segment] += u32::from(waits);
            groups[segment / GROUP] += u32::from(waits);
        }
        assert_eq!((&self.counts, &self.groups), (&counts, &groups), "who waits by turn");
    }
}

impl Line {
    /// Returns the turn of a number in the order of service. Numbers that took no part in a draw are their own turns.
    pub(in crate::room) fn turn(&self, number: u32) -> u32 {
        self.lots.as_deref().map_or(number, |lots| lots.turns.turn(number))
    }

    /// Returns the number that has a turn.
    pub(in crate::room) fn number_of(&self, turn: u32) -> u32 {
        self.lots.as_deref().map_or(turn, |lots| lots.turns.number(turn))
    }

    /// Puts the numbers that took part in a draw into the drawn order. Costs some nanoseconds for each ticket in line. Returns
    /// false, and changes nothing, if a number that took part is not of this line, or if there was a draw before.
    pub(in crate::room) fn draw_lots(&mut self, draw: &Draw) -> bool {
        if self.lots.is_some() || !draw.is_sound() || draw.first < self.first || self.next < draw.end() {
            return false;
        }
        let mut lots = DrawnLine::new(draw);
        for (segment, page) in self.segments.iter().enumerate() {
            let start = self.start + segment as u32 * SEGMENT;
            for (word, &bits) in page.waiting.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    let number = start + word as u32 * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    if lots.turns.has(number) {
                        lots.enter(lots.turns.turn(number));
                    }
                }
            }
        }
        self.lots = Some(Box::new(lots));
        true
    }

    /// Notes that a ticket waits in line.
    pub(super) fn enter_lots(&mut self, number: u32) {
        if let Some(lots) = self.lots.as_deref_mut().filter(|lots| lots.turns.has(number)) {
            lots.enter(lots.turns.turn(number));
        }
    }

    /// Notes that a ticket waits in line no longer.
    pub(super) fn leave_lots(&mut self, number: u32) {
        if let Some(lots) = self.lots.as_deref_mut().filter(|lots| lots.turns.has(number)) {
            lots.leave(lots.turns.turn(number));
        }
    }

    /// Returns the turn after the last drawn one; the first number of the line if there was no draw.
    pub(super) fn drawn_end(&self) -> u32 {
        self.lots.as_deref().map_or(self.first, |lots| lots.turns.end())
    }

    /// Advances through the drawn turns to the first present ticket, as [`Line::search`] does through the others.
    pub(super) fn search_lots(&mut self, now: Steady, looked_max: u32, looked: &mut u32, search: &mut Search) {
        let Some(lots) = self.lots.as_deref() else { return };
        while self.reached < lots.turns.end() && *looked < looked_max {
            let turn = match lots.next_waiting(self.reached) {
                Ok(turn) => turn,
                Err(next) => {
                    self.reached = next;
                    *looked += WORDS as u32;
                    continue;
                }
            };
            let number = lots.turns.number(turn);
            let is_present = |(columns, at): (&Columns, usize)| columns.is_present(at, columns.clock(now));
            let present = self.columns(number).is_some_and(is_present);
            self.reached = turn + 1;
            *looked += LOT_LOOKS;
            if present || absent_admitted() {
                search.found = Some(number);
                return;
            }
            search.passed += 1;
        }
    }

    /// Returns the turns of all tickets that wait below the reached turn.
    pub(in crate::room) fn passed_over(&self) -> impl Iterator<Item = u32> {
        let waits = |turn: u32| match self.lots.as_deref().filter(|lots| lots.turns.has(turn)) {
            Some(lots) => lots.is_waiting(turn),
            None => self.place(turn) == Some(TicketPlace::Waiting),
        };
        // Without a draw, turns are numbers, and none before this one waits.
        let from = if self.lots.is_some() { self.first } else { self.gone_before };
        (from..self.reached).filter(move |&turn| waits(turn))
    }

    /// Returns whether the ticket of a turn waits that was passed over.
    pub(in crate::room) fn is_passed_over(&self, turn: u32) -> bool {
        turn < self.reached && self.place(self.number_of(turn)) == Some(TicketPlace::Waiting)
    }
}
