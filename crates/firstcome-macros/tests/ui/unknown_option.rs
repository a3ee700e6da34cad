#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks, waits = "5s")]
async fn unknown(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(locks = locks)]
async fn keyless(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, guard = locks)]
async fn taken(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, guard = self.guard)]
async fn path(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, transaction = begin())]
async fn form(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
