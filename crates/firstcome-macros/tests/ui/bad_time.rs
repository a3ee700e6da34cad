#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks, wait = "5 seconds")]
async fn words(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, wait = "5")]
async fn unit(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, wait = 5)]
async fn number(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, wait = "61m")]
async fn wait(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, lease = "99ms")]
async fn short(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, lease = "193h")]
async fn long(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
