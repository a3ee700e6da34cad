//! `firstcome health`: asks whether a running service is ready, and answers by exit code, for containers and
//! supervisors.

use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::transport::TlsFileArgs;
use anyhow::{Context, anyhow};
use clap::Args;
use firstcome::address::{Authority, Host};
use firstcome_tls::Trust;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args)]
pub(crate) struct HealthArgs {
    /// Address to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/readyz")]
    url: String,
    #[command(flatten)]
    files: TlsFileArgs,
    /// How long an answer may take
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    wait: String,
}

/// Asks the service. Exit code 0 for status 200, 1 for any other status, 3 without an answer.
pub(crate) fn run(args: &HealthArgs) -> Outcome {
    let wait = duration(&args.wait).map_err(Failure::Usage)?.max(Duration::from_millis(1));
    match get(&args.url, wait, &args.files.trust()?)? {
        (200, _) => Ok(()),
        (status, body) => Err(Failure::Refused(anyhow!("{}: {status} {}", args.url, body.trim()))),
    }
}

/// The host and the port of an `http` or `https` address. Fails if it is none.
fn host_of(scheme: &str, authority: &str) -> Option<Host> {
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let read = Authority::read(authority, port).ok()?;
    read.hosts.into_iter().next().filter(|_| !authority.contains(['@', ',']))
}

/// Returns the status and the body of an answer. The certificate of an `https` address is checked.
pub(crate) fn get(url: &str, wait: Duration, trust: &Trust) -> Result<(u16, String), Failure> {
    let usage = || Failure::Usage(anyhow!("{url:?} is not an address like http://127.0.0.1:8080/readyz"));
    let (scheme, rest) = url.split_once("://").ok_or_else(usage)?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    if authority.is_empty() || url.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        return Err(usage());
    }
    let host = host_of(scheme, authority).ok_or_else(usage)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    let stream = connect(&host, wait).map_err(Failure::Unreachable)?;
    let answer = if scheme == "https" {
        let mut stream = secured(stream, &host, trust)?;
        ask(&mut stream, &request)
    } else {
        ask(&mut &stream, &request)
    };
    let answer = answer.map_err(|error| unanswered(&host, error))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.strip_prefix("HTTP/").and_then(|head| head.split(' ').nth(1)?.parse().ok());
    let none = || Failure::Unreachable(anyhow!("{url}: the server at this address does not answer in HTTP"));
    Ok((status.ok_or_else(none)?, body.to_owned()))
}

/// The host of an `https` address, whose scheme is left out.
pub(crate) fn host_in(rest: &str) -> Option<Host> {
    host_of("https", rest.split('/').next().unwrap_or_default())
}

/// Connects to a host, and limits each step.
pub(crate) fn connect(host: &Host, wait: Duration) -> anyhow::Result<TcpStream> {
    let found = (&*host.name, host.port).to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let mut outcome = Err(anyhow!("there is no host {host}"));
    for address in found {
        // A name may have an address of each family, and the service listens at one of them.
        outcome =
            TcpStream::connect_timeout(&address, wait).with_context(|| format!("no service answers at {address}"));
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    Ok(stream)
}

/// Prepares TLS over a connection. The handshake goes with the first request.
fn secured(stream: TcpStream, host: &Host, trust: &Trust) -> Result<StreamOwned<ClientConnection, TcpStream>, Failure> {
    let name = ServerName::try_from(host.name.to_string());
    let name = name.map_err(|_| Failure::Usage(anyhow!("{host} is no name that a certificate could have")))?;
    let config = trust.client_config().map_err(|error| Failure::Usage(error.into()))?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(|error| Failure::Usage(error.into()))?;
    Ok(StreamOwned::new(session, stream))
}

fn ask(stream: &mut (impl Read + Write), request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        // A server may close without the last word of TLS once the answer has left.
        Err(error) if answer.is_empty() || error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

fn unanswered(host: &Host, error: io::Error) -> Failure {
    Failure::Unreachable(match firstcome_tls::explain(&error) {
        Some(says) => anyhow!("{host}: {says}"),
        None => anyhow!(error).context(format!("{host} gives no answer in time")),
    })
}
