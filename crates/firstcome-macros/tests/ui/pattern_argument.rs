#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct Command {
    auction: u64,
}

#[distributed_lock(key = "AUCTION:{auction}", locks = locks)]
async fn bid(locks: &Locks, Command { auction }: Command) -> Result<u64, LockError> {
    Ok(auction)
}

fn main() {}
