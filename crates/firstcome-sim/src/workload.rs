//! What clients do, drawn from the seed: what all primitives share.

use crate::history::{Operation, Request, Vocabulary};
use crate::rng::{Rng, mix};
use firstcome_core::time::Timestamp;
use std::fmt::Display;

/// The clock at the start of every run, in microseconds of Unix time.
pub const START_US: i64 = 1_800_000_000_000_000;

/// What happens next in the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<A> {
    /// A client asks for something.
    Ask,
    /// Many clients ask at once.
    Crowd,
    /// The writer runs one batch.
    Step,
    /// Clients look for their answers.
    Deliver,
    /// A caller goes away.
    GoAway,
    /// Time passes.
    Wait,
    /// The process dies between two batches.
    Crash,
    /// The store is closed in order and started again.
    Restart,
    /// Something that only this primitive knows.
    Own(A),
}

/// How one run is set up. Everything is drawn from the seed, extremes included, so that runs differ in kind.
pub struct Plan<A> {
    /// Actions before the heal.
    pub actions: u64,
    /// Commits that fail, per thousand.
    pub commit_fault_per_mille: u64,
    /// Answers that are lost on their way, per thousand.
    pub lost_answer_per_mille: u64,
    /// Commands per batch at most.
    pub batch_max: u64,
    /// How often each action comes.
    pub weights: Vec<(Action<A>, u64)>,
}

/// The clients of a run, and what they remember.
pub trait Workload: Vocabulary {
    /// What happens in the world of this primitive only.
    type Action: Copy;

    /// Draws the plan of a run, and its clients.
    fn draw(rng: &mut Rng) -> (Plan<Self::Action>, Self);

    /// Draws the requests that open the run.
    fn opening(&mut self, rng: &mut Rng, now: Timestamp) -> Vec<Request<Self>>;

    /// Draws one request.
    fn ask(&mut self, rng: &mut Rng, now: Timestamp) -> Request<Self>;

    /// Draws a request of a client that comes in the middle of a commit: often a look at what is being changed.
    fn visit(&mut self, rng: &mut Rng, now: Timestamp) -> Request<Self>;

    /// Draws the requests of many clients that come at once.
    fn crowd(&mut self, _rng: &mut Rng) -> Vec<Request<Self>> {
        Vec::new()
    }

    /// Draws how long time passes at once.
    fn pause_us(rng: &mut Rng) -> u64;

    /// Lets the client remember how its request ended.
    fn learn(&mut self, operation: &Operation<Self>);
}

/// A value that the workload itself has made up, and that must parse.
pub fn valid<T, E: Display>(parsed: Result<T, E>) -> T {
    match parsed {
        Ok(value) => value,
        Err(error) => panic!("the workload made up an invalid value: {error}"),
    }
}

/// Draws an idempotency key.
pub fn draw_key(rng: &mut Rng) -> u128 {
    u128::from(rng.bits()) << 64 | u128::from(rng.bits())
}

/// What a request asks for, in 64 bits.
pub fn digest(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0, |word, byte| mix(word ^ u64::from(byte)))
}
