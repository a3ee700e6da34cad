//! The client against a real service: over real sockets, in the same process.

mod arrival;
mod conformance;
mod faults;
mod heads;
mod lock;
mod pass;
mod pass_on_cluster;
mod proxy;
mod scripted;
mod service;
mod tls;
mod watch;
mod whole;
