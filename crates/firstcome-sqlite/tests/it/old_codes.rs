//! Codes that were told before codes were bound to their claims.

use crate::in_time;
use crate::older::file_of_version;
use firstcome_sqlite as sqlite;
use firstcome_store::core::coupon::{Claim, Issued, Serial};
use firstcome_store::core::id::{CouponName, UserId};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{ManualClock, SystemClock};
use firstcome_store::{Claimed, CouponStore, RedeemRequest, VoucherKey};
use std::path::Path;
use std::sync::Arc;

const SECRET: [u8; 32] = [7; 32];
const AT: i64 = 1_790_000_000_123_456;

fn name(text: &str) -> CouponName {
    CouponName::parse(text).expect("a valid name")
}

fn by(user: &str) -> Claim {
    Claim { user: UserId::parse(user).expect("a valid user"), attributes: None, request: None }
}

fn of(claimed: &Claimed) -> RedeemRequest {
    RedeemRequest { code: claimed.code.as_str().to_owned(), user: None, request: None }
}

/// A directory of version 3, with claims by ann and bob.
fn old_directory(directory: &Path) {
    let file = file_of_version(directory, 3);
    for (id, coupon, limit) in [(1_i64, "launch", 5), (2, "other", 5), (3, "empty", 5)] {
        let put = "INSERT INTO coupon (id, name, limit_count, voucher_key, created_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
        file.execute(put, (id, coupon, limit, SECRET, AT)).expect("a coupon");
    }
    for (coupon, serial, user) in [(1_i64, 1, "ann"), (1, 2, "bob"), (2, 1, "ann")] {
        let claim = "INSERT INTO claim (id, user, issued_at) VALUES (?1, ?2, ?3)";
        file.execute(claim, (coupon << 32 | serial, user, AT + serial)).expect("a claim");
    }
}

/// The code as the version before told it.
fn old_code(serial: u32) -> String {
    let issued = Issued { serial: Serial::new(serial).expect("a serial"), issued_at: Timestamp::MIN };
    VoucherKey::new(SECRET).unbound().code(issued, "").as_str().to_owned()
}

fn shown(code: String) -> RedeemRequest {
    RedeemRequest { code, user: None, request: None }
}

#[tokio::test]
async fn codes_of_an_older_file_redeem_and_new_claims_have_codes_of_their_own() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    old_directory(directory.path());
    in_time(async {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(AT + 10)));
        let store = sqlite::open(directory.path(), clock).expect("an older file is brought up to date");
        let (launch, other, empty) = (name("launch"), name("other"), name("empty"));
        let redeemed =
            store.redeem(&launch, shown(old_code(2))).await.expect("it answers").expect("an old code is good");
        assert_eq!(&*redeemed.into_inner().user, "bob");
        let told = store.claim_of(&launch, "ann").await.expect("it answers").expect("there is one").expect("ann's");
        assert_eq!(told.claimed.code.as_str(), old_code(1), "and is told as before");
        // A serial that was not issued then has no code of before, neither before nor after it is.
        for (coupon, next) in [(&launch, 3), (&other, 2), (&empty, 1)] {
            let early =
                store.redeem(coupon, shown(old_code(next))).await.expect("it answers").expect_err("no claim has it");
            assert_eq!(early.rejection.code(), "unknown_code");
            let claimed = store.claim(coupon, by("cid")).await.expect("it answers").expect("it is open").into_inner();
            assert_eq!(claimed.issued.serial.get(), next);
            assert_ne!(claimed.code.as_str(), old_code(next));
            let refused =
                store.redeem(coupon, shown(old_code(next))).await.expect("it answers").expect_err("not its code");
            assert_eq!(refused.rejection.code(), "unknown_code");
            store.redeem(coupon, of(&claimed)).await.expect("it answers").expect("its own code is good");
        }
        store.close();
    })
    .await;
    let broken = sqlite::verify(directory.path()).expect("it can be read").into_iter().find(|check| 0 < check.breaches);
    assert!(broken.is_none(), "{broken:?}");
    in_time(async {
        // And so it is when it is opened once more, as a file of this version.
        let store = sqlite::open(directory.path(), Arc::new(SystemClock::default())).expect("it opens again");
        let ann =
            store.redeem(&name("launch"), shown(old_code(1))).await.expect("it answers").expect("it is still good");
        assert_eq!(&*ann.into_inner().user, "ann");
        let empty =
            store.redeem(&name("empty"), shown(old_code(1))).await.expect("it answers").expect_err("not its code");
        assert_eq!(empty.rejection.code(), "unknown_code");
    })
    .await;
}

#[tokio::test]
async fn a_file_that_would_tell_codes_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    old_directory(directory.path());
    sqlite::open(directory.path(), Arc::new(SystemClock::default())).expect("it opens").close();
    let file = rusqlite::Connection::open(directory.path().join(sqlite::DATABASE_FILE)).expect("a file");
    file.execute("UPDATE coupon SET codes_bound_from = 4 WHERE name = 'launch'", ()).expect("an operator edits it");
    drop(file);
    let fault = sqlite::open(directory.path(), Arc::new(SystemClock::default())).expect_err("it is refused");
    assert!(fault.to_string().contains("launch"), "{fault}");
    let broken = sqlite::verify(directory.path()).expect("it can be read").into_iter().find(|check| 0 < check.breaches);
    assert!(broken.is_some_and(|check| check.invariant.starts_with("a code names one claim")));
}
