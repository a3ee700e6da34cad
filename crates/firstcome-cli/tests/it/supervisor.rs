//! What `serve` tells systemd: that it serves, that it lives, and that it stops. A socket of the test stands for that of systemd.

use crate::support::PATIENCE;
use crate::support::program::{PROGRAM, command};
use crate::support::server::Server;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// The time in which the service has to tell that it lives.
const WITHIN: Duration = Duration::from_millis(400);

struct Socket(UnixDatagram);

impl Socket {
    fn bind(directory: &Path) -> Self {
        Self(UnixDatagram::bind(directory.join("notify")).expect("a socket"))
    }

    /// What is told next within a time.
    fn next(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).expect("a time");
        let mut bytes = [0; 256];
        let length = self.0.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
    }
}

fn serve(here: &Path, watchdog_us: Option<u128>) -> Server {
    let mut serve = command(PROGRAM, here);
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--dev"])
        .env("NOTIFY_SOCKET", here.join("notify"));
    serve.envs(watchdog_us.map(|within| ("WATCHDOG_USEC", within.to_string())));
    Server::spawn(&mut serve)
}

#[test]
fn systemd_hears_that_the_service_serves_that_it_lives_and_that_it_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = Socket::bind(directory.path());
    let server = serve(directory.path(), Some(WITHIN.as_micros()));
    assert_eq!(socket.next(PATIENCE).as_deref(), Some("READY=1"));
    for _ in 0..3 {
        assert_eq!(socket.next(PATIENCE).as_deref(), Some("WATCHDOG=1"));
    }
    server.stop();
    let rest: Vec<String> = std::iter::from_fn(|| socket.next(Duration::from_millis(1))).collect();
    assert!(rest.iter().any(|told| told == "STOPPING=1"), "{rest:?}");
}

#[test]
fn a_service_that_nothing_watches_tells_its_start_and_its_stop_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = Socket::bind(directory.path());
    for watchdog_us in [None, Some(0)] {
        serve(directory.path(), watchdog_us).stop();
        let told: Vec<String> = std::iter::from_fn(|| socket.next(Duration::from_millis(1))).collect();
        assert_eq!(told, ["READY=1", "STOPPING=1"], "{watchdog_us:?}");
    }
}

#[test]
fn a_socket_that_is_not_there_is_a_warning_and_the_service_serves() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path(), None);
    server.wait_for_log("systemd cannot be told of this service at NOTIFY_SOCKET");
    assert_eq!(server.client().get("/healthz").status, 200);
    server.stop();
}
