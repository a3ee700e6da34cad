use super::super::{LockLimits, LockService, Parts};
use super::*;
use crate::auction::Auctions;
use crate::backend::Backend;
use crate::metrics::Metrics;
use firstcome::core::lock::ClientId;
use firstcome::{Embedded, HandleKey, Locks};
use tokio::sync::watch;

const LEASE: (Duration, Timestamp) = (Duration::from_secs(3_600), Timestamp::clamped_us(1_790_000_000_000_000));

fn metrics(store: &Embedded) -> Metrics {
    Metrics::new(Some(&Backend::Embedded(store.clone())), &Auctions::over(store.clone()))
}

fn ledger(holds_max: usize) -> Ledger {
    Ledger::new(metrics(&Embedded::memory()).locks, holds_max)
}

const fn id(key: u128) -> RequestId {
    RequestId { key, body: 1 }
}

/// Builds a grant that no client has received, and that no request delivers.
fn kept(number: u64) -> Kept {
    let (offer, told) = (Weak::new(), Arc::new(AtomicBool::new(false)));
    Kept { request: Request { client: ClientId(1), number }, fence: Fence::new(number).unwrap(), offer, told }
}

/// Begins a request whose service has another ledger.
fn begin(ledger: &mut Ledger, key: u128) -> Arc<Wait> {
    let store = Embedded::memory();
    let service = LockService::new(Parts {
        locks: Locks::memory(),
        handle_key: HandleKey::new([7; 32]),
        figures: metrics(&store).locks,
        store: Backend::Embedded(store),
        limits: LockLimits::default(),
        patience: LEASE.0,
        stopping: watch::channel(false).1,
    });
    ledger.begin(id(key), |number| {
        let task = tokio::spawn(async {}).abort_handle();
        Arc::new(Wait { service, key, number, outcome: watch::channel(None).1, task })
    })
}

/// Returns a short description of the look-up of a key.
fn found(ledger: &mut Ledger, key: u128) -> String {
    match ledger.find(id(key)) {
        Found::Waiting(wait, _) => format!("waiting {}", wait.number),
        Found::Offered(..) => "offered".into(),
        Found::Granted(kept, ..) => format!("granted {}", kept.request.number),
        Found::Nothing => "nothing".into(),
        Found::Full => "full".into(),
    }
}

#[tokio::test]
async fn a_hold_that_is_about_to_be_given_back_is_nobodys() {
    let (mut ledger, kept) = (ledger(9), kept(1));
    let wait = begin(&mut ledger, 5);
    ledger.grant(&kept, LEASE, Some((id(5), wait.number)));
    assert_eq!(found(&mut ledger, 5), "nothing");
    kept.told.store(true, Ordering::Release);
    assert_eq!(found(&mut ledger, 5), "granted 1");
}

#[tokio::test]
async fn the_end_of_a_hold_leaves_its_key_to_the_next() {
    let (mut ledger, first, second) = (ledger(9), kept(1), kept(2));
    for kept in [&first, &second] {
        let wait = begin(&mut ledger, 5);
        ledger.grant(kept, LEASE, Some((id(5), wait.number)));
    }
    second.told.store(true, Ordering::Release);
    ledger.end(first.request, End::TakenBack);
    assert_eq!(found(&mut ledger, 5), "granted 2");
    ledger.end(second.request, End::Released);
    assert_eq!(found(&mut ledger, 5), "nothing");
}

#[tokio::test]
async fn a_grant_that_comes_too_late_does_not_take_the_key_of_the_process_that_asks_now() {
    let (mut ledger, kept) = (ledger(9), kept(1));
    let late = begin(&mut ledger, 5).number;
    let now = begin(&mut ledger, 5);
    ledger.grant(&kept, LEASE, Some((id(5), late)));
    assert_eq!(found(&mut ledger, 5), format!("waiting {}", now.number));
}

#[tokio::test]
async fn keys_of_requests_under_way_count_against_the_bound() {
    let mut ledger = ledger(1);
    let _wait = begin(&mut ledger, 5);
    assert_eq!(found(&mut ledger, 6), "full");
}

#[tokio::test]
async fn holds_without_a_key_count_against_the_bound_and_stay_within_it() {
    let mut ledger = ledger(1);
    ledger.grant(&kept(1), LEASE, None);
    assert_eq!(found(&mut ledger, 6), "full");
    ledger.grant(&kept(2), LEASE, None);
    assert_eq!((ledger.holds.len(), ledger.figures.held.get()), (1, 1));
}
