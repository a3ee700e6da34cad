//! Looks after the rooms that gates are asked about: which admissions have not ended, and whether the store answers.

use super::{GateMode, GracePolicy};
use crate::pass::Grant;
use crate::state::App;
use firstcome::core::id::RoomName;
use firstcome::core::room::TicketNumber;
use firstcome::core::time::Timestamp;
use firstcome::{LiveAdmissions, RoomStore, StoreError};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// How often the store is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The least time between two looks, however many judgements fail.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How long the store may take.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// How many rooms are looked after. A gate of a further room lets no visitor in without a judgement.
const WATCHES_MAX: usize = 1_024;
/// A room that no gate was asked about for so long is looked after no more.
const UNASKED_MAX: Duration = Duration::from_secs(600);
/// By how much the clocks of nodes may differ, in microseconds.
const CLOCKS_US: i64 = 2_000_000;

/// The rooms that gates are asked about.
#[derive(Default)]
pub(crate) struct GateWatches {
    rooms: RwLock<HashMap<RoomName, Arc<RoomWatch>>>,
}

/// For how long a room is looked after.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// As long as the service runs: a gate of its own stands before it.
    Always,
    /// As long as gates are asked about it.
    WhileAsked,
}

/// What is known of one room without asking the store.
pub(crate) struct RoomWatch {
    room: RoomName,
    state: Mutex<State>,
    stays: AtomicBool,
    look: Notify,
}

struct State {
    mode: GateMode,
    /// When the store answered last.
    heard_at: Instant,
    asked_at: Instant,
    /// The admissions that had not ended then, by number.
    live: LiveAdmissions,
}

impl GateWatches {
    /// Returns what is known of a room that is looked after, and notes that a gate was asked about it.
    pub(crate) fn of(&self, room: &RoomName) -> Option<Arc<RoomWatch>> {
        let watch = self.rooms.read().get(room).cloned()?;
        watch.state.lock().asked_at = Instant::now();
        Some(watch)
    }

    /// Whether the store is known to give no answer about a room that is looked after.
    pub(crate) fn is_silent(&self, room: &RoomName) -> bool {
        self.rooms.read().get(room).is_some_and(|watch| watch.mode() != GateMode::Judging)
    }

    /// Forgets a room that no gate was asked about for long. Returns false if it is still looked after.
    fn forget_unasked(&self, watch: &RoomWatch, now: Instant) -> bool {
        let mut rooms = self.rooms.write();
        let unasked = now.saturating_duration_since(watch.state.lock().asked_at);
        let is_over = !watch.stays.load(Ordering::Relaxed) && UNASKED_MAX < unasked;
        if is_over {
            rooms.remove(&watch.room);
        }
        is_over
    }
}

impl RoomWatch {
    /// How a gate of this room decides now, as the last look has found.
    pub(crate) fn mode(&self) -> GateMode {
        self.state.lock().mode
    }

    /// For how long the store has given no answer.
    pub(crate) fn silent_for(&self) -> Duration {
        self.state.lock().heard_at.elapsed()
    }

    /// Looks at once, unless the store is known to be silent.
    pub(crate) fn look_now(&self) {
        if self.mode() == GateMode::Judging {
            self.look.notify_one();
        }
    }

    /// Whether the store had this admission when it answered last, or the admission came later.
    pub(crate) fn had(&self, grant: &Grant) -> bool {
        let state = self.state.lock();
        let LiveAdmissions { admissions, as_of } = &state.live;
        let is_later = as_of.as_us() < grant.issued_at.as_us().saturating_add(CLOCKS_US);
        let is_listed = |number| admissions.binary_search(&(number, grant.slot)).is_ok();
        is_later || TicketNumber::new(grant.number).is_some_and(is_listed)
    }

    /// The rest of the grace; unbounded in the other modes.
    fn grace_left(&self, policy: GracePolicy, now: Instant) -> Duration {
        let state = self.state.lock();
        match state.mode {
            GateMode::Grace => policy.grace.saturating_sub(now.saturating_duration_since(state.heard_at)),
            _ => Duration::MAX,
        }
    }

    /// Notes what a look has brought. Returns the mode before and the mode now if it has changed.
    fn note(&self, heard: Answer, policy: GracePolicy, now: Instant) -> Option<(GateMode, GateMode)> {
        let mut state = self.state.lock();
        let before = state.mode;
        state.mode = match heard {
            Answer::Live(live) => {
                state.live = live;
                state.heard_at = now;
                GateMode::Judging
            }
            // The list of before stands. A store that was silent must say more before it judges again.
            Answer::Busy => {
                state.heard_at = now;
                if before == GateMode::Judging { GateMode::Judging } else { GateMode::Grace }
            }
            Answer::Silence => policy.mode(now.saturating_duration_since(state.heard_at)),
        };
        (before != state.mode).then_some((before, state.mode))
    }
}

/// Begins to look after a room. Call within a Tokio runtime. Does nothing if the room is looked after, or too many are.
pub(crate) fn look_after(app: &Arc<App>, room: &RoomName, stay: Stay) {
    let mut rooms = app.gates.rooms.write();
    if let Some(watch) = rooms.get(room) {
        watch.stays.fetch_or(stay == Stay::Always, Ordering::Relaxed);
        return;
    }
    if WATCHES_MAX <= rooms.len() && stay == Stay::WhileAsked {
        return;
    }
    let now = Instant::now();
    // Until the first look, the passes that were made from now on count.
    let live = LiveAdmissions { admissions: Vec::new(), as_of: app.backend.now() };
    let state = State { mode: GateMode::Judging, heard_at: now, asked_at: now, live };
    let watch = Arc::new(RoomWatch {
        room: room.clone(),
        state: Mutex::new(state),
        stays: AtomicBool::new(stay == Stay::Always),
        look: Notify::new(),
    });
    app.metrics.gate.begun(GateMode::Judging);
    rooms.insert(room.clone(), Arc::clone(&watch));
    drop(rooms);
    tokio::spawn(run(Arc::downgrade(app), watch));
}

/// What the store says to a look.
enum Answer {
    /// The admissions that have not ended.
    Live(LiveAdmissions),
    /// It has too much to do, and is not away.
    Busy,
    Silence,
}

/// Asks the store for the admissions that have not ended.
async fn look(app: &App, room: &RoomName, within: Duration) -> Answer {
    match timeout(within, app.rooms.admissions(room)).await {
        // An embedded store whose disk has failed answers from memory, but admits no visitor any more.
        Ok(Ok(Ok(live))) if app.backend.fault().is_none() => Answer::Live(live),
        // A room that is gone has no admissions.
        Ok(Ok(Err(_))) => Answer::Live(LiveAdmissions { admissions: Vec::new(), as_of: Timestamp::MAX }),
        Ok(Err(StoreError::Busy { .. })) => Answer::Busy,
        Ok(_) | Err(_) => Answer::Silence,
    }
}

/// Looks after a room until no gate asks for it, or the service has ended.
async fn run(app: Weak<App>, watch: Arc<RoomWatch>) {
    loop {
        let wait = {
            let Some(app) = app.upgrade() else { return };
            let policy = app.config.grace;
            // No look goes on past the end of the grace, which is told in time.
            let heard = look(&app, &watch.room, LOOK_WITHIN.min(watch.grace_left(policy, Instant::now()))).await;
            let now = Instant::now();
            if let Some((before, after)) = watch.note(heard, policy, now) {
                app.metrics.gate.changed(before, after);
                tell(&watch.room, policy, after);
            }
            if app.gates.forget_unasked(&watch, now) {
                app.metrics.gate.ended(watch.mode());
                return;
            }
            LOOK_EVERY.min(watch.grace_left(policy, now))
        };
        sleep(LOOK_PAUSE.min(wait)).await;
        // A visitor whose pass was not judged cuts the wait short.
        let _ = timeout(wait.saturating_sub(LOOK_PAUSE), watch.look.notified()).await;
    }
}

/// Logs a change of the mode.
fn tell(room: &RoomName, GracePolicy { grace, .. }: GracePolicy, mode: GateMode) {
    match mode {
        GateMode::Judging => tracing::info!(%room, "the store answers again: the gate judges each pass"),
        GateMode::Grace => tracing::warn!(
            %room, ?grace, "the store gives no answer: visitors whose admission had not ended go on for the grace"
        ),
        GateMode::Closed => tracing::error!(
            %room, ?grace, "the store has given no answer for the grace: the gate lets no visitor in"
        ),
        GateMode::Open => tracing::error!(
            %room, ?grace, "the store has given no answer for the grace: the gate lets all visitors in"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::OnLoss;
    use super::*;

    const AS_OF_US: i64 = 1_893_456_000_000_000;

    fn number(number: u32) -> TicketNumber {
        TicketNumber::new(number).unwrap()
    }

    fn live(admissions: &[(u32, u64)]) -> LiveAdmissions {
        let admissions = admissions.iter().map(|&(ticket, slot)| (number(ticket), slot)).collect();
        LiveAdmissions { admissions, as_of: Timestamp::clamped_us(AS_OF_US) }
    }

    fn watch() -> RoomWatch {
        let now = Instant::now();
        let state = State { mode: GateMode::Judging, heard_at: now, asked_at: now, live: live(&[(3, 1), (7, 4)]) };
        let room = RoomName::parse("sale").unwrap();
        RoomWatch { room, state: Mutex::new(state), stays: AtomicBool::new(false), look: Notify::new() }
    }

    fn grant(ticket: u32, slot: u64, issued_us: i64) -> Grant {
        Grant {
            room: RoomName::parse("sale").unwrap(),
            number: ticket,
            slot,
            user: None,
            issued_at: Timestamp::clamped_us(issued_us),
            expires_at: Timestamp::MAX,
        }
    }

    #[test]
    fn an_admission_counts_that_the_store_had_or_that_came_later() {
        let (watch, before) = (watch(), AS_OF_US - 60_000_000);
        assert!(watch.had(&grant(7, 4, before)) && watch.had(&grant(3, 1, before)));
        // An earlier slot of the same ticket, and a ticket without a slot.
        assert!(
            !watch.had(&grant(7, 3, before)) && !watch.had(&grant(4, 1, before)) && !watch.had(&grant(0, 1, before))
        );
        assert!(watch.had(&grant(9, 5, AS_OF_US + 1)) && watch.had(&grant(9, 5, AS_OF_US - CLOCKS_US + 1)));
        assert!(!watch.had(&grant(9, 5, AS_OF_US - CLOCKS_US)));
    }

    #[test]
    fn the_mode_follows_the_silence_of_the_store_and_ends_with_its_next_answer() {
        let watch = watch();
        let policy = GracePolicy { grace: Duration::from_secs(30), on_loss: OnLoss::Close };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (judging, grace, closed) = (GateMode::Judging, GateMode::Grace, GateMode::Closed);
        assert_eq!(watch.note(Answer::Live(live(&[])), policy, start), None);
        assert_eq!(watch.note(Answer::Silence, policy, at(3)), Some((judging, grace)));
        assert_eq!(watch.grace_left(policy, at(3)), Duration::from_secs(27));
        assert_eq!(watch.note(Answer::Silence, policy, at(29)), None);
        assert_eq!(watch.note(Answer::Silence, policy, at(30)), Some((grace, closed)));
        assert_eq!(watch.note(Answer::Silence, policy, at(31)), None, "a change is told once");
        assert_eq!(watch.note(Answer::Live(live(&[])), policy, at(32)), Some((closed, judging)));
        assert_eq!(watch.note(Answer::Busy, policy, at(40)), None, "a busy store is not away");
        assert_eq!(
            watch.note(Answer::Silence, policy, at(69)),
            Some((judging, grace)),
            "the grace runs from the last answer on"
        );
        assert_eq!(watch.note(Answer::Busy, policy, at(70)), None, "and stays in the grace while it is busy");
    }

    #[test]
    fn a_room_without_a_gate_of_its_own_is_forgotten_when_no_gate_asks() {
        let (watches, watch) = (GateWatches::default(), Arc::new(watch()));
        watches.rooms.write().insert(watch.room.clone(), Arc::clone(&watch));
        assert!(watches.of(&watch.room).is_some(), "a gate asks");
        let asked = watch.state.lock().asked_at;
        assert!(!watches.forget_unasked(&watch, asked + UNASKED_MAX));
        let later = asked + UNASKED_MAX + Duration::from_secs(1);
        watch.stays.store(true, Ordering::Relaxed);
        assert!(!watches.forget_unasked(&watch, later));
        watch.stays.store(false, Ordering::Relaxed);
        assert!(watches.forget_unasked(&watch, later) && watches.of(&watch.room).is_none());
    }
}
