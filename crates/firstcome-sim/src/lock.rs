//! The world of locks: several processes, the store that they share, and a network that does what networks do.
//!
//! - [`workload`] what tasks want, and how bad the world is; `tasks` what they do; [`network`] what becomes of a message; [`table`] what the
//!   store writes down; [`world`] one run
//! - [`history`] what processes asked, were told and did; [`ledger`] what the store's log says of each hold and each
//!   place in line

mod faults;
pub mod history;
pub mod ledger;
pub mod network;
pub mod table;
mod tasks;
pub mod workload;
pub mod world;
