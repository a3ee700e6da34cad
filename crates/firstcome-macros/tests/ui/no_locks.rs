#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct House;

#[distributed_lock(key = "a")]
async fn free() -> Result<(), LockError> {
    Ok(())
}

impl House {
    #[distributed_lock(key = "a")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(key = "a", locks = locks)]
async fn other(locks: u8) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
