//! `firstcome health`: asks whether a running service is ready, and answers by exit code, for containers and
//! supervisors.

use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use anyhow::{Context, anyhow};
use clap::Args;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args)]
pub(crate) struct HealthArgs {
    /// Address to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/readyz")]
    url: String,
    /// How long an answer may take
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    wait: String,
}

/// Asks the service. Exit code 0 for status 200, 1 for any other status, 3 without an answer.
pub(crate) fn run(args: &HealthArgs) -> Outcome {
    let wait = duration(&args.wait).map_err(Failure::Usage)?.max(Duration::from_millis(1));
    match get(&args.url, wait)? {
        (200, _) => Ok(()),
        (status, body) => Err(Failure::Refused(anyhow!("{}: {status} {}", args.url, body.trim()))),
    }
}

/// Returns the status and the body of an answer.
pub(crate) fn get(url: &str, wait: Duration) -> Result<(u16, String), Failure> {
    let usage = || Failure::Usage(anyhow!("{url:?} is not an address like http://127.0.0.1:8080/readyz"));
    let rest = url.strip_prefix("http://").ok_or_else(usage)?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    if authority.is_empty() || url.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        return Err(usage());
    }
    let answer = ask(authority, path, wait).map_err(Failure::Unreachable)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.strip_prefix("HTTP/").and_then(|head| head.split(' ').nth(1)?.parse().ok());
    let none = || Failure::Unreachable(anyhow!("{url}: the server at this address does not answer in HTTP"));
    Ok((status.ok_or_else(none)?, body.to_owned()))
}

fn ask(authority: &str, path: &str, wait: Duration) -> anyhow::Result<String> {
    let with_port = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let address = with_port.to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = address.ok_or_else(|| anyhow!("there is no host {with_port}"))?;
    let mut stream =
        TcpStream::connect_timeout(&address, wait).with_context(|| format!("no service answers at {address}"))?;
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .with_context(|| format!("{address} gives no answer in time"))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
