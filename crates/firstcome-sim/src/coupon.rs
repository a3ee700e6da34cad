//! The world of coupons: users who claim and redeem, and an operator who changes her mind.
//!
//! - [`workload`] what clients do; [`rows`] what the disk keeps; [`recovery`] a start from it; [`world`] how a run ends
//! - [`history`] what clients asked and were told

pub mod history;
pub mod recovery;
pub mod rows;
pub mod workload;
pub mod world;
