//! The settings of anonymous joins.

use crate::settings::per_minute;
use anyhow::anyhow;
use clap::Args;
use firstcome::work::WorkBits;
use firstcome_server::JoinLimits;
use firstcome_server::rate::RateLimit;

/// The arguments of `firstcome serve` and `firstcome gate` about joins.
#[derive(Args)]
pub(crate) struct JoinArgs {
    /// Anonymous joins of a room per minute and address; 0 for as many as come
    #[arg(long, env = "FIRSTCOME_JOINS_PER_MINUTE", value_name = "N", default_value_t = RateLimit::JOINS.per_minute.get())]
    joins_per_minute: u32,
    /// Anonymous joins per minute and network, an IPv4 /24 or an IPv6 /48; 0 for as many as come [default: 10 times those of
    /// an address]
    #[arg(long, env = "FIRSTCOME_NETWORK_JOINS_PER_MINUTE", value_name = "N")]
    network_joins_per_minute: Option<u32>,
    /// Anonymous joins per minute and room, of all addresses [default: as many as come]
    #[arg(long, env = "FIRSTCOME_ROOM_JOINS_PER_MINUTE", value_name = "N")]
    room_joins_per_minute: Option<u32>,
    /// Anonymous joins per minute, of all addresses and rooms [default: as many as come]
    #[arg(long, env = "FIRSTCOME_TOTAL_JOINS_PER_MINUTE", value_name = "N")]
    total_joins_per_minute: Option<u32>,
    /// Work of a join without a key: the hash of its solution begins with this many zero bits, 1 to 26; 0 for none. 18 takes a
    /// phone some seconds
    #[arg(long, env = "FIRSTCOME_JOIN_WORK", value_name = "BITS", value_parser = work, default_value_t = 0)]
    join_work: u8,
}

impl JoinArgs {
    /// Returns the work that is demanded.
    pub(crate) const fn work(&self) -> Option<WorkBits> {
        WorkBits::new(self.join_work)
    }

    /// Returns the limits that are set.
    pub(crate) fn limits(&self) -> JoinLimits {
        let of_address = JoinLimits::of_address(per_minute(self.joins_per_minute));
        JoinLimits {
            network: self.network_joins_per_minute.map_or(of_address.network, per_minute),
            room: self.room_joins_per_minute.and_then(per_minute),
            total: self.total_joins_per_minute.and_then(per_minute),
            ..of_address
        }
    }
}

fn work(text: &str) -> anyhow::Result<u8> {
    let bits = text.parse().ok().filter(|bits| *bits == 0 || WorkBits::new(*bits).is_some());
    bits.ok_or_else(|| anyhow!("must be 0 to {}, not {text}", WorkBits::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        joins: JoinArgs,
    }

    fn joins(arguments: &str) -> Result<JoinArgs, String> {
        let line = Line::try_parse_from(std::iter::once("serve").chain(arguments.split_whitespace()));
        line.map(|line| line.joins).map_err(|error| error.to_string())
    }

    #[test]
    fn the_work_of_a_join_is_checked() {
        for (arguments, expected) in [("", 0), ("--join-work 0", 0), ("--join-work 1", 1), ("--join-work 26", 26)] {
            assert_eq!(joins(arguments).unwrap().work().map_or(0, WorkBits::get), expected, "{arguments}");
        }
        let refused = joins("--join-work 27").err().unwrap();
        assert!(refused.contains("must be 0 to 26, not 27"), "{refused}");
    }

    #[test]
    fn a_network_may_join_ten_times_as_often_as_an_address_unless_it_is_set() {
        let per_minute = |limit: Option<RateLimit>| limit.map_or(0, |limit| limit.per_minute.get());
        for (arguments, expected) in [
            ("", [120, 1_200, 0, 0]),
            ("--joins-per-minute 7", [7, 70, 0, 0]),
            ("--joins-per-minute 0", [0, 0, 0, 0]),
            ("--joins-per-minute 0 --network-joins-per-minute 9", [0, 9, 0, 0]),
            ("--network-joins-per-minute 0", [120, 0, 0, 0]),
            ("--room-joins-per-minute 600 --total-joins-per-minute 900", [120, 1_200, 600, 900]),
            ("--room-joins-per-minute 0", [120, 1_200, 0, 0]),
        ] {
            let limits = joins(arguments).unwrap().limits();
            let set = [limits.address, limits.network, limits.room, limits.total].map(per_minute);
            assert_eq!(set, expected, "{arguments:?}");
        }
    }
}
