//! Promises that were once broken in a running service. Each file opens with the story, and plays it against the real program and
//! real servers. `cargo test --release -p firstcome-cli --test it stories::` plays them against the release build.

mod anonymous_calls;
mod auction_went_back;
mod behind_proxies;
mod closing_room;
mod cluster_restored;
mod dashboard;
mod database_went_back;
mod directory_restored;
mod first_poll;
mod lock_keepers_killed;
mod one_address;
mod pages_for_all;
mod passes_offline;
mod receipts;
mod redis_unfit;
mod renewals_killed;
mod room_went_back;
mod secret_replaced;
mod site_gate;
mod stopping;
mod transient_fault;
