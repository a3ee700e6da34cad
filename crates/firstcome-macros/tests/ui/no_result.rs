#![allow(unused_imports)]

use firstcome::{LockError, Locks, distributed_lock};

#[distributed_lock(key = "a", locks = locks)]
async fn nothing(locks: &Locks) {}

#[distributed_lock(key = "a", locks = locks)]
async fn pair(locks: &Locks) -> (u8, u8) {
    (1, 2)
}

#[distributed_lock(key = "a", locks = locks)]
async fn option(locks: &Locks) -> Option<u8> {
    None
}

fn main() {}
