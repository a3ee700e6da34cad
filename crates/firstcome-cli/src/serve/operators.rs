//! The port of operators: where it may listen, and who may read its figures.

use crate::failure::Failure;
use anyhow::anyhow;
use firstcome_server::api::FiguresFor;
use std::net::SocketAddr;

/// Refuses an address that other machines reach in development mode, which knows no keys.
pub(super) fn check(address: Option<SocketAddr>, dev: bool) -> Result<Option<SocketAddr>, Failure> {
    match address {
        Some(address) if dev && !address.ip().is_loopback() => Err(Failure::Usage(anyhow!(
            "--dev takes an --admin-listen on loopback only, not {address}: without keys anybody who reaches it reads the figures"
        ))),
        address => Ok(address),
    }
}

/// Other machines reach an address that is not on loopback, so the figures need a key there.
pub(super) fn figures_for(address: SocketAddr) -> FiguresFor {
    if address.ip().is_loopback() { FiguresFor::AnyClient } else { FiguresFor::Keys }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_need_a_key_where_other_machines_can_ask_for_them() {
        for (address, figures_for) in [
            ("127.0.0.1:8081", FiguresFor::AnyClient),
            ("127.8.9.1:8081", FiguresFor::AnyClient),
            ("[::1]:8081", FiguresFor::AnyClient),
            ("0.0.0.0:8081", FiguresFor::Keys),
            ("[::]:8081", FiguresFor::Keys),
            ("10.0.0.7:8081", FiguresFor::Keys),
            ("[2001:db8::1]:8081", FiguresFor::Keys),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(super::figures_for(address), figures_for, "{address}");
            assert_eq!(check(Some(address), true).is_ok(), figures_for == FiguresFor::AnyClient, "{address}");
            assert!(check(Some(address), false).is_ok(), "{address}");
        }
        assert!(check(None, true).is_ok());
    }
}
