//! The rules of a waiting room: an instant, a command, the expected answer and the expected changes.
//!
//! Only [`Play`] calls the rules. It writes a ticket as `waiting 3` (three ahead), `admitted`, `left` or `expired`. It writes
//! changes as `joined 1`, `admitted 1`, `taken 1`, `lapsed 1`, `left 1`, `expired 1`, `reached 2`. Instants are milliseconds
//! since the start of the room.

mod asking;
mod closing;
mod cost;
mod draw;
mod erasing;
mod estimates;
mod first_poll;
mod image;
mod joining;
mod looking;
mod losing;
mod memory;
mod model;
mod model_steps;
mod pacing;
#[cfg(feature = "planted-bugs")]
mod planted;
mod positions;
mod presence;
mod properties;
mod purging;
mod renewing;
mod replica;
mod restoring;
mod settings;
mod slots;
mod steering;
mod twins;
mod values;

use super::*;
use crate::id::{RequestId, UserId};

/// The start of a room, by the wall clock and on the steady clock: two numbers that a test cannot confuse.
const WALL_US: i64 = 1_700_000_000_000_000;
const STEADY_US: i64 = 5_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A room, its time, and its changes since the last look.
struct Play {
    room: Room,
    now: Now,
    changes: Vec<Change>,
}

fn start() -> Now {
    Now { wall: Timestamp::clamped_us(WALL_US), steady: Steady::from_us(STEADY_US) }
}

fn number(number: u32) -> TicketNumber {
    TicketNumber::new(number).unwrap()
}

fn user_id(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

fn anonymous() -> Join {
    Join { user: None, request: None }
}

fn named(user: &str) -> Join {
    Join { user: Some(user_id(user)), request: None }
}

fn keyed(join: Join, key: u128, body: u64) -> Join {
    Join { request: Some(RequestId { key, body }), ..join }
}

#[expect(clippy::disallowed_methods, reason = "any seed will do: no answer may depend on it")]
pub(super) fn hasher() -> RandomState {
    RandomState::new()
}

fn draw_key() -> DrawKey {
    DrawKey::new([7; 32])
}

/// Ten visitors per second. The poll interval is two seconds, and presence lasts 30.
fn ten_per_second() -> RoomSettings {
    RoomSettings::with_rate(10, 1_000)
}

fn paused(settings: RoomSettings) -> RoomSettings {
    RoomSettings { paused: true, ..settings }
}

impl Play {
    fn new(settings: RoomSettings) -> Self {
        assert_eq!(settings.check(), Ok(()));
        let room = Room::new(settings, hasher(), start()).with_draw_key(draw_key());
        Self { room, now: start(), changes: Vec::new() }
    }

    /// Lets time pass on both clocks, without a tick.
    fn pass_ms(&mut self, ms: u64) {
        self.pass_us(ms * 1_000);
    }

    fn pass_us(&mut self, us: u64) {
        self.now.steady = Steady::from_us(self.now.steady.as_us().saturating_add_unsigned(us));
        self.now.wall = Timestamp::clamped_us(self.now.wall.as_us().saturating_add_unsigned(us));
    }

    /// An operator sets the wall clock.
    fn set_wall(&mut self, by_ms: i64) {
        self.now.wall = Timestamp::clamped_us(self.now.wall.as_us() + by_ms * 1_000);
    }

    fn passed_ms(&self) -> u64 {
        self.now.steady.since_us(start().steady) / 1_000
    }

    /// Returns the changes since the last call.
    fn news(&mut self) -> String {
        let told: Vec<String> = self.changes.drain(..).map(|change| describe_change(&change)).collect();
        told.join(", ")
    }

    fn tick(&mut self) -> String {
        self.room.tick(self.now, &mut self.changes);
        self.news()
    }

    /// Ticks every 50 ms for so long, and returns the admitted numbers.
    fn run_ms(&mut self, ms: u64) -> Vec<u32> {
        let mut admitted = Vec::new();
        for _ in 0..ms / 50 {
            self.pass_ms(50);
            self.room.tick(self.now, &mut self.changes);
            admitted.extend(self.changes.drain(..).filter_map(|change| match change {
                Change::Admitted { number, .. } => Some(number.get()),
                _ => None,
            }));
        }
        admitted
    }

    /// The same, with visitors who take their slots at once.
    fn run_taking_ms(&mut self, ms: u64) -> Vec<u32> {
        let mut admitted = Vec::new();
        for _ in 0..ms / 50 {
            let more = self.run_ms(50);
            more.iter().for_each(|&ticket| drop(self.look(ticket)));
            admitted.extend(more);
        }
        admitted
    }

    fn try_join(&mut self, join: &Join) -> String {
        match self.room.join(join, self.now, &mut self.changes) {
            Ok(Joined::New(view)) => format!("new {} {}", view.number.get(), describe_state(view.state)),
            Ok(Joined::SameRequest(view)) => {
                format!("same request {} {}", view.number.get(), describe_state(view.state))
            }
            Ok(Joined::SameUser(view)) => format!("same user {} {}", view.number.get(), describe_state(view.state)),
            Err(Rejection::KeyReused(number)) => format!("idempotency_key_reused {}", number.get()),
            Err(rejection) => rejection.code().to_owned(),
        }
    }

    /// Lets visitors without a user join, and returns their numbers.
    fn strangers(&mut self, count: u32) -> Vec<u32> {
        (0..count).map(|_| self.stranger().number.get()).collect()
    }

    fn stranger(&mut self) -> TicketView {
        match self.room.join(&anonymous(), self.now, &mut self.changes) {
            Ok(Joined::New(view)) => view,
            other => panic!("a stranger gets a place: {other:?}"),
        }
    }

    /// Polls, and makes the decision if the poll needs one.
    fn view(&mut self, ticket: u32) -> Option<TicketView> {
        let (before, ticket) = (self.changes.len(), number(ticket));
        let peeked = self.room.peek(ticket, self.now);
        let polled = self.room.poll(ticket, self.now);
        assert_eq!(peeked, polled, "a peek tells what a poll tells");
        match polled {
            None => {
                assert_eq!(self.room.decide(ticket, self.now, &mut self.changes), None);
                None
            }
            Some(Poll::Answer(view)) => {
                assert_eq!(self.room.decide(ticket, self.now, &mut self.changes), Some(view), "a poll tells the same");
                assert_eq!(self.changes.len(), before, "nothing had to be decided");
                Some(view)
            }
            Some(Poll::Decide) => {
                let view = self.room.decide(ticket, self.now, &mut self.changes);
                assert!(before < self.changes.len(), "something had to be decided");
                view
            }
        }
    }

    fn look(&mut self, ticket: u32) -> String {
        self.view(ticket).map_or("unknown".to_owned(), |view| describe_state(view.state))
    }

    fn leave(&mut self, ticket: u32) -> String {
        match self.room.leave(number(ticket), self.now, &mut self.changes) {
            Ok(()) => self.news(),
            Err(rejection) => rejection.code().to_owned(),
        }
    }

    fn release(&mut self, ticket: u32, admission: u64) -> String {
        self.room.release(number(ticket), admission, self.now, &mut self.changes);
        self.news()
    }

    /// Returns how long a pass is still valid; `None` if it is not.
    fn pass_left_ms(&mut self, ticket: u32, admission: u64) -> Option<u64> {
        let until = self.room.check_pass(number(ticket), admission, self.now)?;
        Some(until.since_us(self.now.steady) / 1_000)
    }

    fn put(&mut self, settings: &RoomSettings) {
        assert_eq!(settings.check(), Ok(()));
        assert_eq!(self.room.judge_settings(settings, self.now), Ok(()));
        self.room.replace_settings(settings.clone(), self.now);
        assert_eq!(self.room.settings(), settings);
    }

    /// Returns `waiting active serving`.
    fn counts(&self) -> (u32, u32, u32) {
        let view = self.room.view(self.now);
        (view.waiting, view.active, view.serving)
    }

    /// Makes a room in which one visitor takes the only slot at once: the line behind it stands.
    fn with_slot_taken(settings: RoomSettings) -> Self {
        let mut play = Self::new(settings);
        assert_eq!(play.strangers(1), [1]);
        play.tick();
        assert_eq!((play.look(1).as_str(), play.news().as_str()), ("admitted", "taken 1"));
        play
    }
}

fn describe_state(state: TicketState) -> String {
    match state {
        TicketState::InDraw { entrants, .. } => format!("in the draw of {entrants}"),
        TicketState::Waiting { position, .. } => format!("waiting {position}"),
        TicketState::Admitted { .. } => "admitted".to_owned(),
        TicketState::Gone(how) => describe_departure(how).to_owned(),
    }
}

const fn describe_departure(how: Departure) -> &'static str {
    match how {
        Departure::Left => "left",
        Departure::Expired => "expired",
    }
}

fn describe_change(change: &Change) -> String {
    match change {
        Change::Joined { number, .. } => format!("joined {}", number.get()),
        Change::Admitted { number, .. } => format!("admitted {}", number.get()),
        Change::Taken { number, .. } => format!("taken {}", number.get()),
        Change::Lapsed { number } => format!("lapsed {}", number.get()),
        Change::Renewed { number, renewal } => format!("renewed {} as {}", number.get(), renewal.generation),
        Change::Gone { number, how } => format!("{} {}", describe_departure(*how), number.get()),
        Change::Reached(reached) => format!("reached {reached}"),
        Change::Drawn(draw) => format!("drawn {} from {}", draw.entrants, draw.first),
    }
}

/// Numbers that look random, the same in every run.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    /// 0 to 1, without either.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64 + 1e-17
    }
}

/// Checks that every ticket is in exactly one place, and that the counts match.
#[track_caller]
fn assert_sound(room: &Room) {
    room.line.assert_sound();
    let (mut waiting, mut active) = (0, 0);
    for ticket in 1..=room.drawn() {
        let place = room.line.place(ticket).expect("whatever was drawn has a place");
        assert_eq!(place == TicketPlace::Slot, room.slots.get(ticket).is_some(), "in a slot or not: {ticket}");
        waiting += u32::from(place == TicketPlace::Waiting);
        active += u32::from(place == TicketPlace::Slot);
        let turn = room.turn(ticket);
        assert_eq!(room.line.number_of(turn), ticket, "the turn of one ticket");
        let back = room.returned.contains(&turn);
        assert!(!back || place == TicketPlace::Waiting && turn < room.line.reached(), "who came back waits: {ticket}");
    }
    assert_eq!((room.line.waiting(), room.slots.count()), (waiting, active), "counts");
    assert!(room.returned.len() <= waiting as usize, "nobody comes back twice");
}
