#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks, transaction(tx = async { Ok::<u8, LockError>(7) }))]
async fn bid(locks: &Locks) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
