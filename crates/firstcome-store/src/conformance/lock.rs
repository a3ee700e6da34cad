//! The suite of [`LockStore`].
//!
//! [`Bench`] sends each step to the store. It then applies the step to the rules of `firstcome-core`, at the instant in
//! the store's reply: both replies must be equal. So the store may have any clock. Cases add the wanted replies as
//! texts.

mod concurrent;
mod oracle;
mod pushed;
mod rows;
mod sharing;

use crate::edge::draw_hasher;
use crate::lock::{LockEvent, LockInbox, LockStore};
use firstcome_core::id::{LockName, OwnerName};
use firstcome_core::lock::{
    Acquired, Answer, BUCKETS, ClientId, Copies, Fence, Grant, Head, LockAnswer, MemoryLockTable, Mode, Push, Released,
    Renewal, Request, Step, Taken, Wait, Waiter, bucket_of, take, view,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::RandomState;
use std::pin::Pin;
use std::sync::Arc;

/// Lets this many milliseconds pass for a store under test: moves its clock, or waits.
pub type LetPass = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Tests a store: order, fences, leases and their renewal, claim windows, dead waiters, lives, requests that were given
/// up before they arrived, repeats, pushes, exclusion under concurrency, dropped futures, and random steps against the
/// rules.
///
/// `new_store` returns an empty store, and the function that lets time pass for it; it is called once per case. If the
/// store has its own clock, the suite lets about a minute pass in total.
///
/// # Panics
/// At the first broken promise, with the step and the reply.
pub async fn lock<S, F, Fut>(new_store: F)
where
    S: LockStore,
    F: Fn() -> Fut,
    Fut: Future<Output = (S, LetPass)>,
{
    macro_rules! run {
        ($($case:path),+ $(,)?) => { $($case(Bench::new(new_store().await)).await;)+ };
    }
    run!(
        rows::a_free_lock_is_granted_for_its_lease,
        rows::the_line_is_served_in_the_order_of_arrival,
        rows::a_repeat_is_told_where_it_stands,
        rows::who_does_not_wait_is_told_who_holds,
        rows::who_gives_up_leaves_no_gap,
        rows::what_was_given_up_before_it_arrived_is_void,
        rows::a_hold_ends_with_its_lease,
        rows::a_renewed_hold_goes_on,
        rows::renewals_are_answered_in_their_order,
        rows::a_grant_that_nobody_takes_ends_with_the_claim_window,
        rows::the_dead_are_passed_over,
        rows::a_heartbeat_ends_what_is_over_and_finds_what_was_missed,
        rows::a_life_ends_with_a_missed_window,
        rows::a_cohort_has_fences_of_its_own,
        rows::a_place_that_was_forgotten_is_taken_again,
        rows::locks_do_not_touch_each_other,
        sharing::readers_and_writers_take_turns,
        sharing::no_more_share_than_there_are_permits,
        sharing::each_shared_hold_ends_by_itself,
        sharing::a_writer_that_gives_up_or_dies_lets_readers_in,
        sharing::a_missed_grant_is_found_while_others_share,
        pushed::a_grant_reaches_the_client_that_waits_and_no_other,
        pushed::a_detached_client_is_told_nothing,
        concurrent::a_counter_under_the_lock_loses_no_step,
        concurrent::the_line_is_fair_under_concurrency,
        concurrent::steps_that_were_dropped_are_done_or_not_done,
        oracle::random_steps_are_answered_as_by_the_rules,
    );
}

/// The lease in the rows unless they set another: longer than any time that they let pass.
const LEASE_MS: u32 = 20_000;

/// The milliseconds since the row before, the step, and the wanted reply.
type Row<'a> = (u64, Step, &'a str);

/// The rules, with the instants that the store replies.
struct Oracle {
    buckets: BTreeMap<u8, MemoryLockTable<RandomState>>,
    pushes: Vec<Push>,
    /// For each lock the highest fence so far, and the fence of each request.
    fences: BTreeMap<LockName, (Fence, BTreeMap<Request, Fence>)>,
    /// Requests that asked for a shared hold.
    shared: BTreeSet<Request>,
}

impl Oracle {
    fn take(&mut self, step: &Step, now_us: u64) -> Answer {
        let table = self.buckets.entry(bucket(step)).or_insert_with(|| MemoryLockTable::new(draw_hasher()));
        let (answer, pushes) = take(table, step, now_us);
        self.pushes.extend(pushes);
        answer
    }

    /// Checks, without the rules, that the fences of a lock rise and that a request keeps its fence. Requests that share the
    /// lock may have the same fence.
    fn note(&mut self, name: &LockName, grant: Grant) {
        let shares = self.shared.contains(&grant.request);
        let (highest, known) = self.fences.entry(name.clone()).or_insert((grant.fence, BTreeMap::new()));
        match known.get(&grant.request) {
            Some(fence) if *fence == grant.fence => {}
            _ => {
                let is_above = *highest < grant.fence || shares && *highest == grant.fence;
                assert!(known.is_empty() || is_above, "{name}: {grant:?} after the fence {highest}");
                *highest = grant.fence;
                known.insert(grant.request, grant.fence);
            }
        }
    }
}

/// A store under test, and the rules beside it.
struct Bench<S> {
    store: Arc<S>,
    pass: LetPass,
    oracle: Arc<Mutex<Oracle>>,
}

impl<S> Clone for Bench<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), pass: Arc::clone(&self.pass), oracle: Arc::clone(&self.oracle) }
    }
}

impl<S: LockStore> Bench<S> {
    fn new((store, pass): (S, LetPass)) -> Self {
        let oracle =
            Oracle { buckets: BTreeMap::new(), pushes: Vec::new(), fences: BTreeMap::new(), shared: BTreeSet::new() };
        Self { store: Arc::new(store), pass, oracle: Arc::new(Mutex::new(oracle)) }
    }

    async fn pass(&self, ms: u64) {
        if 0 < ms {
            (self.pass)(ms).await;
        }
    }

    /// Takes one step, and compares the replies. No other task may take a step in the same bucket meanwhile.
    async fn take(&self, step: &Step) -> Answer {
        let answer = self.store.take(step.clone()).await.expect("the store answers");
        let mut oracle = self.oracle.lock();
        if let Step::Acquire { waiter, .. } = step
            && waiter.mode.is_shared()
        {
            oracle.shared.insert(waiter.request);
        }
        let wanted = oracle.take(step, answer.now_us);
        assert_eq!(answer, wanted, "{step:?}: the store's answer, and the rules'");
        match (&answer.said, step) {
            (LockAnswer::Acquired(Acquired::Granted(grant)), Step::Acquire { name, .. }) => oracle.note(name, *grant),
            (LockAnswer::Beaten { looked, .. }, Step::Beat { names, .. }) => {
                for (name, (grants, _)) in names.iter().zip(looked) {
                    grants.iter().for_each(|grant| oracle.note(name, *grant));
                }
            }
            _ => {}
        }
        answer
    }

    /// Shows a lock, and compares with the rules. Returns whether it is held, and how many requests wait.
    async fn view(&self, name: &LockName) -> (bool, u32) {
        let seen = self.store.view(name).await.expect("the store answers");
        let mut oracle = self.oracle.lock();
        let table = oracle.buckets.entry(bucket_of(name)).or_insert_with(|| MemoryLockTable::new(draw_hasher()));
        assert_eq!(seen.view, view(table, name, seen.now_us), "{name}: what the store shows, and the rules");
        (seen.view.held.is_some(), seen.view.waiters)
    }

    async fn check(&self, rows: &[Row<'_>]) {
        for (row, (pass_ms, step, wanted)) in rows.iter().enumerate() {
            self.pass(*pass_ms).await;
            let told = words(&self.take(step).await);
            assert_eq!(told, *wanted, "row {row}: {step:?}");
        }
    }

    /// Returns the fence of a hold, from a repeat of its request.
    async fn fence(&self, client: u64, number: u64) -> u64 {
        match self.take(&ask(client, number)).await.said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => grant.fence.get(),
            said => panic!("{client}/{number} has the lock: {said:?}"),
        }
    }

    /// Attaches an inbox that keeps its pushes.
    fn attach(&self, client: u64) -> Inbox {
        let inbox = Inbox::default();
        let kept = Arc::clone(&inbox.0);
        let hears: LockInbox = Arc::new(move |event| {
            if let LockEvent::Push(push) = event {
                kept.lock().push(push);
            }
        });
        self.store.attach(ClientId(client), hears);
        inbox
    }
}

/// The pushes that a client received.
#[derive(Default)]
struct Inbox(Arc<Mutex<Vec<Push>>>);

impl Inbox {
    fn pushes(&self) -> Vec<Push> {
        self.0.lock().clone()
    }
}

const fn bucket_index(bucket: u16) -> u8 {
    assert!(bucket < BUCKETS, "there are fewer buckets");
    bucket as u8
}

fn bucket(step: &Step) -> u8 {
    match step {
        Step::Acquire { name, .. } | Step::Release { name, .. } => bucket_of(name),
        Step::Renew { bucket, .. } | Step::Beat { bucket, .. } => *bucket,
    }
}

fn words(answer: &Answer) -> String {
    match &answer.said {
        LockAnswer::Acquired(Acquired::Granted(grant)) => match grant.taken {
            Taken::Yes => "granted".to_owned(),
            Taken::Open => "granted, to be confirmed".to_owned(),
        },
        LockAnswer::Acquired(Acquired::Queued { ahead, .. }) => format!("queued {ahead}"),
        LockAnswer::Acquired(Acquired::Contended { holder, waiters, .. }) => {
            format!("held by {holder}, {waiters} wait")
        }
        LockAnswer::Acquired(Acquired::Void) => "void".to_owned(),
        LockAnswer::Released(Released::Released) => "released".to_owned(),
        LockAnswer::Released(Released::Withdrawn { ahead }) => format!("withdrawn {ahead}"),
        LockAnswer::Released(Released::NotHeld) => "not held".to_owned(),
        LockAnswer::Renewed(ends) => {
            ends.iter().map(|end| if end.is_some() { "renewed" } else { "lost" }).collect::<Vec<_>>().join(" ")
        }
        LockAnswer::Beaten { looked, .. } => looked.iter().map(looked_words).collect::<Vec<_>>().join(" "),
    }
}

fn looked_words((grants, seen): &(Vec<Grant>, Option<firstcome_core::lock::WaiterView>)) -> &'static str {
    match (grants.as_slice(), seen) {
        ([_, ..], _) => "mine",
        ([], None) => "free",
        ([], Some(seen)) if seen.head == Head::Mine => "held,look",
        ([], Some(_)) => "held",
    }
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("the suite's names are valid")
}

/// The lock of the rows.
fn door() -> LockName {
    name("door")
}

const fn request(client: u64, number: u64) -> Request {
    Request { client: ClientId(client), number }
}

fn waiter(client: u64, number: u64) -> Waiter {
    let owner = OwnerName::parse(&format!("owner-{client}")).expect("the suite's names are valid");
    Waiter { request: request(client, number), owner, lease_ms: LEASE_MS, mode: Mode::ALONE }
}

fn ask(client: u64, number: u64) -> Step {
    Step::Acquire { name: door(), waiter: waiter(client, number), wait: Wait::Yes }
}

fn ask_for(lease_ms: u32, client: u64, number: u64) -> Step {
    let waiter = Waiter { lease_ms, ..waiter(client, number) };
    Step::Acquire { name: door(), waiter, wait: Wait::Yes }
}

fn attempt(client: u64, number: u64) -> Step {
    Step::Acquire { name: door(), waiter: waiter(client, number), wait: Wait::No }
}

fn release(client: u64, number: u64) -> Step {
    Step::Release { name: door(), request: request(client, number), copies: Copies::One }
}

fn renew(lease_ms: u32, client: u64, number: u64) -> Step {
    let renewals = vec![Renewal { name: door(), request: request(client, number), lease_ms }];
    Step::Renew { bucket: bucket_of(&door()), renewals }
}

fn beat(client: u64) -> Step {
    Step::Beat { bucket: bucket_of(&door()), client: ClientId(client), names: vec![door()] }
}
