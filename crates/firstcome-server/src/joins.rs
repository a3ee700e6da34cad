//! The caps on anonymous joins: per address, per network, per room and in total.
//!
//! # What it promises
//! - A join passes if each cap lets it pass, each by the rule of [`rate`](crate::rate).
//! - Narrow caps come before wide ones. A client that is over the cap of its address takes nothing from its network, and
//!   an address or a network that is over its cap takes nothing from the room.
//! - A join that a wider cap refuses still counts for the narrower ones.
//!
//! # What it does not promise
//! - Anything across a restart, or across several servers: each server counts alone.
//! - That a crowd of people gets through the caps of a room and of the service. These bound what a flood can add to a
//!   line, and refuse people with it.

use crate::address::wide_network;
use crate::rate::{Counted, Limited, Limiter, RateLimit, Table};
use crate::work::Earned;
use firstcome::core::id::RoomName;
use firstcome::core::time::Timestamp;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

/// How many times as much a network may join as an address, unless an operator says otherwise.
const NETWORK_TIMES: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// How often visitors may join anonymously. A cap that is `None` refuses no join. Joins with a key are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinLimits {
    /// For one IPv4 address, or one IPv6 /64.
    pub address: Option<RateLimit>,
    /// For one IPv4 /24, or one IPv6 /48.
    pub network: Option<RateLimit>,
    /// For one room.
    pub room: Option<RateLimit>,
    /// For all rooms together.
    pub total: Option<RateLimit>,
    /// For one network, of joins that wait in place of the work that [`Config::join_work`](crate::Config) demands.
    pub wait: Option<RateLimit>,
}

impl JoinLimits {
    /// Returns the caps that follow from that of an address: ten times as much for a network, a tenth for joins of a network
    /// that wait, and no cap of a room or in total.
    pub fn of_address(address: Option<RateLimit>) -> Self {
        Self {
            address,
            network: address.map(|limit| limit.times(NETWORK_TIMES)),
            room: None,
            total: None,
            wait: address.map(RateLimit::tenth),
        }
    }
}

impl Default for JoinLimits {
    fn default() -> Self {
        Self::of_address(Some(RateLimit::JOINS))
    }
}

/// Which cap has refused a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cap {
    Address,
    Network,
    Room,
    Total,
    Wait,
}

impl Cap {
    pub(crate) const ALL: [Self; 5] = [Self::Address, Self::Network, Self::Room, Self::Total, Self::Wait];

    /// The name in metrics and in problems.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Network => "network",
            Self::Room => "room",
            Self::Total => "total",
            Self::Wait => "wait",
        }
    }
}

/// Counts the anonymous joins of this server.
pub(crate) struct Joins {
    address: Limiter,
    network: Limiter,
    room: Limiter,
    total: Limiter,
    wait: Limiter,
}

impl Joins {
    pub(crate) fn new(limits: JoinLimits, table: &Arc<Table>) -> Self {
        let limiter = |limit, counted| Limiter::new(limit, counted, table);
        Self {
            address: limiter(limits.address, Counted::JoinsOfAddress),
            network: limiter(limits.network, Counted::JoinsOfNetwork),
            room: limiter(limits.room, Counted::JoinsOfRoom),
            total: limiter(limits.total, Counted::JoinsInTotal),
            wait: limiter(limits.wait, Counted::JoinsThatWait),
        }
    }

    /// Counts one join, or says which cap refuses it and when the next one passes. Without a `room` only the caps of the
    /// client count.
    pub(crate) fn check(
        &self,
        client: IpAddr,
        room: Option<&RoomName>,
        earned: Earned,
        now: Timestamp,
    ) -> Result<(), (Cap, Limited)> {
        self.address.check(client, now).map_err(|limited| (Cap::Address, limited))?;
        let network = wide_network(client);
        if earned == Earned::Wait {
            self.wait.check_key(&network, now).map_err(|limited| (Cap::Wait, limited))?;
        }
        self.network.check_key(&network, now).map_err(|limited| (Cap::Network, limited))?;
        let Some(room) = room else { return Ok(()) };
        self.room.check_key(room, now).map_err(|limited| (Cap::Room, limited))?;
        self.total.check_key(&(), now).map_err(|limited| (Cap::Total, limited))
    }
}
