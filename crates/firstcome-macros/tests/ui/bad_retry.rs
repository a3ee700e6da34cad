#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct Once;

#[distributed_lock(key = "a", locks = locks, retry = 101)]
async fn often(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, pause = "1s")]
async fn alone(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, retry = 3)]
async fn undecided(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, retry = 3)]
async fn lent(locks: &Locks, total: &mut u8) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", locks = locks, retry = 3)]
async fn pattern(locks: &Locks, (low, high): (u8, u8)) -> Result<(), LockError> {
    Ok(())
}

impl Once {
    #[distributed_lock(key = "a", locks = locks, retry = 3)]
    async fn given(self, locks: &Locks) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
