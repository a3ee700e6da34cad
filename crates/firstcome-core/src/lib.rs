//! The rules of firstcome, and nothing else.
//!
//! Every rule has the form `state + command + now → answer + change`. Time, identifiers and hash seeds come in as
//! values, so the same input always gives the same answer: the embedded store runs these rules as they are, the
//! other stores restate them and are compared with them, the simulator plays them by the million.
//!
//! # What is never here
//! IO, `async`, a clock, randomness, HTTP, JSON, SQL. Nothing here can fail for a reason of the machine.
//!
//! One file per primitive ([`coupon`], [`room`], [`lock`], [`auction`] over [`points`]), and what they share: [`id`] names and request ids, [`time`] instants, [`limits`] every limit with the thing that it protects, [`revision`] settings that replace
//! others.

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
