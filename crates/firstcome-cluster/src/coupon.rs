//! Implements the port for coupons on a cluster.

use super::coupon_state::{Asking, CouponState, StoredCoupon};
use super::database::{ClaimRow, CouponRow, Used};
use super::node::Node;
use super::outbox::{Entrant, Tag, Verdict};
use super::sequencer::{GenerationReply, Judged, Question, SequencerReply, Stray};
use super::{Cluster, outbox_writer};
use firstcome_core::coupon::{Acknowledge, Claim, CouponSettings, Effect, Issued, Redeem, Redeemed, Rejection, Serial};
use firstcome_core::id::{CouponName, UserId};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use firstcome_redis::LinkError;
use firstcome_sql::boxed::boxed;
use firstcome_store::ShownCode;
use firstcome_store::StoreError;
use firstcome_store::batcher::Service;
use firstcome_store::edge::{Stopwatch, draw_pause};
use firstcome_store::{
    Answer, ClaimRecord, ClaimReply, Claimed, CouponStore, CouponView, Durability, Page, Put, RedeemRequest, Refused,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

/// Claims that go to the sequencer in one script.
pub(super) const ASK_MAX: usize = 256;
/// After so long without a verdict SQL is looked at: the message may be lost, or its sender dead.
const VERDICT_WAIT: Duration = Duration::from_millis(500);
/// After so long without the ticket in SQL the sequencer is asked again: it finds out whether anybody still writes.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The first pause before the sequencer is asked again, or SQL looked at again, and the longest. A random part of it is taken.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How often a sequencer that is lost is rebuilt for one batch before its callers are told.
const MENDS_MAX: u32 = 3;

/// One claim under way.
struct Attempt<'a> {
    node: &'a Arc<Node>,
    state: &'a Arc<CouponState>,
    claim: &'a Claim,
    tag: Tag,
    until: Instant,
    pause: Duration,
    /// When a caller that claims may be told at the earliest; the coupon may say later.
    earliest: Acknowledge,
    /// Whether a ticket may have been drawn for it: then no caller can say that nothing was done.
    is_handed_over: bool,
}

/// What a claim comes to.
enum Outcome {
    Issued(Result<Effect<Issued>, Rejection>),
    /// The same request has made a claim before, of this user.
    Repeated(Issued, Box<str>),
    /// It has a place since then, and SQL does not have it yet.
    Placed(Timestamp),
}

/// What is known after one question.
enum Step {
    Done(Outcome),
    /// Ask again.
    Again,
}

fn no_claim(rejection: Rejection) -> Step {
    Step::Done(Outcome::Issued(Err(rejection)))
}

impl Attempt<'_> {
    async fn run(mut self) -> Result<Outcome, StoreError> {
        loop {
            let step = timeout_at(self.until, self.step()).await;
            // What was handed over in the time may be done yet.
            match step.unwrap_or(Err(StoreError::Unknown)) {
                Ok(Step::Done(told)) => return Ok(told),
                Ok(Step::Again) => {}
                Err(StoreError::Unknown) => self.is_handed_over = true,
                // Nothing was done by this question; but perhaps by one before it.
                Err(error) if !self.is_handed_over => return Err(error),
                // Its ticket waits, and no node writes it until an operator has decided.
                Err(_) if self.state.is_stopped() => return Err(StoreError::Unknown),
                Err(_) => {}
            }
            if self.until <= Instant::now() + self.pause {
                return Err(if self.is_handed_over { StoreError::Unknown } else { late() });
            }
            sleep(draw_pause(self.pause)).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks the sequencer once, and follows its word until SQL has confirmed it.
    async fn step(&mut self) -> Result<Step, StoreError> {
        if self.state.is_over() {
            return Box::pin(self.judge_by_database()).await;
        }
        let mut place = self.state.wait(self.tag);
        let entrant = Entrant { tag: self.tag, claim: self.claim.clone() };
        let Spoken { word, version, generation, last } = self.node.ask(self.state, entrant).await?;
        self.is_handed_over |= matches!(word, SequencerReply::Drawn(_));
        if version < self.state.version() {
            // The sequencer has not heard of settings that SQL has: a caller that put them is about to tell it, or has died.
            let row = self.state.row();
            Box::pin(self.node.sequencer.adjust(self.state.keys, &row)).await?;
            if !matches!(word, SequencerReply::Drawn(_)) {
                return Ok(Step::Again);
            }
        }
        match word {
            SequencerReply::Drawn(ticket) => {
                if self.earliest == Acknowledge::Placed && self.is_answered_early(version).await? {
                    outbox_writer::see_to(self.node, self.state, generation, ticket);
                    return Ok(Step::Done(Outcome::Placed(last)));
                }
                let until = self.until.min(Instant::now() + VERDICT_WAIT);
                if let Ok(Ok(Verdict::Issued(issued))) = timeout_at(until, &mut place.verdict).await {
                    return Ok(Step::Done(Outcome::Issued(Ok(Effect::New(issued)))));
                }
                Box::pin(self.confirm(generation, ticket, |seen| self.of_user(seen))).await
            }
            SequencerReply::Has(ticket) => Box::pin(self.confirm(generation, ticket, |seen| self.of_user(seen))).await,
            SequencerReply::Again(ticket) | SequencerReply::Reused(ticket) => {
                Box::pin(self.confirm(generation, ticket, |seen| self.of_request(seen))).await
            }
            SequencerReply::SoldOut(ticket) => Box::pin(self.confirm_sold_out(generation, ticket)).await,
            SequencerReply::Deleted => Box::pin(self.judge_by_database()).await,
            SequencerReply::NotOpen(at) => Ok(no_claim(Rejection::NotOpen(at))),
            SequencerReply::Expired(at) => Ok(no_claim(Rejection::Expired(at))),
            SequencerReply::Backlog => Err(behind()),
        }
    }

    /// What the database says of a coupon that is over. Nothing that waits in its stream is issued any more, so no sequencer is asked.
    async fn judge_by_database(&self) -> Result<Step, StoreError> {
        let seen = self.node.look(self.state, Some(self.claim.user.as_str()), self.claim.request).await?;
        // A look at a purged coupon finds no claim.
        if let Some(step) = self.of_user(&seen) {
            return Ok(step);
        }
        Ok(if seen.row.is_over() { no_claim(seen.row.refusal(seen.now)) } else { Step::Again })
    }

    /// Whether a coupon whose sequencer judges by this version of its settings tells claims before SQL holds them. By
    /// other settings than the newest it tells none: SQL may refuse what those let in. Nor does it while Redis may lose the place.
    async fn is_answered_early(&self, version: i64) -> Result<bool, StoreError> {
        if !self.node.redis_keeps() {
            return Ok(false);
        }
        if self.state.version() < version {
            self.node.look(self.state, None, None).await?;
        }
        Ok(self.state.tells_early(version))
    }

    /// Waits until SQL has come to a ticket, and says what it holds; [`Step::Again`] if it holds nothing then, or takes long.
    async fn confirm(
        &self,
        generation: i64,
        ticket: u64,
        found: impl Fn(&StoredCoupon) -> Option<Step>,
    ) -> Result<Step, StoreError> {
        let (until, mut pause) = (Instant::now() + ASK_AGAIN, PAUSE_MIN);
        loop {
            let seen = self.node.look(self.state, Some(self.claim.user.as_str()), self.claim.request).await?;
            if let Some(step) = found(&seen) {
                return Ok(step);
            }
            if seen.row.generation != generation {
                return Ok(Step::Again);
            }
            if ticket <= seen.row.position {
                // SQL has passed it over: a caller that has it must be let in anew.
                let Claim { user, request, .. } = self.claim;
                let stray = Stray { ticket, user: user.as_str().into(), request: *request };
                self.node.sequencer.forget(self.state.keys, generation, &stray).await?;
                return Ok(Step::Again);
            }
            if self.until.min(until) <= Instant::now() + pause {
                return Ok(Step::Again);
            }
            sleep(draw_pause(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until SQL has come to the last ticket, and says whether all are issued.
    async fn confirm_sold_out(&self, generation: i64, ticket: u64) -> Result<Step, StoreError> {
        let (until, mut pause) = (Instant::now() + ASK_AGAIN, PAUSE_MIN);
        loop {
            let seen = self.node.look(self.state, Some(self.claim.user.as_str()), self.claim.request).await?;
            if let Some(step) = self.of_user(&seen) {
                return Ok(step);
            }
            let row = &seen.row;
            if row.settings.limit.get() <= row.issued && !row.is_over() {
                return Ok(no_claim(Rejection::SoldOut));
            }
            if row.generation != generation || ticket <= row.position {
                // A place has come back, or the limit was raised.
                return Ok(Step::Again);
            }
            if self.until.min(until) <= Instant::now() + pause {
                return Ok(Step::Again);
            }
            sleep(draw_pause(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// What the claim of the user means for this one.
    fn of_user(&self, seen: &StoredCoupon) -> Option<Step> {
        if let Some(step) = self.of_request(seen) {
            return Some(step);
        }
        let claim = seen.claim.as_ref()?;
        let told = if claim.tag == self.tag {
            Ok(Effect::New(claim.issued))
        } else {
            Err(Rejection::AlreadyIssued(claim.issued))
        };
        Some(Step::Done(Outcome::Issued(told)))
    }

    /// What the claim of the request means for this one.
    fn of_request(&self, seen: &StoredCoupon) -> Option<Step> {
        let (request, stored) = self.claim.request.zip(seen.request.as_ref())?;
        Some(repeated((self.claim.user.as_str(), request.body, self.tag), seen.claim.as_ref(), stored))
    }
}

/// What a stored request means for a claim of this user with the same key, with this body and tag.
///
/// SQL was asked for the claims of users before it was asked for requests. A request whose claim is that of this user was stored in
/// between if that claim was not seen. It may be this one itself, so SQL is asked again.
fn repeated(
    (by, body, tag): (&str, u64, Tag),
    held: Option<&ClaimRow>,
    (stored, issued, user): &(u64, Issued, Box<str>),
) -> Step {
    let told = match held {
        None if **user == *by => return Step::Again,
        Some(held) if held.tag == tag && held.issued == *issued => Outcome::Issued(Ok(Effect::New(*issued))),
        _ if *stored == body => Outcome::Repeated(*issued, user.clone()),
        _ => Outcome::Issued(Err(Rejection::KeyReused(issued.serial))),
    };
    Step::Done(told)
}

/// What the sequencer said, and which sequencer.
#[derive(Clone, Copy)]
pub(super) struct Spoken {
    pub(super) word: SequencerReply,
    /// The instant of the last ticket that was drawn.
    pub(super) last: Timestamp,
    pub(super) version: i64,
    pub(super) generation: i64,
}

/// How long claims are sent away while too many wait for the database.
const BACKLOG_RETRY: Duration = Duration::from_secs(1);

const fn behind() -> StoreError {
    StoreError::busy(BACKLOG_RETRY)
}

const fn waits() -> StoreError {
    StoreError::NotStoredYet { retry_after: BACKLOG_RETRY }
}

const fn late() -> StoreError {
    StoreError::busy_with("nothing was done in the time there was: Redis or the database was slow")
}

impl Node {
    /// A coupon by its name, if there is one.
    pub(super) async fn state(&self, name: &CouponName) -> Result<Option<Arc<CouponState>>, StoreError> {
        if let Some(state) = self.kept(name) {
            return Ok(Some(state));
        }
        // What is done once for each coupon is not to be a part of each claim.
        Ok(Box::pin(self.database.coupon(name)).await?.map(|row| self.keep(row)))
    }

    /// Asks the sequencer about one claim. One round trip, shared with others.
    async fn ask(self: &Arc<Self>, state: &Arc<CouponState>, entrant: Entrant) -> Result<Spoken, StoreError> {
        let (tell, told) = oneshot::channel();
        if state.asking.push(Asking { entrant, tell })? == Service::Wanted {
            tokio::spawn(serve(Arc::clone(self), Arc::clone(state)));
        }
        told.await.unwrap_or(Err(StoreError::Unknown))
    }

    /// Asks the sequencer about several claims. It is looked at, and rebuilt, before it is asked, if it may be another one.
    async fn ask_all(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        batch: &[Asking],
    ) -> Result<(Judged, i64), StoreError> {
        let entrants: Vec<&Entrant> = batch.iter().map(|asking| &asking.entrant).collect();
        let mut is_begun = false;
        for _ in 0..MENDS_MAX {
            self.stopped(state).map_err(|error| if is_begun { StoreError::Unknown } else { error })?;
            if state.trusted.load(Ordering::Relaxed) != self.doubts() {
                self.rebuild(state).await.map_err(|error| if is_begun { StoreError::Unknown } else { error })?;
            }
            let (generation, position) = state.position();
            if state.is_over() {
                // The database is looked at for each of these claims.
                return Ok((Judged::all_deleted(state.version(), batch.len()), generation));
            }
            let (now, backlog_max) = (self.database.time.given(), self.options.backlog_max);
            let may_write = state.may_write();
            let question = Question { generation, position, now, backlog_max, may_write, entrants: &entrants };
            let watch = Stopwatch::start();
            let judged = self.sequencer.claim(state.keys, &question).await;
            state.note_script(watch.elapsed(), entrants.len());
            match judged {
                Ok(GenerationReply::Answer(judged)) => {
                    if judged.drains {
                        outbox_writer::call(self, state);
                    }
                    // Another connection meanwhile may be one to another server, whose sequencer no caller has looked at.
                    if state.trusted.load(Ordering::Relaxed) == self.doubts() {
                        return Ok((judged, generation));
                    }
                    is_begun |= judged.words.iter().any(|word| matches!(word, SequencerReply::Drawn(_)));
                }
                Ok(GenerationReply::Lost) => state.trusted.store(u64::MAX, Ordering::Relaxed),
                // A script that fails in the middle has met what is no sequencer of ours. Its entry may stand.
                Err(LinkError::Refused { .. }) => {
                    is_begun = true;
                    state.trusted.store(u64::MAX, Ordering::Relaxed);
                }
                Err(_) if is_begun => return Err(StoreError::Unknown),
                Err(error) => return Err(error.into()),
            }
        }
        if is_begun {
            return Err(StoreError::Unknown);
        }
        Err(StoreError::busy_with("nothing was done: what Redis knows of the coupon was rebuilt several times"))
    }

    async fn put(&self, name: &CouponName, revision: &Revision<CouponSettings>) -> Answer<Put> {
        if let Some(state) = self.kept(name) {
            self.stopped(&state)?;
        }
        match self.database.put_coupon(name, revision).await? {
            Ok((put, row)) => self.enforce(row).await.map(|()| Ok(put)),
            Err(rejection) => Ok(Err(rejection.into())),
        }
    }

    async fn delete(self: &Arc<Self>, name: &CouponName) -> Answer<()> {
        if let Some(state) = self.kept(name) {
            self.stopped(&state)?;
        }
        match self.database.delete_coupon(name).await? {
            Some(row) => {
                let is_ended = row.keys_gone;
                let state = self.keep(row.clone());
                self.enforce(row).await?;
                if !is_ended {
                    // It is deleted, and nothing more rests on its keys: if this fails, they go later.
                    let _ = self.end_keys(&state).await;
                }
                Ok(Ok(()))
            }
            None => Ok(Err(Rejection::UnknownCoupon.into())),
        }
    }

    /// Puts in force at the sequencer what SQL holds already. If it fails no caller knows when it will be in force.
    async fn enforce(&self, row: CouponRow) -> Result<(), StoreError> {
        let state = self.keep(row.clone());
        let is_trusted = state.trusted.load(Ordering::Relaxed) == self.doubts();
        if is_trusted && self.sequencer.adjust(state.keys, &row).await.is_ok_and(|done| done) {
            return Ok(());
        }
        self.rebuild(&state).await.map_err(|_| StoreError::Unknown)
    }

    /// Claims, and tells when it is stored; or, if it may and the coupon says so, when its place is certain.
    async fn claim(
        self: &Arc<Self>,
        name: &CouponName,
        claim: Claim,
        earliest: Acknowledge,
    ) -> Answer<Effect<ClaimReply>> {
        let Some(state) = self.state(name).await? else { return Ok(Err(Rejection::UnknownCoupon.into())) };
        let tag = Tag(self.tags.fetch_add(1, Ordering::Relaxed));
        let until = Instant::now() + self.options.patience;
        let (claim, state) = (&claim, &state);
        let attempt =
            Attempt { node: self, state, claim, tag, until, pause: PAUSE_MIN, earliest, is_handed_over: false };
        Ok(match attempt.run().await? {
            Outcome::Placed(since) => Ok(Effect::New(ClaimReply::Placed(since))),
            Outcome::Repeated(issued, user) => Ok(Effect::Again(ClaimReply::Stored(state.claimed(issued, &user)))),
            Outcome::Issued(Ok(effect)) => {
                Ok(effect.map(|issued| ClaimReply::Stored(state.claimed(issued, claim.user.as_str()))))
            }
            Outcome::Issued(Err(rejection)) => {
                let held = if let Rejection::AlreadyIssued(issued) = rejection { Some(issued) } else { None };
                let claim = held.map(|issued| state.claimed(issued, claim.user.as_str()));
                Err(Refused { rejection, claim })
            }
        })
    }

    async fn view(self: &Arc<Self>, name: &CouponName) -> Answer<CouponView> {
        let Some(state) = self.state(name).await? else { return Ok(Err(Rejection::UnknownCoupon.into())) };
        let StoredCoupon { row, now, .. } = self.look(&state, None, None).await?;
        let coupon_state = row.standing().state(now);
        let CouponRow { settings, issued, purged_at, .. } = row;
        Ok(Ok(CouponView { settings, issued, state: coupon_state, purged_at }))
    }

    pub(super) async fn claim_of(self: &Arc<Self>, name: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        let Some(state) = self.state(name).await? else { return Ok(Err(Rejection::UnknownCoupon.into())) };
        // No caller has a claim under what is no name.
        if UserId::restore(user).is_err() {
            return Ok(Ok(None));
        }
        let seen = self.look(&state, Some(user), None).await?;
        if let Err(rejection) = seen.row.standing().judge_reads() {
            return Ok(Err(rejection.into()));
        }
        if seen.claim.is_none() && seen.row.settings.acknowledge == Acknowledge::Placed {
            let (generation, position) = (seen.row.generation, seen.row.position);
            let ticket = self.sequencer.ticket_of(state.keys, generation, user).await?;
            if ticket.is_some_and(|ticket| position < ticket) {
                // It may be told already, by a node that has died since; and no caller knows serial and code yet.
                outbox_writer::ensure_writer(self, &state);
                return Err(waits());
            }
        }
        if seen.claim.is_none() {
            self.is_missing(&state, seen.row.generation, user).await?;
        }
        Ok(Ok(seen.claim.map(|claim| record(&state, claim))))
    }

    async fn claims(&self, name: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        let Some(state) = self.state(name).await? else { return Ok(Err(Rejection::UnknownCoupon.into())) };
        // One more than is wanted, to see whether there are more.
        let wanted = count.saturating_add(1).min(1 << 32) as u64;
        let (mut rows, purged_at) =
            self.database.claims(state.keys.coupon, after.map_or(0, Serial::get), wanted).await?;
        if let Some(at) = purged_at {
            return Ok(Err(Rejection::Purged(at).into()));
        }
        let more = count < rows.len();
        rows.truncate(count);
        let next = if more { rows.last().map(|claim| claim.issued.serial) } else { None };
        Ok(Ok(Page { items: rows.into_iter().map(|claim| record(&state, claim)).collect(), next }))
    }

    async fn redeem(&self, name: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        let Some(state) = self.state(name).await? else { return Ok(Err(Rejection::UnknownCoupon.into())) };
        let RedeemRequest { code, user, request } = redeem;
        let shown = ShownCode::parse(&code);
        let redeem = Redeem { serial: shown.map(|shown| shown.serial()), user, request };
        // A code that is ours was issued: if SQL has no row of it, SQL may lack it.
        self.stopped(&state)?;
        let mut used = self.database.redeem(state.keys.coupon, &redeem, shown).await?;
        if matches!(used, Err(Rejection::UnknownCode)) && redeem.serial.is_some() {
            self.judged(&state).await?;
            if state.row().purged_at.is_some() {
                // A purge began between the look at the coupon and that at its claim.
                used = self.database.redeem(state.keys.coupon, &redeem, shown).await?;
            }
        }
        let record = |Used { user, issued, redeemed }| {
            let claimed = state.claimed(issued, &user);
            ClaimRecord { user, claimed, attributes: None, redeemed: Some(redeemed) }
        };
        Ok(used.map(|effect| effect.map(record)).map_err(Refused::from))
    }
}

fn record(state: &CouponState, claim: ClaimRow) -> ClaimRecord {
    let ClaimRow { issued, user, attributes, redeemed_at, .. } = claim;
    let redeemed = redeemed_at.map(|redeemed_at| Redeemed { serial: issued.serial, redeemed_at });
    let claimed = state.claimed(issued, &user);
    ClaimRecord { user, claimed, attributes, redeemed }
}

async fn serve(node: Arc<Node>, state: Arc<CouponState>) {
    for mut batch in state.asking.serve() {
        // A caller that has gone away finds nothing changed.
        batch.retain(|asking| !asking.tell.is_closed());
        if batch.is_empty() {
            continue;
        }
        match node.ask_all(&state, &batch).await {
            Ok((judged, generation)) => {
                let Judged { words, version, last, .. } = judged;
                for (asking, word) in batch.into_iter().zip(words) {
                    let _ = asking.tell.send(Ok(Spoken { word, version, generation, last }));
                }
            }
            Err(error) => {
                for asking in batch {
                    let _ = asking.tell.send(Err(error.clone()));
                }
            }
        }
    }
}

impl CouponStore for Cluster {
    fn durability(&self) -> Durability {
        Durability::Database
    }

    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        let revision = revision.into();
        boxed(self.node.put(coupon, &revision)).await
    }

    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        boxed(self.node.delete(coupon)).await
    }

    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        boxed(self.node.view(coupon)).await
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        let stored = |reply| match reply {
            ClaimReply::Stored(claimed) => Ok(claimed),
            ClaimReply::Placed(_) => Err(StoreError::Unknown),
        };
        Ok(match boxed(self.node.claim(coupon, claim, Acknowledge::Stored)).await? {
            Ok(Effect::New(reply)) => Ok(Effect::New(stored(reply)?)),
            Ok(Effect::Again(reply)) => Ok(Effect::Again(stored(reply)?)),
            Err(refused) => Err(refused),
        })
    }

    async fn claim_early(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<ClaimReply>> {
        boxed(self.node.claim(coupon, claim, Acknowledge::Placed)).await
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        boxed(self.node.claim_of(coupon, user)).await
    }

    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        boxed(self.node.claims(coupon, after, count)).await
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        boxed(self.node.redeem(coupon, redeem)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_came_between_the_two_reads_is_not_taken_for_one_before() {
        let issued = Issued { serial: Serial::new(1).expect("not zero"), issued_at: Timestamp::MIN };
        let (own, other) = (Tag(1), Tag(2));
        let held = |tag| ClaimRow { issued, user: "ann".into(), attributes: None, tag, redeemed_at: None };
        let step = |by, body, held: Option<&ClaimRow>| repeated((by, body, own), held, &(5, issued, "ann".into()));
        assert!(matches!(step("ann", 5, None), Step::Again));
        assert!(matches!(step("ann", 5, Some(&held(own))), Step::Done(Outcome::Issued(Ok(Effect::New(_))))));
        assert!(matches!(step("ann", 5, Some(&held(other))), Step::Done(Outcome::Repeated(..))));
        assert!(matches!(step("bob", 5, None), Step::Done(Outcome::Repeated(..))));
        assert!(matches!(step("bob", 6, None), Step::Done(Outcome::Issued(Err(Rejection::KeyReused(_))))));
    }
}
