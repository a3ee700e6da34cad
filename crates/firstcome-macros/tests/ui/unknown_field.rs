#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct Command {
    id: u64,
    bidder: Option<u64>,
}

#[distributed_lock(key = "{command.auction_id}", locks = locks)]
async fn bid(locks: &Locks, command: Command) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{command.id}:{command.bidder}", locks = locks)]
async fn ask(locks: &Locks, command: Command) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
