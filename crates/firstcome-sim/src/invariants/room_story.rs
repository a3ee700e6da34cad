//! Histories of a room written by hand, so that each invariant can be shown what it must reject.

use super::{Evidence, RoomEvidence, Violation};
use crate::history::Outcome;
use crate::journal::Commit;
use crate::room::history::{Command, History, RoomStepReply, WallStep};
use crate::room::ledger::Ledger;
use crate::room::rows::Stored;
use firstcome_core::id::{RoomName, UserId};
use firstcome_core::room::{
    self, Departure, Draw, DrawSeed, DrawView, Hold, Join, RatePace, RateReason, Rejection, Renewal, RenewalKey,
    RoomSettings, RoomState, RoomView, Slot, TicketNumber, TicketState,
};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_store::embedded::journal::{Change, RoomId, RoomPut};
use firstcome_store::{Joining, PassCheck, Put, RoomSummary, TicketAnswer, TicketKey};

type Check = fn(&RoomEvidence<'_>, &Ledger) -> Result<(), Violation>;

const ROOM: RoomId = RoomId(1);

/// Of a pace no invariant asks.
const fn no_pace() -> RatePace {
    RatePace {
        reason: RateReason::Limit,
        set_per_s: None,
        origin_share: 1.0,
        arrivals_per_s: 0.0,
        no_show_share: None,
        made_up_per_s: 0.0,
    }
}

/// One room, told step by step; each step takes a microsecond.
pub(super) struct Story {
    history: History,
    log: Vec<Commit>,
    settings: RoomSettings,
    now: Now,
    admissions: u64,
    drawn: u32,
}

fn number(number: u32) -> TicketNumber {
    TicketNumber::new(number).unwrap()
}

fn name() -> RoomName {
    RoomName::parse("r").unwrap()
}

impl Story {
    pub(super) fn with_slots(max_active: u32) -> Self {
        Self::with(RoomSettings::with_slots(max_active))
    }

    pub(super) fn with(settings: RoomSettings) -> Self {
        let now = Now { wall: Timestamp::clamped_us(1_000_000), steady: Steady::from_us(1_000_000) };
        let history = History::default();
        let mut story = Self { history, log: Vec::new(), settings: settings.clone(), now, admissions: 0, drawn: 0 };
        story.history.begin_life(now);
        story.put(settings);
        story.log(Change::Clock(story.now));
        story
    }

    fn pass_us(&mut self, us: i64) -> &mut Self {
        self.now.wall = Timestamp::clamped_us(self.now.wall.as_us() + us);
        self.now.steady = Steady::from_us(self.now.steady.as_us() + us);
        self.history.pass(self.now);
        self
    }

    pub(super) fn pass_ms(&mut self, ms: i64) -> &mut Self {
        self.pass_us(ms * 1_000)
    }

    fn push(&mut self, changes: Vec<Change>) {
        self.log.push(Commit {
            at: self.now,
            in_force: (self.now.steady.as_us(), self.now.wall),
            is_known: true,
            changes,
        });
    }

    fn log(&mut self, change: Change) -> &mut Self {
        self.push(vec![change]);
        self.pass_us(1)
    }

    fn change(&mut self, change: room::Change) -> &mut Self {
        self.log(Change::of_room(ROOM, change, self.now))
    }

    fn end(&mut self, command: Command, outcome: Outcome<RoomStepReply>) -> &mut Self {
        let id = self.history.ask(name(), command, self.now);
        self.history.answer(id, outcome, 0, self.now);
        self.pass_us(1)
    }

    fn tell(&mut self, command: Command, told: RoomStepReply) -> &mut Self {
        self.end(command, Outcome::Answered(told))
    }

    fn answer(&self, of: u32, state: TicketState) -> TicketAnswer {
        TicketAnswer {
            ticket: "ticket".into(),
            number: number(of),
            user: None,
            state,
            until: None,
            poll_after_ms: 2_000,
            as_of: self.now.wall,
        }
    }

    fn told(&mut self, of: u32, state: TicketState) -> &mut Self {
        let answer = self.answer(of, state);
        self.tell(Command::Poll("ticket".into(), Some(number(of))), RoomStepReply::Ticket(answer))
    }

    pub(super) fn put(&mut self, settings: RoomSettings) -> &mut Self {
        self.settings = settings.clone();
        let ticket_key = TicketKey::new([1; 32]);
        let put = RoomPut { id: ROOM, name: name(), settings, ticket_key, at: self.now.wall };
        self.log(Change::RoomPut(Box::new(put)))
    }

    pub(super) fn replied_put(&mut self, settings: RoomSettings) -> &mut Self {
        self.tell(Command::Put(settings), RoomStepReply::Put(Put::Replaced))
    }

    pub(super) fn closed(&mut self) -> &mut Self {
        let (first, at) = (self.drawn + 1, self.now.wall);
        self.log(Change::RoomClosed { id: ROOM, first, at })
    }

    pub(super) fn joined(&mut self, of: u32) -> &mut Self {
        self.draw(of, Join { user: None, request: None })
    }

    pub(super) fn joined_as(&mut self, of: u32, user: &str) -> &mut Self {
        self.draw(of, Join { user: Some(UserId::parse(user).unwrap()), request: None })
    }

    fn draw(&mut self, of: u32, join: Join) -> &mut Self {
        self.drawn = self.drawn.max(of);
        let joined_at = self.now.wall;
        self.change(room::Change::Joined { number: number(of), join, joined_at })
    }

    fn offer(&mut self, of: u32) -> room::Change {
        self.admissions += 1;
        let until = self.now.steady.plus_ms(self.settings.claim_window_ms);
        let slot = Slot { admission: self.admissions, admitted_at: self.now.wall, hold: Hold::Offered { until } };
        room::Change::Admitted { number: number(of), slot }
    }

    pub(super) fn admitted(&mut self, of: u32) -> &mut Self {
        let offer = self.offer(of);
        self.change(offer)
    }

    pub(super) fn admitted_together(&mut self, all: &[u32]) -> &mut Self {
        let changes = all.iter().map(|&of| Change::of_room(ROOM, self.offer(of), self.now)).collect();
        self.push(changes);
        self.pass_us(1)
    }

    fn until(&self) -> Steady {
        Steady::from_us(1_000_000_000)
    }

    pub(super) fn taken(&mut self, of: u32) -> &mut Self {
        let until = self.until();
        self.change(room::Change::Taken { number: number(of), until })
    }

    pub(super) fn lapsed(&mut self, of: u32) -> &mut Self {
        self.change(room::Change::Lapsed { number: number(of) })
    }

    pub(super) fn gone(&mut self, of: u32, how: Departure) -> &mut Self {
        self.change(room::Change::Gone { number: number(of), how })
    }

    pub(super) fn reached(&mut self, reached: u32) -> &mut Self {
        self.change(room::Change::Reached(reached))
    }

    pub(super) fn replied_new(&mut self, of: u32) -> &mut Self {
        let answer = self.answer(of, TicketState::Waiting { position: 0, wait_ms: None });
        self.tell(Command::Join(Join { user: None, request: None }), RoomStepReply::Joined(Joining::New, answer))
    }

    pub(super) fn waits(&mut self, of: u32, position: u32) -> &mut Self {
        self.told(of, TicketState::Waiting { position, wait_ms: None })
    }

    pub(super) fn in_draw(&mut self, of: u32) -> &mut Self {
        self.told(of, TicketState::InDraw { entrants: 1, wait_ms: None })
    }

    /// The room draws, with a seed of this byte.
    pub(super) fn drawn(&mut self, seed: u8, first: u32, entrants: u32) -> &mut Self {
        let draw = Draw { seed: DrawSeed::new([seed; 32]), first, entrants, drawn_at: self.now.wall };
        self.change(room::Change::Drawn(draw))
    }

    /// A client is shown the commitment to a seed of this byte.
    pub(super) fn shows_commitment(&mut self, seed: u8) -> &mut Self {
        let commitment = DrawSeed::new([seed; 32]).commitment();
        let view = RoomView {
            state: RoomState::Scheduled,
            waiting: 0,
            active: 0,
            serving: 0,
            rate: 0.0,
            pace: no_pace(),
            wait_at_tail_ms: None,
        };
        let draw = Some(DrawView { commitment, draw: None });
        let summary = RoomSummary { settings: self.settings.clone(), view, draw, as_of: self.now.wall };
        self.tell(Command::View, RoomStepReply::View(Box::new(summary)))
    }

    /// The slot that was given last, taken.
    pub(super) fn replied_admitted(&mut self, of: u32) -> &mut Self {
        let until = self.until();
        let offered = self.log.iter().rev().flat_map(|commit| &commit.changes).find_map(|change| match change {
            Change::Room { change: room::Change::Admitted { slot, .. }, .. } => Some(*slot),
            _ => None,
        });
        let slot = Slot { hold: Hold::Taken { until }, ..offered.unwrap() };
        self.told(of, TicketState::Admitted { slot, until })
    }

    pub(super) fn replied_gone(&mut self, of: u32, how: Departure) -> &mut Self {
        self.told(of, TicketState::Gone(how))
    }

    /// What is stored of a renewal; its key is 1.
    pub(super) fn renewed(&mut self, of: u32, generation: u32) -> &mut Self {
        let renewal = Renewal { generation, key: RenewalKey::new(1) };
        self.change(room::Change::Renewed { number: number(of), renewal })
    }

    pub(super) fn replied_renewed(&mut self, of: u32, shown: &str, ticket: &str) -> &mut Self {
        let state = TicketState::Waiting { position: 0, wait_ms: None };
        let answer = TicketAnswer { ticket: ticket.into(), ..self.answer(of, state) };
        let command = Command::Renew(shown.into(), Some(number(of)), RenewalKey::new(1));
        self.tell(command, RoomStepReply::Renewed(answer))
    }

    /// A poll with this ticket finds the place.
    pub(super) fn shows(&mut self, of: u32, ticket: &str) -> &mut Self {
        let answer = self.answer(of, TicketState::Waiting { position: 0, wait_ms: None });
        self.tell(Command::Poll(ticket.into(), Some(number(of))), RoomStepReply::Ticket(answer))
    }

    pub(super) fn refused_as_renewed(&mut self, of: u32) -> &mut Self {
        let command = Command::Poll("first".into(), Some(number(of)));
        self.tell(command, RoomStepReply::Refused(Rejection::TicketRenewed))
    }

    pub(super) fn unclear_poll(&mut self, of: u32) -> &mut Self {
        self.end(Command::Poll("ticket".into(), Some(number(of))), Outcome::Unknown)
    }

    pub(super) fn left(&mut self, of: u32) -> &mut Self {
        self.tell(Command::Leave("ticket".into(), Some(number(of))), RoomStepReply::Left)
    }

    pub(super) fn released(&mut self, of: u32, admission: u64) -> &mut Self {
        self.tell(Command::Release(number(of), admission), RoomStepReply::Released)
    }

    pub(super) fn valid(&mut self, of: u32, admission: u64) -> &mut Self {
        let check = PassCheck { until: self.now.wall, user: None };
        self.tell(Command::Check(number(of), admission), RoomStepReply::Pass(Some(check)))
    }

    pub(super) fn not_valid(&mut self, of: u32, admission: u64) -> &mut Self {
        self.tell(Command::Check(number(of), admission), RoomStepReply::Pass(None))
    }

    pub(super) fn refused(&mut self, rejection: Rejection) -> &mut Self {
        self.tell(Command::Join(Join { user: None, request: None }), RoomStepReply::Refused(rejection))
    }

    pub(super) fn ticked(&mut self) -> &mut Self {
        self.tell(Command::Tick, RoomStepReply::Ticked)
    }

    /// The clocks are stored, the store's steady one so far ahead of the world's.
    pub(super) fn clocks(&mut self, ahead_ms: u64) -> &mut Self {
        let now = Now { wall: self.now.wall, steady: self.now.steady.plus_ms(ahead_ms) };
        self.log(Change::Clock(now))
    }

    /// An operator sets the wall clock forward.
    pub(super) fn wall_step(&mut self, ms: i64) -> &mut Self {
        self.history.marks.steps.push(WallStep { at: self.now.steady.as_us(), by_us: ms * 1_000 });
        self.now.wall = Timestamp::clamped_us(self.now.wall.as_us() + ms * 1_000);
        self.pass_us(1)
    }

    /// What is stored of who is present, from number 1 on.
    pub(super) fn remembered(&mut self, left_s: &[u8]) -> &mut Self {
        self.log(Change::Remembered { id: ROOM, memory: room::Memory { first_number: 1, bytes: left_s.into() } })
    }

    pub(super) fn restart(&mut self) -> &mut Self {
        self.history.end_life(self.now);
        self.pass_us(1);
        self.history.begin_life(self.now);
        self.pass_us(1)
    }

    fn judge(&self, check: Check) -> Result<(), Violation> {
        let (history, stored, log) = (&self.history, &Stored::default(), &self.log[..]);
        let evidence = Evidence { seed: 0, history, stored, log, healed_at: None };
        check(&evidence, &Ledger::read(&self.log))
    }

    #[track_caller]
    pub(super) fn assert_found(&self, check: Check, detail: &str) {
        super::assert_found(self.judge(check), detail);
    }

    #[track_caller]
    pub(super) fn assert_clean(&self, check: Check) {
        assert_eq!(self.judge(check), Ok(()));
    }
}
