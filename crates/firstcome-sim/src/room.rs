//! The world of waiting rooms: as the world of coupons, with clients that wait, go silent, come back and leave.
//!
//! - [`workload`] what clients do; [`rows`] what the disk keeps; [`recovery`] a start from it; [`world`] how a run ends
//! - [`history`] what clients asked and were told; [`ledger`] what the disk says happened, ticket by ticket

pub mod history;
pub mod ledger;
pub mod recovery;
pub mod rows;
pub mod workload;
pub mod world;
