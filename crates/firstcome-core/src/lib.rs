//! The rules of firstcome, and nothing else.
//!
//! Every rule has the form `state + command + now → answer + change`. Time, identifiers and hash seeds come in as
//! values, so the same input always gives the same answer. The embedded store runs these rules unchanged. The other
//! stores restate them and are compared with them. The simulator runs them in millions of random schedules.
//!
//! # What is never here
//! IO, `async`, a clock, randomness, HTTP, JSON, SQL. No rule can fail for a reason of the machine.
//!
//! One file per primitive ([`coupon`], [`room`], [`lock`], [`auction`] over [`points`]). What they share: names and request
//! ids ([`id`]), instants ([`time`]), every limit with what it protects ([`limits`]), and settings that replace others
//! ([`revision`]).

pub mod auction;
pub mod coupon;
pub mod id;
mod index;
pub mod limits;
pub mod lock;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod points;
pub mod revision;
pub mod room;
pub mod time;
