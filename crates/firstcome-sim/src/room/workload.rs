//! What people do in front of a room: they come alone and in crowds, ask, go silent, come back, leave, show passes;
//! the shop gives slots back, an operator changes her mind, and the clockwork ticks.

use super::history::{Command, Operation, RoomStepReply};
use crate::rng::Rng;
use crate::workload::{Action, Plan, START_US, Workload, draw_key, valid};
use firstcome_core::id::{RequestId, RoomName, UserId};
use firstcome_core::room::{Admit, Join, RenewalKey, RoomOrder, RoomSettings, TicketNumber, TicketState};
use firstcome_core::time::Timestamp;

/// Rooms open within this time of the start.
const WINDOW_US: u64 = 20_000_000;

/// What happens in the world of rooms only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomAction {
    /// Every client that knows a ticket asks about it.
    PollAll,
    /// An operator sets the wall clock.
    SetWall,
}

/// How often clients do what, per thousand.
struct Rates {
    operator_per_mille: u64,
    repeat_per_mille: u64,
    leave_per_mille: u64,
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
    /// Whether its renewal may have taken place: the client repeats it until it is told.
    pub is_renewing: bool,
}

impl KnownTicket {
    /// The command by which the client learns of its place.
    pub fn asks(&self) -> Command {
        if self.is_renewing { self.renews() } else { Command::Poll(self.ticket.clone(), Some(self.number)) }
    }

    /// The renewal of the ticket. A client has one key for each ticket, so that a repeat is one.
    fn renews(&self) -> Command {
        let mixed = |key: u128, byte: u8| (key ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        let key = self.ticket.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mixed);
        Command::Renew(self.ticket.clone(), Some(self.number), RenewalKey::new(key))
    }
}

/// The people of rooms and what they remember.
pub struct Rooms {
    /// People in a crowd at most.
    crowd_max: u64,
    rates: Rates,
    /// The rooms that the operator knows.
    pub(super) rooms: Vec<RoomName>,
    users: Vec<UserId>,
    joins: Vec<(RoomName, Join)>,
    unclear: Vec<(RoomName, Command)>,
    /// The tickets that a client was told.
    pub(super) tickets: Vec<KnownTicket>,
    /// Tickets that were renewed, in the hands of others.
    void: Vec<KnownTicket>,
    passes: Vec<(RoomName, TicketNumber, u64)>,
}

impl Workload for Rooms {
    type Action = RoomAction;

    /// Draws a plan, 1 or 2 rooms and 1 to 16 users. Other people come without a name.
    fn draw(rng: &mut Rng) -> (Plan<RoomAction>, Self) {
        let mut plan = Plan {
            actions: rng.range(40, 160),
            commit_fault_per_mille: *rng.pick(&[0, 10, 30, 100]),
            lost_answer_per_mille: *rng.pick(&[0, 50, 200]),
            batch_max: *rng.pick(&[2, 8, 64, 256]),
            weights: Vec::new(),
        };
        let crowd_max = *rng.pick(&[3, 12, 40, 120]);
        plan.weights = vec![
            (Action::Ask, rng.range(20, 60)),
            (Action::Crowd, rng.range(0, 3)),
            (Action::Step, rng.range(10, 40)),
            (Action::Deliver, rng.range(5, 30)),
            (Action::GoAway, rng.range(0, 4)),
            (Action::Wait, rng.range(5, 30)),
            (Action::Own(RoomAction::PollAll), rng.range(0, 4)),
            (Action::Own(RoomAction::SetWall), rng.range(0, 2)),
            (Action::Crash, rng.range(0, 2)),
            (Action::Restart, rng.range(0, 1)),
        ];
        let rates = Rates {
            operator_per_mille: *rng.pick(&[0, 20, 80]),
            repeat_per_mille: *rng.pick(&[50, 150, 300]),
            leave_per_mille: *rng.pick(&[10, 60, 150]),
        };
        let rooms = (1..=rng.range(1, 2)).map(|number| name(&format!("room-{number}"))).collect();
        let users = (1..=rng.range(1, 16)).map(|number| valid(UserId::parse(&format!("user-{number}")))).collect();
        let (joins, unclear, tickets, void, passes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (plan, Self { crowd_max, rates, rooms, users, joins, unclear, tickets, void, passes })
    }

    fn opening(&mut self, rng: &mut Rng, _: Timestamp) -> Vec<(RoomName, Command)> {
        self.rooms.iter().map(|room| (room.clone(), Command::Put(settings(rng)))).collect()
    }

    fn ask(&mut self, rng: &mut Rng, _: Timestamp) -> (RoomName, Command) {
        if !self.unclear.is_empty() && rng.chance(self.rates.repeat_per_mille) {
            return self.unclear.swap_remove(rng.index(self.unclear.len()));
        }
        if rng.chance(self.rates.operator_per_mille) {
            let room = rng.pick(&self.rooms).clone();
            return match rng.below(12) {
                0 | 1 => (self.room(rng), Command::Close),
                2 | 3 => (room, Command::Rotate),
                _ => (room, Command::Put(settings(rng))),
            };
        }
        match rng.below(100) {
            0..4 => (self.room(rng), Command::View),
            4 => (self.room(rng), Command::Secrets),
            5..12 => (self.room(rng), Command::Tick),
            12..30 => {
                let (room, join) = self.join(rng);
                self.joins.push((room.clone(), join.clone()));
                (room, Command::Join(join))
            }
            30..50 => self.pass(rng),
            _ => self.ask_about_ticket(rng),
        }
    }

    fn visit(&mut self, rng: &mut Rng, now: Timestamp) -> (RoomName, Command) {
        match rng.below(10) {
            0..5 => self.ask_about_ticket(rng),
            5..7 => self.pass(rng),
            7 => (self.room(rng), Command::View),
            8 => (self.room(rng), Command::Secrets),
            _ => self.ask(rng, now),
        }
    }

    /// Many join one room.
    fn crowd(&mut self, rng: &mut Rng) -> Vec<(RoomName, Command)> {
        let room = rng.pick(&self.rooms).clone();
        let join = || Command::Join(Join { user: None, request: None });
        (0..rng.range(1, self.crowd_max)).map(|_| (room.clone(), join())).collect()
    }

    /// Mostly a moment, sometimes past a time-out.
    fn pause_us(rng: &mut Rng) -> u64 {
        let pause_ms = match rng.below(100) {
            0..60 => rng.range(1, 400),
            60..85 => rng.range(400, 5_000),
            85..97 => rng.range(20_000, 70_000),
            97..99 => rng.range(70_000, 300_000),
            _ => rng.range(300_000, 4_000_000),
        };
        pause_ms * 1_000
    }

    fn learn(&mut self, operation: &Operation) {
        let room = &operation.name;
        let Some(told) = operation.told() else {
            if let Command::Renew(shown, ..) = &operation.command
                && let Some(known) = self.tickets.iter_mut().find(|known| known.ticket == *shown)
            {
                known.is_renewing = true;
            }
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
        if let (RoomStepReply::Renewed(_), Command::Renew(shown, ..)) = (told, &operation.command)
            && let Some(known) = self.tickets.iter_mut().find(|known| known.ticket == *shown)
        {
            known.is_renewing = false;
            if answer.ticket != *shown {
                self.void.push(known.clone());
                known.ticket = answer.ticket.clone();
            }
        }
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
                is_renewing: false,
            }),
            None => {}
        }
    }
}

impl Rooms {
    fn room(&self, rng: &mut Rng) -> RoomName {
        // Now and then a name that no client has put.
        if rng.chance(15) { name("no-such-room") } else { rng.pick(&self.rooms).clone() }
    }

    fn join(&self, rng: &mut Rng) -> (RoomName, Join) {
        if !self.joins.is_empty() && rng.chance(self.rates.repeat_per_mille) {
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
        let key = draw_key(rng);
        let request = rng.chance(400).then(|| RequestId { key, body: rng.bits() });
        (self.room(rng), Join { user, request })
    }

    fn ask_about_ticket(&self, rng: &mut Rng) -> (RoomName, Command) {
        if self.tickets.is_empty() || rng.chance(20) {
            return (self.room(rng), Command::Poll("AAAAAAAAAAAAAAAAAAAAAAAAAAA".into(), None));
        }
        if !self.void.is_empty() && rng.chance(60) {
            // A link that was used: the place is another client's.
            let void = rng.pick(&self.void).clone();
            return match rng.below(3) {
                0 => (void.room, Command::Leave(void.ticket, Some(void.number))),
                1 => {
                    let key = RenewalKey::new(draw_key(rng));
                    (void.room, Command::Renew(void.ticket, Some(void.number), key))
                }
                _ => (void.room, Command::Poll(void.ticket, Some(void.number))),
            };
        }
        let known = rng.pick(&self.tickets).clone();
        if known.is_renewing || rng.chance(40) {
            return (known.room.clone(), known.renews());
        }
        // The ticket of one room shown at another is none there.
        let (room, number) = match self.rooms.iter().find(|room| **room != known.room) {
            Some(other) if rng.chance(20) => (other.clone(), None),
            _ => (known.room.clone(), Some(known.number)),
        };
        if rng.chance(self.rates.leave_per_mille) {
            return (room, Command::Leave(known.ticket, number));
        }
        (room, Command::Poll(known.ticket, number))
    }

    fn pass(&self, rng: &mut Rng) -> (RoomName, Command) {
        if self.passes.is_empty() {
            return self.ask_about_ticket(rng);
        }
        // Mostly one of the last, which is most likely to be alive.
        let newest = self.passes.len().saturating_sub(4);
        let at =
            if rng.chance(600) { newest + rng.index(self.passes.len() - newest) } else { rng.index(self.passes.len()) };
        let (room, number, admission) = self.passes[at].clone();
        if rng.chance(self.rates.leave_per_mille * 2) {
            return (room, Command::Release(number, admission));
        }
        // Now and then one that was never made.
        (room, Command::Check(number, if rng.chance(50) { admission + 1_000_000 } else { admission }))
    }
}

/// Draws settings that a run can see at work.
pub fn settings(rng: &mut Rng) -> RoomSettings {
    let (count, every_ms) = *rng.pick(&[(1, 100), (1, 1_000), (5, 1_000), (40, 1_000), (100, 1_000), (3, 2_000)]);
    let with_rate = rng.chance(650);
    let max_active = (!with_rate || rng.chance(400)).then(|| *rng.pick(&[1, 2, 5, 30]));
    let opens_at = Timestamp::clamped_us(START_US + rng.below(WINDOW_US) as i64);
    let opens_at = rng.chance(300).then_some(opens_at);
    let draws = opens_at.is_some() && rng.chance(600);
    RoomSettings {
        admit: with_rate.then_some(Admit { count, every_ms }),
        max_active,
        max_waiting: if rng.chance(200) { rng.range(1, 8) as u32 } else { 1_000_000 },
        waiting_ttl_ms: *rng.pick(&[500, 20_000, 60_000, 3_600_000, 3_600_000]),
        first_poll_ms: first_poll_ms(rng),
        active_ttl_ms: *rng.pick(&[300, 2_000, 60_000, 1_800_000]),
        claim_window_ms: *rng.pick(&[100, 1_000, 10_000, 60_000]),
        idle_ttl_ms: rng.chance(300).then(|| *rng.pick(&[200, 3_000, 60_000])),
        opens_at,
        order: if draws { RoomOrder::Draw } else { RoomOrder::FirstCome },
        paused: rng.chance(80),
        message: rng.chance(100).then(|| "a moment".into()),
        target_url: None,
    }
}

/// Seldom, and longer than most clients take to poll, so that enough of them stay in line.
fn first_poll_ms(rng: &mut Rng) -> Option<u64> {
    rng.chance(250).then(|| *rng.pick(&[500, 10_000, 90_000]))
}

/// Settings under which the store soon admits every client that stays.
pub fn healed() -> RoomSettings {
    let admit = Some(Admit { count: 200, every_ms: 1_000 });
    RoomSettings { admit, max_active: Some(100), claim_window_ms: 1_000, ..RoomSettings::defaults() }
}

/// The same for a room with a draw, whose order cannot change while a ticket lives: it has opened.
pub fn healed_draw() -> RoomSettings {
    RoomSettings { opens_at: Some(Timestamp::clamped_us(START_US)), order: RoomOrder::Draw, ..healed() }
}

fn name(text: &str) -> RoomName {
    valid(RoomName::parse(text))
}
