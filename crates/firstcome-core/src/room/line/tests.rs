//! Properties that only the line itself can show: its counts match its bits, its cost, and its places.

use super::*;
use crate::room::tests::{Chance, hasher};

const START: Steady = Steady::from_us(77);

impl Line {
    /// Returns when the next sweep is due.
    pub(in crate::room) fn next_sweep(&self) -> Option<Steady> {
        self.sweeps.first().map(|(due, _)| *due)
    }

    /// Checks every count against the bits that it counts.
    #[track_caller]
    pub(in crate::room) fn assert_sound(&self) {
        let mut groups = vec![0; self.segments.len().div_ceil(GROUP)];
        let mut unknown = 0;
        for (segment, page) in self.segments.iter().enumerate() {
            let ones = |bits: &Bits| bits.iter().map(|bits| bits.count_ones()).sum::<u32>();
            assert_eq!(self.counts[segment], ones(&page.waiting), "who waits in segment {segment}");
            let none = [0; WORDS];
            let lost = page.unknown.as_deref().unwrap_or(&none);
            unknown += ones(lost);
            assert_ne!(page.unknown.as_deref(), Some(&none), "bits of nobody: {segment}");
            let living = page.drawn - ones(&page.gone) - ones(lost);
            assert_eq!(page.living_count, living, "who lives in segment {segment}");
            assert!((0..WORDS).all(|at| lost[at] & (page.gone[at] | page.waiting[at]) == 0), "known: {segment}");
            assert!((0..WORDS).all(|at| page.waiting[at] & page.gone[at] == 0), "in line and gone: {segment}");
            assert!((0..WORDS).all(|at| page.left[at] & !page.gone[at] == 0), "left and not gone: {segment}");
            let is_over = page.living_count == 0 && page.drawn == SEGMENT;
            assert!(page.columns.is_none() || !is_over, "dropped: {segment}");
            assert!(page.columns.is_some() || page.living_count == 0, "kept: {segment}");
            let due = self.sweeps.iter().any(|&(_, swept)| swept as usize == segment);
            assert!(due || !page.swept || page.columns.is_none(), "looked at some time: {segment}");
            groups[segment / GROUP] += self.counts[segment];
        }
        assert_eq!((&self.groups, self.unknown), (&groups, unknown));
        assert_eq!(self.waiting, groups.iter().sum::<u32>());
        if let Some(lots) = &self.lots {
            lots.assert_sound(self);
        }
        assert!(self.first <= self.reached && self.reached <= self.next);
        assert!(self.sweeps.len() <= self.segments.len(), "one sweep per segment");
    }

    /// Returns the bytes on the heap, by the capacities of the collections.
    pub(in crate::room) fn bytes(&self) -> usize {
        let columns = |it: &Columns| {
            size_of::<Columns>()
                + it.seen.capacity() * 4
                + it.told.capacity() * 2
                + it.ends.capacity() * 4
                + it.users.capacity()
                + it.requests.capacity() * size_of::<(u16, RequestId)>()
        };
        let alive: usize = self.segments.iter().filter_map(|page| page.columns.as_deref()).map(columns).sum();
        let pages =
            self.segments.capacity() * size_of::<Segment>() + (self.counts.capacity() + self.groups.capacity()) * 4;
        // A B-tree keeps its entries in nodes that are at least about half full.
        let sweeps = self.sweeps.len() * 2 * size_of::<(Steady, u32)>();
        let lots = self.lots.as_deref().map_or(0, DrawnLine::bytes);
        alive + pages + sweeps + lots + self.users.bytes() + self.requests.bytes()
    }

    /// Removes all scheduled sweeps.
    pub(in crate::room) fn harm_sweeps(&mut self) {
        self.sweeps.clear();
    }

    /// Returns how many segments have columns.
    pub(in crate::room) fn kept_segments(&self) -> usize {
        self.segments.iter().filter(|page| page.columns.is_some()).count()
    }
}

/// Counts one by one how many tickets wait between the reached number and each number up to the next one.
fn counted(line: &Line) -> Vec<u32> {
    let mut ahead = 0;
    (0..=line.next)
        .map(|number| {
            let told = ahead;
            let waits = line.place(number) == Some(TicketPlace::Waiting) && line.reached <= number;
            ahead += u32::from(waits);
            told
        })
        .collect()
}

#[test]
fn a_position_is_what_counting_one_by_one_gives_across_segments_and_groups() {
    // More than one group of 64 segments, and exactly to the end of one on the way.
    const MANY: u32 = 64 * 4_096 * 2 + 4_097;
    let (mut line, mut chance) = (Line::new(hasher(), 1), Chance(1));
    let mut stop_at = vec![1, 4_095, 4_096, 4_097, 64 * 4_096, 64 * 4_096 + 1, MANY];
    let mut taken = Vec::new();
    while let Some(stop) = stop_at.first().copied() {
        stop_at.remove(0);
        while line.next() <= stop {
            line.push(None, None, START);
        }
        for round in 0..4 {
            for _ in 0..stop / 16 {
                let number = 1 + chance.below(stop);
                match (line.place(number), chance.below(4)) {
                    (Some(TicketPlace::Waiting), 0) => line.go(number, Departure::Left),
                    (Some(TicketPlace::Waiting), 1) => line.go(number, Departure::Expired),
                    (Some(TicketPlace::Waiting), 2) if round % 2 == 1 => {
                        if let Some(found) = line.search(START, SEARCH_TICKETS_MAX).found {
                            line.take(found);
                            taken.push(found);
                        }
                    }
                    _ => {}
                }
            }
            for _ in 0..taken.len() / 3 {
                let back = taken.swap_remove(chance.below(taken.len() as u32) as usize);
                line.back(back);
            }
            let counted = counted(&line);
            let reached = line.reached();
            let corners = [reached.saturating_sub(1), reached, reached + 1, line.next() - 1, line.next()];
            let edges = (0..line.next()).filter(|number| matches!(number % 4_096, 0..=2 | 4_095));
            let some = (0..500).map(|_| 1 + chance.below(stop)).collect::<Vec<_>>();
            for number in edges.chain(corners).chain(some).filter(|&number| number <= line.next) {
                assert_eq!(line.ahead(number), counted[number as usize], "{number} of {stop}, reached {reached}");
            }
            line.assert_sound();
        }
    }
}

#[test]
fn a_position_never_rises() {
    const MANY: u32 = 3 * 4_096;
    let (mut line, mut chance) = (Line::new(hasher(), 1), Chance(2));
    let mut told = vec![u32::MAX; MANY as usize + 1];
    let mut taken = Vec::new();
    for _ in 0..MANY {
        line.push(None, None, START);
        for _ in 0..2 {
            match chance.below(8) {
                0 => taken.extend(line.search(START, 3).found.inspect(|&found| line.take(found))),
                1 if !taken.is_empty() => {
                    line.back(taken.swap_remove(chance.below(taken.len() as u32) as usize));
                }
                2 => {
                    let number = 1 + chance.below(line.next() - 1);
                    if line.place(number) == Some(TicketPlace::Waiting) {
                        line.go(number, Departure::Left);
                    }
                }
                _ => {
                    let number = 1 + chance.below(line.next() - 1);
                    let position = line.ahead(number);
                    assert!(position <= told[number as usize], "the position of {number} rose to {position}");
                    told[number as usize] = position;
                }
            }
        }
    }
    assert!(1_000 < line.reached() && line.reached() < line.next(), "the line moved, and did not run dry");
}

#[test]
fn a_segment_whose_tickets_are_all_gone_keeps_only_its_bits() {
    let mut line = Line::new(hasher(), 1);
    for number in 1..=4_096_u32 + 10 {
        let user = UserId::parse(&format!("u{number}")).unwrap();
        line.push(Some(&user), Some(RequestId { key: number.into(), body: 1 }), START);
    }
    for number in 1..=4_096 {
        assert_eq!(line.kept_segments(), 2, "before {number} is gone");
        line.go(number, if number % 3 == 0 { Departure::Left } else { Departure::Expired });
    }
    assert_eq!(line.kept_segments(), 1);
    for number in 1..=4_096 {
        let how = if number % 3 == 0 { Departure::Left } else { Departure::Expired };
        assert_eq!(line.place(number), Some(TicketPlace::Gone(how)), "{number}");
        assert_eq!((line.user(number), line.of_user(&format!("u{number}"))), (None, None));
        assert_eq!(line.of_request(number.into()), None);
        assert!(!line.is_present(number, START));
    }
    // Look-ups find the remaining visitors. The last segment stays while a visitor may still join it.
    for number in 4_097..=4_106_u32 {
        assert_eq!(line.of_user(&format!("u{number}")), Some(number));
        line.go(number, Departure::Left);
    }
    assert_eq!(line.kept_segments(), 1);
    line.assert_sound();
}

#[test]
fn a_search_looks_at_no_more_than_it_may_and_a_segment() {
    let mut line = Line::new(hasher(), 1);
    let many = 10 * 4_096;
    (0..many).for_each(|_| assert_ne!(line.push(None, None, START), 0));
    // All visitors are absent, except for the last one of each segment, so that the search examines every segment.
    let later = START.plus_ms(30_001);
    for last in (4_096..=many).step_by(4_096) {
        line.touch(last, later, 0);
        line.go(last, Departure::Left);
    }
    let mut passed = 0;
    while line.reached() < line.next() {
        let before = line.reached();
        let search = line.search(later, 100);
        assert_eq!(search.found, None);
        assert!(before < line.reached(), "it goes on");
        assert!(line.reached() - before <= 4_096, "from {before} to {}", line.reached());
        passed += search.passed;
    }
    assert_eq!(passed, many - 10);
}

#[test]
fn segments_with_next_to_no_visitor_in_line_count_as_work_too() {
    const SEGMENTS: u32 = 40;
    let mut line = Line::new(hasher(), 1);
    for number in 1..=SEGMENTS * 4_096 {
        line.push(None, None, START);
        // One of them has a long poll interval, and left. Another one waits, and is absent.
        match number % 4_096 {
            1 => line.touch(number, START, 1_000_000),
            2 => {}
            _ => line.go(number, Departure::Left),
        }
    }
    (1..SEGMENTS * 4_096).step_by(4_096).for_each(|number| line.go(number, Departure::Left));
    let later = START.plus_ms(30_001);
    let mut searches = 0;
    while line.reached() < line.next() {
        let before = line.reached();
        assert_eq!(line.search(later, 4 * 64).found, None);
        assert!(line.reached() - before <= 5 * 4_096, "from {before} to {}", line.reached());
        searches += 1;
    }
    assert_eq!(searches, SEGMENTS / 4);
}
