//! The rules one by one, and simulated nodes and clients that play them against each other.

mod model;
#[cfg(feature = "planted-bugs")]
mod planted;
mod rules;
mod schedules;
