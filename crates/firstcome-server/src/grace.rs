//! What gates do while the store gives no answer: `firstcome gate`, and `GET /v1/rooms/{room}/gate`.
//!
//! While the store answers, each pass is judged by its slot. A gate that a room was asked about also asks the store, once a
//! second, which admissions have not ended. When that gets no answer, visitors whose admission had not ended go on for the
//! grace. Then the gate lets no visitor in, or all of them, as [`OnLoss`] says.
//!
//! # Invariants
//! - No visitor comes in by a list that is older than the grace.
//! - A visitor who comes in without a judgement has a pass that this service signed and that has not expired, except after the
//!   grace under [`OnLoss::Open`].
//! - A judgement of the store counts at any time. The embedded store judges from memory also when its disk has failed.
//! - While the store of a cluster gives no answer, no request waits for it.
//!
//! # What it does not promise
//! - That a slot which is given back counts no more at once: in the grace the gate learns of nothing.
//! - That a visit in the grace is a contact for the idle time-out.

mod watch;

pub(crate) use watch::{GateWatches, RoomWatch, Stay, look_after};

use crate::api::room as calls;
use crate::error::{Code, Problem};
use crate::pass::Grant;
use crate::state::App;
use firstcome::PassCheck;
use firstcome::core::id::RoomName;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a gate waits for the judgement of a pass. A proxy waits no longer.
const JUDGE_WITHIN: Duration = Duration::from_secs(2);
/// When a visitor whom a gate does not let in tries again. Milliseconds.
const RETRY_MS: u64 = 5_000;

/// Whom a gate lets in when the store has given no answer for the grace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLoss {
    /// No visitor. For a site whose room guards a limited stock.
    Close,
    /// All visitors, also those without a pass. For a site that only must not be overrun.
    Open,
}

/// What gates do while the store gives no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GracePolicy {
    /// How long visitors whose admission had not ended go on, from the last answer of the store on.
    pub grace: Duration,
    /// What follows.
    pub on_loss: OnLoss,
}

impl Default for GracePolicy {
    /// Thirty seconds, then no visitor.
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), on_loss: OnLoss::Close }
    }
}

/// How a gate decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GateMode {
    /// The store judges each pass.
    Judging,
    /// The store gives no answer. Admissions that had not ended go on.
    Grace,
    /// The grace is over, and no visitor comes in.
    Closed,
    /// The grace is over, and all visitors come in.
    Open,
}

impl GateMode {
    pub(crate) const ALL: [(Self, &'static str); 4] =
        [(Self::Judging, "judging"), (Self::Grace, "grace"), (Self::Closed, "closed"), (Self::Open, "open")];
}

impl GracePolicy {
    /// Returns the mode of a gate whose store has given no answer for so long.
    fn mode(self, silent_for: Duration) -> GateMode {
        match self.on_loss {
            _ if silent_for < self.grace => GateMode::Grace,
            OnLoss::Close => GateMode::Closed,
            OnLoss::Open => GateMode::Open,
        }
    }
}

/// What a gate says of a visitor.
pub(crate) enum Ruling {
    /// The store has judged the pass: it is valid, or not, for this reason.
    Judged(Judgement),
    /// There is no pass to judge.
    NoPass,
    /// The store gives no answer, and the visitor comes in all the same. The grant is that of the pass, if it has one.
    Unjudged(Option<Grant>),
}

/// The store's judgement of a pass.
type Judgement = Result<(Grant, PassCheck), &'static str>;

/// Decides whether a visitor comes in. Order of checks: the store's judgement, if there is one; the mode of the gate; in the
/// grace, the pass and the admissions that had not ended. Fails if the visitor stays out because the store gives no answer.
///
/// Cancel-safe. Costs one judgement of the store, or none while a cluster gives no answer.
pub(crate) async fn rule(app: &Arc<App>, room: &RoomName, pass: Option<&str>) -> Result<Ruling, Problem> {
    let watch = app.gates.of(room);
    let mode = watch.as_ref().map_or(GateMode::Judging, |watch| watch.mode());
    // The embedded store answers from memory at once, also when its disk has failed.
    let is_asked = mode == GateMode::Judging || app.backend.as_cluster().is_none();
    let judgement = match pass.filter(|_| is_asked) {
        None if mode == GateMode::Judging => return Ok(Ruling::NoPass),
        None => None,
        Some(pass) => match judge(app, room, pass).await {
            Err(problem) if watch.is_none() || !is_silence(problem.code()) => return Err(problem),
            Err(_) => None,
            Ok(judgement) => {
                if watch.is_none() && judgement.is_ok() {
                    look_after(app, room, Stay::WhileAsked);
                }
                Some(judgement)
            }
        },
    };
    match (judgement, watch) {
        (Some(judgement), _) if judgement.is_ok() || matches!(mode, GateMode::Judging | GateMode::Grace) => {
            Ok(Ruling::Judged(judgement))
        }
        (judgement, Some(watch)) => {
            watch.look_now();
            unjudged(app, room, &watch, pass.filter(|_| judgement.is_none()))
        }
        // Without a watch the mode is `Judging`, and a silent store has been told above.
        (_, None) => Err(Code::StoreUnavailable.into()),
    }
}

async fn judge(app: &App, room: &RoomName, pass: &str) -> Result<Judgement, Problem> {
    let judged = tokio::time::timeout(JUDGE_WITHIN, pin!(calls::judge_pass(app, room, pass))).await;
    judged.unwrap_or_else(|_| Err(Code::OutcomeUnknown.into()))
}

/// Whether a problem says that the store gave no answer. A store with too much to do is not away: what it refuses stays refused.
const fn is_silence(code: Code) -> bool {
    matches!(code, Code::StoreUnavailable | Code::OutcomeUnknown)
}

/// Decides without the store. `pass` is absent if the visitor has none, or one that is void.
fn unjudged(app: &App, room: &RoomName, watch: &RoomWatch, pass: Option<&str>) -> Result<Ruling, Problem> {
    let now = app.backend.now();
    let granted = pass.and_then(|pass| app.passes()?.read(pass).ok());
    let granted = granted.filter(|grant| grant.room == *room && !grant.expired(now));
    // One judgement that failed is no loss: only a look ends the grace.
    let mode =
        if watch.mode() == GateMode::Judging { GateMode::Grace } else { app.config.grace.mode(watch.silent_for()) };
    match mode {
        GateMode::Open => Ok(Ruling::Unjudged(granted)),
        GateMode::Grace if pass.is_none() => Ok(Ruling::NoPass),
        GateMode::Grace if granted.as_ref().is_some_and(|grant| watch.had(grant)) => Ok(Ruling::Unjudged(granted)),
        GateMode::Judging | GateMode::Grace => Err(refusal(
            "The store of the waiting room gives no answer, and it did not know of this pass before. Your place is kept.",
        )),
        GateMode::Closed => Err(refusal(
            "The store of the waiting room gives no answer, so no pass can be checked, and no visitor comes in. Your \
             place is kept.",
        )),
    }
}

/// Why the page of a room cannot be shown now, if it cannot: a cluster that gives no answer would let each visitor wait.
pub(crate) fn hides_page(app: &App, room: &RoomName) -> Option<Problem> {
    let is_hidden = app.backend.as_cluster().is_some() && app.gates.is_silent(room);
    is_hidden.then(|| {
        refusal("The store of the waiting room gives no answer, so the line stands still. Your place is kept.")
    })
}

fn refusal(detail: &str) -> Problem {
    Problem::new(Code::StoreUnavailable).detail(detail).with("reason", "store_silent").retry_after_ms(RETRY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_ends_on_time_and_then_the_policy_decides() {
        let grace = Duration::from_secs(30);
        for (on_loss, after) in [(OnLoss::Close, GateMode::Closed), (OnLoss::Open, GateMode::Open)] {
            let policy = GracePolicy { grace, on_loss };
            assert_eq!(policy.mode(Duration::ZERO), GateMode::Grace);
            assert_eq!(policy.mode(grace - Duration::from_nanos(1)), GateMode::Grace);
            assert_eq!(policy.mode(grace), after);
            let none = GracePolicy { grace: Duration::ZERO, on_loss };
            assert_eq!(none.mode(Duration::ZERO), after, "no grace");
        }
    }
}
