//! Finds the address of the client behind trusted proxies.
//!
//! A proxy appends the address of its own caller to `X-Forwarded-For`. Entries further left were there before, and the
//! client may have made them up. So the server reads the list from the right, only as far as trusted proxies wrote it.
//!
//! # What it promises
//! - A peer that is no trusted proxy is the client itself, no matter what its headers say.
//! - What a client writes into the header by itself is never believed, as long as the trusted proxies append to it (or
//!   replace it) and no client except them can call from the trusted blocks.
//! - The work is bounded: at most [`ENTRIES_MAX`] entries are looked at, and nothing is allocated.
//! - An IPv4 address is one address, also when it comes as `::ffff:1.2.3.4`.
//!
//! # What it does not promise
//! - That one address is one person: many people share an address, and one person may have many.
//! - Anything behind a trusted proxy that passes the header on unchanged. The client can then write any address.
//! - `Forwarded` (RFC 7239) and `X-Real-IP` are not read.

use axum::http::{HeaderMap, HeaderName};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::OnceLock;

/// The most entries of `X-Forwarded-For` that are read, from the right. A chain of honest proxies is far shorter.
pub const ENTRIES_MAX: usize = 32;

pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The name by which the client reached the first proxy.
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Whether the client spoke http or https to the first proxy.
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The page of a site in whose place a proxy asks for another one.
pub(crate) const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Why a text is not a block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BlockError {
    /// The part before the slash is not an IPv4 or IPv6 address.
    BadAddress,
    /// The part after the slash is not a number of bits that such an address has.
    BadPrefix,
    /// The address has bits beyond the prefix.
    HostBits,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadAddress => "must begin with an IPv4 or IPv6 address, like 10.0.0.0/8, ::1/128 or 192.0.2.7",
            Self::BadPrefix => "must have 0 to 32 (IPv4) or 0 to 128 (IPv6) after the slash",
            Self::HostBits => "must have no bits set beyond the prefix: 10.0.0.0/8, not 10.0.0.1/8",
        })
    }
}

impl std::error::Error for BlockError {}

/// A block of addresses as `10.0.0.0/8`; a bare address is a block of one.
///
/// Refuses bits beyond the prefix, instead of ignoring them: an operator who writes `10.0.0.1/8` may mean one address,
/// and would trust sixteen million. A block of IPv6 never contains an IPv4 address: `::/0` does not match every
/// address. A block within `::ffff:0:0/96` is the block of IPv4 that it maps to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    first: IpAddr,
    prefix_bits: u8,
}

impl Block {
    /// Whether the address is in the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        // `checked_shr` by the full width gives `None`: a prefix of 0 bits leaves nothing to compare.
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let difference = first.to_bits() ^ address.to_bits();
                difference.checked_shr(32 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let difference = first.to_bits() ^ address.to_bits();
                difference.checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Block {
    type Err = BlockError;

    fn from_str(text: &str) -> Result<Self, BlockError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written = address.parse::<IpAddr>().map_err(|_| BlockError::BadAddress)?;
        let width_bits = if written.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => width_bits,
            Some(prefix) => decimal(prefix).filter(|&bits| bits <= width_bits).ok_or(BlockError::BadPrefix)?,
        };
        let host_bits = match written {
            IpAddr::V4(address) => address.to_bits().checked_shl(u32::from(prefix_bits)).unwrap_or(0) != 0,
            IpAddr::V6(address) => address.to_bits().checked_shl(u32::from(prefix_bits)).unwrap_or(0) != 0,
        };
        if host_bits {
            return Err(BlockError::HostBits);
        }
        Ok(match (written, written.to_canonical()) {
            (IpAddr::V6(_), first @ IpAddr::V4(_)) if 96 <= prefix_bits => {
                Self { first, prefix_bits: prefix_bits - 96 }
            }
            _ => Self { first: written, prefix_bits },
        })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix_bits)
    }
}

/// Parses a number of up to three digits, without a sign or leading zeros.
fn decimal(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// The proxies whose `X-Forwarded-For` is believed. None by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Proxies(Vec<Block>);

impl Proxies {
    /// Trusts these blocks.
    pub const fn new(blocks: Vec<Block>) -> Self {
        Self(blocks)
    }

    /// Whether the address is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|block| block.contains(address))
    }
}

/// Returns the client's address: the peer's, or behind a trusted proxy the right-most untrusted one in
/// `X-Forwarded-For`.
///
/// All lines of the header form one list, in their order. Ports and brackets are tolerated. The walk ends at an entry
/// that is not an address. The client is then the last address before it, which may be a proxy's own. The same holds
/// if all entries are trusted.
pub fn client(peer: IpAddr, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
    let mut client = peer.to_canonical();
    if !proxies.trusts(client) {
        return client;
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    for entry in lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b',')).take(ENTRIES_MAX) {
        let Some(address) = forwarded(entry) else { break };
        client = address;
        if !proxies.trusts(client) {
            break;
        }
    }
    client
}

/// Detects untrusted peers that forward for other clients. The server cannot know whether that is a mistake: a proxy
/// that the operator did not name looks like a client that wrote the header itself.
#[derive(Default)]
pub(crate) struct Forwarders(OnceLock<IpAddr>);

impl Forwarders {
    /// Notes a peer that sent `X-Forwarded-For` and is not trusted, and logs the first one. Returns whether the
    /// request has the header.
    pub(crate) fn note(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        if !headers.contains_key(FORWARDED_FOR) {
            return false;
        }
        if self.0.set(peer.to_canonical()).is_ok() {
            tracing::warn!(
                address = %peer.to_canonical(),
                "X-Forwarded-For came from an address that is not trusted, and was not read: all clients behind it count as one \
                 address, with its limits; if it is your proxy, name it with --trusted-proxy (this is logged once)"
            );
        }
        true
    }

    /// Whether an untrusted peer has sent the header since the start.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Returns the network whose addresses count as one: an IPv4 address alone, or the first address of an IPv6 /64, since
/// a subscriber is given a /64.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

/// Returns the wider network around an address, which a data centre or an office has as a whole: the /24 of an IPv4
/// address, the /48 of an IPv6 one.
pub fn wide_network(address: IpAddr) -> Block {
    match address.to_canonical() {
        IpAddr::V4(address) => Block { first: IpAddr::V4((address.to_bits() & !0xff).into()), prefix_bits: 24 },
        IpAddr::V6(address) => Block { first: IpAddr::V6((address.to_bits() >> 80 << 80).into()), prefix_bits: 48 },
    }
}

/// Formats the network that was counted for the client: `192.0.2.7`, or `2001:db8::/64`.
pub fn shown(address: IpAddr) -> String {
    match network(address) {
        network @ IpAddr::V6(_) => format!("{network}/64"),
        network => network.to_string(),
    }
}

/// Parses the address of one entry: `1.2.3.4`, `1.2.3.4:567`, `::1`, `[::1]` or `[::1]:567`.
fn forwarded(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let address = text.parse().ok().or_else(bracketed);
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn proxies(blocks: &[&str]) -> Proxies {
        Proxies::new(blocks.iter().map(|block| block.parse().unwrap()).collect())
    }

    fn headers(lines: &[&[u8]]) -> HeaderMap {
        lines.iter().map(|line| (FORWARDED_FOR, HeaderValue::from_bytes(line).unwrap())).collect()
    }

    #[test]
    fn a_block_is_read_strictly_and_shown_as_it_was_meant() {
        let rows: [(&str, Result<&str, BlockError>); 37] = [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("192.0.2.7", Ok("192.0.2.7/32")),
            ("192.0.2.7/32", Ok("192.0.2.7/32")),
            ("192.0.2.6/31", Ok("192.0.2.6/31")),
            ("::/0", Ok("::/0")),
            ("::1", Ok("::1/128")),
            ("::1/128", Ok("::1/128")),
            ("2001:DB8::/32", Ok("2001:db8::/32")),
            ("::ffff:10.0.0.0/104", Ok("10.0.0.0/8")),
            ("::ffff:10.0.0.1", Ok("10.0.0.1/32")),
            ("::ffff:0:0/96", Ok("0.0.0.0/0")),
            ("::ffff:0:0/95", Err(BlockError::HostBits)),
            ("10.0.0.1/8", Err(BlockError::HostBits)),
            ("192.0.2.7/31", Err(BlockError::HostBits)),
            ("128.0.0.0/0", Err(BlockError::HostBits)),
            ("::1/127", Err(BlockError::HostBits)),
            ("::1/0", Err(BlockError::HostBits)),
            ("10.0.0.0/33", Err(BlockError::BadPrefix)),
            ("::/129", Err(BlockError::BadPrefix)),
            ("::/256", Err(BlockError::BadPrefix)),
            ("10.0.0.0/", Err(BlockError::BadPrefix)),
            ("10.0.0.0/+8", Err(BlockError::BadPrefix)),
            ("10.0.0.0/-8", Err(BlockError::BadPrefix)),
            ("10.0.0.0/08", Err(BlockError::BadPrefix)),
            ("10.0.0.0/8 ", Err(BlockError::BadPrefix)),
            ("10.0.0.0/8/8", Err(BlockError::BadPrefix)),
            ("10.0.0.0/255.0.0.0", Err(BlockError::BadPrefix)),
            ("", Err(BlockError::BadAddress)),
            ("/8", Err(BlockError::BadAddress)),
            (" 10.0.0.0/8", Err(BlockError::BadAddress)),
            ("10/8", Err(BlockError::BadAddress)),
            ("010.0.0.0/8", Err(BlockError::BadAddress)),
            ("10.0.0.0:80", Err(BlockError::BadAddress)),
            ("[::1]", Err(BlockError::BadAddress)),
            ("fe80::1%eth0", Err(BlockError::BadAddress)),
            ("localhost", Err(BlockError::BadAddress)),
        ];
        for (text, expected) in rows {
            let block = text.parse::<Block>().map(|block| block.to_string());
            assert_eq!(block, expected.map(String::from), "{text}");
        }
    }

    #[test]
    fn a_wide_network_is_a_24_of_ipv4_and_a_48_of_ipv6() {
        for (text, expected) in [
            ("192.0.2.255", "192.0.2.0/24"),
            ("::ffff:192.0.2.1", "192.0.2.0/24"),
            ("2001:db8:1:ffff::1", "2001:db8:1::/48"),
            ("2001:db8:2::", "2001:db8:2::/48"),
        ] {
            assert_eq!(wide_network(address(text)).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_block_holds_its_first_and_its_last_address_and_no_neighbour() {
        let rows = [
            ("10.0.0.0/8", "10.0.0.0", true),
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "9.255.255.255", false),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("192.0.2.6/31", "192.0.2.7", true),
            ("192.0.2.6/31", "192.0.2.8", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "ffff::", true),
            ("::/0", "1.2.3.4", false),
            ("::/0", "::ffff:1.2.3.4", false),
            ("::1/128", "::1", true),
            ("::1/128", "::2", false),
            ("2001:db8::/33", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
        ];
        for (block, inside, expected) in rows {
            assert_eq!(block.parse::<Block>().unwrap().contains(address(inside)), expected, "{inside} in {block}");
        }
    }

    /// The trusted blocks are 10.0.0.0/8 and ::1. Each row has a peer, the lines of the header, and the expected
    /// client.
    const WALKS: &[(&str, &[&[u8]], &str)] = &[
        // From an untrusted peer the header is ignored.
        ("203.0.113.9", &[], "203.0.113.9"),
        ("203.0.113.9", &[b"198.51.100.1"], "203.0.113.9"),
        ("203.0.113.9", &[b"10.0.0.1"], "203.0.113.9"),
        ("::ffff:203.0.113.9", &[b"198.51.100.1"], "203.0.113.9"),
        ("::2", &[b"198.51.100.1"], "::2"),
        // From a trusted peer the right-most address that is no proxy counts.
        ("10.0.0.1", &[], "10.0.0.1"),
        ("::ffff:10.0.0.1", &[b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &[b"198.51.100.1"], "198.51.100.1"),
        ("::1", &[b"198.51.100.1, 10.2.3.4"], "198.51.100.1"),
        ("::1", &[b"198.51.100.1,10.2.3.4 ,\t10.2.3.5"], "198.51.100.1"),
        // Entries that the client wrote itself are not believed.
        ("10.0.0.1", &[b"10.9.9.9, 192.0.2.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &[b"192.0.2.1, 10.9.9.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", &[b"192.0.2.1", b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &[b"192.0.2.1", b"198.51.100.1, 10.0.0.3", b"10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", &[b"garbage, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &[b"\xff\xfe", b"198.51.100.1"], "198.51.100.1"),
        // If all are proxies, the farthest one counts.
        ("10.0.0.1", &[b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // An entry that is not an address stops the walk.
        ("10.0.0.1", &[b"198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[b"198.51.100.1,"], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.1", b""], "10.0.0.1"),
        ("10.0.0.1", &[b"198.51.100.1,,10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[b"198.51.100.1, \xff"], "10.0.0.1"),
        ("10.0.0.1", &[b"010.0.0.2"], "10.0.0.1"),
        ("10.0.0.1", &[b"1.2.3.4.5"], "10.0.0.1"),
        ("10.0.0.1", &[b"1.2.3.4:"], "10.0.0.1"),
        ("10.0.0.1", &[b"1.2.3.4:65536"], "10.0.0.1"),
        ("10.0.0.1", &[b"[1.2.3.4]"], "10.0.0.1"),
        ("10.0.0.1", &[b"[::2"], "10.0.0.1"),
        ("10.0.0.1", &[b"1.2.3.4 5.6.7.8"], "10.0.0.1"),
        // Forms that proxies write.
        ("10.0.0.1", &[b"198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", &[b"2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", &[b"[2001:db8::7]"], "2001:db8::7"),
        ("10.0.0.1", &[b"[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", &[b"::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &[b"[::ffff:198.51.100.1]:80"], "198.51.100.1"),
        ("10.0.0.1", &[b"198.51.100.1, ::ffff:10.0.0.2"], "198.51.100.1"),
    ];

    #[test]
    fn the_client_is_the_right_most_address_that_no_trusted_proxy_has() {
        let trusted = proxies(&["10.0.0.0/8", "::1"]);
        for &(peer, lines, expected) in WALKS {
            let found = client(address(peer), &headers(lines), &trusted);
            let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
            assert_eq!(found, address(expected), "peer {peer}, {lines:?}");
            assert_eq!(client(address(peer), &headers(&[]), &trusted), address(peer).to_canonical());
        }
    }

    #[test]
    fn no_client_is_trusted_by_default() {
        for peer in ["127.0.0.1", "::1", "10.0.0.1"] {
            assert_eq!(client(address(peer), &headers(&[b"198.51.100.1"]), &Proxies::default()), address(peer));
        }
    }

    #[test]
    fn no_more_entries_than_the_limit_are_looked_at() {
        let trusted = proxies(&["10.0.0.0/8"]);
        for (hops, expected) in [(ENTRIES_MAX - 1, "198.51.100.1"), (ENTRIES_MAX, "10.0.0.9"), (5_000, "10.0.0.9")] {
            let line = format!("198.51.100.1{}", ", 10.0.0.9".repeat(hops));
            assert_eq!(
                client(address("10.0.0.1"), &headers(&[line.as_bytes()]), &trusted),
                address(expected),
                "{hops}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_prepended_text_never_changes_who_the_client_is(prefix in "[ -~]{0,60}", last in any::<u32>()) {
            let last = IpAddr::V4(last.into());
            let trusted = proxies(&["10.0.0.0/8"]);
            prop_assume!(!trusted.trusts(last));
            let line = format!("{prefix},{last}, 10.0.0.2");
            prop_assert_eq!(client(address("10.0.0.1"), &headers(&[line.as_bytes()]), &trusted), last);
            prop_assert_eq!(client(last, &headers(&[prefix.as_bytes()]), &trusted), last);
        }

        #[test]
        fn no_line_and_no_block_can_break_it(line in proptest::collection::vec(32..127_u8, 0..80), block in ".{0,40}") {
            let found = client(address("10.0.0.1"), &headers(&[&line]), &proxies(&["10.0.0.0/8"]));
            prop_assert_eq!(found, found.to_canonical());
            if let Ok(block) = block.parse::<Block>() {
                prop_assert_eq!(block.to_string().parse::<Block>(), Ok(block));
            }
        }
    }
}
