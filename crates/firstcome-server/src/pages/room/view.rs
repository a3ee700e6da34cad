//! What the page of a room says to one visitor. Pure: the room, the place and a language → a [`View`].
//!
//! # Invariants
//! - The HTML and the JSON of a page are made from one view, so both say the same.
//! - A view names no other visitor, and no ticket.

use super::super::language::Language;
use firstcome::core::room::{Departure, RoomState, TicketState};
use firstcome::core::time::Timestamp;
use firstcome::{Claimed, CouponView, RoomSummary, TicketAnswer};
use serde::{Serialize, Serializer};

/// How long a page waits before it asks again, where no place says how long. Milliseconds.
const POLL_AFTER_MS: u32 = 10_000;
/// The same shortly before something opens.
const POLL_AFTER_MS_MIN: u32 = 1_000;
/// The estimate of a wait is told as a range of so much below and above it. Hundredths.
const RANGE: (u64, u64) = (80, 125);
const MINUTE_MS: u64 = 60_000;
/// From this estimate on, waits are told in hours.
const HOURS_FROM_MS: u64 = 90 * MINUTE_MS;

/// What a visitor sees at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pages) enum Phase {
    /// The visitor has no place yet.
    Join,
    /// The visitor has a place, and the room opens later.
    Scheduled,
    /// The visitor takes part in a draw that has not taken place.
    Draw,
    Waiting,
    /// No one is ahead.
    Almost,
    Paused,
    /// The visitor may go in.
    Admitted,
    /// The visitor has no place, and the line takes no more.
    Full,
    /// The place has ended.
    Expired,
    /// The visitor gave the place up.
    Left,
    /// An operator has closed the room.
    Over,
    /// A link offers a place to this browser.
    Offer,
    /// The place moved to another browser.
    Moved,
    /// The browser did not keep the cookie of the place.
    Cookies,
    /// All claims of the coupon are issued.
    SoldOut,
    /// The coupon is over.
    Ended,
    /// The coupon opens later.
    Early,
    /// The visitor may claim.
    Claim,
    /// The visitor has claimed.
    Claimed,
}

impl Phase {
    /// The name in the catalogue, in the JSON and in the page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Scheduled => "scheduled",
            Self::Draw => "draw",
            Self::Waiting => "waiting",
            Self::Almost => "almost",
            Self::Paused => "paused",
            Self::Admitted => "admitted",
            Self::Full => "full",
            Self::Expired => "expired",
            Self::Left => "left",
            Self::Over => "over",
            Self::Offer => "offer",
            Self::Moved => "moved",
            Self::Cookies => "cookies",
            Self::SoldOut => "soldout",
            Self::Ended => "ended",
            Self::Early => "early",
            Self::Claim => "claim",
            Self::Claimed => "claimed",
        }
    }

    /// Whether the organiser's own heading stands here. Other headings say what has happened.
    pub(super) const fn may_be_headed(self) -> bool {
        matches!(self, Self::Join | Self::Waiting)
    }

    const fn has_place(self) -> bool {
        matches!(self, Self::Scheduled | Self::Draw | Self::Waiting | Self::Almost | Self::Paused)
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The place of a visitor.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// There is none, since the visitor has not joined.
    None,
    /// There is none, since the line was full.
    Full,
    /// There is none, since the browser did not keep it.
    Forgotten,
    /// A link offers one.
    Offered,
    /// There is none any more, since another browser took it by a link.
    Moved,
    /// What the store says of a ticket, and the position that it began with.
    Known { answer: &'a TicketAnswer, first_position: u32 },
}

/// What the page says. Absent texts are not shown.
#[derive(Serialize, PartialEq, Eq, Debug)]
pub(in crate::pages) struct View {
    pub(in crate::pages) phase: Phase,
    pub(super) title: String,
    pub(super) lead: String,
    /// Whether the room has a draw, which the visitor can check.
    pub(super) has_draw: bool,
    /// The organiser's words.
    pub(super) message: Option<String>,
    /// How many are ahead, or how many claims are left.
    pub(super) ahead: Option<String>,
    pub(super) wait: Option<String>,
    pub(super) number: Option<String>,
    /// The part of the line that has gone since the visitor joined, in percent.
    pub(super) progress: Option<u32>,
    /// The serial and the code of a claim.
    pub(super) serial: Option<String>,
    /// See [`Self::serial`].
    pub(super) code: Option<String>,
    /// When the room or the coupon opens. Milliseconds since 1970.
    pub(super) opens_at_ms: Option<i64>,
    /// When the slot ends. Milliseconds since 1970.
    pub(super) ends_at_ms: Option<i64>,
    /// The clock of the server, to count down by. Milliseconds since 1970.
    pub(super) now_ms: i64,
    /// When to ask again; absent if nothing more will happen by itself.
    pub(super) poll_after_ms: Option<u32>,
    /// Whether to open the stream of the place instead of asking again.
    pub(super) stream: bool,
    /// Where an admitted visitor goes.
    pub(super) go: Option<String>,
    /// The version of the look: a page of another one loads itself again.
    pub(in crate::pages) look: String,
}

const fn milliseconds(instant: Timestamp) -> i64 {
    instant.as_us().div_euclid(1_000)
}

fn phase_of(state: RoomState, place: Place<'_>) -> Phase {
    if state == RoomState::Closed {
        return Phase::Over;
    }
    let answer = match place {
        Place::None => return Phase::Join,
        Place::Full => return Phase::Full,
        Place::Forgotten => return Phase::Cookies,
        Place::Offered => return Phase::Offer,
        Place::Moved => return Phase::Moved,
        Place::Known { answer, .. } => answer,
    };
    match (answer.state, state) {
        (TicketState::Admitted { .. }, _) => Phase::Admitted,
        (TicketState::Gone(Departure::Left), _) => Phase::Left,
        (TicketState::Gone(Departure::Expired), _) => Phase::Expired,
        (TicketState::InDraw { .. }, _) => Phase::Draw,
        (TicketState::Waiting { .. }, RoomState::Scheduled) => Phase::Scheduled,
        (TicketState::Waiting { .. }, RoomState::Paused) => Phase::Paused,
        (TicketState::Waiting { position: 0, .. }, _) => Phase::Almost,
        (TicketState::Waiting { .. }, _) => Phase::Waiting,
    }
}

/// The text that states the rule of a draw, in the phases that state a rule. `None` if the room has no draw.
fn rule(phase: Phase, room: &RoomSummary) -> Option<&'static str> {
    let draw = room.draw?;
    match (phase, draw.draw) {
        (Phase::Join, None) => Some("draw-lead"),
        (Phase::Join, Some(_)) => Some("late-lead"),
        (Phase::Waiting, Some(_)) => Some("drawn-lead"),
        _ => None,
    }
}

/// Tells a wait as a range, in whole minutes or hours.
fn wait(language: &Language, wait_ms: Option<u64>) -> String {
    let Some(wait_ms) = wait_ms else { return language.text("wait-unknown") };
    if wait_ms < MINUTE_MS {
        return language.text("wait-soon");
    }
    let (key, unit_ms) =
        if wait_ms < HOURS_FROM_MS { ("wait-minutes", MINUTE_MS) } else { ("wait-hours", 60 * MINUTE_MS) };
    let part = |hundredths: u64| wait_ms.saturating_mul(hundredths) / 100;
    let from = (part(RANGE.0) / unit_ms).max(1);
    let to = part(RANGE.1).div_ceil(unit_ms);
    language.with(key, &[("from", from), ("to", to)])
}

impl View {
    /// Builds the view. `back` is the address that the visitor came from.
    pub(super) fn new(language: &Language, room: &RoomSummary, place: Place<'_>, back: Option<&str>) -> Self {
        let phase = phase_of(room.view.state, place);
        let settings = &room.settings;
        let (answer, first_position) = match place {
            Place::Known { answer, first_position } => (Some(answer), first_position),
            _ => (None, 0),
        };
        let waiting = answer.filter(|_| phase.has_place()).and_then(|answer| match answer.state {
            TicketState::Waiting { position, wait_ms } => Some((position, wait_ms)),
            _ => None,
        });
        let position = waiting.map(|(position, _)| position);
        let poll_after_ms = match phase {
            Phase::Left | Phase::Expired | Phase::Cookies | Phase::Offer | Phase::Moved => None,
            Phase::Join | Phase::Full | Phase::Over => Some(POLL_AFTER_MS),
            // The phases of a coupon have no place.
            _ => answer.map(|answer| answer.poll_after_ms),
        };
        let said = |part| language.text(&format!("{}-{part}", phase.name()));
        let entrants = answer.and_then(|answer| match answer.state {
            TicketState::InDraw { entrants, .. } => Some(language.with("entrants", &[("count", entrants.into())])),
            _ => None,
        });
        Self {
            phase,
            title: said("title"),
            lead: rule(phase, room).map_or_else(|| said("lead"), |rule| language.text(rule)),
            has_draw: room.draw.is_some(),
            message: settings.message.as_deref().map(str::to_owned),
            ahead: entrants.or_else(|| position.map(|position| language.with("ahead", &[("count", position.into())]))),
            wait: waiting
                .filter(|_| matches!(phase, Phase::Waiting | Phase::Almost))
                .map(|(_, wait_ms)| wait(language, wait_ms)),
            number: answer.filter(|_| phase.has_place()).map(|answer| language.number(answer.number.get().into())),
            progress: position
                .filter(|position| *position <= first_position && 0 < first_position)
                .map(|position| (u64::from(first_position - position) * 100 / u64::from(first_position)) as u32),
            serial: None,
            code: None,
            opens_at_ms: settings.opens_at.filter(|_| room.view.state == RoomState::Scheduled).map(milliseconds),
            ends_at_ms: answer.filter(|_| phase == Phase::Admitted).and_then(|answer| answer.until).map(milliseconds),
            now_ms: milliseconds(answer.map_or(room.as_of, |answer| answer.as_of)),
            poll_after_ms,
            stream: phase.has_place() && answer.is_some_and(|answer| answer.state.is_near()),
            go: back.or(settings.target_url.as_deref()).filter(|_| phase == Phase::Admitted).map(str::to_owned),
            look: String::new(),
        }
    }

    /// Builds the view of a coupon.
    pub(in crate::pages) fn of_coupon(
        language: &Language,
        phase: Phase,
        coupon: &CouponView,
        claimed: Option<&Claimed>,
        now: Timestamp,
    ) -> Self {
        let said = |part| language.text(&format!("{}-{part}", phase.name()));
        let opens_in_us = coupon.settings.opens_at.map_or(0, |opens_at| opens_at.as_us() - now.as_us());
        let until_opening_ms = u32::try_from(opens_in_us / 1_000).unwrap_or(if opens_in_us < 0 { 0 } else { u32::MAX });
        let left = coupon.settings.limit.get().saturating_sub(coupon.issued);
        Self {
            phase,
            title: said("title"),
            lead: said("lead"),
            has_draw: false,
            message: None,
            ahead: (phase == Phase::Claim).then(|| language.with("remaining", &[("count", left.into())])),
            wait: None,
            number: None,
            progress: None,
            serial: claimed.map(|claimed| language.number(claimed.issued.serial.get().into())),
            code: claimed.map(|claimed| claimed.code.as_str().to_owned()),
            opens_at_ms: coupon.settings.opens_at.filter(|_| phase == Phase::Early).map(milliseconds),
            ends_at_ms: None,
            now_ms: milliseconds(now),
            stream: false,
            poll_after_ms: match phase {
                Phase::Claim => Some(POLL_AFTER_MS),
                // Just after the opening.
                Phase::Early => Some(until_opening_ms.clamp(POLL_AFTER_MS_MIN, POLL_AFTER_MS)),
                _ => None,
            },
            go: None,
            look: String::new(),
        }
    }

    /// Says that the slot of the visitor ends, if it does.
    pub(in crate::pages) fn end_with(&mut self, until: Option<Timestamp>) {
        // One timer at a time: that of the opening comes first.
        self.ends_at_ms = until.filter(|_| self.opens_at_ms.is_none()).map(milliseconds);
    }

    /// Says to a visitor in line that there is nothing left to wait for. The place stays: an operator may raise the limit.
    pub(super) fn end(&mut self, language: &Language, phase: Phase) {
        self.phase = phase;
        self.title = language.text(&format!("{}-title", phase.name()));
        self.lead = language.text(&format!("{}-lead", phase.name()));
        (self.ahead, self.wait, self.number, self.progress, self.opens_at_ms) = (None, None, None, None, None);
        self.stream = false;
    }

    /// Puts the organiser's heading in place of the title, where the phase leaves it to the organiser.
    pub(super) fn head(&mut self, heading: Option<&str>) {
        if let Some(heading) = heading.filter(|_| self.phase.may_be_headed()) {
            self.title = heading.to_owned();
        }
    }

    /// How long until the room opens or the slot ends, as `m:ss` or `h:mm:ss`.
    pub(in crate::pages) fn countdown(&self) -> Option<String> {
        let left_s = (self.opens_at_ms.or(self.ends_at_ms)? - self.now_ms).max(0) / 1_000;
        let (hours, minutes, seconds) = (left_s / 3_600, left_s / 60 % 60, left_s % 60);
        Some(if 0 < hours { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::language::of_tag;
    use super::*;
    use firstcome::core::room::{
        Draw, DrawSeed, DrawView, Hold, RatePace, RateReason, RoomSettings, RoomView, Slot, TicketNumber,
    };
    use firstcome::core::time::Steady;

    const NOW: Timestamp = Timestamp::clamped_us(1_800_000_000_000_000);

    fn summary(state: RoomState) -> RoomSummary {
        let pace = RatePace {
            reason: RateReason::Limit,
            set_per_s: None,
            origin_share: 1.0,
            arrivals_per_s: 0.0,
            no_show_share: None,
            made_up_per_s: 0.0,
        };
        let view = RoomView { state, waiting: 40, active: 1, serving: 2, rate: 1.0, pace, wait_at_tail_ms: None };
        let settings = RoomSettings {
            opens_at: Some(NOW.plus_ms(3_725_000)),
            message: Some("Soon".into()),
            target_url: Some("/shop".into()),
            ..RoomSettings::with_slots(1)
        };
        RoomSummary { settings, view, draw: None, as_of: NOW }
    }

    fn answer(state: TicketState) -> TicketAnswer {
        let until = matches!(state, TicketState::Admitted { .. }).then(|| NOW.plus_ms(61_000));
        let number = TicketNumber::new(1_234).unwrap();
        TicketAnswer { ticket: "secret".into(), number, user: None, state, until, poll_after_ms: 3_000, as_of: NOW }
    }

    const fn in_line(position: u32, wait_ms: u64) -> TicketState {
        TicketState::Waiting { position, wait_ms: Some(wait_ms) }
    }

    fn admitted() -> TicketState {
        let until = Steady::from_us(0);
        let slot = Slot { admission: 7, admitted_at: NOW, hold: Hold::Taken { until } };
        TicketState::Admitted { slot, until }
    }

    fn seen(state: RoomState, ticket: TicketState, back: Option<&str>) -> View {
        let place = Place::Known { answer: &answer(ticket), first_position: 40 };
        View::new(of_tag("en").unwrap(), &summary(state), place, back)
    }

    #[test]
    fn each_state_of_room_and_place_has_its_phase() {
        let left = TicketState::Gone(Departure::Left);
        let expired = TicketState::Gone(Departure::Expired);
        let cases = [
            (RoomState::Open, in_line(3, 1), Phase::Waiting),
            (RoomState::Open, in_line(0, 1), Phase::Almost),
            (RoomState::Paused, in_line(0, 1), Phase::Paused),
            (RoomState::Scheduled, in_line(3, 1), Phase::Scheduled),
            (RoomState::Closed, in_line(3, 1), Phase::Over),
            (RoomState::Closed, expired, Phase::Over),
            (RoomState::Paused, admitted(), Phase::Admitted),
            (RoomState::Open, left, Phase::Left),
            (RoomState::Open, expired, Phase::Expired),
        ];
        for (state, ticket, phase) in cases {
            assert_eq!(seen(state, ticket, None).phase, phase, "{state:?} {ticket:?}");
        }
        let without = |place| View::new(of_tag("en").unwrap(), &summary(RoomState::Open), place, None).phase;
        assert_eq!(
            [Place::None, Place::Full, Place::Forgotten].map(without),
            [Phase::Join, Phase::Full, Phase::Cookies]
        );
    }

    #[test]
    fn a_visitor_in_line_reads_the_position_the_progress_and_a_range() {
        let view = seen(RoomState::Open, in_line(10, 10 * MINUTE_MS), None);
        assert_eq!(view.ahead.as_deref(), Some("10 people ahead of you"));
        assert_eq!(view.wait.as_deref(), Some("8–13 minutes"));
        assert_eq!((view.progress, view.number.as_deref()), (Some(75), Some("1234")));
        assert_eq!((view.message.as_deref(), view.go, view.ends_at_ms), (Some("Soon"), None, None));
        let told = |wait_ms| seen(RoomState::Open, in_line(1, wait_ms), None).wait.unwrap();
        assert_eq!(told(MINUTE_MS - 1), "less than a minute");
        assert_eq!(told(90 * MINUTE_MS), "1–2 hours");
        assert_eq!(told(u64::MAX).split('–').count(), 2);
        // The line grew behind a lost place: no progress is told instead of a wrong one.
        assert_eq!(seen(RoomState::Open, in_line(41, 1), None).progress, None);
    }

    #[test]
    fn an_admitted_visitor_goes_back_to_where_the_visit_began() {
        assert_eq!(seen(RoomState::Open, admitted(), None).go.as_deref(), Some("/shop"));
        let view = seen(RoomState::Open, admitted(), Some("/cart?x=1"));
        assert_eq!(view.go.as_deref(), Some("/cart?x=1"));
        assert_eq!((view.countdown().as_deref(), view.number, view.ahead), (Some("1:01"), None, None));
    }

    #[test]
    fn a_scheduled_room_counts_down_and_tells_no_wait() {
        let view = seen(RoomState::Scheduled, in_line(3, MINUTE_MS), None);
        assert_eq!((view.countdown().as_deref(), view.wait), (Some("1:02:05"), None));
        assert_eq!(seen(RoomState::Open, in_line(3, MINUTE_MS), None).opens_at_ms, None);
    }

    #[test]
    fn a_draw_states_its_rule_before_and_after() {
        let seen = |draw: Option<Draw>, state, ticket| {
            let view = DrawView { commitment: [0; 32], draw };
            let room = RoomSummary { draw: Some(view), ..summary(state) };
            let (answer, language) = (answer(ticket), of_tag("en").unwrap());
            let joined = View::new(language, &room, Place::None, None);
            (View::new(language, &room, Place::Known { answer: &answer, first_position: 0 }, None), joined)
        };
        let in_draw = TicketState::InDraw { entrants: 1_200, wait_ms: Some(MINUTE_MS) };
        let (view, join) = seen(None, RoomState::Scheduled, in_draw);
        assert_eq!((view.phase, view.ahead.as_deref()), (Phase::Draw, Some("1200 people are in the draw")));
        assert_eq!((view.countdown().as_deref(), view.wait, view.progress), (Some("1:02:05"), None, None));
        assert_eq!((view.has_draw, &view.lead), (true, &join.lead));
        let drawn = Draw { seed: DrawSeed::new([1; 32]), first: 1, entrants: 9, drawn_at: NOW };
        let (view, late) = seen(Some(drawn), RoomState::Open, in_line(4, 1));
        assert_eq!((view.phase, view.ahead.as_deref()), (Phase::Waiting, Some("4 people ahead of you")));
        assert!(view.lead != join.lead && late.lead != join.lead && late.lead != view.lead);
    }

    #[test]
    fn a_view_names_no_ticket() {
        let text = serde_json::to_string(&seen(RoomState::Open, admitted(), None)).unwrap();
        assert!(text.contains("\"phase\":\"admitted\"") && !text.contains("secret"), "{text}");
    }
}
