#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

struct House {
    locks: Locks,
}

impl House {
    #[distributed_lock(key = "AUCTION:{comand.auction_id}")]
    async fn bid(&self, command: u64, price: u32) -> Result<u32, LockError> {
        Ok(price)
    }
}

fn main() {}
