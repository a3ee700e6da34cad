//! How servers are reached: encrypted or not, by which version of TLS, and until when their certificates count.
//!
//! The version comes from the server's own word where it has one (databases), else from a handshake of doctor's own. Certificates
//! come from that handshake, over a connection that is closed before any data.

use super::{Findings, Verdict};
use crate::failure::{Failure, Outcome};
use crate::health::connect;
use crate::plaintext::Plaintext;
use firstcome::address::{Authority, Destination, Encryption, Host};
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, SystemClock};
use firstcome::sql::Address;
use firstcome_server::rfc3339;
use firstcome_tls::{PeerCertificate, inspect};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A certificate that ends sooner is worth a word.
const DAYS_LEFT_MIN: i64 = 14;
const DAY_S: i64 = 86_400;
/// The longest time for a connection, and for each step of its handshake.
const STEP_MAX: Duration = Duration::from_secs(5);
/// The longest greeting of a database that is read.
const GREETING_BYTES_MAX: usize = 4_096;

/// How TLS begins on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At once.
    AtOnce,
    /// After a request of the protocol of PostgreSQL.
    Postgres,
    /// After the greeting of MySQL, and a request.
    MySql,
}

/// Reports whether plain text to other machines is allowed.
pub(super) fn of_rule(rule: Plaintext, findings: &mut Findings) {
    let (is, verdict) = match rule {
        Plaintext::Refused => ("refused", Verdict::Fine),
        Plaintext::Allowed => ("allowed", Verdict::Note("drop --allow-plaintext once every address demands TLS")),
    };
    findings.say("firstcome", "plain text to other machines", is, verdict);
}

/// Reports how a database is reached. `told` is the version of TLS by its own word, if it was reached.
pub(super) fn of_database(of: &str, sql: &str, told: Option<Option<&str>>, findings: &mut Findings) -> Outcome {
    let address = Address::parse(sql).map_err(|error| Failure::Usage(error.into()))?;
    let start = if matches!(address, Address::Postgres(_)) { Start::Postgres } else { Start::MySql };
    let destination = address.destination();
    match told {
        Some(Some(version)) => say_encrypted(of, version, &destination, findings),
        Some(None) => say_plain(of, &destination, findings),
        None => {}
    }
    for host in &destination.hosts {
        // A server that offers no TLS shows no certificate; that its session is in plain text is said above.
        if Encryption::Unchecked <= destination.encryption || matches!(told, Some(Some(_))) {
            say_certificate(of, host, look(host, start), findings);
        }
    }
    Ok(())
}

/// Reports how a Redis is reached, with the servers that its address has led to.
pub(super) fn of_redis(of: &str, redis: &str, servers: &[String], findings: &mut Findings) -> Outcome {
    let mut found = firstcome::redis::destination(redis).map_err(|error| Failure::Usage(error.into()))?;
    for server in servers {
        let read = Authority::read(server, 6_379).map(|authority| authority.hosts);
        for host in read.unwrap_or_default() {
            if !found.hosts.is_empty() && !found.hosts.contains(&host) {
                found.hosts.push(host);
            }
        }
    }
    of_destination(of, &found, findings);
    Ok(())
}

/// Reports how servers are reached whose connections begin with TLS, or have none.
pub(super) fn of_destination(of: &str, found: &Destination, findings: &mut Findings) {
    if found.encryption.may_be_plain() {
        say_plain(of, found, findings);
        return;
    }
    let looks: Vec<_> = found.hosts.iter().map(|host| (host, look(host, Start::AtOnce))).collect();
    let version = looks.iter().find_map(|(_, look)| look.as_ref().ok()?.version).unwrap_or("TLS");
    say_encrypted(of, version, found, findings);
    for (host, look) in looks {
        say_certificate(of, host, look, findings);
    }
}

/// Reports the certificate of a service.
pub(super) fn of_service(host: &Host, findings: &mut Findings) {
    say_certificate("service", host, look(host, Start::AtOnce), findings);
}

fn say_plain(of: &str, destination: &Destination, findings: &mut Findings) {
    let (is, verdict) = match (destination.hosts.is_empty(), destination.beyond_this_machine()) {
        (true, _) => ("a socket of this machine", Verdict::Fine),
        (false, None) => ("plain text, on this machine", Verdict::Fine),
        (false, Some(_)) => (
            "plain text to another machine",
            Verdict::Note("demand TLS in the address: who can listen on the network reads and changes everything"),
        ),
    };
    findings.say(of, "transport", is, verdict);
}

fn say_encrypted(of: &str, version: &str, destination: &Destination, findings: &mut Findings) {
    let (is, verdict) = match (destination.encryption, destination.beyond_this_machine()) {
        (Encryption::Checked, _) => ("certificate and name are checked", Verdict::Fine),
        (_, None) => ("the certificate is not checked", Verdict::Fine),
        (_, Some(_)) => (
            "the certificate is not checked",
            Verdict::Note("name its authority with --tls-ca: another server could take its place"),
        ),
    };
    findings.say(of, "transport", format!("{version}, {is}"), verdict);
}

fn say_certificate(of: &str, host: &Host, look: io::Result<PeerCertificate>, findings: &mut Findings) {
    let (is, verdict) = match look {
        Ok(PeerCertificate { subject, issuer, ends_s, .. }) => {
            let now_s = SystemClock::default().now().as_us() / 1_000_000;
            let until = rfc3339::format(Timestamp::clamped_us(ends_s.saturating_mul(1_000_000)));
            let (left, verdict) = judge(ends_s.saturating_sub(now_s));
            (format!("{subject}, signed by {issuer}, until {until}: {left}"), verdict)
        }
        Err(error) => {
            let says = firstcome_tls::explain(&error).unwrap_or_else(|| error.to_string());
            (says, Verdict::Note("its end is unknown: see that the server can be reached and offers TLS"))
        }
    };
    findings.say(of, format!("certificate of {host}"), is, verdict);
}

/// Judges how long a certificate counts.
fn judge(left_s: i64) -> (String, Verdict) {
    let days = left_s / DAY_S;
    if left_s < 0 {
        return (format!("ended {} days ago", -days), Verdict::Unsafe("renew it: clients that check it refuse it"));
    }
    let verdict = if days < DAYS_LEFT_MIN { Verdict::Note("renew it before it ends") } else { Verdict::Fine };
    (format!("{days} days left"), verdict)
}

/// Looks at the certificate of a server. Blocks, for a few seconds at most.
fn look(host: &Host, start: Start) -> io::Result<PeerCertificate> {
    let mut stream = connect(host, STEP_MAX).map_err(|error| io::Error::other(format!("{error:#}")))?;
    match start {
        Start::AtOnce => {}
        Start::Postgres => begin_postgres(&mut stream)?,
        Start::MySql => begin_mysql(&mut stream)?,
    }
    inspect(&mut stream, &host.name)
}

/// Sends an SSLRequest, as libpq does, and reads the answer of one byte.
fn begin_postgres(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == *b"S" { Ok(()) } else { Err(io::Error::other("the server offers no TLS")) }
}

/// Reads the greeting, and answers with an SSLRequest. A server counts this as a connection that was given up; doctor has
/// opened a real one before, which sets the count of the host back.
fn begin_mysql(stream: &mut TcpStream) -> io::Result<()> {
    const SSL: u32 = 0x0800;
    const PROTOCOL_41_AND_SECURE_CONNECTION: u32 = 0x8200;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    let mut greeting = vec![0; length.min(GREETING_BYTES_MAX)];
    stream.read_exact(&mut greeting)?;
    if !offers_tls(&greeting).unwrap_or(false) {
        return Err(io::Error::other("the server offers no TLS"));
    }
    let mut request = vec![32, 0, 0, head[3].wrapping_add(1)];
    request.extend((SSL | PROTOCOL_41_AND_SECURE_CONNECTION).to_le_bytes());
    request.extend((1_u32 << 24).to_le_bytes());
    // The character set, and 23 bytes that mean nothing.
    request.push(45);
    request.extend([0; 23]);
    stream.write_all(&request)
}

/// Whether the greeting of a server says that it offers TLS; `None` if it is none.
fn offers_tls(greeting: &[u8]) -> Option<bool> {
    let rest = greeting.strip_prefix(&[10])?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    // After the version: the number of the connection, eight bytes of a nonce, a zero, and the lower half of the capabilities.
    let capabilities = rest.get(end + 1 + 4 + 8 + 1..)?;
    Some(capabilities.get(1)? & 0x08 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_two_weeks_before_its_end() {
        for (left_s, says, code) in [
            (15 * DAY_S, "15 days left", "fine"),
            (14 * DAY_S, "14 days left", "fine"),
            (14 * DAY_S - 1, "13 days left", "note"),
            (0, "0 days left", "note"),
            (-1, "ended 0 days ago", "unsafe"),
            (-3 * DAY_S, "ended 3 days ago", "unsafe"),
        ] {
            let (told, verdict) = judge(left_s);
            let verdict = match verdict {
                Verdict::Fine => "fine",
                Verdict::Note(_) => "note",
                Verdict::Unsafe(_) => "unsafe",
            };
            assert_eq!((told.as_str(), verdict), (says, code), "{left_s}");
        }
    }

    #[test]
    fn a_greeting_tells_whether_there_is_tls() {
        let greeting = |capabilities: u8| {
            [&[10][..], b"11.4.2-MariaDB\0", &[1, 0, 0, 0], b"12345678\0", &[0xfe, capabilities, 45]].concat()
        };
        assert_eq!(offers_tls(&greeting(0xf7)), Some(false));
        assert_eq!(offers_tls(&greeting(0xff)), Some(true));
        for wrong in [&b""[..], b"\xff\x10\x04Too many connections", b"\x0a5.7"] {
            assert_eq!(offers_tls(wrong), None);
        }
    }
}
