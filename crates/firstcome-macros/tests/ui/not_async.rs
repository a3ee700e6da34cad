#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks)]
fn bid(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
