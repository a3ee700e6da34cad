#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks, permits = 0)]
async fn none(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, permits = 1001)]
async fn many(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, shared, permits = 3)]
async fn both(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, shared = "yes")]
async fn said(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
