#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

trait Bidding {
    #[distributed_lock(key = "a")]
    async fn bid(&self) -> Result<(), LockError>;
}

fn main() {}
