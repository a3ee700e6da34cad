//! The HTTP service of firstcome.
//!
//! Only this crate knows HTTP and JSON. A request goes one way: [`accept`] (connections and their deadlines) → [`api`]
//! (authorization and parsing) → the store (the rules) → an answer or a [`error::Problem`].
//!
//! # What it promises
//! - Every refusal is `application/problem+json` with a stable code ([`error::Code`]); a refusal by a rule is never a
//!   5xx, and no answer carries internal text.
//! - Bounded everywhere: connections, headers, bodies, waiting commands, and the time that each may take.
//! - [`serve`] returns only after every accepted request was answered, or the drain's deadline has passed.

// An optimised build computes the layout of the handlers' futures through every layer down to the stores.
#![recursion_limit = "256"]

pub mod accept;
pub mod address;
pub mod api;
mod auction;
pub mod audit;
pub mod auth;
mod backend;
mod cookie;
mod dashboard;
pub mod error;
mod failures;
pub mod gate;
mod grace;
mod joins;
pub mod live;
mod lock;
mod metrics;
mod pages;
mod panics;
pub mod pass;
mod purge;
pub mod rate;
mod receipt;
mod request_id;
pub mod rfc3339;
mod security_headers;
mod state;
mod trace;
mod work;

pub use accept::{
    ADMIN_CONNECTIONS_MAX, ConnectionThreads, Limits, serve, serve_admin, serve_on_threads, serve_stream,
};
pub use api::appearance::appearance_of_json;
pub use auth::{FirstKeys, Keys, Scope};
pub use failures::FailureLimits;
pub use grace::{GracePolicy, OnLoss};
pub use joins::JoinLimits;
pub use lock::LockLimits;
pub use panics::log_panics;
pub use request_id::current as current_request_id;
pub use state::{App, Config};
#[cfg(feature = "otlp")]
pub use trace::{OtlpEndpoint, TraceConfig};
