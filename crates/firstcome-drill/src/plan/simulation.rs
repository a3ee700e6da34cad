//! A back end in simulated time: people enter, think, and query; every query holds one connection of a pool.
//!
//! Closed loop: a person sends the next query only after the answer to the last one, so slow answers slow people down.
//! Pure: the same seed gives the same figures. Instants are nanoseconds from the opening.

use super::admit::Admit;
use super::inputs::Inputs;
use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How people enter.
pub(crate) enum Arrivals {
    /// A line that never runs empty, admitted at this rate at the ends of slices of this length.
    Room { admit: Admit, slice_ns: u64 },
    /// Independent random arrivals, as queueing theory assumes.
    #[cfg(test)]
    Poisson { per_second: f64 },
}

/// One run: arrivals, thinking, and when measuring begins and ends.
pub(crate) struct Run<'a> {
    pub(crate) back_end: &'a Inputs,
    pub(crate) arrivals: Arrivals,
    /// The mean time between an answer and the next query.
    pub(crate) think_ns: f64,
    pub(crate) warm_ns: u64,
    pub(crate) end_ns: u64,
}

/// The measurements between the warm-up and the end.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) admitted_per_second: f64,
    pub(crate) busy_connections: f64,
    pub(crate) utilisation: f64,
    pub(crate) wait_mean_ms: f64,
    pub(crate) wait_p99_ms: f64,
    pub(crate) query_p99_ms: f64,
    /// Queries that wait for a connection, on average in the first quarter and in the last.
    pub(crate) queue_first: f64,
    pub(crate) queue_last: f64,
    pub(crate) queries: usize,
}

enum Event {
    Admit,
    Ask { person: usize },
    Answer { person: usize },
}

struct Person {
    reads: u32,
    writes: u32,
}

struct World<'a> {
    run: &'a Run<'a>,
    rng: Rng,
    /// By instant, then in the order of planning.
    agenda: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Event>,
    free: Vec<usize>,
    planned: u64,
    people: Vec<Person>,
    idle: u64,
    /// The people who wait for a connection, and since when.
    queue: VecDeque<(usize, u64)>,
    admitted: u64,
    admitted_warm: u64,
    busy_ns: u64,
    quarters_ns: [u64; 2],
    waits_ns: Vec<u64>,
    queries_ns: Vec<u64>,
}

/// Plays one run to its end.
pub(crate) fn simulate(run: &Run<'_>, seed: u64) -> Measured {
    let mut world = World {
        run,
        rng: Rng::from_seed(seed),
        agenda: BinaryHeap::new(),
        events: Vec::new(),
        free: Vec::new(),
        planned: 0,
        people: Vec::new(),
        idle: run.back_end.pool,
        queue: VecDeque::new(),
        admitted: 0,
        admitted_warm: 0,
        busy_ns: 0,
        quarters_ns: [0; 2],
        waits_ns: Vec::new(),
        queries_ns: Vec::new(),
    };
    let first_ns = world.next_arrival(0);
    world.plan(first_ns, Event::Admit);
    while let Some(Reverse((at_ns, _, slot))) = world.agenda.pop() {
        if run.end_ns <= at_ns {
            break;
        }
        world.free.push(slot);
        match world.events[slot] {
            Event::Admit => world.admit(at_ns),
            Event::Ask { person } => world.ask(person, at_ns),
            Event::Answer { person } => world.answer(person, at_ns),
        }
    }
    world.measured()
}

impl World<'_> {
    fn plan(&mut self, at_ns: u64, event: Event) {
        let slot = self.free.pop().unwrap_or(self.events.len());
        if slot == self.events.len() {
            self.events.push(event);
        } else {
            self.events[slot] = event;
        }
        self.planned += 1;
        self.agenda.push(Reverse((at_ns, self.planned, slot)));
    }

    fn next_arrival(&mut self, now_ns: u64) -> u64 {
        match self.run.arrivals {
            Arrivals::Room { admit, slice_ns } => {
                // The end of the first slice by which the rate allows one more person.
                let earned = u128::from(admit.count) * u128::from(slice_ns);
                let cost = u128::from(self.admitted + 1) * u128::from(admit.every_ms) * 1_000_000;
                u64::try_from(cost.div_ceil(earned) * u128::from(slice_ns)).unwrap_or(u64::MAX).max(now_ns)
            }
            #[cfg(test)]
            Arrivals::Poisson { per_second } => now_ns + exponential(&mut self.rng, 1e9 / per_second),
        }
    }

    fn admit(&mut self, now_ns: u64) {
        self.admitted += 1;
        self.admitted_warm += u64::from(self.run.warm_ns <= now_ns);
        let (reads, writes) =
            (about(&mut self.rng, self.run.back_end.reads), about(&mut self.rng, self.run.back_end.writes));
        self.people.push(Person { reads, writes });
        self.think(self.people.len() - 1, now_ns);
        let next_ns = self.next_arrival(now_ns);
        self.plan(next_ns, Event::Admit);
    }

    /// Plans the person's next query after thinking; a person without queries left goes away.
    fn think(&mut self, person: usize, now_ns: u64) {
        if 0 < self.people[person].reads + self.people[person].writes {
            let at_ns = now_ns + exponential(&mut self.rng, self.run.think_ns);
            self.plan(at_ns, Event::Ask { person });
        }
    }

    fn ask(&mut self, person: usize, now_ns: u64) {
        if self.idle == 0 {
            self.queue.push_back((person, now_ns));
        } else {
            self.idle -= 1;
            self.serve(person, now_ns, now_ns);
        }
    }

    fn answer(&mut self, person: usize, now_ns: u64) {
        if let Some((next, asked_ns)) = self.queue.pop_front() {
            self.serve(next, asked_ns, now_ns);
        } else {
            self.idle += 1;
        }
        self.think(person, now_ns);
    }

    fn serve(&mut self, person: usize, asked_ns: u64, now_ns: u64) {
        let left = &mut self.people[person];
        let reads = self.rng.below(u64::from(left.reads + left.writes)) < u64::from(left.reads);
        let mean_ms = if reads { self.run.back_end.read_ms } else { self.run.back_end.write_ms };
        *(if reads { &mut left.reads } else { &mut left.writes }) -= 1;
        let held_ns = exponential(&mut self.rng, mean_ms * 1e6);
        let answered_ns = now_ns + held_ns;
        self.busy_ns += overlap(now_ns, answered_ns, self.run.warm_ns, self.run.end_ns);
        self.waited(asked_ns, now_ns);
        if self.run.warm_ns <= asked_ns {
            self.waits_ns.push(now_ns - asked_ns);
            self.queries_ns.push(answered_ns - asked_ns);
        }
        self.plan(answered_ns, Event::Answer { person });
    }

    /// Adds the time that a person was in the queue.
    fn waited(&mut self, from_ns: u64, to_ns: u64) {
        let (warm_ns, end_ns) = (self.run.warm_ns, self.run.end_ns);
        let quarter_ns = (end_ns - warm_ns) / 4;
        self.quarters_ns[0] += overlap(from_ns, to_ns, warm_ns, warm_ns + quarter_ns);
        self.quarters_ns[1] += overlap(from_ns, to_ns, end_ns - quarter_ns, end_ns);
    }

    fn measured(mut self) -> Measured {
        // People who still wait at the end have waited too.
        for (_, asked_ns) in std::mem::take(&mut self.queue) {
            self.waited(asked_ns, self.run.end_ns);
            if self.run.warm_ns <= asked_ns {
                self.waits_ns.push(self.run.end_ns - asked_ns);
                self.queries_ns.push(self.run.end_ns - asked_ns);
            }
        }
        let measured_ns = (self.run.end_ns - self.run.warm_ns) as f64;
        let busy_connections = self.busy_ns as f64 / measured_ns;
        let queue = self.quarters_ns.map(|waited_ns| waited_ns as f64 / (measured_ns / 4.0));
        let queries = self.waits_ns.len();
        let total_ns: f64 = self.waits_ns.iter().map(|wait_ns| *wait_ns as f64).sum();
        Measured {
            admitted_per_second: self.admitted_warm as f64 * 1e9 / measured_ns,
            busy_connections,
            utilisation: busy_connections / self.run.back_end.pool as f64,
            wait_mean_ms: total_ns / queries.max(1) as f64 / 1e6,
            wait_p99_ms: p99_ms(&mut self.waits_ns),
            query_p99_ms: p99_ms(&mut self.queries_ns),
            queue_first: queue[0],
            queue_last: queue[1],
            queries,
        }
    }
}

/// Returns how long two spans overlap.
fn overlap(from_ns: u64, to_ns: u64, first_ns: u64, last_ns: u64) -> u64 {
    to_ns.min(last_ns).saturating_sub(from_ns.max(first_ns))
}

/// Returns the 99th percentile.
fn p99_ms(times_ns: &mut [u64]) -> f64 {
    if times_ns.is_empty() {
        return 0.0;
    }
    let at = (times_ns.len() * 99).div_ceil(100) - 1;
    *times_ns.select_nth_unstable(at).1 as f64 / 1e6
}

/// Draws an exponentially distributed time with this mean.
fn exponential(rng: &mut Rng, mean: f64) -> u64 {
    // Above 0 and at most 1, so that the logarithm is finite.
    (-(rng.unit() + f64::EPSILON / 2.0).ln() * mean) as u64
}

/// Draws a whole number next to the mean, equal to it on average.
fn about(rng: &mut Rng, mean: f64) -> u32 {
    mean as u32 + u32::from(rng.unit() < mean.fract())
}
