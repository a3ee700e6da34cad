//! The world of auctions: as the world of coupons, with members who bid, buy, settle late and repeat themselves, and
//! with a clock that stops where it matters: at a start, at an end, at the last instant to settle, and beside them.
//!
//! - [`workload`] what members do; [`rows`] what the disk keeps; [`recovery`] a start from it; [`world`] how a run ends
//! - [`history`] what they asked and were told; [`ledger`] what the disk says happened, listing by listing
//! - [`rules`] the rules of a listing said once more; [`replay`] how each listing stood at each moment, by these

pub mod history;
pub mod ledger;
pub mod recovery;
pub mod replay;
pub mod rows;
pub mod rules;
pub mod workload;
pub mod world;
