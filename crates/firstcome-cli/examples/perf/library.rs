//! The operations of `world` as a program asks for them, through the handles of the library: the difference is what the
//! handles cost.

use crate::world::{World, coupon_name, user};
use firstcome::core::coupon::Rejection;
use firstcome::{AnyStore, CouponHandle, Error, Outcome, Store};
use std::hint::black_box;

/// A world with one coupon, its handle, and who claims it.
fn world(limit: u32) -> (World, CouponHandle, Vec<String>) {
    let mut world = World::new();
    world.put_coupon(&coupon_name(), limit);
    let store: Store = Store::over(AnyStore::from(world.store.clone()));
    let coupon = store.coupon(coupon_name().as_str()).expect("a name");
    let users = (0..crate::COUNT_MAX).map(|number| user(number).as_str().to_owned()).collect();
    (world, coupon, users)
}

/// A claim that is issued.
pub(crate) fn claim(count: usize) {
    let (mut world, coupon, users) = world(1_000_000);
    for user in users.iter().take(count) {
        let answer = black_box(world.ask(coupon.claim(user).expect("a user").send()));
        assert!(matches!(answer, Ok(Outcome::Issued(_))));
    }
}

/// A claim of a user who comes after the last coupon is gone.
pub(crate) fn sold_out(count: usize) {
    let (mut world, coupon, users) = world(1);
    let mut users = users.iter();
    let first = users.next().expect("a user");
    assert!(world.ask(coupon.claim(first).expect("a user").send()).is_ok());
    for user in users.take(count) {
        let answer = black_box(world.ask(coupon.claim(user).expect("a user").send()));
        assert!(matches!(answer, Err(Error::Refused(Rejection::SoldOut))));
    }
}
