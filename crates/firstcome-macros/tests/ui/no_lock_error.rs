#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct BidError;

#[distributed_lock(key = "a", locks = locks)]
async fn bid(locks: &Locks) -> Result<(), BidError> {
    Err(BidError)
}

fn main() {}
