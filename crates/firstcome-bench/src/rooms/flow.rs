//! The rules of rooms in simulated time: the cost of a tick, the cost of absent visitors, the accuracy of estimated
//! waits.

use super::super::report::{Report, Target, latencies};
use anyhow::{Context, bail};
use firstcome::core::room::{
    Change, DrawKey, Join, Joined, Poll, Room, RoomOrder, RoomSettings, TicketNumber, TicketState,
};
use firstcome::core::time::{Now, Steady, Timestamp};
use firstcome::edge::{Stopwatch, draw_hasher};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How often a store ticks its rooms.
const TICK_US: i64 = 50_000;
const START_US: i64 = 1_893_456_000_000_000;

fn now(us: i64) -> Now {
    Now { wall: Timestamp::clamped_us(START_US + us), steady: Steady::from_us(us) }
}

fn anybody() -> Join {
    Join { user: None, request: None }
}

fn settings(per_second: u32) -> RoomSettings {
    RoomSettings { max_waiting: 100_000_000, ..RoomSettings::with_rate(per_second, 1_000) }
}

/// Measures a tick that admits 50, with a thousand and with very many waiting.
pub(super) fn ticks(people: u32, report: &mut Report) {
    let mut figures = Vec::new();
    for waiting in [1_000, people] {
        let mut room = Room::new(settings(1_000), draw_hasher(), now(0));
        let mut changes = Vec::new();
        for _ in 0..waiting {
            let _ = room.join(&anybody(), now(0), &mut changes);
        }
        let mut times = latencies();
        for tick in 1..=15 {
            changes.clear();
            let watch = Stopwatch::start();
            room.tick(now(tick * TICK_US), &mut changes);
            times.saturating_record(watch.elapsed().as_nanos() as u64);
        }
        figures.push(times.value_at_quantile(0.5) as f64 / 1e3);
    }
    report.targets.extend([
        Target::at_most("a tick that admits 50 of 1 k waiting, µs", figures[0], 50.0),
        Target::at_most("a tick that admits 50 of all waiting, µs", figures[1], 50.0),
    ]);
}

/// Measures the draw of very many entrants: the tick that draws, and how many changes it writes.
pub(super) fn draw(people: u32, report: &mut Report) {
    const OPENS_US: i64 = 1_000_000;
    let opens_at = Some(now(OPENS_US).wall);
    let paused = RoomSettings { paused: true, opens_at, order: RoomOrder::Draw, ..settings(1_000) };
    let mut times = latencies();
    let mut written = 0;
    for _ in 0..5 {
        let mut room = Room::new(paused.clone(), draw_hasher(), now(0)).with_draw_key(DrawKey::new([7; 32]));
        let mut changes = Vec::new();
        for _ in 0..people {
            let _ = room.join(&anybody(), now(0), &mut changes);
        }
        changes.clear();
        let watch = Stopwatch::start();
        room.tick(now(OPENS_US), &mut changes);
        times.saturating_record(watch.elapsed().as_nanos() as u64);
        written = changes.len();
    }
    let draw_ms = times.value_at_quantile(0.5) as f64 / 1e6;
    report.targets.extend([
        Target::at_most("the draw of all waiting, ms", draw_ms, 100.0),
        Target::at_most("the draw of all waiting, changes written", written as f64, 1.0),
    ]);
}

/// A person in a simulation, who polls when told to, or never again.
struct Person {
    patient: bool,
    first_wait_us: Option<i64>,
    position: u32,
}

struct Play {
    room: Room,
    people: HashMap<u32, Person>,
    polls: BinaryHeap<Reverse<(i64, u32)>>,
    changes: Vec<Change>,
    admitted_at_us: HashMap<u32, i64>,
    rises: u64,
}

impl Play {
    fn new(settings: RoomSettings) -> Self {
        let room = Room::new(settings, draw_hasher(), now(0));
        let (people, polls, changes, admitted_at_us) = Default::default();
        Self { room, people, polls, changes, admitted_at_us, rises: 0 }
    }

    fn join(&mut self, at_us: i64, patient: bool) -> anyhow::Result<()> {
        let joined = self.room.join(&anybody(), now(at_us), &mut self.changes);
        let Ok(Joined::New(view)) = joined else { bail!("a join was refused") };
        let TicketState::Waiting { position, wait_ms } = view.state else { bail!("a visitor was admitted at once") };
        let first_wait_us = wait_ms.map(|ms| at_us + ms as i64 * 1_000);
        self.people.insert(view.number.get(), Person { patient, first_wait_us, position });
        if patient {
            self.polls.push(Reverse((at_us + i64::from(view.poll_after_ms) * 1_000, view.number.get())));
        }
        Ok(())
    }

    /// Lets every person poll who is due, then ticks.
    fn step(&mut self, at_us: i64) -> anyhow::Result<()> {
        while let Some(Reverse((due_us, number))) = self.polls.peek().copied().filter(|next| next.0.0 <= at_us) {
            self.polls.pop();
            let id = TicketNumber::new(number).context("a number")?;
            if let Some(Poll::Answer(view)) = self.room.poll(id, now(due_us)) {
                let TicketState::Waiting { position, .. } = view.state else { continue };
                let person = self.people.get_mut(&number).context("a person")?;
                self.rises += u64::from(person.position < position);
                person.position = position;
                self.polls.push(Reverse((due_us + i64::from(view.poll_after_ms) * 1_000, number)));
            } else {
                // Admitted: takes the slot, and gives it up at once.
                self.room.decide(id, now(due_us), &mut self.changes);
                let _ = self.room.leave(id, now(due_us), &mut self.changes);
            }
        }
        self.changes.clear();
        self.room.tick(now(at_us), &mut self.changes);
        for change in &self.changes {
            if let Change::Admitted { number, .. } = change {
                self.admitted_at_us.insert(number.get(), at_us);
            }
        }
        Ok(())
    }
}

/// Nine of ten people have silently gone: checks that the room still admits at its rate.
fn absent(people: u32, report: &mut Report) -> anyhow::Result<()> {
    let per_second = (people / 5_000).max(1);
    let mut play = Play::new(settings(per_second));
    for number in 0..people {
        play.join(0, number % 10 == 0)?;
    }
    // A silent visitor counts as present until three polls are missed.
    let (from_us, until_us) = (300_000_000, 420_000_000);
    let (mut at_us, mut wrong) = (0, 0);
    while at_us < until_us {
        at_us += TICK_US;
        play.step(at_us)?;
        let silent = |change: &Change| match change {
            Change::Admitted { number, .. } => play.people.get(&number.get()).is_none_or(|person| !person.patient),
            _ => false,
        };
        wrong += if from_us < at_us { play.changes.iter().filter(|change| silent(change)).count() } else { 0 };
    }
    let admitted = play.admitted_at_us.values().filter(|&&at_us| from_us < at_us).count();
    let due = f64::from(per_second) * (until_us - from_us) as f64 / 1e6;
    report.targets.push(Target::at_least(
        "capacity used with 90 % of the line absent, %",
        100.0 * admitted as f64 / due,
        98.0,
    ));
    report.targets.push(Target::at_most("absent people admitted", wrong as f64, 0.0));
    report.targets.push(Target::at_most("positions that rose, 90 % absent", play.rises as f64, 0.0));
    Ok(())
}

/// A long line in steady flow: measures the error of the first estimated wait.
fn waits(report: &mut Report) -> anyhow::Result<()> {
    const RATE: u32 = 100;
    let mut play = Play::new(settings(RATE));
    for _ in 0..20_000 {
        play.join(0, true)?;
    }
    let mut at_us = 0;
    while at_us < 400_000_000 {
        at_us += TICK_US;
        play.step(at_us)?;
        // As many people join as are admitted.
        for _ in 0..i64::from(RATE) * TICK_US / 1_000_000 {
            play.join(at_us, true)?;
        }
    }
    let off = |(number, &at_us): (&u32, &i64)| {
        let person = play.people.get(number)?;
        // Skips the people who joined before the line had moved.
        let told_us = person.first_wait_us?;
        (20_000 < *number).then(|| (told_us - at_us).abs() as f64 / 200e6)
    };
    let mut errors: Vec<f64> = play.admitted_at_us.iter().filter_map(off).collect();
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied().context("no visitor was admitted")?;
    report.targets.push(Target::at_most("median error of the first told wait, %", 100.0 * median, 10.0));
    report.targets.push(Target::at_most("positions that rose, steady flow", play.rises as f64, 0.0));
    Ok(())
}

pub(super) fn measure(people: u32, report: &mut Report) -> anyhow::Result<()> {
    absent(people, report)?;
    waits(report)?;
    Ok(())
}
