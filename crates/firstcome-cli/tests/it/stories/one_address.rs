//! The story: one address opened 10 000 connections and sent nothing. `/healthz` was 503 for all others, so an orchestrator
//! restarted the service. With a soft limit of 1 024 descriptors neither the port of clients nor that of operators answered.
//! A client that read 1 200 bytes every 4 s kept 40 answers on their way for 48 s.
//!
//! Now an address has a limit of its own, the soft limit is raised, operators have places of their own, and an answer has a
//! deadline as a whole.

use crate::support::http::Client;
use crate::support::program::{PROGRAM, command};
use crate::support::server::Server;
use crate::support::wait_for;
use firstcome::edge::Stopwatch;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::Duration;

const SERVICE: &str = "a-service-key-of-this-test";

/// A service with keys, as it runs outside of development, under these limits of descriptors.
fn serve(directory: &Path, descriptors: &str, arguments: &[&str]) -> Server {
    let line = format!("ulimit {descriptors} && exec {PROGRAM} serve \"$@\"");
    let mut shell = command("/bin/bash", directory);
    shell.env("FIRSTCOME_ADMIN_KEY", "an-admin-key-of-this-test").env("FIRSTCOME_SERVICE_KEYS", SERVICE);
    shell.args(["-c", &line, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    shell.args(["--data", "data", "--coupon", "launch=10"]).args(arguments);
    Server::spawn(&mut shell)
}

/// A connection from an address of this machine.
pub(super) fn connect_from(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(to) = to else { panic!("{to} is not IPv4") };
    // A server that another test starts meanwhile inherits none of them: it may have few descriptors.
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(from.into(), 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Raises the limit of this process, which holds the other ends of many connections. Returns how many it may hold.
pub(super) fn raise_own_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("the soft limit can be raised");
    maximum.unwrap_or(u64::MAX)
}

fn admin(server: &mut Server) -> Client {
    let line = server.line("admin on http://");
    Client::new(line.trim_start_matches("admin on http://").parse().expect("an address"))
}

fn figure(admin: &mut Client, name: &str) -> u64 {
    let text = admin.get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Others are served on both ports.
fn is_unharmed(server: &mut Server, user: &str) {
    assert_eq!(server.client().get("/healthz").status, 200);
    assert_eq!(server.client().get("/readyz").status, 200);
    let claimed = Client::with_key(server.address(), SERVICE).claim("launch", user, None);
    assert_eq!(claimed.expect("it is answered").status, 201);
    assert_eq!(admin(server).get("/healthz").status, 200);
}

#[test]
fn idle_connections_of_one_address_keep_no_other_address_out() {
    let directory = tempfile::tempdir().expect("a directory");
    raise_own_limit();
    let limits = ["--connections-max", "1000", "--connections-per-address", "300"];
    let mut server = serve(directory.path(), "-S -n 1024", &limits);
    let mut idle = Vec::new();
    for _ in 0..1_500 {
        // A connection that is refused or closed is closed on this side, too.
        idle.push(connect_from([127, 0, 0, 2], server.address()).expect("it listens"));
        if 900 < idle.len() {
            idle.remove(0);
        }
    }
    is_unharmed(&mut server, "ann");
    let mut admin = admin(&mut server);
    // One address has 300 of its own; those that were closed for others end by themselves.
    wait_for("the address to have its share", || (figure(&mut admin, "firstcome_connections") <= 310).then_some(()));
    let refused = figure(&mut admin, "firstcome_connections_refused_address_total");
    let made_room = figure(&mut admin, "firstcome_connections_made_room_total");
    assert!(800 <= refused + made_room, "{refused} refused, {made_room} closed for others");
    let warnings = server.errors().lines().filter(|line| line.contains("WARN")).count();
    assert!(warnings < 200, "{warnings} warnings");
    drop(idle);
    is_unharmed(&mut server, "bob");
}

#[test]
fn with_few_descriptors_both_ports_answer_while_many_addresses_hold_connections() {
    raise_own_limit();
    // The soft limit of the first is raised; the hard one of the second leaves room for few connections, and a warning says so.
    for (descriptors, warns) in [("-S -n 256", false), ("-n 256", true)] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut server = serve(directory.path(), descriptors, &["--connections-max", "400"]);
        if warns {
            server.wait_for_log("fewer connections than wanted");
        }
        let mut held = Vec::new();
        for number in 0..600_u16 {
            let from = [127, 0, 1, (number % 200 + 1) as u8];
            held.push(connect_from(from, server.address()).expect("it listens"));
        }
        // The first of them become idle for long enough to be closed for newcomers.
        wait_for("an answer on the port of clients", || {
            let health = server.client().try_call("GET", "/healthz", None, None);
            health.is_ok_and(|answer| answer.status == 200).then_some(())
        });
        is_unharmed(&mut server, "ann");
        assert!(1 <= figure(&mut admin(&mut server), "firstcome_connections_made_room_total"), "{descriptors}");
        drop(held);
        assert_eq!(server.errors().contains("fewer connections than wanted"), warns, "{}", server.errors());
        server.stop();
    }
}

#[test]
fn a_client_that_reads_slowly_is_closed_after_its_deadline() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = serve(directory.path(), "-S -n 1024", &[]);
    let mut slow = connect_from([127, 0, 0, 2], server.address()).expect("it listens");
    slow.set_nonblocking(true).expect("it is ours");
    let mut requests = b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(3_000);
    let watch = Stopwatch::start();
    let mut admin = admin(&mut server);
    // Again and again a little, so that the server gets rid of some bytes all the time.
    while figure(&mut admin, "firstcome_connections_overdue_total") == 0 {
        assert!(watch.elapsed() < Duration::from_secs(60), "the slow reader is still there");
        if let Ok(count) = slow.write(&requests) {
            requests.drain(..count);
        }
        match slow.read(&mut [0; 64 * 1024]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(
        Duration::from_secs(12) < watch.elapsed(),
        "it is the whole answer that took too long: {:?}",
        watch.elapsed()
    );
    assert_eq!(figure(&mut admin, "firstcome_connections_overdue_total"), 1);
    is_unharmed(&mut server, "ann");
}
