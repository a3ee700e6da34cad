//! Copies of the files while a store writes to them, and what a restore makes of them.

use firstcome_sqlite::{
    Begun, LockDurability, RESTORE_DIRECTORY, Restore, Snapshot, SqliteLocks, StoreFile, count_rows, raise_fences,
    verify, verify_locks,
};
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, LockName, OwnerName, UserId};
use firstcome_store::core::lock::{Acquired, ClientId, Copies, LockAnswer, Mode, Request, Step, Wait, Waiter};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{CouponStore, Embedded, FaultKind, LockStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const NAMES: &[&str] = &["firstcome.db", "locks.db"];
const HOUR_US: i64 = 3_600_000_000;

async fn claimed(store: &Embedded, user: &str) {
    let launch = CouponName::parse("launch").expect("a name");
    let claim = Claim { user: UserId::parse(user).expect("a name"), attributes: None, request: None };
    store.claim(&launch, claim).await.expect("the store answers").expect("it is claimed");
}

fn snapshot(directory: &Path, file: StoreFile) -> Snapshot {
    Snapshot::open(directory, file).expect("it opens").expect("the directory has it")
}

fn begun(directory: &Path) -> Restore {
    match Restore::begin(directory, NAMES).expect("it begins") {
        Begun::Restore(restore) => restore,
        Begun::Occupied(path) => panic!("{} is in the way", path.display()),
    }
}

#[tokio::test]
async fn a_copy_is_of_one_moment_and_a_writer_does_not_wait_for_it() {
    let (clock, _) = manual_clock();
    let here = tempfile::tempdir().expect("a directory for the test");
    let (data, copy) = (here.path().join("data"), here.path().join("copy"));
    fs::create_dir(&copy).expect("a directory");
    let store = firstcome_sqlite::open(&data, clock).expect("it opens");
    let launch = CouponName::parse("launch").expect("a name");
    let settings = CouponSettings::with_limit(CouponLimit::new(1_000).expect("a limit"));
    store.put_coupon(&launch, settings).await.expect("the store answers").expect("it is put");
    for number in 0..200 {
        claimed(&store, &format!("before-{number}")).await;
    }
    let moment = snapshot(&data, StoreFile::Data);
    // Each of these is answered after its commit, while the copy is open. The log is moved into the file meanwhile.
    for number in 0..500 {
        claimed(&store, &format!("after-{number}")).await;
    }
    let path = copy.join("firstcome.db");
    let mut told = Vec::new();
    moment.copy_to(&path, |copied, of| told.push((copied, of))).expect("it is copied");
    assert!(told.last().is_some_and(|(copied, of)| copied == of && 0 < *of), "{told:?}");
    store.close();
    let rows = count_rows(&path).expect("it can be read");
    assert_eq!((rows["claim"], rows["coupon"]), (200, 1), "one moment");
    let broken = verify(&copy).expect("it can be read").iter().map(|check| check.breaches).sum::<u64>();
    assert_eq!(broken, 0);
    assert_eq!(count_rows(&data.join("firstcome.db")).expect("it can be read")["claim"], 700);
}

fn step(number: u64) -> (Step, Step) {
    let (name, request) = (LockName::parse("door").expect("a name"), Request { client: ClientId(1), number });
    let owner = OwnerName::parse("tester").expect("a name");
    let waiter = Waiter { request, owner, lease_ms: 60_000, mode: Mode::ALONE };
    let acquire = Step::Acquire { name: name.clone(), waiter, wait: Wait::Yes };
    (acquire, Step::Release { name, request, copies: Copies::One })
}

/// Takes the lock and gives it back. Returns its fence.
async fn fence(locks: &SqliteLocks, number: u64) -> u64 {
    let (acquire, release) = step(number);
    let answer = locks.take(acquire).await.expect("the store answers").said;
    locks.take(release).await.expect("the store answers");
    match answer {
        LockAnswer::Acquired(Acquired::Granted(grant)) => grant.fence.get(),
        said => panic!("it is granted: {said:?}"),
    }
}

#[tokio::test]
async fn fences_told_after_the_backup_are_not_told_again_though_the_clock_is_set_back() {
    let noon_us = 1_700_000_000_000_000;
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(noon_us)));
    let here = tempfile::tempdir().expect("a directory for the test");
    let (data, new) = (here.path().join("data"), here.path().join("new"));
    let open = |directory: &Path| {
        let clock: Arc<ManualClock> = Arc::clone(&clock);
        SqliteLocks::with_clock(directory, LockDurability::Memory, clock).expect("it opens")
    };
    let locks = open(&data);
    let before = fence(&locks, 1).await;
    let moment = snapshot(&data, StoreFile::Locks);
    clock.pass_ms(60_000);
    let after = fence(&locks, 2).await;
    assert!(before < after);

    let restore = begun(&new);
    moment.copy_to(&restore.staging().join("locks.db"), |_, _| ()).expect("it is copied");
    raise_fences(&restore.staging(), Timestamp::clamped_us(noon_us + 120_000_000)).expect("they are raised");
    restore.finish().expect("it is installed");
    clock.set(Timestamp::clamped_us(noon_us - HOUR_US / 2));
    let fresh = open(&new);
    let first = fence(&fresh, 3).await;
    assert!(after < first, "{first} was told, or is below {after}");
    let second = fence(&fresh, 4).await;
    assert!(first < second);
    let broken = verify_locks(&new).expect("it can be read").iter().map(|check| check.breaches).sum::<u64>();
    assert_eq!(broken, 0);
}

#[tokio::test]
async fn a_directory_whose_restore_was_cut_off_is_refused_to_all_until_it_is_restored() {
    let (clock, _) = manual_clock();
    let here = tempfile::tempdir().expect("a directory for the test");
    let (data, new) = (here.path().join("data"), here.path().join("new"));
    firstcome_sqlite::open(&data, clock.clone()).expect("it opens").close();
    drop(SqliteLocks::open(&data, LockDurability::Memory).expect("it opens"));
    let copy = |restore: &Restore| {
        for file in StoreFile::ALL {
            snapshot(&data, file).copy_to(&restore.staging().join(file.name()), |_, _| ()).expect("it is copied");
        }
    };
    // As a kill leaves it in the middle of the installation: one file has its name.
    fs::create_dir_all(new.join(RESTORE_DIRECTORY)).expect("a directory");
    fs::copy(data.join("firstcome.db"), new.join("firstcome.db")).expect("it can be copied");
    let refusals = [
        firstcome_sqlite::open(&new, clock.clone()).map(drop).expect_err("no store"),
        SqliteLocks::open(&new, LockDurability::Memory).map(drop).expect_err("no locks"),
        verify(&new).map(drop).expect_err("nothing to verify"),
        Snapshot::open(&new, StoreFile::Data).map(drop).expect_err("nothing to back up"),
    ];
    for refusal in refusals {
        assert!(refusal.kind == FaultKind::Foreign && refusal.detail.contains("firstcome restore"), "{refusal}");
    }
    let restore = begun(&new);
    assert!(!new.join("firstcome.db").exists(), "what the first restore left is gone");
    copy(&restore);
    let again = Restore::begin(&new, NAMES).map(drop).expect_err("one restore at a time");
    assert_eq!(again.kind, FaultKind::InUse);
    restore.finish().expect("it is installed");
    firstcome_sqlite::open(&new, clock.clone()).expect("it is a store").close();

    // A restore that is given up leaves no store, and one that meets a store changes nothing.
    let other = here.path().join("other");
    let restore = begun(&other);
    copy(&restore);
    drop(restore);
    let left: Vec<_> = fs::read_dir(&other).expect("a directory").map(|entry| entry.expect("it").file_name()).collect();
    assert_eq!(left, ["firstcome.lock"]);
    assert!(matches!(Restore::begin(&data, NAMES), Ok(Begun::Occupied(_))));
    firstcome_sqlite::open(&data, clock).expect("it is as it was").close();
}
