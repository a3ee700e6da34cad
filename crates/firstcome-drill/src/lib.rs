//! Plans an event ([`plan`]), plays it against a real service, and audits every answer from the outside ([`drill`]).
//!
//! The other modules are what the drill, the command line and the benchmarks share: how a command ends, what it prints, and the
//! servers that it has for itself. They lie here because the drill is the lowest of the three.

pub mod arguments;
pub mod database;
pub mod drill;
pub mod failure;
pub mod file_system;
pub mod markup;
pub mod output;
pub mod own_redis;
pub mod plan;
pub mod stop;

use firstcome::edge::rng;
