//! What people do in front of a room: they come alone and in crowds, ask, go silent, come back, leave, show passes;
//! the shop gives slots back, an operator changes her mind, and the clockwork ticks.

use super::history::{Command, Operation, RoomStepReply};
use crate::rng::Rng;
use crate::workload::START_US;
use firstcome_core::id::{RequestId, RoomName, UserId};
use firstcome_core::room::{Admit, Join, RoomSettings, TicketNumber, TicketState};
use firstcome_core::time::Timestamp;

/// Rooms open within this time of the start.
const WINDOW_US: u64 = 20_000_000;

/// What happens next in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client asks for something.
    Ask,
    /// Many join at once.
    Crowd,
    /// The writer runs one batch.
    Step,
    /// Clients look for their answers.
    Deliver,
    /// A caller goes away.
    GoAway,
    /// Time passes, and then the clockwork ticks.
    Wait,
    /// Everybody who knows a ticket asks about it.
    PollAll,
    /// An operator sets the wall clock.
    SetWall,
    /// The process dies between two batches.
    Crash,
    /// The store is closed in order and started again.
    Restart,
}

/// How one run is set up.
pub struct Plan {
    /// Actions before the heal.
    pub actions: u64,
    /// Commits that fail, per thousand.
    pub commit_fault_per_mille: u64,
    /// Answers that are lost on their way, per thousand.
    pub lost_answer_per_mille: u64,
    /// Commands per batch at most.
    pub batch_max: u64,
    /// People in a crowd at most.
    pub crowd_max: u64,
    weights: [(Action, u64); 10],
    operator_per_mille: u64,
    repeat_per_mille: u64,
    leave_per_mille: u64,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            actions: rng.range(40, 160),
            commit_fault_per_mille: *rng.pick(&[0, 10, 30, 100]),
            lost_answer_per_mille: *rng.pick(&[0, 50, 200]),
            batch_max: *rng.pick(&[2, 8, 64, 256]),
            crowd_max: *rng.pick(&[3, 12, 40, 120]),
            weights: [
                (Action::Ask, rng.range(20, 60)),
                (Action::Crowd, rng.range(0, 3)),
                (Action::Step, rng.range(10, 40)),
                (Action::Deliver, rng.range(5, 30)),
                (Action::GoAway, rng.range(0, 4)),
                (Action::Wait, rng.range(5, 30)),
                (Action::PollAll, rng.range(0, 4)),
                (Action::SetWall, rng.range(0, 2)),
                (Action::Crash, rng.range(0, 2)),
                (Action::Restart, rng.range(0, 1)),
            ],
            operator_per_mille: *rng.pick(&[0, 20, 80]),
            repeat_per_mille: *rng.pick(&[50, 150, 300]),
            leave_per_mille: *rng.pick(&[10, 60, 150]),
        }
    }

    /// Draws the next action.
    pub fn action(&self, rng: &mut Rng) -> Action {
        *rng.pick_by_weight(&self.weights)
    }
}

/// A ticket that a client was told.
#[derive(Clone, Debug)]
pub struct KnownTicket {
    /// In which room.
    pub room: RoomName,
    /// The ticket.
    pub ticket: Box<str>,
    /// Its number.
    pub number: TicketNumber,
    /// The admission that was told last.
    pub admission: Option<u64>,
}

/// The people and what they remember.
pub struct Workload {
    rooms: Vec<RoomName>,
    users: Vec<UserId>,
    joins: Vec<(RoomName, Join)>,
    unclear: Vec<(RoomName, Command)>,
    tickets: Vec<KnownTicket>,
    passes: Vec<(RoomName, TicketNumber, u64)>,
}

impl Workload {
    /// Draws the people of a run: 1 or 2 rooms, 1 to 16 users, and a client that comes without a name.
    pub fn draw(rng: &mut Rng) -> Self {
        let rooms = (1..=rng.range(1, 2)).map(|number| name(&format!("room-{number}"))).collect();
        let users = (1..=rng.range(1, 16)).map(|number| user(&format!("user-{number}"))).collect();
        let (joins, unclear, tickets, passes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { rooms, users, joins, unclear, tickets, passes }
    }

    /// The rooms that the operator knows.
    pub fn rooms(&self) -> &[RoomName] {
        &self.rooms
    }

    /// The tickets that a client was told.
    pub fn tickets(&self) -> &[KnownTicket] {
        &self.tickets
    }

    /// Draws one request.
    pub fn ask(&mut self, rng: &mut Rng, plan: &Plan) -> (RoomName, Command) {
        if !self.unclear.is_empty() && rng.chance(plan.repeat_per_mille) {
            return self.unclear.swap_remove(rng.index(self.unclear.len()));
        }
        if rng.chance(plan.operator_per_mille) {
            let room = rng.pick(&self.rooms).clone();
            return match rng.below(12) {
                0 => (self.room(rng), Command::Close),
                1 | 2 => (room, Command::Rotate),
                _ => (room, Command::Put(settings(rng))),
            };
        }
        match rng.below(100) {
            0..4 => (self.room(rng), Command::View),
            4 => (self.room(rng), Command::Secrets),
            5..12 => (self.room(rng), Command::Tick),
            12..30 => {
                let (room, join) = self.join(rng, plan);
                self.joins.push((room.clone(), join.clone()));
                (room, Command::Join(join))
            }
            30..45 => self.pass(rng, plan),
            _ => self.ask_about_ticket(rng, plan),
        }
    }

    /// Draws a request of a client that comes in the middle of a commit: mostly a look at what is being changed.
    pub fn visit(&mut self, rng: &mut Rng, plan: &Plan) -> (RoomName, Command) {
        match rng.below(10) {
            0..5 => self.ask_about_ticket(rng, plan),
            5..7 => self.pass(rng, plan),
            7 => (self.room(rng), Command::View),
            8 => (self.room(rng), Command::Secrets),
            _ => self.ask(rng, plan),
        }
    }

    fn room(&self, rng: &mut Rng) -> RoomName {
        // Now and then a name that no client has put.
        if rng.chance(15) { name("no-such-room") } else { rng.pick(&self.rooms).clone() }
    }

    fn join(&self, rng: &mut Rng, plan: &Plan) -> (RoomName, Join) {
        if !self.joins.is_empty() && rng.chance(plan.repeat_per_mille) {
            let (room, mut join) = rng.pick(&self.joins).clone();
            if let Some(request) = &mut join.request
                && rng.chance(300)
            {
                // The same key for something else.
                request.body ^= 1;
            }
            return (room, join);
        }
        let user = rng.chance(500).then(|| rng.pick(&self.users).clone());
        let key = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
        let request = rng.chance(400).then(|| RequestId { key, body: rng.bits() });
        (self.room(rng), Join { user, request })
    }

    fn ask_about_ticket(&self, rng: &mut Rng, plan: &Plan) -> (RoomName, Command) {
        if self.tickets.is_empty() || rng.chance(20) {
            return (self.room(rng), Command::Poll("AAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), None));
        }
        let known = rng.pick(&self.tickets).clone();
        // The ticket of one room shown at another is none there.
        let (room, number) = match self.rooms.iter().find(|room| **room != known.room) {
            Some(other) if rng.chance(20) => (other.clone(), None),
            _ => (known.room.clone(), Some(known.number)),
        };
        if rng.chance(plan.leave_per_mille) {
            return (room, Command::Leave(known.ticket, number));
        }
        (room, Command::Poll(known.ticket, number))
    }

    fn pass(&self, rng: &mut Rng, plan: &Plan) -> (RoomName, Command) {
        if self.passes.is_empty() {
            return self.ask_about_ticket(rng, plan);
        }
        // Mostly one of the last, which is most likely to be alive.
        let newest = self.passes.len().saturating_sub(4);
        let at =
            if rng.chance(600) { newest + rng.index(self.passes.len() - newest) } else { rng.index(self.passes.len()) };
        let (room, number, admission) = self.passes[at].clone();
        if rng.chance(plan.leave_per_mille * 2) {
            return (room, Command::Release(number, admission));
        }
        // Now and then one that was never made.
        (room, Command::Check(number, if rng.chance(50) { admission + 1_000_000 } else { admission }))
    }

    /// Lets the client remember how its request ended.
    pub fn learn(&mut self, operation: &Operation) {
        let room = &operation.room;
        let Some(told) = operation.told() else {
            let repeat = matches!(
                operation.command,
                Command::Join(_) | Command::Leave(..) | Command::Release(..) | Command::Put(_) | Command::Close
            );
            if repeat {
                self.unclear.push((room.clone(), operation.command.clone()));
            }
            return;
        };
        let Some(answer) = told.ticket() else { return };
        let admission = match answer.state {
            TicketState::Admitted { slot, .. } => Some(slot.admission),
            _ => None,
        };
        if let Some(admission) = admission
            && !self.passes.contains(&(room.clone(), answer.number, admission))
        {
            self.passes.push((room.clone(), answer.number, admission));
        }
        match self.tickets.iter_mut().find(|known| known.number == answer.number && known.room == *room) {
            Some(known) => known.admission = admission.or(known.admission),
            None if matches!(told, RoomStepReply::Joined(..)) => self.tickets.push(KnownTicket {
                room: room.clone(),
                ticket: answer.ticket.clone(),
                number: answer.number,
                admission,
            }),
            None => {}
        }
    }
}

/// Draws settings that a run can see at work.
pub fn settings(rng: &mut Rng) -> RoomSettings {
    let (count, every_ms) = *rng.pick(&[(1, 100), (1, 1_000), (5, 1_000), (40, 1_000), (100, 1_000), (3, 2_000)]);
    let with_rate = rng.chance(650);
    let max_active = (!with_rate || rng.chance(400)).then(|| *rng.pick(&[1, 2, 5, 30]));
    let opens_at = Timestamp::clamped_us(START_US + rng.below(WINDOW_US) as i64);
    RoomSettings {
        admit: with_rate.then_some(Admit { count, every_ms }),
        max_active,
        max_waiting: if rng.chance(200) { rng.range(1, 8) as u32 } else { 1_000_000 },
        waiting_ttl_ms: *rng.pick(&[500, 20_000, 60_000, 3_600_000, 3_600_000]),
        active_ttl_ms: *rng.pick(&[300, 2_000, 60_000, 1_800_000]),
        claim_window_ms: *rng.pick(&[100, 1_000, 10_000, 60_000]),
        idle_ttl_ms: rng.chance(300).then(|| *rng.pick(&[200, 3_000, 60_000])),
        opens_at: rng.chance(150).then_some(opens_at),
        paused: rng.chance(80),
        message: rng.chance(100).then(|| "a moment".into()),
        target_url: None,
    }
}

/// Settings under which everybody who stays is admitted soon.
pub fn healed() -> RoomSettings {
    let admit = Some(Admit { count: 200, every_ms: 1_000 });
    RoomSettings { admit, max_active: Some(100), claim_window_ms: 1_000, ..RoomSettings::defaults() }
}

/// How long time passes at once: mostly a moment, sometimes past a time-out.
pub fn pause_ms(rng: &mut Rng) -> u64 {
    match rng.below(100) {
        0..60 => rng.range(1, 400),
        60..85 => rng.range(400, 5_000),
        85..97 => rng.range(20_000, 70_000),
        97..99 => rng.range(70_000, 300_000),
        _ => rng.range(300_000, 4_000_000),
    }
}

fn name(text: &str) -> RoomName {
    match RoomName::parse(text) {
        Ok(name) => name,
        Err(error) => panic!("{text} {error}"),
    }
}

fn user(text: &str) -> UserId {
    match UserId::parse(text) {
        Ok(user) => user,
        Err(error) => panic!("{text} {error}"),
    }
}
