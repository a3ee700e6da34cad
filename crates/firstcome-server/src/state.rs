//! What all handlers share.

use crate::accept::Limits;
use crate::auth::{Caller, Keys};
use crate::error::Problem;
use crate::metrics::Metrics;
use axum::http::{HeaderMap, HeaderValue};
use firstcome::{CouponStore, Embedded};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a service is set up.
#[derive(Clone)]
pub struct Config {
    /// Who may do what.
    pub keys: Keys,
    /// Pages of these origins may make public calls; none without it.
    pub allow_origins: Vec<HeaderValue>,
    /// Deadlines and numbers.
    pub limits: Limits,
}

/// A service: its store, its settings, its figures.
pub struct App {
    pub(crate) store: Embedded,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    draining: AtomicBool,
}

impl App {
    /// A service over a store.
    pub fn new(store: Embedded, config: Config) -> Self {
        let metrics = Metrics::new(&store);
        Self { store, config, metrics, draining: AtomicBool::new(false) }
    }

    /// Makes `/readyz` say no, so that a balancer sends nobody any more.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why the service should get no requests, if it should not.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        self.store.fault().map(|fault| fault.kind.code())
    }

    pub(crate) fn is_dev(&self) -> bool {
        matches!(self.config.keys, Keys::Dev)
    }

    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.config.keys.caller(headers)
    }

    pub(crate) fn durability(&self) -> &'static str {
        self.store.durability().as_str()
    }
}
