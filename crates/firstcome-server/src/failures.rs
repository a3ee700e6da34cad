//! The caps on failed authentications: per address, per network and in total.
//!
//! A failed authentication is an unknown key, a forged pass, a ticket that its room never gave out, or a login to the
//! dashboard with a wrong key.
//!
//! # What it promises
//! - Once an address has failed as often as it may, its keys and passes are refused unread until its next attempt is due:
//!   no digest of a key and no signature of a pass is computed for it.
//! - Failures of other addresses lock no client out. An address without a failure of its own always has an attempt. The caps
//!   of a network and of all addresses together bind only an address that has failed itself a moment ago.
//! - An address from which a valid key has come keeps being read: its wrong keys are refused, and its valid ones pass. So a
//!   back end goes on beside a neighbour, behind the same address, that still sends an old key.
//! - A pass that this server has minted or verified passes all the same, and so does a ticket: to read them costs no
//!   signature.
//! - A call with a valid key counts no failure: a back end shows what its visitors have shown to it.
//! - A refused attempt is not counted.
//!
//! # What it does not promise
//! - That a valid key passes at once at an address that has failed too often and has never shown one. It is refused as a
//!   guess would be, since only the work that the cap saves could tell them apart.
//! - To stop guesses from very many addresses: each has one attempt per interval.
//! - Anything across a restart, or across several servers: each server counts alone.

use crate::address::{network, wide_network};
use crate::rate::{Counted, Limited, Limiter, RateLimit, Standing, Table};
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_hasher;
use firstcome::throttle::Throttle;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How many times as often a network may fail as an address, unless an operator says otherwise.
const NETWORK_TIMES: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// How many times as often all addresses together may fail as one, unless an operator says otherwise.
const TOTAL_TIMES: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// The most addresses that are remembered to have shown a valid key. One more takes the place of another.
const PROVEN_MAX: usize = 4_096;

/// How often authentications may fail. A cap that is `None` refuses nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureLimits {
    /// For one IPv4 address, or one IPv6 /64.
    pub address: Option<RateLimit>,
    /// For one IPv4 /24, or one IPv6 /48.
    pub network: Option<RateLimit>,
    /// For all addresses together.
    pub total: Option<RateLimit>,
}

impl FailureLimits {
    /// Returns the caps that follow from that of an address: ten times as much for a network, and a hundred times as much in
    /// total.
    pub fn of_address(address: Option<RateLimit>) -> Self {
        let times = |times| address.map(|limit| limit.times(times));
        Self { address, network: times(NETWORK_TIMES), total: times(TOTAL_TIMES) }
    }
}

impl Default for FailureLimits {
    fn default() -> Self {
        Self::of_address(Some(RateLimit::FAILURES))
    }
}

/// Which cap has refused an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureCap {
    Address,
    Network,
    Total,
}

impl FailureCap {
    pub(crate) const ALL: [Self; 3] = [Self::Address, Self::Network, Self::Total];

    /// The name in metrics and in problems.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Network => "network",
            Self::Total => "total",
        }
    }
}

/// What a client has shown in vain. An answer carries it as an extension to the connection, which counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credential {
    Key,
    Pass,
    Ticket,
    Login,
}

impl Credential {
    pub(crate) const ALL: [Self; 4] = [Self::Key, Self::Pass, Self::Ticket, Self::Login];

    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Pass => "pass",
            Self::Ticket => "ticket",
            Self::Login => "login",
        }
    }
}

/// Tells the log who has shown what in vain, for each kind once a second at most. Never with the credential.
pub(crate) fn note_failed_authentication(client: IpAddr, shown: Credential) {
    static FAILED: [Throttle; Credential::ALL.len()] = [const { Throttle::new() }; Credential::ALL.len()];
    if let Some(left_out) = FAILED[shown as usize].pass() {
        tracing::info!(credential = shown.as_str(), address = %client, left_out, "an authentication failed");
    }
}

/// Tells the log whose attempts are refused unread, for each cap once a second at most.
pub(crate) fn note_refused_attempt(client: IpAddr, cap: FailureCap) {
    static REFUSED: [Throttle; FailureCap::ALL.len()] = [const { Throttle::new() }; FailureCap::ALL.len()];
    if let Some(left_out) = REFUSED[cap as usize].pass() {
        tracing::warn!(
            limit = cap.as_str(), address = %client, left_out, "refusing authentications unread: too many have failed"
        );
    }
}

/// An attempt is over a cap.
pub(crate) type Refused = (FailureCap, Limited);

/// Counts the failed authentications of this server.
pub(crate) struct Failures {
    address: Limiter,
    network: Limiter,
    total: Limiter,
    /// No cap is used up from this instant on, in microseconds. Most calls read nothing else.
    used_up_until_us: AtomicI64,
    /// Hashes of the addresses that have shown a valid key, each at the place that its hash names.
    proven: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Failures {
    pub(crate) fn new(limits: FailureLimits, table: &Arc<Table>) -> Self {
        Self {
            address: Limiter::new(limits.address, Counted::FailuresOfAddress, table),
            network: Limiter::new(limits.network, Counted::FailuresOfNetwork, table),
            total: Limiter::new(limits.total, Counted::FailuresInTotal, table),
            used_up_until_us: AtomicI64::new(i64::MIN),
            proven: (0..PROVEN_MAX).map(|_| AtomicU64::new(0)).collect(),
            hasher: draw_hasher(),
        }
    }

    /// Whether no cap was ever used up. Reads one number.
    pub(crate) fn are_few(&self) -> bool {
        self.used_up_until_us.load(Ordering::Relaxed) == i64::MIN
    }

    /// Says whether a client may try to authenticate, or which cap refuses it and when its next attempt passes. Counts
    /// nothing. Reads one number while no cap is used up.
    pub(crate) fn check(&self, client: IpAddr, now: impl FnOnce() -> Timestamp) -> Result<(), Refused> {
        let until_us = self.used_up_until_us.load(Ordering::Relaxed);
        if until_us == i64::MIN {
            return Ok(());
        }
        let now = now();
        if until_us <= now.as_us() {
            return Ok(());
        }
        let refused_by = |cap| move |limited| (cap, limited);
        let standing = self.address.peek_key(&network(client), now).map_err(refused_by(FailureCap::Address))?;
        if standing == Standing::Free {
            return Ok(());
        }
        self.network.peek_key(&wide_network(client), now).map_err(refused_by(FailureCap::Network))?;
        self.total.peek_key(&(), now).map_err(refused_by(FailureCap::Total))?;
        Ok(())
    }

    /// Counts one failure, or says which cap it is over. Such a failure is answered as an attempt that was refused.
    pub(crate) fn count(&self, client: IpAddr, now: Timestamp) -> Result<(), Refused> {
        let (address, wide) = (network(client), wide_network(client));
        let counted = self.count_narrow_first(&address, &wide, now);
        let next =
            [self.address.peek_key(&address, now), self.network.peek_key(&wide, now), self.total.peek_key(&(), now)];
        let waits_ms = next.iter().filter_map(|next| next.err()).map(|limited| limited.retry_after_ms);
        if let Some(wait_ms) = waits_ms.max() {
            let wait_us = i64::try_from(wait_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
            self.used_up_until_us.fetch_max(now.as_us().saturating_add(wait_us), Ordering::Relaxed);
        }
        counted
    }

    /// An address that is over its cap takes nothing from its network, and a network nothing from the total.
    fn count_narrow_first(
        &self,
        address: &IpAddr,
        wide: &crate::address::Block,
        now: Timestamp,
    ) -> Result<(), Refused> {
        self.address.check_key(address, now).map_err(|limited| (FailureCap::Address, limited))?;
        self.network.check_key(wide, now).map_err(|limited| (FailureCap::Network, limited))?;
        self.total.check_key(&(), now).map_err(|limited| (FailureCap::Total, limited))
    }

    /// Remembers that a valid key has come from this address.
    pub(crate) fn prove(&self, client: IpAddr) {
        let hash = self.hash(client);
        let place = &self.proven[hash as usize % PROVEN_MAX];
        if place.load(Ordering::Relaxed) != hash {
            place.store(hash, Ordering::Relaxed);
        }
    }

    /// Whether a valid key has come from this address, as far as it is remembered.
    pub(crate) fn is_proven(&self, client: IpAddr) -> bool {
        let hash = self.hash(client);
        self.proven[hash as usize % PROVEN_MAX].load(Ordering::Relaxed) == hash
    }

    /// Never 0, which stands for no address.
    fn hash(&self, client: IpAddr) -> u64 {
        self.hasher.hash_one(network(client)) | 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_US: i64 = 1_790_000_000_000_003;

    fn limit(per_minute: u32, burst: u32) -> Option<RateLimit> {
        let [per_minute, burst] = [per_minute, burst].map(|count| NonZeroU32::new(count).unwrap());
        Some(RateLimit { per_minute, burst })
    }

    fn failures(address: Option<RateLimit>, network: Option<RateLimit>, total: Option<RateLimit>) -> Failures {
        Failures::new(FailureLimits { address, network, total }, &Table::new(draw_hasher()))
    }

    fn at(since_ms: i64) -> Timestamp {
        Timestamp::from_us(START_US + since_ms * 1_000).unwrap()
    }

    fn may(failures: &Failures, client: &str, since_ms: i64) -> Result<(), FailureCap> {
        failures.check(client.parse().unwrap(), || at(since_ms)).map_err(|(cap, _)| cap)
    }

    fn fail(failures: &Failures, client: &str, since_ms: i64) -> Result<(), FailureCap> {
        failures.count(client.parse().unwrap(), at(since_ms)).map_err(|(cap, _)| cap)
    }

    #[test]
    fn an_address_that_has_failed_too_often_waits_and_others_do_not() {
        let failures = failures(limit(60, 3), None, None);
        for _ in 0..3 {
            assert_eq!(may(&failures, "192.0.2.1", 0), Ok(()));
            assert_eq!(fail(&failures, "192.0.2.1", 0), Ok(()));
        }
        assert_eq!(may(&failures, "192.0.2.1", 0), Err(FailureCap::Address));
        // A failure that was under way meanwhile is refused as well, and costs nothing more.
        assert_eq!(fail(&failures, "192.0.2.1", 0), Err(FailureCap::Address));
        assert_eq!(may(&failures, "192.0.2.2", 0), Ok(()));
        assert_eq!(may(&failures, "192.0.2.1", 999), Err(FailureCap::Address));
        assert_eq!(may(&failures, "192.0.2.1", 1_000), Ok(()));
        assert_eq!(fail(&failures, "192.0.2.1", 1_000), Ok(()));
        assert_eq!(may(&failures, "192.0.2.1", 1_001), Err(FailureCap::Address));
    }

    #[test]
    fn a_network_or_a_total_that_is_used_up_binds_only_addresses_that_have_failed() {
        for (network, total, cap) in
            [(limit(60, 4), None, FailureCap::Network), (None, limit(60, 4), FailureCap::Total)]
        {
            let failures = failures(limit(60, 10), network, total);
            for last in 1..=4 {
                assert_eq!(fail(&failures, &format!("192.0.2.{last}"), 0), Ok(()));
            }
            assert_eq!(may(&failures, "192.0.2.1", 0), Err(cap));
            assert_eq!(may(&failures, "192.0.2.9", 0), Ok(()), "it has not failed");
            assert_eq!(fail(&failures, "192.0.2.9", 0), Err(cap), "and has one attempt");
            assert_eq!(may(&failures, "192.0.2.9", 0), Err(cap));
            let elsewhere = if cap == FailureCap::Network { Ok(()) } else { Err(cap) };
            assert_eq!(fail(&failures, "198.51.100.1", 0), elsewhere);
        }
    }

    #[test]
    fn an_address_that_has_shown_a_valid_key_is_remembered() {
        let failures = failures(limit(60, 3), None, None);
        let client = "2001:db8::1".parse().unwrap();
        assert!(!failures.is_proven(client));
        failures.prove(client);
        assert!(failures.is_proven("2001:db8::2".parse().unwrap()), "its /64");
        assert!(!failures.is_proven("2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn without_limits_failures_refuse_nothing() {
        let failures = failures(None, None, None);
        for _ in 0..1_000 {
            assert_eq!(fail(&failures, "192.0.2.1", 0), Ok(()));
        }
        assert_eq!(may(&failures, "192.0.2.1", 0), Ok(()));
    }
}
