//! The settings of anonymous joins.

use crate::failure::Failure;
use crate::settings::{File, per_minute};
use anyhow::anyhow;
use clap::Args;
use firstcome::work::WorkBits;
use firstcome_server::JoinLimits;
use firstcome_server::rate::RateLimit;
use std::num::NonZeroU32;

/// The arguments of `firstcome serve` and `firstcome gate` about joins.
#[derive(Args)]
pub(crate) struct JoinArgs {
    /// Anonymous joins of a room per minute and address; 0 for as many as come [default: 120]
    #[arg(long, env = "FIRSTCOME_JOINS_PER_MINUTE", value_name = "N")]
    joins_per_minute: Option<u32>,
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
    /// phone some seconds [default: 0]
    #[arg(long, env = "FIRSTCOME_JOIN_WORK", value_name = "BITS")]
    join_work: Option<u8>,
}

impl JoinArgs {
    /// Returns the work that is demanded, here or in the file.
    pub(crate) fn work(&self, file: &File) -> Result<Option<WorkBits>, Failure> {
        match self.join_work.or(file.join_work) {
            None | Some(0) => Ok(None),
            Some(bits) => WorkBits::new(bits)
                .map(Some)
                .ok_or_else(|| Failure::Usage(anyhow!("join-work must be 0 to {}, not {bits}", WorkBits::MAX))),
        }
    }

    /// Returns the limits that are set, here or in the file.
    pub(crate) fn limits(&self, file: &File) -> JoinLimits {
        let given = |count: u32| NonZeroU32::new(count).map(RateLimit::per_minute);
        let of_address =
            JoinLimits::of_address(per_minute(self.joins_per_minute.or(file.joins_per_minute), RateLimit::JOINS));
        let network = self.network_joins_per_minute.or(file.network_joins_per_minute);
        JoinLimits {
            network: network.map_or(of_address.network, given),
            room: self.room_joins_per_minute.or(file.room_joins_per_minute).and_then(given),
            total: self.total_joins_per_minute.or(file.total_joins_per_minute).and_then(given),
            ..of_address
        }
    }
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

    fn limits(arguments: &str, file: &str) -> JoinLimits {
        let line = Line::parse_from(std::iter::once("serve").chain(arguments.split_whitespace()));
        line.joins.limits(&toml::from_str(file).unwrap())
    }

    fn per_minute(limit: Option<RateLimit>) -> u32 {
        limit.map_or(0, |limit| limit.per_minute.get())
    }

    #[test]
    fn the_work_of_a_join_is_checked() {
        let work = |arguments: &str| {
            let line = Line::parse_from(std::iter::once("serve").chain(arguments.split_whitespace()));
            line.joins.work(&File::default()).map(|bits| bits.map_or(0, WorkBits::get)).map_err(|failure| match failure
            {
                Failure::Usage(error) => error.to_string(),
                _ => "another failure".to_owned(),
            })
        };
        for (arguments, expected) in [("", 0), ("--join-work 0", 0), ("--join-work 1", 1), ("--join-work 26", 26)] {
            assert_eq!(work(arguments), Ok(expected), "{arguments}");
        }
        assert_eq!(work("--join-work 27"), Err("join-work must be 0 to 26, not 27".to_owned()));
    }

    #[test]
    fn a_network_may_join_ten_times_as_often_as_an_address_unless_it_is_set() {
        for (arguments, file, expected) in [
            ("", "", [120, 1_200, 0, 0]),
            ("--joins-per-minute 7", "", [7, 70, 0, 0]),
            ("--joins-per-minute 0", "", [0, 0, 0, 0]),
            ("--joins-per-minute 0 --network-joins-per-minute 9", "", [0, 9, 0, 0]),
            ("--network-joins-per-minute 0", "network-joins-per-minute = 9", [120, 0, 0, 0]),
            ("--room-joins-per-minute 600", "total-joins-per-minute = 900", [120, 1_200, 600, 900]),
            ("--room-joins-per-minute 0", "room-joins-per-minute = 5", [120, 1_200, 0, 0]),
        ] {
            let limits = limits(arguments, file);
            let set = [limits.address, limits.network, limits.room, limits.total].map(per_minute);
            assert_eq!(set, expected, "{arguments:?} {file:?}");
        }
    }
}
