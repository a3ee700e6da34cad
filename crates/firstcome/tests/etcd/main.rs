//! Locks on etcd, against a server of the test's own.
#![cfg(unix)]

mod access;
mod faults;
mod hand_over;
mod lost_answers;
mod proxy;
mod replies;
mod server;
mod tls;
