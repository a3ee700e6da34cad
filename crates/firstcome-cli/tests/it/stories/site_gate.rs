//! The owner of a shop puts `firstcome gate` before it: no proxy to configure, no page to write. The gate is killed while
//! one visitor is inside and one waits. Both find their places again.

use super::behind_nginx::{SHOP, cookies, shop};
use crate::support::http::{Answer, read_answer};
use crate::support::program::{PROGRAM, command, firstcome};
use crate::support::server::Server;
use crate::support::wait_for;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// A gate that runs.
struct Gate {
    server: Server,
    address: SocketAddr,
}

impl Gate {
    fn start(here: &Path, shop: SocketAddr, limits: &[&str]) -> Self {
        let mut gate = command(PROGRAM, here);
        gate.args(["gate", "--upstream", &format!("http://{shop}"), "--room", "sale", "--data", "data"]);
        gate.args(["--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0", "--path", "/basket/*"]).args(limits);
        let mut server = Server::spawn(&mut gate);
        let line = server.line("gate on http://");
        let address = line.trim_start_matches("gate on http://").split(',').next().and_then(|text| text.parse().ok());
        Self { server, address: address.unwrap_or_else(|| panic!("no address in {line}")) }
    }

    fn ask(&self, what: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("the gate listens");
        let request = format!("{what} HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        read_answer(&mut stream).expect("it is answered").0
    }

    /// The page of a visitor who has this place, once it shows this.
    fn page(&self, place: &str, wanted: &str) -> Answer {
        wait_for(wanted, || {
            let page = self.ask("GET /.firstcome/rooms/sale?back=%2Fbasket", place);
            page.text().contains(&format!("data-phase=\"{wanted}\"")).then_some(page)
        })
    }

    #[track_caller]
    fn lets_in(&self, pass: &str) {
        let answer = self.ask("GET /basket/1", pass);
        assert_eq!((answer.status, answer.text().as_str()), (200, SHOP));
    }
}

#[test]
fn a_gate_that_is_killed_keeps_who_is_inside_and_who_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let shop = shop();
    let mut gate = Gate::start(here, shop, &["--max-active", "1", "--admit", "100/s"]);
    assert_eq!(gate.ask("GET /about", "").text(), SHOP, "a path without a room before it");
    assert_eq!(gate.ask("GET /basket/1", "").status, 503);
    let ann = cookies(&gate.ask("POST /.firstcome/rooms/sale/join", ""));
    let pass = cookies(&gate.page(&ann, "admitted"));
    gate.lets_in(&pass);
    let bob = cookies(&gate.ask("POST /.firstcome/rooms/sale/join", ""));
    gate.page(&bob, "almost");

    gate.server.kill();
    // The room is there: the limits need not be given again, and others change nothing.
    let gate = Gate::start(here, shop, &["--max-active", "9"]);
    gate.server.wait_for_log("change nothing");
    gate.lets_in(&pass);
    assert!(gate.page(&bob, "almost").text().contains(">2</dd>"));
    assert_eq!(gate.ask("GET /basket/1", &bob).status, 503);
    assert_eq!(gate.ask("POST /.firstcome/rooms/sale/leave", &ann).status, 303);
    assert_eq!(gate.ask("GET /basket/1", &pass).status, 503, "the slot was given up");
    let pass = cookies(&gate.page(&bob, "admitted"));
    gate.lets_in(&pass);
    gate.server.stop();
}

#[test]
fn a_gate_makes_no_room_without_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["gate", "--dev", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--data", "data"];
    let ports = ["--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0"];
    let told = firstcome(directory.path(), &[&arguments[..], &ports].concat()).with(2);
    assert!(told.contains("--admit, --max-active or both"), "{told}");
}
