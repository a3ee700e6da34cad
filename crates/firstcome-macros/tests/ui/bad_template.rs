#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "AUCTION:{id", locks = locks)]
async fn open(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "AUCTION:id}", locks = locks)]
async fn closed(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "", locks = locks)]
async fn empty(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "AUCTION:{}", locks = locks)]
async fn nothing(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "AUCTION:{id:04}", locks = locks)]
async fn format(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "AUCTION:{{{id}}}", locks = locks)]
async fn braces(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ":{id}", locks = locks)]
async fn start(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", owner = "two words", locks = locks)]
async fn owner(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
