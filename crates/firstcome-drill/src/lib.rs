//! Plans an event ([`plan`]), plays it against a real service, and audits every answer from the outside ([`drill`]).
//!
//! The other modules are shared by the drill, the command line and the benchmarks: exit codes, output, and own
//! servers. They are in this crate because the other two depend on it.

pub mod arguments;
pub mod database;
pub mod drill;
pub mod failure;
pub mod file_system;
pub mod output;
pub mod own_redis;
pub mod plaintext;
pub mod plan;
pub mod stop;

pub use firstcome_figures::markup;

use firstcome::edge::rng;
