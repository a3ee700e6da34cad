//! Replicas of one log are one room: with any seeds, from any start, and equal to the room of the rules.

use super::super::model_steps::*;
use super::super::twins::{Twin, room};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Say {
    Step(Step),
    /// Everything up to so many positions back is durable.
    Durable(u64),
    /// An earlier entry is appended again.
    Again(u32),
    /// The end of the log may be lost, and so many numbers with it.
    Lost(u32),
}

fn any_say() -> impl Strategy<Value = Say> {
    prop_oneof![
        10 => any_step().prop_map(Say::Step),
        1 => (0..20_u64).prop_map(Say::Durable),
        1 => any::<u32>().prop_map(Say::Again),
        1 => (0..90_u32).prop_map(Say::Lost),
    ]
}

/// The room of the rules, which has no log, and the entries so far.
struct Log {
    plain: Twin,
    entries: Vec<Entry>,
    tags: BTreeSet<u64>,
    /// The positions that can be marked durable, or are.
    marks: Vec<(u64, u64)>,
    ceiling: u32,
}

impl Log {
    fn new(plain: Twin) -> Self {
        let ceiling = plain.room.drawn();
        Self { plain, entries: Vec::new(), tags: BTreeSet::new(), marks: Vec::new(), ceiling }
    }

    fn entry(&self, step: &Step) -> Option<Entry> {
        let (room, tag) = (&self.plain.room, self.entries.len() as u64);
        let ticket = |pick: u32| Twin::ticket(room, pick);
        Some(match step {
            Step::Join(who) => join(who.clone(), tag),
            Step::Poll(pick) => Entry::Poll { ticket: TicketId::first(ticket(*pick)), tag },
            Step::Leave(pick) => Entry::Leave { ticket: TicketId::first(ticket(*pick)), tag },
            Step::Renew(pick, generation, key) => {
                let ticket = TicketId { number: ticket(*pick), generation: *generation };
                Entry::Renew { ticket, key: RenewalKey::new(*key), tag }
            }
            Step::Check(pick, _) => Entry::EndOver { number: ticket(*pick), tag },
            Step::Release(pick, admission) => {
                let admission = Twin::admission(room, ticket(*pick), *admission);
                Entry::Release { number: ticket(*pick), admission, tag }
            }
            Step::Tick | Step::Run(_) => Entry::Tick,
            Step::Put(settings) => Entry::Put { revision: Box::new(settings.clone().into()), tag },
            Step::Close => Entry::Close { tag },
            Step::Readmit(pick, user) => {
                Entry::Readmit { ticket: TicketId::first(ticket(*pick)), user: user.clone(), tag }
            }
            Step::Contact(pick) => Entry::contacts(vec![ticket(*pick), ticket(pick / 2), ticket(pick + 1)]),
            Step::Alive(bits) => {
                let mut row = Box::new([0; 64]);
                row[0] = *bits;
                Entry::Alive { segment: 0, bits: row }
            }
            _ => return None,
        })
    }

    fn said(&self, say: &Say) -> Option<Entry> {
        match say {
            Say::Step(Step::Join(_)) if self.ceiling <= self.plain.room.drawn() => {
                Some(Entry::Ceiling(self.ceiling + 5))
            }
            Say::Step(step) => self.entry(step),
            Say::Durable(back) => {
                let &(position, digest) = self.marks.get(self.marks.len().checked_sub(1 + *back as usize)?)?;
                Some(Entry::Durable { position, digest })
            }
            Say::Lost(count) => {
                let (ceiling, branch) = (self.plain.room.drawn() + count, self.entries.len() as u64);
                Some(Entry::Lost { ceiling, grace_ms: 1_000, branch })
            }
            Say::Again(pick) => self.entries.get(*pick as usize % self.entries.len().max(1)).cloned(),
        }
    }

    /// Returns the outcome by the rules; an entry with a known tag has no effect.
    fn judge(&mut self, entry: &Entry, now: Now, changes: &mut Vec<Change>) -> Option<String> {
        let room = &mut self.plain.room;
        let is_kept = matches!(entry, Entry::Join { .. } | Entry::Put { .. } | Entry::Close { .. });
        if is_kept && !self.tags.insert(entry.tag().expect("it has one")) {
            return None;
        }
        if entry.shown().is_some_and(|ticket| room.judge_ticket(ticket).is_err()) {
            return Some(format!("{:?}", Outcome::TicketRenewed));
        }
        Some(match entry {
            Entry::Join { join, .. } => format!("{:?}", Outcome::Joined(room.join(join, now, changes))),
            Entry::Poll { ticket, .. } => format!("{:?}", Outcome::Ticket(room.decide(ticket.number, now, changes))),
            Entry::Leave { ticket, .. } => format!("{:?}", Outcome::Left(room.leave(ticket.number, now, changes))),
            Entry::Renew { ticket, key, .. } => {
                format!("{:?}", Outcome::Renewed(room.renew(*ticket, *key, now, changes)))
            }
            Entry::Readmit { ticket, user, .. } => {
                let number = &ticket.number;
                room.readmit(*number, user.as_ref(), now, changes);
                format!("{:?}", Outcome::Ticket(room.decide(*number, now, changes)))
            }
            other => {
                match other {
                    Entry::Release { number, admission, .. } => room.release(*number, *admission, now, changes),
                    Entry::EndOver { number, .. } => room.end_over(*number, now, changes),
                    Entry::Contacts { numbers } => numbers.iter().for_each(|it| room.contact(*it, now)),
                    Entry::Alive { bits, .. } => room.alive(1, bits, now),
                    Entry::Lost { ceiling, grace_ms, .. } => {
                        self.ceiling = self.ceiling.max(*ceiling);
                        room.lose_end(self.ceiling, now.steady.plus_ms(*grace_ms), now);
                    }
                    Entry::Ceiling(ceiling) => self.ceiling = self.ceiling.max(*ceiling),
                    Entry::Tick => room.tick(now, changes),
                    Entry::Put { revision, .. } => match room.judge_settings(&revision.settings, now) {
                        Ok(()) => room.replace_settings(revision.settings.clone(), now),
                        Err(rejection) => return Some(format!("{:?}", Outcome::SettingsRefused(rejection))),
                    },
                    Entry::Close { .. } if room.state(now.wall) != RoomState::Closed => room.close(),
                    _ => {}
                }
                format!("{:?}", Outcome::Done)
            }
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn copies_of_one_log_are_one_room_and_that_of_the_rules(
        settings in any_settings(),
        lost in proptest::option::of(1..20_u32),
        says in proptest::collection::vec((any_say(), proptest::bool::weighted(0.1)), 1..120),
        cut in any::<u32>(),
    ) {
        let copy = || Replica::new(room(&settings, lost), 0, 0, hasher(), start());
        let mut log = Log::new(Twin { room: room(&settings, lost), now: start() });
        let (mut copies, mut latest) = (vec![copy(), copy()], start());
        for (at, (say, is_early)) in says.iter().enumerate() {
            if let Say::Step(step) = say {
                Twin::pass(&mut log.plain.now, step);
            }
            let Some(entry) = log.said(say) else { continue };
            // Now and then the clock that stamps the entries is set back.
            let stamp = if *is_early { start() } else { log.plain.now };
            latest = Now { wall: latest.wall.max(stamp.wall), steady: latest.steady.max(stamp.steady) };
            let (mut wanted, position) = (Vec::new(), log.entries.len() as u64 + 1);
            let outcome = log.judge(&entry, latest, &mut wanted);
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let entry = Entry::decode(&bytes).expect("an entry");
            let mut told = Vec::new();
            for copy in &mut copies {
                let mut changes = Vec::new();
                let applied = copy.apply(position, stamp, &entry, &mut changes).expect("the next one");
                assert_eq!(changes, wanted, "{entry:?}");
                match &outcome {
                    None => assert!(matches!(applied.outcome, Outcome::Repeated(_)), "{entry:?}"),
                    Some(outcome) => assert_eq!(&format!("{:?}", applied.outcome), outcome, "{entry:?}"),
                }
                assert!(copy.room().image() == log.plain.room.image(), "{entry:?}");
                told.push((applied, copy.digest(), copy.durable(), copy.image()));
            }
            assert!(told.windows(2).all(|two| two[0] == two[1]), "copies differ after {entry:?}");
            log.marks.extend(copies[0].mark_up_to(position).filter(|mark| mark.0 == position));
            log.entries.push(entry);
            if at == cut as usize % says.len() {
                copies.push(Replica::from_image(&copies[0].image(), hasher()).expect("an image of a copy").with_draw_key(draw_key()));
            }
        }
    }

    #[test]
    fn no_matter_what_bytes_come_nothing_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        settings in any_settings(),
        steps in proptest::collection::vec(any_step(), 0..40),
        harm in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..4),
    ) {
        let _ = Replica::from_image(&bytes, hasher());
        let copy = Replica::new(room(&settings, Some(5)), 0, 10_000, hasher(), start());
        let mut log = Log::new(Twin { room: room(&settings, Some(5)), now: start() });
        let (mut copy, mut changes) = (copy, Vec::new());
        for step in &steps {
            Twin::pass(&mut log.plain.now, step);
            if let Some(entry) = log.entry(step) {
                log.judge(&entry, log.plain.now, &mut changes);
                copy.apply(copy.position() + 1, log.plain.now, &entry, &mut changes).expect("the next one");
                log.entries.push(entry);
            }
        }
        let image = copy.image();
        for length in 0..image.len() {
            assert!(Replica::from_image(&image[..length], hasher()).is_err());
        }
        let longer = [image.as_slice(), &[0]].concat();
        assert_eq!(Replica::from_image(&longer, hasher()).err(), Some(ImageError::Trailing));
        let mut harmed = image;
        for (at, byte) in harm {
            let at = at as usize % harmed.len();
            harmed[at] ^= byte;
        }
        // A damaged image that is still consistent restores some replica.
        if let Ok(mut harmed) = Replica::from_image(&harmed, hasher()).map(|it| it.with_draw_key(draw_key())) {
            let next = harmed.position() + 1;
            for (position, entry) in (next..).zip(log.entries.iter().chain(&[Entry::Tick])) {
                harmed.apply(position, log.plain.now, entry, &mut changes).expect("the next one");
            }
        }
    }
}
