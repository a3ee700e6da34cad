//! Traces: the context that travels with a request, and where the time of a batch went.
//!
//! A *context* says to which trace a request belongs and whether it is sampled. It travels in the headers `traceparent` and
//! `tracestate`. The source of their format: [W3C Trace Context](https://www.w3.org/TR/trace-context-1/).
//!
//! A *stage* is one step that a store takes for many requests at once: a commit, a script, a write to a database. Stores note their
//! stages by [`note`]; what exports traces finds the one that a request waited for by [`stage`].
//!
//! # Promises
//! - Until [`switch_on`] is called, [`note`] reads one number.
//! - No rule depends on any of this.
//!
//! # Not promised
//! - That a stage is the very one that served a request: it is found by its object and by time.

use crate::edge::{Stopwatch, draw_hasher};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The header that names trace and span.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what other systems know of the trace.
pub const TRACESTATE: &str = "tracestate";
/// The most bytes of a `tracestate` that is passed on. The standard asks for at least so many.
const STATE_BYTES_MAX: usize = 512;
/// The stages that are remembered.
const STAGES_MAX: usize = 512;

/// To which trace a request belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The trace. Never 0.
    pub trace: u128,
    /// The span from which the request comes. Never 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// What other systems know of the trace: it is passed on as it came.
    pub state: Option<Arc<str>>,
}

/// Parses digits of 0-9 and a-f. The standard allows no others.
fn hex<const DIGITS: usize>(text: Option<&str>) -> Option<u128> {
    let text = text?;
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    (text.len() == DIGITS && text.as_bytes().iter().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}

impl TraceContext {
    /// Begins a trace.
    pub fn fresh(is_sampled: bool) -> Self {
        Self {
            trace: (u128::from(draw_span()) << 64) | u128::from(draw_span()),
            span: draw_span(),
            is_sampled,
            state: None,
        }
    }

    /// Parses the headers of a request. `None` if `traceparent` is not as the standard has it: a trace then begins here.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let mut parts = traceparent.splitn(5, '-');
        let version = hex::<2>(parts.next())?;
        let (trace, span, flags) = (hex::<32>(parts.next())?, hex::<16>(parts.next())?, hex::<2>(parts.next())?);
        // Later versions may add parts; this one has four.
        let is_known = version != 0xff && (version != 0 || parts.next().is_none());
        let span = u64::try_from(span).ok()?;
        let is_state = |state: &&str| {
            (1..=STATE_BYTES_MAX).contains(&state.len()) && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        (is_known && trace != 0 && span != 0).then(|| Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
            state: tracestate.filter(is_state).map(Arc::from),
        })
    }

    /// The same trace, from another span.
    #[must_use]
    pub fn at(&self, span: u64) -> Self {
        Self { span, ..self.clone() }
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

thread_local! {
    /// The context of the call that runs on this thread.
    static CURRENT: RefCell<Option<TraceContext>> = const { RefCell::new(None) };
}

/// Runs a future within a context: requests of `firstcome-client` that it makes belong to that trace.
///
/// Tasks that it spawns are not within it.
pub async fn traced<F: Future>(context: TraceContext, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let outer = CURRENT.replace(Some(context.clone()));
        let polled = future.as_mut().poll(cx);
        CURRENT.replace(outer);
        polled
    })
    .await
}

/// Returns the context within which the caller runs.
pub fn current() -> Option<TraceContext> {
    CURRENT.with_borrow(Clone::clone)
}

/// Draws the id of a span. Two of one process are the same with probability 2^-64.
pub fn draw_span() -> u64 {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    SEED.get_or_init(draw_hasher).hash_one(DRAWN.fetch_add(1, Ordering::Relaxed)).max(1)
}

/// What a store did for many requests at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// A commit of the embedded store.
    Commit,
    /// A script on Redis.
    Script,
    /// A write to a database.
    Write,
}

impl StageKind {
    /// All kinds, in the order in which a request meets them.
    pub const ALL: [Self; 3] = [Self::Script, Self::Write, Self::Commit];

    /// The name of its spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "store commit",
            Self::Script => "redis script",
            Self::Write => "database write",
        }
    }
}

/// One stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it was.
    pub kind: StageKind,
    /// The coupon or the room that it was for; empty for all.
    pub object: Box<str>,
    /// When it began and ended, by [`now_ns`].
    pub begun_ns: u64,
    /// See `begun_ns`.
    pub ended_ns: u64,
    /// How many claims, entries or changes it had.
    pub size: u64,
    /// Its own trace, which it has with no other.
    pub context: TraceContext,
    is_told: bool,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static STAGES: Mutex<VecDeque<Stage>> = Mutex::new(VecDeque::new());

/// Begins to note stages, until the process ends.
pub fn switch_on() {
    now_ns();
    IS_ON.store(true, Ordering::Relaxed);
}

/// Whether traces are recorded in this process.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Returns the nanoseconds since the first call of this function in this process.
pub fn now_ns() -> u64 {
    static START: OnceLock<Stopwatch> = OnceLock::new();
    START.get_or_init(Stopwatch::start).elapsed().as_nanos() as u64
}

/// Notes a stage that has just ended: of this object, which is empty for all, and with this many claims, entries or changes.
pub fn note(kind: StageKind, object: &str, lasted: Duration, size: usize) {
    if !is_on() {
        return;
    }
    let ended_ns = now_ns();
    let begun_ns = ended_ns.saturating_sub(lasted.as_nanos() as u64);
    let (context, size) = (TraceContext::fresh(true), size as u64);
    let stage = Stage { kind, object: object.into(), begun_ns, ended_ns, size, context, is_told: false };
    let mut stages = STAGES.lock();
    if STAGES_MAX <= stages.len() {
        stages.pop_front();
    }
    stages.push_back(stage);
}

/// Returns the stage of this kind for which a request waited that concerned `object`, from one instant to another by [`now_ns`]; and
/// whether it is returned for the first time.
pub fn stage(kind: StageKind, object: &str, from_ns: u64, to_ns: u64) -> Option<(Stage, bool)> {
    let mut stages = STAGES.lock();
    let is_of = |stage: &&mut Stage| {
        let is_object = stage.object.is_empty() || *stage.object == *object;
        stage.kind == kind && is_object && from_ns <= stage.ended_ns && stage.ended_ns <= to_ns
    };
    let mut found = stages.iter_mut().filter(is_of);
    let stage = match kind {
        // The answer to a claim follows these. A script comes first, and the claim then waits for SQL.
        StageKind::Commit | StageKind::Write => found.next_back(),
        StageKind::Script => found.find(|stage| from_ns <= stage.begun_ns),
    }?;
    let is_first = !std::mem::replace(&mut stage.is_told, true);
    Some((stage.clone(), is_first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn only_a_traceparent_of_the_standard_is_taken() {
        let rows = [
            (format!("00-{TRACE}-b7ad6b7169203331-01"), Some(true)),
            (format!("00-{TRACE}-b7ad6b7169203331-00"), Some(false)),
            (format!("00-{TRACE}-b7ad6b7169203331-03"), Some(true)),
            (format!("01-{TRACE}-b7ad6b7169203331-01-what-comes-later"), Some(true)),
            (format!("00-{TRACE}-b7ad6b7169203331-01-x"), None),
            (format!("ff-{TRACE}-b7ad6b7169203331-01"), None),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-0000000000000000-01"), None),
            (format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}-B7AD6B7169203331-01"), None),
            (format!("00-{}-b7ad6b7169203331-01", &TRACE[1..]), None),
            (format!("00-{TRACE}-b7ad6b7169203331"), None),
            (format!("00-{TRACE}-b7ad6b7169203331-1"), None),
            (format!("00-+{}-b7ad6b7169203331-01", &TRACE[1..]), None),
            (String::new(), None),
        ];
        for (text, is_sampled) in rows {
            assert_eq!(TraceContext::parse(&text, None).map(|context| context.is_sampled), is_sampled, "{text:?}");
        }
    }

    #[test]
    fn a_context_is_passed_on_as_it_came() {
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        let context = TraceContext::parse(&text, Some("shop=7,other=x")).unwrap();
        assert_eq!((context.traceparent(), context.state.as_deref()), (text, Some("shop=7,other=x")));
        assert_eq!(context.at(10).traceparent(), format!("00-{TRACE}-000000000000000a-01"));
        let long = "x".repeat(STATE_BYTES_MAX + 1);
        for state in ["", "a\u{7f}", long.as_str()] {
            assert_eq!(TraceContext::parse(&context.traceparent(), Some(state)).unwrap().state, None, "{state:?}");
        }
    }

    #[test]
    fn the_stage_that_a_request_waited_for_is_found_and_told_once() {
        switch_on();
        let from = now_ns();
        note(StageKind::Script, "launch", Duration::ZERO, 3);
        note(StageKind::Script, "other", Duration::ZERO, 4);
        note(StageKind::Write, "launch", Duration::ZERO, 5);
        note(StageKind::Write, "launch", Duration::ZERO, 6);
        let to = now_ns();
        let size = |kind, object| stage(kind, object, from, to).map(|(stage, is_first)| (stage.size, is_first));
        assert_eq!(size(StageKind::Script, "launch"), Some((3, true)));
        assert_eq!(size(StageKind::Script, "launch"), Some((3, false)));
        assert_eq!(size(StageKind::Write, "launch"), Some((6, true)), "the last one");
        assert_eq!(size(StageKind::Script, "none"), None);
        assert_eq!(stage(StageKind::Script, "launch", to + 1, u64::MAX).map(drop), None);
    }
}
