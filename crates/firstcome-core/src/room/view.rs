//! Answers polls, and records that the ticket's holder is present.
//!
//! The two steps are separate. A replica of the room can answer a poll ([`Room::peek`]) while the contact goes through the
//! room's log and takes effect there ([`Room::contact`]).

use super::line::TicketPlace;
use super::{
    Change, Contact, Departure, Hold, POLL_MS_UNKNOWN, Poll, Room, Sight, Slot, TicketNumber, TicketState, TicketView,
};
use crate::time::{Now, Steady};

/// How many times a visitor polls in the rest of the wait. A visitor who went away silently has then missed three polls well
/// before the turn, and the room passes over the ticket instead of wasting a slot.
const POLLS_LEFT: u64 = 5;
/// The shortest and the longest interval between two polls, before the spread.
const POLL_MS_MIN: u64 = 2_000;
const POLL_MS_MAX: u64 = 60_000;

impl Room {
    /// Returns what the visitor of a ticket sees, and notes the contact. `None` for a number that was never drawn.
    pub fn poll(&mut self, number: TicketNumber, now: Now) -> Option<Poll> {
        let poll = self.peek(number, now);
        self.note(poll, now);
        poll
    }

    /// Returns what [`Self::poll`] returns, without a contact: changes nothing.
    pub fn peek(&self, number: TicketNumber, now: Now) -> Option<Poll> {
        Some(match self.line.place(number.0)? {
            TicketPlace::Gone(how) => Poll::Answer(gone(number.0, how)),
            TicketPlace::Unknown => Poll::Decide,
            TicketPlace::Slot => {
                let (slot, until) = self.slots.get(number.0)?;
                if until <= now.steady || matches!(slot.hold, Hold::Offered { .. }) {
                    return Some(Poll::Decide);
                }
                Poll::Answer(self.admitted(number.0, now)?)
            }
            TicketPlace::Waiting if self.is_silent(number.0, now) => Poll::Decide,
            TicketPlace::Waiting => Poll::Answer(self.waiting(number.0, now)),
        })
    }

    /// Returns what a look at a ticket shows, without a decision. With [`Contact::Made`] the visitor counts as seen, as
    /// by a poll. `None` for a number that was never drawn.
    pub fn sight(&mut self, number: TicketNumber, contact: Contact, now: Now) -> Option<Sight> {
        let poll = self.peek(number, now)?;
        if contact == Contact::Made {
            self.note(Some(poll), now);
        }
        Some(self.sight_of(number, poll, now))
    }

    /// Returns what [`Self::sight`] returns for a poll that was peeked at.
    pub fn sight_of(&self, number: TicketNumber, poll: Poll, now: Now) -> Sight {
        match poll {
            Poll::Answer(view) if matches!(view.state, TicketState::Waiting { .. }) => Sight::Waiting(view),
            Poll::Answer(_) => Sight::Poll,
            Poll::Decide => match self.slots.get(number.0) {
                Some((Slot { hold: Hold::Offered { until }, .. }, _)) if now.steady < until => Sight::Offered { until },
                _ => Sight::Poll,
            },
        }
    }

    /// Notes the contact of an answered poll: the visitor counts as seen, and one who was passed over is next. Does nothing if
    /// the poll needed a decision, or if the ticket is gone.
    pub fn contact(&mut self, number: TicketNumber, now: Now) {
        let poll = self.peek(number, now);
        self.note(poll, now);
    }

    fn note(&mut self, poll: Option<Poll>, now: Now) {
        let Some(Poll::Answer(view)) = poll else { return };
        match view.state {
            TicketState::InDraw { .. } | TicketState::Waiting { .. } => self.note_waiting(view, now),
            TicketState::Admitted { .. } => self.slots.touch(view.number.0, now.steady),
            TicketState::Gone(_) => {}
        }
    }

    /// Notes the contacts of many visitors: bit `i` stands for the visitor of `first_number + i`. Each of them who waits counts
    /// as seen, with the last poll interval, and is next if the ticket was passed over. No other ticket changes. Nor does the
    /// ticket of a visitor whose silence was too long before.
    pub fn alive(&mut self, first_number: u32, bits: &[u64; 64], now: Now) {
        for (word, &bits) in bits.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let at = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let Some(number) = first_number.checked_add(at) else { return };
                if self.line.place(number) != Some(TicketPlace::Waiting) || self.is_silent(number, now) {
                    continue;
                }
                let polled_ms = self.line.polled_ms(number);
                self.line.touch(number, now.steady, polled_ms);
                self.note_returned(number);
            }
        }
    }

    /// Goes on after a time in which no contact could arrive: since the last tick. It does not count as silence, so a visitor
    /// who was present stays so, and one who was absent too. Slots whose time is over stay over.
    pub fn resumed(&mut self, now: Now) {
        self.line.stood_still(now.steady.since_us(self.ticked), now.steady);
        self.slots.mark_all_present(now.steady);
    }

    /// Marks every visitor as just seen. Visitors who were passed over count as come back. Slots whose time is over stay over.
    pub(super) fn all_seen(&mut self, now: Now) {
        self.line.mark_all_present(now.steady);
        self.slots.mark_all_present(now.steady);
        self.returned = self.line.passed_over().collect();
    }

    /// Polls like [`Self::poll`], and makes the decision: takes an offered slot, and ends what is over. `None` for a number that
    /// was never drawn, and for one that is unknown since a loss: use [`Self::readmit`] for it.
    pub fn decide(&mut self, number: TicketNumber, now: Now, changes: &mut Vec<Change>) -> Option<TicketView> {
        match self.line.place(number.0)? {
            TicketPlace::Unknown => None,
            _ => Some(self.look(number.0, now, changes)),
        }
    }

    pub(super) fn look(&mut self, number: u32, now: Now, changes: &mut Vec<Change>) -> TicketView {
        self.settle(number, now, changes);
        if let Some((slot, _)) = self.slots.get(number)
            && let Hold::Offered { .. } = slot.hold
        {
            let until = now.steady.plus_ms(self.settings.active_ttl_ms);
            self.slots.put(number, Slot { hold: Hold::Taken { until }, ..slot }, now.steady);
            self.steering.came(slot.admission);
            self.meter.came(now.steady);
            changes.push(Change::Taken { number: TicketNumber(number), until });
        }
        match self.line.place(number) {
            Some(TicketPlace::Waiting) => self.waiting_view(number, now),
            Some(TicketPlace::Gone(how)) => gone(number, how),
            _ => self.admitted_view(number, now).unwrap_or_else(|| gone(number, Departure::Expired)),
        }
    }

    /// Returns when the pass of this admission ends, if the pass is valid. Counts as a contact.
    pub fn check_pass(&mut self, number: TicketNumber, admission: u64, now: Now) -> Option<Steady> {
        let until = self.peek_pass(number, admission, now)?;
        self.slots.touch(number.0, now.steady);
        Some(until)
    }

    /// Returns what [`Self::check_pass`] returns, without a contact: changes nothing.
    pub fn peek_pass(&self, number: TicketNumber, admission: u64, now: Now) -> Option<Steady> {
        let until = self.pass_until(number, admission, now)?;
        Some(self.slots.seen(number.0, now.steady).map_or(until, |(_, until)| until))
    }

    /// Returns all admissions that have not ended, by number: of offered slots too, since their passes come next. A pass of
    /// any other admission is void. Looks at each slot.
    pub fn live_admissions(&self, now: Now) -> Vec<(TicketNumber, u64)> {
        let mut admissions: Vec<_> =
            self.slots.alive(now.steady).map(|(number, admission)| (TicketNumber(number), admission)).collect();
        admissions.sort_unstable();
        admissions
    }

    pub(super) fn pass_until(&self, number: TicketNumber, admission: u64, now: Now) -> Option<Steady> {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::Bug::PassOutlivesSlot) && number.0 < self.line.next() {
            return Some(now.steady.plus_ms(1_000));
        }
        let (slot, until) = self.slots.get(number.0)?;
        let taken = matches!(slot.hold, Hold::Taken { .. });
        (taken && slot.admission == admission && now.steady < until).then_some(until)
    }

    /// Returns whether a visitor in line was silent for longer than the settings allow.
    pub(super) fn is_silent(&self, number: u32, now: Now) -> bool {
        self.settings.waiting_ttl_ms <= self.line.silent_ms(number, now.steady)
            || self.line.is_overdue(number, now.steady)
    }

    fn waiting(&self, number: u32, now: Now) -> TicketView {
        if self.is_before_draw() {
            let entrants = self.line.waiting();
            let wait_ms = self.wait_ms(entrants.div_ceil(2).max(1), now);
            let state = TicketState::InDraw { entrants, wait_ms };
            return TicketView { number: TicketNumber(number), state, poll_after_ms: poll_after_ms(wait_ms, number) };
        }
        let position = self.line.ahead(number);
        let wait_ms = self.wait_ms(position.saturating_add(1), now);
        let poll_after_ms = poll_after_ms(wait_ms, number);
        TicketView { number: TicketNumber(number), state: TicketState::Waiting { position, wait_ms }, poll_after_ms }
    }

    fn note_waiting(&mut self, view: TicketView, now: Now) {
        let number = view.number.0;
        self.note_returned(number);
        self.line.touch(number, now.steady, view.poll_after_ms);
    }

    /// Puts a ticket that was passed over next.
    fn note_returned(&mut self, number: u32) {
        let turn = self.line.turn(number);
        if turn < self.line.reached() {
            self.returned.insert(turn);
        }
    }

    pub(super) fn waiting_view(&mut self, number: u32, now: Now) -> TicketView {
        let view = self.waiting(number, now);
        self.note_waiting(view, now);
        view
    }

    /// Returns the view of an admitted visitor who is seen now.
    fn admitted(&self, number: u32, now: Now) -> Option<TicketView> {
        let (slot, until) = self.slots.seen(number, now.steady)?;
        let left_ms = until.since_us(now.steady) / 1_000;
        let poll_after_ms = (left_ms / 3).clamp(POLL_MS_MIN, POLL_MS_MAX) as u32;
        Some(TicketView { number: TicketNumber(number), state: TicketState::Admitted { slot, until }, poll_after_ms })
    }

    fn admitted_view(&mut self, number: u32, now: Now) -> Option<TicketView> {
        self.slots.touch(number, now.steady);
        self.admitted(number, now)
    }
}

const fn gone(number: u32, how: Departure) -> TicketView {
    TicketView { number: TicketNumber(number), state: TicketState::Gone(how), poll_after_ms: 0 }
}

/// Returns when to poll again: after a fifth of the remaining wait, spread by a fifth either way, so that visitors who came
/// together do not poll together.
pub(super) fn poll_after_ms(wait_ms: Option<u64>, number: u32) -> u32 {
    let base_ms = wait_ms.map_or(POLL_MS_UNKNOWN, |wait_ms| wait_ms / POLLS_LEFT).clamp(POLL_MS_MIN, POLL_MS_MAX);
    let spread = u64::from(number.wrapping_mul(0x9e37_79b9) >> 22);
    let polled_ms = base_ms * (4 * 1_024 + 2 * spread) / (5 * 1_024);
    polled_ms.next_multiple_of(100) as u32
}
