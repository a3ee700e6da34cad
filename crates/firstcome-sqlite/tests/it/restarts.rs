//! What a file keeps of time when the store is opened again.

use firstcome_store::conformance::manual_clock;
use firstcome_store::core::coupon::Effect;
use firstcome_store::core::id::{MemberName, RequestId};
use firstcome_store::core::limits::POINTS_KEY_MS;
use firstcome_store::core::points::Amount;
use firstcome_store::{AuctionStore, Embedded, MovePoints, Transfer};

async fn charged(store: &Embedded, name: &str, key: Option<u128>) -> (&'static str, u64) {
    let member = MemberName::parse(name).expect("a name");
    let request = key.map(|key| RequestId { key, body: 5 });
    let amount = Amount::new(5).expect("an amount");
    let charge = MovePoints { transfer: Transfer::Charge, amount, request };
    let answer = store.move_points(&member, charge).await.expect("the store answers").expect("it is charged");
    let word = if matches!(answer, Effect::New(_)) { "new" } else { "again" };
    (word, answer.into_inner().total())
}

/// The wall's clock is set forward, and the key of a charge is still known after a restart.
#[tokio::test]
async fn a_wall_clock_set_forward_makes_no_repeat_a_second_charge_after_a_restart() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = || firstcome_sqlite::open(directory.path(), clock.clone()).expect("it opens");
    let store = open();
    assert_eq!(charged(&store, "ann", Some(7)).await, ("new", 5));
    clock.step_forward_ms(2 * POINTS_KEY_MS);
    clock.pass_ms(1_000);
    // Points that move tell the file what both clocks show.
    charged(&store, "bob", None).await;
    store.close();
    drop(store);
    let store = open();
    assert_eq!(charged(&store, "ann", Some(7)).await, ("again", 5));
    store.close();
    drop(store);
    clock.pass_ms(POINTS_KEY_MS);
    assert_eq!(charged(&open(), "ann", Some(7)).await, ("new", 10));
}
