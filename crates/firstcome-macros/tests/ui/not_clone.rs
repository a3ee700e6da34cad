#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct Once;

struct BidError;

impl From<LockError> for BidError {
    fn from(_: LockError) -> Self {
        Self
    }
}

impl firstcome::lock::Retry for BidError {
    fn is_conflict(&self) -> bool {
        true
    }
}

#[distributed_lock(key = "a", locks = locks, retry = 3)]
async fn bid(locks: &Locks, once: Once) -> Result<(), BidError> {
    drop(once);
    Err(BidError)
}

fn main() {}
