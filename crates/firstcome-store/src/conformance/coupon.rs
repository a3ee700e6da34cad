//! The suite of [`CouponStore`].
//!
//! Only [`Bench`] knows the port. Cases write commands as [`Step`]s and replies as texts: the stable code with its
//! values. `new 1@10` is serial 1 issued at 10, and `already_issued 1@10` names that claim.

mod cancelled;
mod concurrent;
mod oracle;
mod reopened;
mod rows;
mod setting;

use crate::edge::ManualClock;
use crate::port::{Answer, ClaimRecord, Claimed, CouponStore, CouponView, Page, Put, RedeemRequest, Refused};
use firstcome_core::coupon::{Attributes, Claim, CouponLimit, CouponSettings, Effect, Issued, Rejection, Serial};
use firstcome_core::id::{CouponName, RequestId, UserId};
use firstcome_core::time::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// Tests a store: the order of all checks, exactness and order under concurrency, repeats, redemptions, pages,
/// settings, dropped futures, and random commands against the rules themselves.
///
/// `new_store` returns an empty store on the passed clock; it is called once per case.
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn coupon<S, F, Fut>(new_store: F)
where
    S: CouponStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    macro_rules! run {
        ($($case:path),+ $(,)?) => { $($case(Bench::new(&new_store).await).await;)+ };
    }
    run!(
        rows::claims_are_checked_in_the_documented_order,
        rows::issuing_has_a_first_and_a_last_instant,
        rows::the_last_coupon_goes_to_one,
        rows::a_repeat_has_no_second_effect,
        rows::an_unknown_coupon_is_refused_everywhere,
        rows::redemptions_are_checked_in_the_documented_order,
        rows::a_closed_coupon_is_redeemed_all_the_same,
        rows::a_repeated_redemption_has_no_second_effect,
        rows::codes_are_forgiving_and_fit_one_coupon_only,
        rows::a_claim_is_shown_with_all_that_belongs_to_it,
        rows::pages_hold_all_claims_in_order,
        setting::a_limit_is_raised_and_lowered_to_what_is_issued,
        setting::the_room_is_fixed_by_the_first_claim,
        setting::settings_are_replaced_as_a_whole,
        setting::a_revision_replaces_only_what_it_names,
        setting::a_deleted_name_is_never_used_again,
        setting::the_state_follows_the_clock,
        setting::coupons_do_not_touch_each_other,
        concurrent::a_thousand_at_once_get_exactly_the_limit,
        concurrent::one_user_at_once_gets_one,
        concurrent::repeats_at_once_have_one_effect,
        concurrent::the_last_one_has_one_winner,
        concurrent::serials_follow_real_time,
        concurrent::readers_see_a_growing_prefix,
        concurrent::a_limit_lowered_at_once_is_kept,
        concurrent::a_limit_raised_at_once_is_filled,
        concurrent::a_coupon_deleted_at_once_issues_no_more,
        concurrent::a_code_redeemed_at_once_has_one_winner,
        cancelled::claims_that_were_dropped_are_done_or_not_done,
        cancelled::redemptions_that_were_dropped_are_done_or_not_done,
        oracle::random_commands_are_answered_as_by_the_rules,
    );
}

/// Tests that a durable store, after it was closed and opened again, still knows everything that it replied.
///
/// `open` opens the same data each time. The suite drops every handle of a store before it opens the next one, and
/// passes a fresh clock, which may be behind the last one.
///
/// # Panics
/// At the first broken promise, with the command and the reply.
pub async fn coupon_reopens<S, F, Fut>(open: F)
where
    S: CouponStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    reopened::everything_told_is_still_there(&open).await;
    reopened::many_claims_come_back_exactly(&open).await;
    reopened::random_histories_go_on_as_if_nothing_had_happened(&open).await;
}

/// One command of a row.
#[derive(Clone, Debug)]
enum Step {
    Put(CouponSettings),
    Delete,
    View,
    Claim { user: String, request: Option<RequestId>, attributes: Option<String> },
    Redeem { code: Code, user: Option<String>, request: Option<RequestId> },
    ClaimOf(String),
    Claims { after: Option<u32>, count: usize },
}

/// A code, by the serial of its claim or as a text.
#[derive(Clone, Debug)]
enum Code {
    Of(u32),
    Text(String),
}

/// The instant, the command, and the wanted reply.
type Row<'a> = (i64, Step, &'a str);

/// A store under test, with all codes that it has issued.
struct Bench<S> {
    store: Arc<S>,
    clock: Arc<ManualClock>,
    codes: Arc<Mutex<Codes>>,
}

/// The code of each claim, and the claim of each code.
#[derive(Default)]
struct Codes {
    of: BTreeMap<(CouponName, Serial), String>,
    owner: BTreeMap<String, (CouponName, Serial)>,
}

impl<S> Clone for Bench<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), clock: Arc::clone(&self.clock), codes: Arc::clone(&self.codes) }
    }
}

impl<S: CouponStore + 'static> Bench<S> {
    async fn new<F, Fut>(new_store: &F) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let clock = Arc::new(ManualClock::new(at(0)));
        let store = Arc::new(new_store(Arc::clone(&clock)).await);
        Self { store, clock, codes: Arc::default() }
    }

    /// Opens the store again, and keeps the known codes.
    async fn reopen<F, Fut>(self, open: &F) -> Self
    where
        F: Fn(Arc<ManualClock>) -> Fut,
        Fut: Future<Output = S>,
    {
        let Self { store, clock, codes } = self;
        drop((store, clock));
        Self { codes, ..Self::new(open).await }
    }

    /// Runs the rows on one coupon.
    async fn check(&self, coupon: &str, rows: &[Row<'_>]) {
        let name = name(coupon);
        for (row, (now, step, wanted)) in rows.iter().enumerate() {
            self.clock.set(at(*now));
            let told = self.apply(&name, step).await;
            assert_eq!(told, *wanted, "{coupon}, row {row}: {step:?} at {now}");
        }
    }

    /// Puts a coupon with a limit and no other settings.
    async fn put(&self, coupon: &CouponName, limit: u32) {
        let put = answered(self.store.put_coupon(coupon, limited(limit)).await);
        assert!(put.is_ok(), "{coupon:?} for {limit}: {put:?}");
    }

    /// Claims, and checks everything about the reply that holds for any request.
    async fn claim(&self, coupon: &CouponName, user: &str, request: Option<RequestId>) -> ClaimAnswer {
        let claim = Claim { user: user_id(user), attributes: None, request };
        self.claim_with(coupon, claim).await
    }

    async fn claim_with(&self, coupon: &CouponName, claim: Claim) -> ClaimAnswer {
        let answer = answered(self.store.claim(coupon, claim).await);
        self.note_answer(coupon, &answer);
        answer
    }

    fn note_answer(&self, coupon: &CouponName, answer: &ClaimAnswer) {
        match answer {
            Ok(effect) => self.note(coupon, &effect.clone().into_inner()),
            Err(Refused { rejection: Rejection::AlreadyIssued(issued), claim }) => {
                let claim = claim.as_ref().expect("already_issued carries the claim");
                assert_eq!(claim.issued, *issued, "already_issued carries the very claim");
                self.note(coupon, claim);
            }
            Err(refused) => assert_eq!(refused.claim, None, "no claim belongs to {:?}", refused.rejection),
        }
    }

    /// Checks that all replies about a serial show the same code, and that no two serials or coupons share one.
    fn note(&self, coupon: &CouponName, claimed: &Claimed) {
        let code = claimed.code.as_str();
        let mut codes = self.codes.lock();
        let place = (coupon.clone(), claimed.issued.serial);
        if let Some(known) = codes.of.get(&place) {
            assert_eq!(known, code, "{place:?} was told two codes");
            return;
        }
        let before = codes.owner.insert(code.to_owned(), place.clone());
        assert_eq!(before, None, "{place:?} has the code of another claim");
        codes.of.insert(place, code.to_owned());
    }

    async fn redeem(&self, coupon: &CouponName, code: &Code, user: Option<&str>, request: Option<RequestId>) -> String {
        let code = match code {
            Code::Text(text) => text.clone(),
            Code::Of(number) => self.code(coupon, *number),
        };
        let redeem = RedeemRequest { code, user: user.map(user_id), request };
        let answer = answered(self.store.redeem(coupon, redeem).await);
        tell(answer, |record| {
            self.note(coupon, &record.claimed);
            let redeemed = record.redeemed.expect("a record that was redeemed says when");
            assert_eq!(redeemed.serial, record.claimed.issued.serial, "the redemption is the one of the claim");
            assert_eq!(record.attributes, None, "an answer to a redemption carries no attributes");
            format!("{}@{} of {}", redeemed.serial.get(), redeemed.redeemed_at.as_us(), record.user)
        })
    }

    /// Returns the code of a serial; an invalid code if the serial was not issued.
    fn code(&self, coupon: &CouponName, number: u32) -> String {
        let place = Serial::new(number).map(|serial| (coupon.clone(), serial));
        place.and_then(|place| self.codes.lock().of.get(&place).cloned()).unwrap_or_else(|| "2".repeat(20))
    }

    async fn view(&self, coupon: &CouponName) -> CouponView {
        answered(self.store.coupon(coupon).await).expect("the coupon exists")
    }

    async fn page(&self, coupon: &CouponName, after: Option<u32>, count: usize) -> Page<ClaimRecord> {
        let after = after.and_then(Serial::new);
        let page = answered(self.store.claims(coupon, after, count).await).expect("the coupon exists");
        assert!(page.items.len() <= count, "a page holds at most what was asked for");
        for record in &page.items {
            self.note(coupon, &record.claimed);
        }
        page
    }

    /// Sends one command to the store, and returns its reply as a text.
    async fn apply(&self, coupon: &CouponName, step: &Step) -> String {
        match step {
            Step::Put(settings) => match answered(self.store.put_coupon(coupon, settings.clone()).await) {
                Ok(Put::Created) => "created".to_owned(),
                Ok(Put::Replaced) => "replaced".to_owned(),
                Err(refused) => describe_refused(&refused.rejection),
            },
            Step::Delete => match answered(self.store.delete_coupon(coupon).await) {
                Ok(()) => "gone".to_owned(),
                Err(refused) => describe_refused(&refused.rejection),
            },
            Step::View => match answered(self.store.coupon(coupon).await) {
                Ok(view) => describe_view(&view),
                Err(refused) => describe_refused(&refused.rejection),
            },
            Step::Claim { user, request, attributes } => {
                let attributes = attributes.as_deref().and_then(Attributes::new);
                let claim = Claim { user: user_id(user), attributes, request: *request };
                tell(self.claim_with(coupon, claim).await, |claimed| describe_issued(claimed.issued))
            }
            Step::Redeem { code, user, request } => self.redeem(coupon, code, user.as_deref(), *request).await,
            Step::ClaimOf(user) => match answered(self.store.claim_of(coupon, user).await) {
                Ok(record) => record.map_or("none".to_owned(), |record| {
                    self.note(coupon, &record.claimed);
                    describe_record(&record)
                }),
                Err(refused) => describe_refused(&refused.rejection),
            },
            Step::Claims { after, count } => {
                match answered(self.store.claims(coupon, after.and_then(Serial::new), *count).await) {
                    Ok(page) => describe_page(&page),
                    Err(refused) => describe_refused(&refused.rejection),
                }
            }
        }
    }
}

type ClaimAnswer = Result<Effect<Claimed>, Refused>;

/// Unwraps the reply of a store without a fault.
fn answered<T>(answer: Answer<T>) -> Result<T, Refused> {
    answer.expect("the store answers")
}

fn tell<T>(answer: Result<Effect<T>, Refused>, tell: impl FnOnce(T) -> String) -> String {
    match answer {
        Ok(Effect::New(value)) => format!("new {}", tell(value)),
        Ok(Effect::Again(value)) => format!("again {}", tell(value)),
        Err(refused) => describe_refused(&refused.rejection),
    }
}

fn describe_issued(issued: Issued) -> String {
    format!("{}@{}", issued.serial.get(), issued.issued_at.as_us())
}

fn describe_refused(rejection: &Rejection) -> String {
    let code = rejection.code();
    match rejection {
        Rejection::KeyReused(serial) => format!("{code} {}", serial.get()),
        Rejection::AlreadyIssued(issued) => format!("{code} {}", describe_issued(*issued)),
        Rejection::NotOpen(instant) | Rejection::Expired(instant) => format!("{code} {}", instant.as_us()),
        Rejection::LimitBelowIssued(count) => format!("{code} {count}"),
        Rejection::AlreadyRedeemed(redeemed) => {
            format!("{code} {}@{}", redeemed.serial.get(), redeemed.redeemed_at.as_us())
        }
        _ => code.to_owned(),
    }
}

fn describe_view(view: &CouponView) -> String {
    format!("{} {}/{}", view.state.as_str(), view.issued, view.settings.limit.get())
}

fn describe_record(record: &ClaimRecord) -> String {
    let mut text = format!("{} of {}", describe_issued(record.claimed.issued), record.user);
    if let Some(attributes) = &record.attributes {
        text = format!("{text} with {}", attributes.as_str());
    }
    if let Some(redeemed) = record.redeemed {
        assert_eq!(redeemed.serial, record.claimed.issued.serial, "the redemption is the one of the claim");
        text = format!("{text} redeemed@{}", redeemed.redeemed_at.as_us());
    }
    text
}

fn describe_page(page: &Page<ClaimRecord>) -> String {
    let mut items: Vec<String> = page.items.iter().map(describe_record).collect();
    items.push(page.next.map_or("end".to_owned(), |next| format!("next after {}", next.get())));
    items.join(", ")
}

fn at(unix_us: i64) -> Timestamp {
    Timestamp::clamped_us(unix_us)
}

fn name(text: &str) -> CouponName {
    CouponName::parse(text).expect("the suite's names are valid")
}

fn user_id(text: &str) -> UserId {
    UserId::parse(text).expect("the suite's names are valid")
}

fn limited(count: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(count).expect("the suite's limits are valid"))
}

fn key(key: u128, body: u64) -> Option<RequestId> {
    Some(RequestId { key, body })
}

fn put(count: u32) -> Step {
    Step::Put(limited(count))
}

/// Returns settings that issue from `opens_at` to `expires_at`.
fn window(count: u32, opens_at: i64, expires_at: i64) -> CouponSettings {
    CouponSettings { opens_at: Some(at(opens_at)), expires_at: Some(at(expires_at)), ..limited(count) }
}

fn claim(user: &str) -> Step {
    Step::Claim { user: user.to_owned(), request: None, attributes: None }
}

fn keyed(user: &str, of_key: u128, body: u64) -> Step {
    Step::Claim { user: user.to_owned(), request: key(of_key, body), attributes: None }
}

fn redeem(number: u32) -> Step {
    Step::Redeem { code: Code::Of(number), user: None, request: None }
}

fn redeem_as(user: &str, number: u32) -> Step {
    Step::Redeem { code: Code::Of(number), user: Some(user.to_owned()), request: None }
}

fn redeem_text(text: &str) -> Step {
    Step::Redeem { code: Code::Text(text.to_owned()), user: None, request: None }
}

/// Adds an idempotency key to a redemption.
fn with_key(step: Step, of_key: u128, body: u64) -> Step {
    match step {
        Step::Redeem { code, user, .. } => Step::Redeem { code, user, request: key(of_key, body) },
        other => other,
    }
}

fn claim_of(user: &str) -> Step {
    Step::ClaimOf(user.to_owned())
}

const fn claims(after: Option<u32>, count: usize) -> Step {
    Step::Claims { after, count }
}
