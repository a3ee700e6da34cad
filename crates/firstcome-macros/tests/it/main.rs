//! What `#[distributed_lock]` does, and what the compiler says to the caller that misuses it.

mod exits;
mod lost;
mod misuse;
mod order;
mod retry;
mod shapes;
mod sharing;
mod support;
mod transaction;
