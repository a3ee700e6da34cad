//! The suite of [`RoomStore`].
//!
//! Only [`Bench`] knows the port. Cases write commands as [`Step`]s and replies as texts. `new 1 waiting 0` is the
//! first number with no visitor ahead, and `2 admitted 1@50 until 80` the slot of admission 1, given at 50.
//!
//! A store admits by itself, at any time. So the suite lets it do what is due after every move of the clock and after
//! every command. A tick of the store in between then finds nothing to do.

mod cancelled;
mod concurrent;
mod draw;
mod first_poll;
mod handed_off;
mod oracle;
mod renewed;
mod reopened;
mod rows;
mod time;

use crate::edge::{Clock, ManualClock};
use crate::port::Put;
use crate::room::{Joining, RoomAnswer, RoomStore, TicketAnswer};
use firstcome_core::id::{RequestId, RoomName, UserId};
use firstcome_core::limits::APPEARANCE_LOGO_BYTES_MAX;
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::{Appearance, Color, Colors, Logo, Texts};
use firstcome_core::room::{
    Departure, Join, OriginReport, RatePace, Rejection, RenewalKey, RoomSettings, RoomView, TicketNumber, TicketState,
};
use firstcome_core::time::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// Tests a store: the order of all checks, numbers, positions, admission by rate and by slots, claim windows, ends,
/// absence, passes and their secrets, closing, concurrency, dropped futures, renewed tickets, and random commands against the rules.
///
/// `new_store` returns an empty store on the passed clock; it is called once per case.
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn room<S, F, Fut>(new_store: F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    macro_rules! run {
        ($($case:path),+ $(,)?) => { $($case(Bench::new(&new_store, 0).await).await;)+ };
    }
    run!(
        rows::an_unknown_room_is_refused_everywhere,
        rows::joins_are_checked_in_the_documented_order,
        rows::numbers_are_drawn_in_order_and_a_repeat_draws_none,
        rows::tickets_that_are_none_are_refused,
        rows::a_full_line_takes_nobody_until_somebody_goes,
        rows::who_leaves_makes_room_and_is_not_counted,
        rows::a_closed_room_is_void_and_opens_again_with_higher_numbers,
        rows::rooms_do_not_touch_each_other,
        rows::settings_are_shown_as_they_were_put,
        rows::an_appearance_is_shown_as_it_was_put,
        rows::a_revision_replaces_only_what_it_names,
        rows::secrets_are_kept_as_long_as_a_pass_may_live,
        rows::a_revoked_secret_is_gone_and_another_one_signs,
        time::an_offer_is_taken_by_a_poll_or_lapses,
        time::a_slot_ends_at_its_instant_and_its_pass_with_it,
        time::an_idle_slot_ends_unless_it_is_heard_of,
        time::a_slot_that_was_told_to_be_over_stays_over,
        time::a_release_frees_one_admission_only,
        time::nobody_is_admitted_before_the_opening_or_in_a_pause,
        time::the_rate_is_kept_and_what_was_not_used_is_lost,
        time::the_absent_are_passed_over_and_next_when_they_return,
        time::who_is_silent_too_long_is_gone,
        time::setting_the_wall_clock_moves_no_lease,
        first_poll::who_never_polls_is_gone_soon_and_others_stay,
        renewed::a_renewed_ticket_is_refused_and_the_new_one_has_the_place,
        renewed::a_renewal_takes_the_slot_and_keeps_the_pass,
        renewed::one_of_many_renewals_at_once_gets_the_place,
        handed_off::a_code_moves_the_place_of_a_visitor_inside_once,
        handed_off::a_code_ends_after_its_time_and_with_the_slot,
        handed_off::one_of_many_sites_at_once_redeems_a_code,
        draw::a_draw_gives_each_entrant_a_place_and_latecomers_come_behind,
        time::reports_of_the_origin_lower_the_rate_and_it_recovers,
        concurrent::numbers_drawn_at_once_have_no_gap,
        concurrent::one_user_at_once_has_one_place,
        concurrent::repeats_at_once_have_one_effect,
        concurrent::slots_are_never_more_than_the_cap,
        concurrent::positions_fall_while_people_leave,
        cancelled::joins_that_were_dropped_are_done_or_not_done,
        oracle::random_commands_are_answered_as_by_the_rules,
    );
}

/// Tests that a durable store, after it was closed and opened again, still knows everything that it replied. Its leases
/// must go on as if the clock had not been set.
///
/// `open` opens the same data each time. The suite drops every handle of a store before it opens the next one, and
/// passes a fresh clock.
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn room_reopens<S, F, Fut>(open: F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    reopened::everything_told_is_still_there(&open).await;
    reopened::leases_go_on_whatever_the_wall_clock_shows(&open).await;
    reopened::secrets_and_closed_rooms_come_back(&open).await;
    reopened::a_long_line_comes_back_exactly(&open).await;
    reopened::an_appearance_comes_back(&open).await;
    draw::a_draw_outlives_the_store(&open).await;
    first_poll::a_store_that_was_opened_again_gives_the_time_afresh(&open).await;
    renewed::renewals_come_back(&open).await;
}

/// One command of a row. Numbers name the tickets.
#[derive(Clone, Debug)]
enum Step {
    Put(RoomSettings),
    Close,
    View,
    Join {
        user: Option<String>,
        request: Option<RequestId>,
    },
    Poll(u32),
    Leave(u32),
    /// The newest ticket of the number, and the key of the request.
    Renew(u32, u128),
    Release(u32, u64),
    Check(u32, u64),
    Admissions,
    Report(OriginReport),
}

/// The instant in milliseconds, the command, and the wanted reply.
type Row<'a> = (i64, Step, &'a str);

/// A reply: the words that rows compare, and the rest, which only the rules can predict.
#[derive(PartialEq, Eq, Debug)]
struct RoomReply {
    words: String,
    rest: String,
}

/// The known tickets, by room and number.
type Tickets = Arc<Mutex<BTreeMap<(RoomName, u32), Box<str>>>>;

/// A store under test, with all tickets that it has issued.
struct Bench<S> {
    store: Arc<S>,
    clock: Arc<ManualClock>,
    tickets: Tickets,
}

impl<S> Clone for Bench<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), clock: Arc::clone(&self.clock), tickets: Arc::clone(&self.tickets) }
    }
}

impl<S: RoomStore + 'static> Bench<S> {
    async fn new<F, Fut>(new_store: &F, now_ms: i64) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let clock = Arc::new(ManualClock::new(at(now_ms)));
        let store = Arc::new(new_store(Arc::clone(&clock)).await);
        Self { store, clock, tickets: Arc::default() }
    }

    /// Opens the store again, and keeps the known tickets.
    async fn reopen<F, Fut>(self, open: &F, now_ms: i64) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let Self { store, clock, tickets } = self;
        drop((store, clock));
        Self { tickets, ..Self::new(open, now_ms).await }
    }

    /// Lets time pass until `now_ms`, and lets the store do what is due.
    async fn set(&self, now_ms: i64) {
        self.clock.set(at(now_ms));
        self.tick().await;
    }

    async fn tick(&self) {
        self.store.tick().await.expect("the store answers");
    }

    /// Runs the rows on one room.
    async fn check(&self, room: &str, rows: &[Row<'_>]) {
        let name = name(room);
        for (row, (now, step, wanted)) in rows.iter().enumerate() {
            self.set(*now).await;
            let told = self.apply(&name, step).await;
            self.tick().await;
            assert_eq!(told.words, *wanted, "{room}, row {row}: {step:?} at {now}");
        }
    }

    async fn put(&self, room: &RoomName, settings: RoomSettings) {
        let put = answered(self.store.put_room(room, settings).await);
        assert!(put.is_ok(), "{room:?}: {put:?}");
    }

    async fn join(&self, room: &RoomName, join: Join) -> Result<(Joining, TicketAnswer), Rejection> {
        let answer = answered(self.store.join(room, join).await);
        if let Ok((_, told)) = &answer {
            self.note(room, told);
        }
        answer
    }

    async fn poll(&self, room: &RoomName, number: u32) -> Result<TicketAnswer, Rejection> {
        let answer = answered(self.store.poll(room, &self.ticket(room, number)).await);
        if let Ok(told) = &answer {
            self.note(room, told);
        }
        answer
    }

    /// Checks that all replies about a number show the same ticket, and that no two numbers or rooms share one.
    fn note(&self, room: &RoomName, told: &TicketAnswer) {
        let place = (room.clone(), told.number.get());
        let mut tickets = self.tickets.lock();
        if let Some(known) = tickets.get(&place) {
            assert_eq!(known, &told.ticket, "{place:?} was told two tickets");
            return;
        }
        let other = tickets.iter().find(|(_, ticket)| **ticket == told.ticket);
        assert!(other.is_none() || 1_000 < tickets.len(), "{place:?} has the ticket of {other:?}");
        tickets.insert(place, told.ticket.clone());
    }

    /// Returns the ticket of a number; an invalid ticket if the number was not drawn.
    fn ticket(&self, room: &RoomName, number: u32) -> Box<str> {
        self.tickets.lock().get(&(room.clone(), number)).cloned().unwrap_or_else(|| "A".repeat(27).into())
    }

    /// Sends one command to the store, and returns its reply as a text.
    async fn apply(&self, room: &RoomName, step: &Step) -> RoomReply {
        match step {
            Step::Put(settings) => describe_put(answered(self.store.put_room(room, settings.clone()).await)),
            Step::Close => describe_done(answered(self.store.close_room(room).await), "closed"),
            Step::View => describe_view(answered(self.store.room(room).await).map(|summary| summary.view)),
            Step::Join { user, request } => describe_join(self.join(room, join(user.as_deref(), *request)).await),
            Step::Poll(number) => describe_ticket(self.poll(room, *number).await),
            Step::Renew(number, key) => describe_ticket(self.renew(room, *number, *key).await),
            Step::Leave(number) => {
                let ticket = self.ticket(room, *number);
                describe_done(answered(self.store.leave(room, &ticket).await), "left")
            }
            Step::Release(number, admission) => {
                describe_done(answered(self.store.release(room, of(*number), *admission).await), "released")
            }
            Step::Report(report) => describe_pace(answered(self.store.report_origin(room, *report).await)),
            Step::Check(number, admission) => {
                let answer = answered(self.store.check_pass(room, of(*number), *admission).await);
                describe_check(answer.map(|check| check.map(|check| check.until)))
            }
            Step::Admissions => {
                describe_admissions(answered(self.store.admissions(room).await).map(|live| live.admissions))
            }
        }
    }
}

/// Unwraps the reply of a store without a fault.
fn answered<T>(answer: RoomAnswer<T>) -> Result<T, Rejection> {
    answer.expect("the store answers")
}

fn words(words: impl Into<String>) -> RoomReply {
    RoomReply { words: words.into(), rest: String::new() }
}

fn describe_refused(rejection: Rejection) -> RoomReply {
    let rest = match rejection {
        Rejection::Full { retry_after_ms } => format!("retry after {retry_after_ms}"),
        Rejection::KeyReused(number) => format!("of {}", number.get()),
        _ => String::new(),
    };
    RoomReply { words: rejection.code().to_owned(), rest }
}

fn describe_put(answer: Result<Put, Rejection>) -> RoomReply {
    match answer {
        Ok(Put::Created) => words("created"),
        Ok(Put::Replaced) => words("replaced"),
        Err(rejection) => describe_refused(rejection),
    }
}

fn describe_done(answer: Result<(), Rejection>, done: &str) -> RoomReply {
    answer.map_or_else(describe_refused, |()| words(done))
}

fn describe_check(answer: Result<Option<Timestamp>, Rejection>) -> RoomReply {
    match answer {
        Ok(Some(until)) => words(format!("valid until {}", ms(until))),
        Ok(None) => words("not valid"),
        Err(rejection) => describe_refused(rejection),
    }
}

fn describe_admissions(answer: Result<Vec<(TicketNumber, u64)>, Rejection>) -> RoomReply {
    let described = |admissions: Vec<(TicketNumber, u64)>| {
        let each: Vec<_> =
            admissions.iter().map(|(number, admission)| format!("{}@{admission}", number.get())).collect();
        words(format!("admitted {}", each.join(" ")))
    };
    answer.map_or_else(describe_refused, described)
}

fn describe_pace(answer: Result<RatePace, Rejection>) -> RoomReply {
    match answer {
        // Rounded as the service rounds it: to round twice in two ways would differ at a half.
        Ok(pace) => words(format!("{:.3} of the limit", (pace.origin_share * 1_000.0).round() / 1_000.0)),
        Err(rejection) => describe_refused(rejection),
    }
}

fn describe_view(answer: Result<RoomView, Rejection>) -> RoomReply {
    match answer {
        Ok(view) => {
            let RoomView { state, waiting, active, serving, rate, pace, wait_at_tail_ms } = view;
            let words = format!("{} {waiting} waiting {active} active serving {serving}", state.as_str());
            RoomReply { words, rest: format!("{rate} {wait_at_tail_ms:?} {}", pace.reason.as_str()) }
        }
        Err(rejection) => describe_refused(rejection),
    }
}

fn describe_join(answer: Result<(Joining, TicketAnswer), Rejection>) -> RoomReply {
    match answer {
        Ok((joining, told)) => {
            let how = match joining {
                Joining::New => "new",
                Joining::SameRequest => "again",
                Joining::SameUser => "same user",
            };
            let ticket = describe_ticket(Ok(told));
            RoomReply { words: format!("{how} {}", ticket.words), ..ticket }
        }
        Err(rejection) => describe_refused(rejection),
    }
}

fn describe_ticket(answer: Result<TicketAnswer, Rejection>) -> RoomReply {
    let told = match answer {
        Ok(told) => told,
        Err(rejection) => return describe_refused(rejection),
    };
    let number = told.number.get();
    match told.state {
        TicketState::InDraw { entrants, wait_ms } => RoomReply {
            words: format!("{number} in the draw of {entrants}"),
            rest: format!("{wait_ms:?} ask after {} at {:?}", told.poll_after_ms, told.as_of),
        },
        TicketState::Waiting { position, wait_ms } => RoomReply {
            words: format!("{number} waiting {position}"),
            rest: format!("{wait_ms:?} ask after {} at {:?}", told.poll_after_ms, told.as_of),
        },
        TicketState::Admitted { slot, .. } => {
            let until = told.until.map_or(0, ms);
            RoomReply {
                words: format!("{number} admitted {}@{} until {until}", slot.admission, ms(slot.admitted_at)),
                rest: format!("{:?} ask after {} at {:?}", told.user, told.poll_after_ms, told.as_of),
            }
        }
        TicketState::Gone(Departure::Left) => words(format!("{number} left")),
        TicketState::Gone(Departure::Expired) => words(format!("{number} expired")),
    }
}

fn at(unix_ms: i64) -> Timestamp {
    Timestamp::clamped_us(unix_ms * 1_000)
}

const fn ms(at: Timestamp) -> i64 {
    at.as_us() / 1_000
}

fn name(text: &str) -> RoomName {
    RoomName::parse(text).expect("the suite's names are valid")
}

fn of(number: u32) -> TicketNumber {
    TicketNumber::new(number).expect("the suite's numbers are valid")
}

fn key(key: u128, body: u64) -> Option<RequestId> {
    Some(RequestId { key, body })
}

fn join(user: Option<&str>, request: Option<RequestId>) -> Join {
    Join { user: user.map(|user| UserId::parse(user).expect("the suite's names are valid")), request }
}

const fn anybody() -> Step {
    Step::Join { user: None, request: None }
}

fn user(user: &str) -> Step {
    Step::Join { user: Some(user.to_owned()), request: None }
}

fn keyed(user: Option<&str>, of_key: u128, body: u64) -> Step {
    Step::Join { user: user.map(str::to_owned), request: key(of_key, body) }
}

/// Returns settings with this many slots of 30 s, and 10 s to take one.
fn slots(max_active: u32) -> RoomSettings {
    RoomSettings { active_ttl_ms: 30_000, claim_window_ms: 10_000, ..RoomSettings::with_slots(max_active) }
}

/// Returns settings of a paused room.
/// A look with everything that one can have. `title` tells looks apart.
fn look(title: &str) -> Appearance {
    let texts = |title: &str| Texts { title: Some(title.into()), next: Some("<b>".into()), ..Texts::default() };
    let color = |text| Color::parse(text).expect("a color");
    let colors = Colors { accent: color("#0b6e5f"), background: color("#ffffff"), text: color("#16202c") };
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.extend((picture.len()..APPEARANCE_LOGO_BYTES_MAX).map(|at| at as u8));
    Appearance {
        texts: texts(title),
        translations: BTreeMap::from([("ko".into(), texts("봄 콘서트"))]),
        colors: Some(colors),
        dark_colors: Some(Colors { accent: colors.background, background: colors.text, text: colors.background }),
        style: Some("main { border-radius: 0 } /* \\ ' */".into()),
        logo: Some(Logo::new(&picture).expect("a logo")),
    }
}

fn paused() -> RoomSettings {
    RoomSettings { paused: true, ..slots(1) }
}
