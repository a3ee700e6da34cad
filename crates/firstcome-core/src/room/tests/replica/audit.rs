//! Several processes with their own replicas. Appends are repeated now and then, one process writes the durable records, and
//! everything else is lost at times. Every reported reply stays true.

use super::super::twins::nothing;
use super::*;
use std::collections::BTreeMap;

/// The durable records: all that survives.
struct StoredRoom {
    settings: RoomSettings,
    closed: bool,
    first: u32,
    ceiling: u32,
    draw: Option<Draw>,
    reached: u32,
    admissions: u64,
    tickets: BTreeMap<u32, Join>,
    slots: BTreeMap<u32, Slot>,
    gone: BTreeMap<u32, Departure>,
    renewals: BTreeMap<u32, Renewal>,
    position: u64,
}

impl StoredRoom {
    fn write(&mut self, record: &Record) {
        match record {
            Record::Change(Change::Joined { number, join, .. }) => {
                assert!(join.user.is_some() || join.request.is_some(), "strangers are not written down");
                self.tickets.insert(number.get(), join.clone());
            }
            Record::Change(Change::Admitted { number, slot }) => {
                self.slots.insert(number.get(), *slot);
                self.admissions = self.admissions.max(slot.admission);
            }
            Record::Change(Change::Taken { number, until }) => {
                let slot = self.slots.get_mut(&number.get()).expect("it was admitted");
                slot.hold = Hold::Taken { until: *until };
            }
            Record::Change(Change::Lapsed { number }) => assert!(self.slots.remove(&number.get()).is_some()),
            Record::Change(Change::Gone { number, how }) => {
                self.slots.remove(&number.get());
                self.tickets.remove(&number.get());
                self.renewals.remove(&number.get());
                assert_eq!(self.gone.insert(number.get(), *how), None, "a ticket goes once");
            }
            Record::Change(Change::Renewed { number, renewal }) => {
                let before = self.renewals.insert(number.get(), *renewal).map_or(0, |before| before.generation);
                assert_eq!(renewal.generation, before + 1, "each renewal makes the next ticket");
            }
            Record::Change(Change::Reached(reached)) => self.reached = *reached,
            Record::Change(Change::Drawn(draw)) => {
                assert_eq!(self.draw.replace(*draw), None, "a room draws once");
            }
            Record::Settings(settings) => (self.settings, self.closed) = ((**settings).clone(), false),
            Record::Closed { first } => {
                (self.closed, self.first, self.reached, self.draw) = (true, *first, *first, None);
                self.tickets.clear();
                self.slots.clear();
                self.renewals.clear();
            }
        }
    }

    fn known(&self, grace_until: Option<Steady>) -> Known {
        let mut row = GoneNumbers { first_number: 1, gone: [0; 64], left: [0; 64] };
        for (number, how) in &self.gone {
            let (word, bit) = ((number - 1) as usize / 64, (number - 1) % 64);
            row.gone[word] |= 1 << bit;
            row.left[word] |= u64::from(*how == Departure::Left) << bit;
        }
        Known {
            standing: if self.closed { RoomPhase::Closed } else { RoomPhase::Running },
            first: self.first,
            draw: self.draw,
            reached: self.reached,
            admissions: self.admissions,
            tickets: self.tickets.iter().map(|(it, join)| (number(*it), join.clone())).collect(),
            slots: self.slots.iter().map(|(it, slot)| (number(*it), *slot)).collect(),
            gone: vec![row],
            renewals: self.renewals.iter().map(|(it, renewal)| (number(*it), *renewal)).collect(),
            grace_until,
            ..nothing(&self.settings, self.ceiling)
        }
    }
}

/// A reply that a visitor got.
#[derive(Clone, Debug, PartialEq)]
enum AuditedReply {
    Drawn(Option<UserId>),
    Admitted(u64),
    Gone(Departure),
    Closed,
    /// The place has a ticket of this generation.
    Renewed(u32),
}

struct World {
    chance: Chance,
    log: Vec<(Now, Entry)>,
    copies: Vec<Replica>,
    truth: StoredRoom,
    now: Now,
    tag: u64,
    again: Vec<Entry>,
    /// Replies that wait for their position to become durable, and reported replies. Number 0 is the room.
    held: Vec<(u64, u32, AuditedReply)>,
    told: Vec<(u32, AuditedReply)>,
    /// Numbers in the order of their draws; their users; and the last position that each visitor saw.
    drawn: Vec<u32>,
    users: BTreeMap<u32, Option<UserId>>,
    /// The generations of the tickets that visitors were given after the first one.
    generations: BTreeMap<u32, u32>,
    tickets: Vec<u32>,
    shown: BTreeMap<u32, u32>,
    admitted_at: Vec<Steady>,
}

impl World {
    fn new(seed: u64, settings: RoomSettings) -> Self {
        let truth = StoredRoom {
            settings,
            closed: false,
            first: 1,
            ceiling: 20,
            draw: None,
            reached: 1,
            admissions: 0,
            tickets: BTreeMap::new(),
            slots: BTreeMap::new(),
            gone: BTreeMap::new(),
            renewals: BTreeMap::new(),
            position: 0,
        };
        let mut world = Self {
            chance: Chance(seed),
            log: Vec::new(),
            copies: Vec::new(),
            truth,
            now: start(),
            tag: 0,
            again: Vec::new(),
            held: Vec::new(),
            told: Vec::new(),
            drawn: Vec::new(),
            users: BTreeMap::new(),
            generations: BTreeMap::new(),
            tickets: Vec::new(),
            shown: BTreeMap::new(),
            admitted_at: Vec::new(),
        };
        world.rebuild(None);
        world
    }

    fn rebuild(&mut self, grace_until: Option<Steady>) {
        let known = self.truth.known(grace_until);
        let copy = || {
            let room = Room::rebuilt(&known, hasher(), self.now)
                .expect("what is written down is sound")
                .with_draw_key(draw_key());
            assert_sound(&room);
            Replica::new(room, 0, known.ceiling, hasher(), self.now)
        };
        self.copies = (0..3).map(|_| copy()).collect();
        self.truth.position = 0;
        self.log.clear();
        self.again.clear();
        self.held.clear();
        self.shown.clear();
    }

    fn append(&mut self, entry: Entry) {
        if self.chance.below(8) == 0 {
            self.again.push(entry.clone());
        }
        self.log.push((self.now, entry));
    }

    /// Lets a replica apply up to so many entries. The first one to see an outcome reports it.
    fn read(&mut self, who: usize, most: usize) {
        let from = self.copies[who].position() as usize;
        let front = self.copies.iter().map(|copy| copy.position() as usize).max().unwrap_or(0);
        for (at, (now, entry)) in self.log.iter().enumerate().skip(from).take(most) {
            let mut changes = Vec::new();
            let copy = &mut self.copies[who];
            let applied = copy.apply(at as u64 + 1, *now, entry, &mut changes).expect("the next one");
            assert_ne!(applied.outcome, Outcome::Diverged);
            assert_sound(copy.room());
            if at < front {
                continue;
            }
            for change in &changes {
                if let Change::Admitted { .. } = change {
                    self.admitted_at.push(copy.now().steady);
                    let cap = copy.room().settings().max_active.unwrap_or(u32::MAX);
                    assert!(copy.room().view(copy.now()).active <= cap, "no more than may be inside");
                }
                if let (Change::Joined { number, .. }, Entry::Readmit { .. }) = (change, entry) {
                    // Visitors behind saw a position that did not count this ticket.
                    self.shown.retain(|known, _| *known < number.get());
                }
            }
            let rests_on = applied.rests_on;
            match (&applied.outcome, entry) {
                (Outcome::Joined(Ok(Joined::New(view))), Entry::Join { join, .. }) => {
                    let number = view.number.get();
                    assert!(self.drawn.last().is_none_or(|last| *last < number), "drawn once, in order");
                    self.drawn.push(number);
                    self.users.insert(number, join.user.clone());
                    self.held.push((rests_on, number, AuditedReply::Drawn(join.user.clone())));
                }
                (Outcome::Ticket(Some(view)), _) => {
                    let told = self.generations.get(&view.number.get()).copied().unwrap_or(0);
                    let is_void = entry.shown().is_some_and(|shown| shown.generation < told);
                    let is_gone = matches!(view.state, TicketState::Gone(_));
                    assert!(
                        !is_void || is_gone,
                        "{entry:?} was told of the place, whose ticket was renewed {told} times"
                    );
                    self.held.extend(said(view).map(|it| (rests_on, view.number.get(), it)));
                }
                (Outcome::Renewed(Ok(view)), Entry::Renew { ticket, .. }) => {
                    let number = view.number.get();
                    self.held.extend(said(view).map(|it| (rests_on, number, it)));
                    if !matches!(view.state, TicketState::Gone(_)) {
                        self.held.push((rests_on, number, AuditedReply::Renewed(ticket.generation + 1)));
                    }
                }
                (Outcome::Left(Ok(())), Entry::Leave { ticket: TicketId { number, .. }, .. }) => {
                    let Some(Poll::Answer(view)) = copy.room().peek(*number, copy.now()) else { panic!("it is gone") };
                    self.held.extend(said(&view).map(|it| (rests_on, number.get(), it)));
                }
                (Outcome::Done, Entry::Close { .. }) => self.held.push((rests_on, 0, AuditedReply::Closed)),
                _ => {}
            }
        }
        let durable = self.copies[who].durable();
        let held = std::mem::take(&mut self.held);
        for (rests_on, number, told) in held {
            if durable < rests_on {
                self.held.push((rests_on, number, told));
                continue;
            }
            if matches!(told, AuditedReply::Drawn(_)) {
                self.tickets.push(number);
            }
            if let AuditedReply::Renewed(generation) = told {
                let known = self.generations.entry(number).or_default();
                *known = generation.max(*known);
            }
            self.told.push((number, told));
        }
    }

    /// Polls one replica alone.
    fn poll(&mut self, who: usize) {
        // Only a visitor with a reported number has a ticket.
        if self.tickets.is_empty() {
            return;
        }
        let at = self.tickets.len() - 1 - self.chance.below(self.tickets.len().min(30) as u32) as usize;
        let (copy, ticket) = (&self.copies[who], number(self.tickets[at]));
        if copy.unsettled(ticket) {
            return;
        }
        match copy.room().peek(ticket, copy.now()) {
            Some(Poll::Answer(view)) => {
                if let TicketState::Waiting { position, .. } = view.state
                    && self.copies.iter().all(|other| other.position() <= copy.position())
                {
                    let shown = self.shown.insert(ticket.get(), position).unwrap_or(u32::MAX);
                    assert!(position <= shown, "the position of {ticket:?} rose from {shown} to {position}");
                }
                self.told.extend(said(&view).map(|it| (ticket.get(), it)));
                self.append(Entry::contacts(vec![ticket]));
            }
            Some(Poll::Decide) if copy.room().is_unknown(ticket) => {
                let user = self.users.get(&ticket.get()).cloned().flatten();
                let tag = self.next_tag();
                let ticket = self.shown_ticket(ticket.get());
                self.append(Entry::Readmit { ticket, user, tag });
            }
            Some(Poll::Decide) => {
                let tag = self.next_tag();
                let ticket = self.shown_ticket(ticket.get());
                self.append(Entry::Poll { ticket, tag });
            }
            None => {}
        }
    }

    /// Chooses the ticket that a visitor shows: now and then one that was renewed.
    fn shown_ticket(&mut self, of: u32) -> TicketId {
        let newest = self.generations.get(&of).copied().unwrap_or(0);
        let back = if self.chance.below(3) == 0 { 1 } else { 0 };
        TicketId { number: number(of), generation: newest.saturating_sub(back) }
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Lets one process write the records of its replica.
    fn write(&mut self, who: usize) {
        let copy = &self.copies[who];
        let Some((position, digest)) = copy.mark_up_to(u64::MAX).filter(|mark| self.truth.position < mark.0) else {
            return;
        };
        let records: Vec<Record> =
            copy.pending_changes_after(self.truth.position).map(|(_, record)| record.clone()).collect();
        records.iter().for_each(|record| self.truth.write(record));
        self.truth.position = position;
        self.append(Entry::Durable { position, digest });
    }

    fn step(&mut self) {
        let who = self.chance.below(3) as usize;
        let tag = self.next_tag();
        match self.chance.below(40) {
            0..=7 => {
                let user = Some(self.chance.below(12)).filter(|user| *user < 5).map(|user| format!("user{user}"));
                let request = Some(RequestId { key: u128::from(tag), body: 1 }).filter(|_| self.chance.below(4) == 0);
                self.append(join(Join { user: user.map(|user| user_id(&user)), request }, tag));
            }
            8..=17 => self.poll(who),
            18..=22 => self.append(Entry::Tick),
            23..=28 => self.read(who, 1 + self.chance.0 as usize % 20),
            29 | 30 => self.write(who),
            31 if !self.tickets.is_empty() => {
                let ticket = self.tickets[self.chance.below(self.tickets.len() as u32) as usize];
                let ticket = self.shown_ticket(ticket);
                self.append(Entry::Leave { ticket, tag });
            }
            38 if !self.tickets.is_empty() => {
                let at = self.tickets.len() - 1 - self.chance.below(self.tickets.len().min(30) as u32) as usize;
                let ticket = self.shown_ticket(self.tickets[at]);
                self.append(Entry::Renew { ticket, key: RenewalKey::new(u128::from(tag)), tag });
            }
            32 => {
                let number = number(1 + self.chance.below(self.truth.ceiling));
                let slot = self.truth.slots.get(&number.get());
                let admission = slot.map_or(1, |slot| slot.admission);
                self.append(Entry::Release { number, admission, tag });
            }
            33 if self.copies.iter().any(|copy| copy.ceiling() <= copy.room().drawn() + 5) => {
                self.truth.ceiling += 10;
                self.append(Entry::Ceiling(self.truth.ceiling));
            }
            34 if !self.again.is_empty() => {
                let at = self.chance.below(self.again.len() as u32) as usize;
                let entry = self.again.swap_remove(at);
                self.log.push((self.now, entry));
            }
            35 if self.chance.below(10) == 0 => self.append(Entry::Close { tag }),
            36 if self.chance.below(3) == 0 => {
                let revision = Box::new(self.truth.settings.clone().into());
                self.append(Entry::Put { revision, tag });
            }
            37 if self.chance.below(6) == 0 => self.lose(),
            _ => {
                let ms = [10, 300, 2_000, 9_000][self.chance.below(4) as usize];
                self.now.steady = self.now.steady.plus_ms(ms);
                self.now.wall = self.now.wall.plus_ms(ms);
            }
        }
    }

    fn lose(&mut self) {
        let grace_until = Some(self.now.steady.plus_ms(1_000)).filter(|_| self.chance.below(2) == 0);
        self.rebuild(grace_until);
        self.check_told();
    }

    /// Checks that every reported reply is still true.
    fn check_told(&self) {
        let room = self.copies[0].room();
        for (ticket, told) in &self.told {
            let is_void = *ticket < self.truth.first;
            if *ticket == 0 {
                assert!(1 < self.truth.first || self.truth.closed, "a closing that was told happened");
                continue;
            }
            let place = room.line.place(*ticket);
            let is_gone = matches!(place, Some(TicketPlace::Gone(_)));
            assert!(place.is_some(), "{ticket} was told, and would be drawn again");
            match told {
                _ if is_void => assert!(is_gone),
                AuditedReply::Drawn(None) | AuditedReply::Closed => {}
                AuditedReply::Drawn(Some(user)) => {
                    assert!(is_gone || room.line.of_user(user.as_str()) == Some(*ticket), "{user} has lost {ticket}");
                }
                AuditedReply::Admitted(admission) => {
                    let slot = room.slots.get(*ticket).map(|(slot, _)| slot.admission);
                    assert!(is_gone || slot == Some(*admission), "{ticket} was told of {admission}: {slot:?}");
                }
                AuditedReply::Renewed(generation) => {
                    let newest = room.ticket_of(number(*ticket)).generation;
                    assert!(is_gone || *generation <= newest, "{ticket} was renewed {generation} times: {newest}");
                }
                AuditedReply::Gone(how) => {
                    assert_eq!(place, Some(TicketPlace::Gone(*how)), "{ticket} was told that it is gone");
                }
            }
        }
    }
}

fn said(view: &TicketView) -> Option<AuditedReply> {
    match view.state {
        TicketState::InDraw { .. } | TicketState::Waiting { .. } => None,
        TicketState::Admitted { slot, .. } => Some(AuditedReply::Admitted(slot.admission)),
        TicketState::Gone(how) => Some(AuditedReply::Gone(how)),
    }
}

#[test]
fn what_was_told_stays_true_across_losses_and_no_visitor_is_admitted_too_soon() {
    let (mut told, mut admitted, mut readmitted, mut renewed) = (0, 0, 0, 0);
    for seed in 0..400 {
        let rate = RoomSettings { active_ttl_ms: 20_000, claim_window_ms: 5_000, ..RoomSettings::with_rate(4, 1_000) };
        let settings = if seed % 2 == 0 { RoomSettings { max_active: Some(3), ..rate } } else { rate };
        let mut world = World::new(seed, settings);
        for _ in 0..600 {
            world.step();
            readmitted += usize::from(matches!(world.log.last(), Some((_, Entry::Readmit { .. }))));
        }
        (0..3).for_each(|who| world.read(who, usize::MAX));
        let images: Vec<Vec<u8>> = world.copies.iter().map(Replica::image).collect();
        assert!(images.windows(2).all(|two| two[0] == two[1]), "seed {seed}: copies differ");
        // Four per second, and one slice; and as many again, and one slice, in place of visitors who did not come.
        let times = &world.admitted_at;
        for (from, first) in times.iter().enumerate() {
            for (to, last) in times.iter().enumerate().skip(from) {
                let most = last.since_us(*first) as f64 * 8e-6 + 3.0;
                assert!((to - from + 1) as f64 <= most + 1e-6, "seed {seed}: {} in a window of {most}", to - from + 1);
            }
        }
        told += world.told.len();
        renewed += world.generations.len();
        admitted += times.len();
    }
    assert!(
        20_000 < told && 4_000 < admitted && 500 < readmitted && 1_000 < renewed,
        "{told} told, {admitted} in, {readmitted} came back, {renewed} renewed"
    );
}
