//! The settings of failed authentications.

use crate::settings::per_minute;
use clap::Args;
use firstcome_server::FailureLimits;
use firstcome_server::rate::RateLimit;

/// The arguments of `firstcome serve` and `firstcome gate` about failed authentications.
#[derive(Args)]
pub(crate) struct FailureArgs {
    /// Failed authentications per minute and address: unknown keys, forged passes and tickets, wrong logins. Over it keys and
    /// passes are refused unread; 0 for as many as come
    #[arg(long, env = "FIRSTCOME_FAILED_AUTHENTICATIONS_PER_MINUTE", value_name = "N",
        default_value_t = RateLimit::FAILURES.per_minute.get())]
    failed_authentications_per_minute: u32,
    /// Failed authentications per minute and network, an IPv4 /24 or an IPv6 /48; binds only addresses that have failed
    /// themselves [default: 10 times those of an address]
    #[arg(long, env = "FIRSTCOME_NETWORK_FAILED_AUTHENTICATIONS_PER_MINUTE", value_name = "N")]
    network_failed_authentications_per_minute: Option<u32>,
    /// Failed authentications per minute, of all addresses; binds only addresses that have failed themselves
    /// [default: 100 times those of an address]
    #[arg(long, env = "FIRSTCOME_TOTAL_FAILED_AUTHENTICATIONS_PER_MINUTE", value_name = "N")]
    total_failed_authentications_per_minute: Option<u32>,
}

impl FailureArgs {
    /// Returns the limits that are set.
    pub(crate) fn limits(&self) -> FailureLimits {
        let of_address = FailureLimits::of_address(per_minute(self.failed_authentications_per_minute));
        FailureLimits {
            network: self.network_failed_authentications_per_minute.map_or(of_address.network, per_minute),
            total: self.total_failed_authentications_per_minute.map_or(of_address.total, per_minute),
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
        failures: FailureArgs,
    }

    #[test]
    fn the_wider_limits_follow_from_that_of_an_address_unless_they_are_set() {
        let rows = [
            ("", [60, 600, 6_000]),
            ("--failed-authentications-per-minute 7", [7, 70, 700]),
            ("--failed-authentications-per-minute 0", [0, 0, 0]),
            ("--network-failed-authentications-per-minute 9", [60, 9, 6_000]),
            ("--total-failed-authentications-per-minute 0 --failed-authentications-per-minute 2", [2, 20, 0]),
        ];
        for (line, expected) in rows {
            let parsed = Line::parse_from(std::iter::once("firstcome").chain(line.split_whitespace()));
            let FailureLimits { address, network, total } = parsed.failures.limits();
            let counts = [address, network, total].map(|limit| limit.map_or(0, |limit| limit.per_minute.get()));
            assert_eq!(counts, expected, "{line:?}");
        }
    }
}
