//! The library as its users meet it.

#[cfg(all(unix, feature = "sqlite"))]
mod lock_processes;
