//! Random commands on the room and on a model that is too simple to be wrong: a list of tickets that it searches from the
//! front every time. Both must always give the same answers and make the same changes.
//!
//! The model does not estimate waits, and so takes the poll intervals over. The tick in which a long silence ends a ticket may
//! vary within bounds, which are checked.

mod loss;

use super::model_steps::*;
use super::*;
use proptest::prelude::*;

/// Milliseconds on the steady clock.
type Ms = i64;

#[derive(Clone, Copy, PartialEq, Debug)]
enum ModelTicket {
    Waits,
    Offered {
        admission: u64,
        until: Ms,
        /// When it counts as missed, unless it does already.
        due: Option<Ms>,
    },
    Taken {
        admission: u64,
        until: Ms,
        contact: Ms,
    },
    Gone(Departure),
    /// Unknown since a loss.
    Unknown,
}

struct Ticket {
    join: Join,
    stand: ModelTicket,
    seen: Ms,
    /// No contact since the join, in a room that asks for one.
    is_unpolled: bool,
    polled_ms: Ms,
    back: bool,
    /// The first tick since the ticket came into line, or came back into it.
    ticked: Option<Ms>,
    /// The last position that its visitor saw.
    position: u32,
}

struct Model {
    settings: RoomSettings,
    closed: bool,
    tickets: Vec<Ticket>,
    /// The draw that the room published, and the tickets that took part in the drawn order.
    draw: Option<Draw>,
    lots: Vec<usize>,
    reached: usize,
    /// The first number that is not void.
    first: u32,
    admissions: u64,
    /// The content of the bucket: thousandths of the count of a period times milliseconds.
    credit: i64,
    earned_at: Ms,
    /// Admissions to be made in place of missed ones, and how many may be now.
    owed: i64,
    allowed: i64,
    grace_until: Ms,
    /// Until then no ticket ends because its visitor has not polled.
    unpolled_until: Ms,
    now: Now,
    changes: Vec<Change>,
}

impl Model {
    fn new(settings: RoomSettings) -> Self {
        Self {
            settings,
            closed: false,
            tickets: Vec::new(),
            draw: None,
            lots: Vec::new(),
            reached: 0,
            first: 1,
            admissions: 0,
            credit: 0,
            earned_at: 0,
            owed: 0,
            allowed: 0,
            grace_until: Ms::MIN,
            unpolled_until: Ms::MIN,
            now: start(),
            changes: Vec::new(),
        }
    }

    fn ms(&self) -> Ms {
        (self.now.steady.as_us() - STEADY_US) / 1_000
    }

    fn steady(ms: Ms) -> Steady {
        Steady::from_us(STEADY_US + ms * 1_000)
    }

    /// Which ticket has a turn, both from 0.
    fn at_turn(&self, turn: usize) -> usize {
        let first = self.draw.map_or(0, |draw| draw.first as usize - 1);
        turn.checked_sub(first).and_then(|lot| self.lots.get(lot)).copied().unwrap_or(turn)
    }

    fn turn(&self, at: usize) -> usize {
        (0..self.tickets.len()).find(|&turn| self.at_turn(turn) == at).expect("each ticket has a turn")
    }

    fn is_before_draw(&self) -> bool {
        self.settings.order == RoomOrder::Draw && self.draw.is_none() && !self.closed
    }

    /// Draws, if it is time: sorts those who take part by their published places.
    fn draw_if_due(&mut self) {
        if !self.is_before_draw() || self.settings.opens_at.is_some_and(|opens_at| self.now.wall < opens_at) {
            return;
        }
        let (first, entrants) = (self.reached, self.tickets.len() - self.reached);
        let seed = draw_key().seed(self.first);
        let draw = Draw { seed, first: first as u32 + 1, entrants: entrants as u32, drawn_at: self.now.wall };
        let permutation = draw.permutation();
        self.lots = (first..first + entrants).collect();
        self.lots.sort_by_key(|at| permutation.place((at - first) as u32));
        self.draw = Some(draw);
        self.changes.push(Change::Drawn(draw));
    }

    fn waiting(&self) -> usize {
        self.tickets.iter().filter(|it| it.stand == ModelTicket::Waits).count()
    }

    fn active(&self) -> usize {
        self.tickets
            .iter()
            .filter(|it| matches!(it.stand, ModelTicket::Offered { .. } | ModelTicket::Taken { .. }))
            .count()
    }

    fn end(&self, at: usize) -> Ms {
        match self.tickets[at].stand {
            ModelTicket::Offered { until, .. } => until,
            ModelTicket::Taken { until, contact, .. } => {
                self.settings.idle_ttl_ms.map_or(until, |idle_ms| until.min(contact + idle_ms as Ms))
            }
            _ => Ms::MAX,
        }
    }

    fn is_silent(&self, at: usize) -> bool {
        self.settings.waiting_ttl_ms as Ms <= self.ms() - self.tickets[at].seen || self.is_overdue(at)
    }

    fn is_overdue(&self, at: usize) -> bool {
        let (now, ticket) = (self.ms(), &self.tickets[at]);
        let is_late = |ms: u64| ms as Ms <= now - ticket.seen && self.unpolled_until <= now;
        ticket.is_unpolled && self.settings.first_poll_ms.is_some_and(is_late)
    }

    /// No visitor in line counts as having polled: each gets the time for it afresh.
    fn await_polls_afresh(&mut self) {
        self.delay_first_polls();
        let asks = self.settings.first_poll_ms.is_some();
        self.tickets.iter_mut().for_each(|ticket| ticket.is_unpolled = asks);
    }

    /// Gives those in line, if there are any, the time for the first poll from now on.
    fn delay_first_polls(&mut self) {
        let Some(ms) = self.settings.first_poll_ms else { return };
        let has_tickets = self.waiting() + self.active() != 0;
        self.unpolled_until = self.ms() + if has_tickets { ms.max(90_000) as Ms } else { 0 };
    }

    /// Whether a ticket is over, and a sweep must have found it.
    fn must_be_found(&self, at: usize, ticked: Ms) -> bool {
        let (now, ttl_ms) = (self.ms(), self.settings.waiting_ttl_ms as Ms);
        let is_silent = ttl_ms <= now - self.tickets[at].seen && ticked + ttl_ms <= now;
        let swept_by = |ms: Ms| (ticked + ms).max(self.unpolled_until) + ms / 4;
        is_silent || self.is_overdue(at) && self.settings.first_poll_ms.is_some_and(|ms| swept_by(ms as Ms) <= now)
    }

    fn is_present(&self, at: usize) -> bool {
        let ticket = &self.tickets[at];
        self.ms() - ticket.seen <= (3 * ticket.polled_ms).max(30_000)
    }

    /// Notes that the visitor of an offer will not come.
    fn miss(&mut self, at: usize) {
        if let ModelTicket::Offered { due, .. } = &mut self.tickets[at].stand
            && due.take().is_some()
        {
            self.owed += 1;
        }
    }

    fn go(&mut self, at: usize, how: Departure) {
        self.miss(at);
        self.tickets[at].stand = ModelTicket::Gone(how);
        self.tickets[at].back = false;
        self.changes.push(Change::Gone { number: number(at as u32 + 1), how });
    }

    fn end_slot(&mut self, at: usize) {
        match self.tickets[at].stand {
            ModelTicket::Offered { .. } => {
                self.miss(at);
                self.tickets[at].stand = ModelTicket::Waits;
                self.tickets[at].ticked = None;
                self.changes.push(Change::Lapsed { number: number(at as u32 + 1) });
            }
            _ => self.go(at, Departure::Expired),
        }
    }

    fn settle(&mut self, at: usize) {
        if self.end(at) <= self.ms() {
            self.end_slot(at);
        } else if self.tickets[at].stand == ModelTicket::Waits && self.is_silent(at) {
            self.go(at, Departure::Expired);
        }
    }

    fn look(&mut self, at: usize) -> String {
        self.settle(at);
        let now = self.ms();
        if let ModelTicket::Offered { admission, due, .. } = self.tickets[at].stand {
            self.owed -= i64::from(due.is_none());
            let until = now + self.settings.active_ttl_ms as Ms;
            self.tickets[at].stand = ModelTicket::Taken { admission, until, contact: now };
            self.changes.push(Change::Taken { number: number(at as u32 + 1), until: Self::steady(until) });
        }
        let turn = self.turn(at);
        let waits = |turn: &usize| self.tickets[self.at_turn(*turn)].stand == ModelTicket::Waits;
        let ahead = (self.reached..turn).filter(waits).count() as u32;
        let (is_before_draw, entrants) = (self.is_before_draw(), self.waiting());
        let is_passed_over = turn < self.reached;
        let ticket = &mut self.tickets[at];
        match &mut ticket.stand {
            ModelTicket::Waits => {
                (ticket.seen, ticket.is_unpolled) = (now, false);
                ticket.back = is_passed_over;
                if is_before_draw {
                    return format!("in the draw of {entrants}");
                }
                assert!(ahead <= ticket.position, "the position rose");
                ticket.position = ahead;
                format!("waiting {ahead}")
            }
            ModelTicket::Taken { contact, .. } => {
                *contact = now;
                "admitted".to_owned()
            }
            ModelTicket::Gone(how) => describe_departure(*how).to_owned(),
            ModelTicket::Offered { .. } | ModelTicket::Unknown => unreachable!("taken above, or not asked"),
        }
    }

    fn lives(&self, at: usize) -> bool {
        !matches!(self.tickets[at].stand, ModelTicket::Gone(_) | ModelTicket::Unknown)
    }

    fn find(&self, is: impl Fn(&Join) -> bool) -> Option<usize> {
        (0..self.tickets.len()).find(|&at| self.lives(at) && is(&self.tickets[at].join))
    }

    fn join(&mut self, join: &Join) -> String {
        let same_key = |it: &Join| it.request.is_some_and(|it| join.request.is_some_and(|mine| mine.key == it.key));
        if let Some(at) = self.find(same_key) {
            self.settle(at);
            if self.lives(at) {
                if self.tickets[at].join.request != join.request {
                    return format!("idempotency_key_reused {}", at + 1);
                }
                return format!("same request {} {}", at + 1, self.look(at));
            }
        }
        if let Some(at) = self.find(|it| it.user.is_some() && it.user == join.user) {
            let told = self.look(at);
            if self.lives(at) {
                return format!("same user {} {told}", at + 1);
            }
        }
        if self.closed {
            return "room_closed".to_owned();
        }
        if self.settings.max_waiting as usize <= self.waiting() {
            return "room_full".to_owned();
        }
        self.draw_if_due();
        let at = self.tickets.len();
        self.tickets.push(Ticket {
            join: join.clone(),
            stand: ModelTicket::Waits,
            seen: self.ms(),
            is_unpolled: false,
            polled_ms: 0,
            back: false,
            ticked: None,
            position: u32::MAX,
        });
        let joined_at = self.now.wall;
        self.changes.push(Change::Joined { number: number(at as u32 + 1), join: join.clone(), joined_at });
        let told = self.look(at);
        self.tickets[at].is_unpolled = self.settings.first_poll_ms.is_some();
        format!("new {} {told}", at + 1)
    }

    fn leave(&mut self, at: usize) -> String {
        if self.tickets.len() <= at {
            return "unknown_ticket".to_owned();
        }
        if !matches!(self.tickets[at].stand, ModelTicket::Gone(_)) {
            self.go(at, Departure::Left);
        }
        "done".to_owned()
    }

    fn pass_left_ms(&mut self, at: usize, admission: u64, touches: bool) -> Option<u64> {
        let now = self.ms();
        if self.tickets.len() <= at || self.end(at) <= now {
            return None;
        }
        match &mut self.tickets[at].stand {
            ModelTicket::Taken { admission: bound, contact, .. } if *bound == admission => {
                *contact = if touches { now } else { *contact };
                Some((self.end(at) - now) as u64)
            }
            _ => None,
        }
    }

    /// Ticks like the room, whose changes `told` say which silent tickets ended.
    fn tick(&mut self, told: &[Change]) {
        let now = self.ms();
        for at in 0..self.tickets.len() {
            if self.end(at) <= now {
                self.end_slot(at);
            }
        }
        for at in 0..self.tickets.len() {
            if self.tickets[at].stand != ModelTicket::Waits {
                continue;
            }
            let ticked = *self.tickets[at].ticked.get_or_insert(now);
            let gone = Change::Gone { number: number(at as u32 + 1), how: Departure::Expired };
            let found = told.contains(&gone);
            assert!(!found || self.is_silent(at), "{} was not silent for so long", at + 1);
            assert!(found || !self.must_be_found(at, ticked), "{} was not found in time", at + 1);
            if found {
                self.go(at, Departure::Expired);
            }
        }
        self.admit();
    }

    fn state(&self) -> RoomState {
        match self.settings.opens_at {
            _ if self.closed => RoomState::Closed,
            _ if self.settings.paused => RoomState::Paused,
            Some(opens_at) if self.now.wall < opens_at => RoomState::Scheduled,
            _ => RoomState::Open,
        }
    }

    fn affords(&self) -> bool {
        self.settings.admit.is_none_or(|admit| admit.every_ms as i64 <= self.credit)
    }

    fn admit(&mut self) {
        self.draw_if_due();
        let now = self.ms();
        for at in 0..self.tickets.len() {
            if matches!(self.tickets[at].stand, ModelTicket::Offered { due: Some(due), .. } if due <= now) {
                self.miss(at);
            }
        }
        if let Some(Admit { count, every_ms }) = self.settings.admit {
            let holds = (every_ms as i64).max(250 * i64::from(count));
            self.credit = (self.credit + (now - self.earned_at) * i64::from(count)).min(holds);
            let burst = holds / every_ms as i64;
            (self.owed, self.allowed) = (self.owed.clamp(-burst.max(4), burst.max(4)), self.allowed.min(burst));
        }
        self.earned_at = now;
        if self.state() != RoomState::Open || now < self.grace_until {
            return;
        }
        let cost = self.settings.admit.map_or(0, |admit| admit.every_ms as i64);
        while cost != 0 && self.affords() && self.owed < 0 && 0 < self.allowed {
            self.credit -= cost;
            self.owed += 1;
            self.allowed -= 1;
        }
        let before = self.reached;
        let burst =
            self.settings.admit.map_or(1, |admit| (250 * i64::from(admit.count) / admit.every_ms as i64).max(1));
        loop {
            let makes_up = !self.affords();
            let free = self.settings.max_active.is_none_or(|cap| self.active() < cap as usize);
            if (makes_up && (self.owed <= 0 || self.allowed == 0)) || !free {
                break;
            }
            let Some(at) = self.next_present() else { break };
            if makes_up {
                self.owed -= 1;
                self.allowed -= 1;
            } else if cost != 0 {
                self.credit -= cost;
                self.allowed = (self.allowed + 1).min(burst);
            }
            self.admissions += 1;
            let until = now + self.settings.claim_window_ms as Ms;
            let due = Some(until.min(now + self.tickets[at].polled_ms.max(2_400) + 5_000));
            self.tickets[at].stand = ModelTicket::Offered { admission: self.admissions, until, due };
            let hold = Hold::Offered { until: Self::steady(until) };
            let slot = Slot { admission: self.admissions, admitted_at: self.now.wall, hold };
            self.changes.push(Change::Admitted { number: number(at as u32 + 1), slot });
        }
        if self.affords() {
            self.owed = 0;
        }
        if self.reached != before {
            self.changes.push(Change::Reached(self.reached as u32 + 1));
        }
    }

    fn next_present(&mut self) -> Option<usize> {
        while let Some(at) = (0..self.tickets.len()).map(|it| self.at_turn(it)).find(|&at| self.tickets[at].back) {
            self.tickets[at].back = false;
            if self.is_present(at) {
                return Some(at);
            }
        }
        while self.reached < self.tickets.len() {
            let at = self.at_turn(self.reached);
            self.reached += 1;
            if self.tickets[at].stand == ModelTicket::Waits && self.is_present(at) {
                return Some(at);
            }
        }
        None
    }

    /// Returns whether the room takes these settings.
    fn put(&mut self, settings: &RoomSettings) -> bool {
        let now = self.ms();
        let is_draw = settings.order == RoomOrder::Draw;
        let is_later = settings.opens_at.is_some_and(|opens_at| self.now.wall < opens_at);
        let is_other = (settings.order, settings.opens_at) != (self.settings.order, self.settings.opens_at);
        let has_tickets = self.waiting() + self.active() != 0;
        let is_switched = settings.order != self.settings.order && has_tickets;
        if !self.closed && (is_switched || (is_draw && self.draw.is_some() && is_later && is_other)) {
            return false;
        }
        if settings.admit != self.settings.admit {
            (self.credit, self.earned_at, self.owed) = (0, now, 0);
        }
        if settings.idle_ttl_ms != self.settings.idle_ttl_ms {
            for ticket in &mut self.tickets {
                if let ModelTicket::Taken { contact, .. } = &mut ticket.stand {
                    *contact = now;
                }
            }
        }
        let before_ms = self.settings.first_poll_ms;
        self.settings = settings.clone();
        self.closed = false;
        match settings.first_poll_ms {
            None => self.tickets.iter_mut().for_each(|ticket| ticket.is_unpolled = false),
            _ if before_ms.is_none() => self.await_polls_afresh(),
            after_ms if before_ms != after_ms => self.delay_first_polls(),
            Some(_) => {}
        }
        true
    }

    fn close(&mut self) {
        self.closed = true;
        for ticket in &mut self.tickets {
            (ticket.stand, ticket.back) = (ModelTicket::Gone(Departure::Expired), false);
        }
        self.reached = self.tickets.len();
        (self.draw, self.first) = (None, self.tickets.len() as u32 + 1);
        self.lots.clear();
        (self.owed, self.allowed) = (0, 0);
    }

    /// Restores the room from what a store would have kept.
    fn restart(&mut self) -> Room {
        let now = self.ms();
        (self.credit, self.earned_at, self.grace_until) = (0, now, Ms::MIN);
        (self.owed, self.allowed) = (0, 0);
        let window_ms = self.settings.claim_window_ms as Ms;
        let mut room = Room::restoring(self.settings.clone(), hasher(), self.now, 1).with_draw_key(draw_key());
        // All numbers come back, so the seed counts from the first one.
        self.first = 1;
        let turns: Vec<usize> = (0..self.tickets.len()).map(|at| self.turn(at)).collect();
        for (at, ticket) in self.tickets.iter_mut().enumerate() {
            let gone = if let ModelTicket::Gone(how) = ticket.stand { Some(how) } else { None };
            room.restore_ticket(number(at as u32 + 1), &ticket.join, gone, self.now).unwrap();
            ticket.back = ticket.stand == ModelTicket::Waits && turns[at] < self.reached;
            (ticket.seen, ticket.polled_ms, ticket.ticked, ticket.position) = (now, 0, None, u32::MAX);
        }
        if let Some(draw) = &self.draw {
            room.restore_draw(draw).unwrap();
        }
        room.restore_reached(self.reached as u32 + 1, self.admissions).unwrap();
        for (at, ticket) in self.tickets.iter_mut().enumerate() {
            let (admission, hold) = match &mut ticket.stand {
                ModelTicket::Offered { admission, until, due } => {
                    *due = Some((*until - window_ms + 7_400).min(*until)).filter(|due| now < *due);
                    (*admission, Hold::Offered { until: Self::steady(*until) })
                }
                ModelTicket::Taken { admission, until, contact } => {
                    *contact = now;
                    (*admission, Hold::Taken { until: Self::steady(*until) })
                }
                _ => continue,
            };
            let slot = Slot { admission, admitted_at: self.now.wall, hold };
            room.restore_slot(number(at as u32 + 1), slot, self.now).unwrap();
        }
        room.restored(if self.closed { RoomPhase::Closed } else { RoomPhase::Running });
        self.await_polls_afresh();
        room
    }
}

/// The room and the model, side by side.
struct Both {
    play: Play,
    model: Model,
}

impl Both {
    /// Chooses a ticket: mostly a later one, where something happens.
    fn at(&self, pick: u32) -> usize {
        let count = self.model.tickets.len() + 1;
        count - 1 - pick as usize % count.min(15)
    }

    /// Chooses an admission near that of the ticket.
    fn admission(&self, at: usize, pick: u64) -> u64 {
        match self.model.tickets.get(at).map(|ticket| ticket.stand) {
            Some(ModelTicket::Offered { admission, .. } | ModelTicket::Taken { admission, .. }) if pick != 2 => {
                admission
            }
            _ => pick,
        }
    }

    fn look(&mut self, at: usize) {
        if self.is_unknown(at) {
            return self.look_at_unknown(at);
        }
        let told = self.play.look(at as u32 + 1);
        let wanted = if at < self.model.tickets.len() { self.model.look(at) } else { "unknown".to_owned() };
        assert_eq!(told, wanted, "ticket {}", at + 1);
    }

    /// Takes the poll interval over, which depends on measurements that the model does not have.
    fn take_over_told(&mut self, at: usize) {
        if at < self.model.tickets.len() && self.model.tickets[at].stand == ModelTicket::Waits {
            let view = self.play.view(at as u32 + 1).expect("it was drawn");
            self.model.tickets[at].polled_ms = view.poll_after_ms.into();
        }
    }

    fn tick(&mut self) {
        self.play.room.tick(self.play.now, &mut self.play.changes);
        self.model.tick(&self.play.changes);
    }

    fn pass_ms(&mut self, ms: u64) {
        self.play.pass_ms(ms);
        self.model.now = self.play.now;
    }

    fn step(&mut self, step: &Step) {
        let number_of = |at: usize| at as u32 + 1;
        match step {
            Step::Join(join) => {
                let told = self.play.try_join(join);
                assert_eq!(told, self.model.join(join), "{join:?}");
                let at = told.split(' ').find_map(|word| word.parse::<usize>().ok()).map(|number| number - 1);
                if let Some(at) = at.filter(|_| told.starts_with("new")) {
                    // Another look would be a first poll.
                    self.model.tickets[at].polled_ms = self.play.room.line.polled_ms(number_of(at)).into();
                } else if let Some(at) = at.filter(|_| told.starts_with("same")) {
                    self.take_over_told(at);
                }
            }
            // A renewal is a poll that gives out another ticket, of which the model knows nothing.
            Step::Poll(pick) | Step::Renew(pick, ..) => {
                let at = self.at(*pick);
                self.look(at);
                self.take_over_told(at);
            }
            Step::Leave(pick) => {
                let at = self.at(*pick);
                let left = self.play.room.leave(number(number_of(at)), self.play.now, &mut self.play.changes);
                let told = left.map_or_else(|refusal| refusal.code(), |()| "done");
                assert_eq!(told, self.model.leave(at));
            }
            Step::Check(pick, admission) => {
                let at = self.at(*pick);
                let admission = self.admission(at, *admission);
                let told = self.play.pass_left_ms(number_of(at), admission);
                let wanted = self.model.pass_left_ms(at, admission, true);
                assert_eq!(told, wanted, "the pass of {}", at + 1);
            }
            Step::Release(pick, admission) => {
                let at = self.at(*pick);
                let admission = self.admission(at, *admission);
                self.play.room.release(number(number_of(at)), admission, self.play.now, &mut self.play.changes);
                if at < self.model.tickets.len() && self.model.end(at) <= self.model.ms() {
                    self.model.end_slot(at);
                }
                if self.model.pass_left_ms(at, admission, false).is_some() {
                    self.model.go(at, Departure::Left);
                }
            }
            Step::Tick => self.tick(),
            Step::Run(ticks) => {
                for _ in 0..*ticks {
                    self.pass_ms(50);
                    self.tick();
                    self.compare();
                }
            }
            Step::Pass(ms) => self.pass_ms(*ms),
            Step::SetWall(by_ms) => {
                self.play.set_wall(*by_ms);
                self.model.now = self.play.now;
            }
            Step::Put(settings) => {
                let told = self.play.room.judge_settings(settings, self.play.now);
                assert_eq!(told.is_ok(), self.model.put(settings), "{told:?}");
                if told.is_ok() {
                    self.play.put(settings);
                }
            }
            Step::Close => {
                self.play.room.close();
                self.model.close();
            }
            Step::Restart if self.model.tickets.iter().all(|it| it.stand != ModelTicket::Unknown) => {
                self.play.room = self.model.restart();
            }
            Step::Restart => self.play.room = self.model.lose(0, None),
            Step::Lose(more, grace_ms) => self.play.room = self.model.lose(*more, *grace_ms),
            Step::Readmit(pick, user) => self.readmit(*pick, user.as_ref()),
            Step::Contact(pick) => self.contact(*pick),
            Step::Alive(bits) => self.alive(*bits),
            Step::Reload => {
                let room = Room::from_image(&self.play.room.image(), hasher()).expect("an image of a room");
                self.play.room = room.with_draw_key(draw_key());
            }
        }
    }

    fn compare(&mut self) {
        assert_eq!(std::mem::take(&mut self.play.changes), std::mem::take(&mut self.model.changes), "changes");
        let (view, model) = (self.play.room.view(self.play.now), &self.model);
        assert_eq!(view.state, model.state());
        let counts = (model.waiting() as u32, model.active() as u32, model.reached as u32);
        assert_eq!((view.waiting, view.active, view.serving), counts);
        assert_sound(&self.play.room);
        let image = self.play.room.image();
        let again = Room::from_image(&image, hasher()).expect("an image of a room");
        assert_sound(&again);
        assert!(again.image() == image && again.digest() == self.play.room.digest(), "it comes back as it was");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_room_says_what_a_naive_model_says(
        settings in any_settings(),
        steps in proptest::collection::vec(any_step(), 1..150),
    ) {
        let mut both = Both { play: Play::new(settings.clone()), model: Model::new(settings) };
        for step in &steps {
            both.step(step);
            both.compare();
        }
        for at in 0..both.model.tickets.len() {
            both.look(at);
        }
        both.compare();
    }
}
