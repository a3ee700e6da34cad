#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = self.locks)]
async fn locks(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{self.id}", locks = locks)]
async fn key(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
