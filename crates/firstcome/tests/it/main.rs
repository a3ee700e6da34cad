//! The library as its users meet it.

mod any_store;
#[cfg(all(unix, feature = "sqlite"))]
mod lock_processes;
