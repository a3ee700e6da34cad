//! A site whose back end verifies passes by their signature was told that it "does not see that a slot was given up before its
//! end": a visitor who had paid, and whose slot had gone to the next, came back in until the pass expired.
//!
//! Now `GET /v1/rooms/{room}/passes` says which passes are void, and `examples/` has a middleware for Express, Django and Spring
//! that asks once a second. This plays each of them before and after a release, a new key, a kill of the service and its return.
//! Visitors also come from the page of a room on another host, with a code that a second middleware redeems once.

use super::behind_proxies::cookies;
use crate::archive_rooms::shown;
use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{PROGRAM, command, is_installed};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::free_port;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Clone, Copy, Debug)]
enum Framework {
    Express,
    Django,
    Spring,
}

/// What a site does once the service was away for longer than the grace.
#[derive(Clone, Copy, Debug)]
enum Fails {
    Closed,
    Open,
}

/// The grace of the sites here: longer than a busy machine delays the question of each second.
const GRACE_MS: &str = "5000";

impl Framework {
    /// Returns the example and the program that runs it, or nothing where the machine lacks one.
    fn command(self, here: &Path) -> Option<Command> {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let peers = std::env::var_os("FIRSTCOME_PEERS").map_or_else(|| root.join("target/peers"), PathBuf::from);
        let (program, needs) = match self {
            Self::Express => ("node", peers.join("node/node_modules/express")),
            Self::Django => ("python3", peers.join("python/site/django")),
            Self::Spring => ("java", peers.join("java-site/classes/Site.class")),
        };
        let what = format!("{program} with {} (bench/peers/install target/peers)", needs.display());
        if !machine_has(&what, is_installed(program) && needs.exists()) {
            return None;
        }
        let mut command = command(program, here);
        match self {
            Self::Express => {
                command.env("NODE_PATH", peers.join("node/node_modules")).arg(root.join("examples/express/site.js"))
            }
            Self::Django => {
                let paths = std::env::join_paths([peers.join("python/site"), root.join("examples/django")]);
                command.env("PYTHONPATH", paths.expect("names without colons")).env("PYTHONDONTWRITEBYTECODE", "1");
                command.arg(root.join("examples/django/site.py")).arg("127.0.0.1:0")
            }
            Self::Spring => {
                let classes = peers.join("java-site/classes");
                let jars = peers.join("java-site/lib/*");
                command.arg("-XX:+UseSerialGC").arg("-cp").arg(format!("{}:{}", classes.display(), jars.display()));
                command.arg("Site")
            }
        };
        Some(command)
    }
}

/// A site with the middleware; killed, by its id, when it is dropped.
struct Site {
    child: Child,
    address: SocketAddr,
}

impl Site {
    fn start(mut command: Command, service: SocketAddr, key: &str, fails: Fails) -> Self {
        let open = match fails {
            Fails::Closed => "no",
            Fails::Open => "yes",
        };
        command.env("FIRSTCOME", format!("http://{service}")).env("FIRSTCOME_KEY", key);
        command.env("FAIL_OPEN", open).env("GRACE_MS", GRACE_MS).env("PORT", "0");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned));
        let address = said.expect("it says where it listens").parse().expect("an address");
        Self { child, address }
    }

    fn visit(&self, headers: &str) -> Answer {
        self.open("/basket?size=1", headers)
    }

    fn open(&self, path: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        read_answer(&mut stream).expect("it is answered").0
    }

    fn by(&self, pass: &str) -> (u16, String) {
        let answer = self.visit(&format!("cookie: theme=dark; firstcome_pass={pass}\r\n"));
        (answer.status, answer.text())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn welcome(number: u32) -> (u16, String) {
    (200, format!("welcome, number {number}"))
}

/// Lets a visitor join this room and wait for the pass. Returns the address of the ticket, and the pass.
fn inside(client: &mut Client, room: &str) -> (String, String) {
    let joined = client.call("POST", &format!("/v1/rooms/{room}/tickets"), Some(&json!({}))).json();
    let ticket = format!("/v1/rooms/{room}/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
    let pass: Value = wait_for("a pass", || client.get(&ticket).json().get("pass").cloned());
    (ticket, pass.as_str().expect("a text").to_owned())
}

fn admitted(client: &mut Client, room: &str) -> String {
    inside(client, room).1
}

/// A visitor comes with a code from the page of the room on another host: the code leaves the address, and counts once.
fn arrives(site: &Site, client: &mut Client, ticket: &str, number: u32) {
    let handoff = client.call("POST", &format!("{ticket}/handoff"), None).json();
    let address = format!("/basket?size=1&firstcome_handoff={}", handoff["code"].as_str().expect("a code"));
    let answer = site.open(&address, "cookie: theme=dark\r\n");
    let places = |answer: &Answer| answer.headers("location").map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((answer.status, places(&answer)), (303, vec!["/basket?size=1".to_owned()]), "{}", answer.text());
    assert_eq!(answer.headers("referrer-policy").collect::<Vec<_>>(), ["no-referrer"]);
    let kept = cookies(&answer);
    let pass = kept.split("firstcome_pass=").nth(1).and_then(|rest| rest.lines().next()).expect("a pass");
    assert_eq!(site.by(pass), welcome(number));
    let replay = site.open(&address, "");
    assert_eq!((replay.status, places(&replay)), (303, vec!["/basket?size=1".to_owned()]), "{}", replay.text());
    assert!(!cookies(&replay).contains("firstcome_pass=v4"), "{}", cookies(&replay));
}

fn serve(here: &Path, port: u16) -> Server {
    let listen = format!("127.0.0.1:{port}");
    Server::spawn(command(PROGRAM, here).args(["serve", "--data", "data", "--listen", &listen]))
}

#[test]
fn a_site_of_express_verifies_passes_by_itself() {
    play(Framework::Express);
}

#[test]
fn a_site_of_django_verifies_passes_by_itself() {
    play(Framework::Django);
}

#[test]
fn a_site_of_spring_verifies_passes_by_itself() {
    play(Framework::Spring);
}

fn play(framework: Framework) {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let (Some(one), Some(two)) = (framework.command(here), framework.command(here)) else { return };
    let port = free_port().expect("a port");
    let mut server = serve(here, port);
    let (admin, service) = (shown(&mut server, "admin"), shown(&mut server, "service"));
    let mut client = Client::with_key(server.address(), &admin);
    for room in ["sale", "other"] {
        assert_eq!(client.put_status(&format!("/v1/rooms/{room}"), &json!({"max_active": 3})), 201);
    }
    let ((ann_ticket, ann), (bob_ticket, bob)) = (inside(&mut client, "sale"), inside(&mut client, "sale"));
    let stranger = admitted(&mut client, "other");
    let closed = Site::start(one, server.address(), &service, Fails::Closed);
    let open = Site::start(two, server.address(), &service, Fails::Open);
    for site in [&closed, &open] {
        // A site that has never heard of the service is like one that has lost it.
        wait_for("the site to know the keys", || (site.visit("").status == 303).then_some(()));
        assert_eq!((site.by(&ann), site.by(&bob)), (welcome(1), welcome(2)));
        assert_eq!(site.visit(&format!("x-firstcome-pass: {ann}\r\n")).status, 200);
        waits(site, &ann, &stranger);
    }
    arrives(&closed, &mut client, &ann_ticket, 1);
    arrives(&open, &mut client, &bob_ticket, 2);
    // The visit of one is over: the slot is another's, though the pass has not expired.
    let mut back_end = Client::with_key(server.address(), &service);
    let released = back_end.call("POST", "/v1/rooms/sale/passes/release", Some(&json!({"pass": ann})));
    assert_eq!(released.status, 204);
    for site in [&closed, &open] {
        wait_for("the site to know that it is over", || (site.by(&ann).0 == 303).then_some(()));
        assert_eq!(site.by(&bob), welcome(2));
    }
    // Passes of a new key, beside those of the old one.
    assert_eq!(client.call("POST", "/v1/pass-keys", None).status, 201);
    let cid = admitted(&mut client, "sale");
    for site in [&closed, &open] {
        wait_for("the site to know the new key", || (site.by(&cid) == welcome(3)).then_some(()));
        assert_eq!(site.by(&bob), welcome(2));
    }
    server.kill();
    // Within the grace the last list stands.
    assert_eq!((closed.by(&bob), open.by(&bob)), (welcome(2), welcome(2)));
    wait_for("the grace to be over", || (closed.by(&bob).0 == 503).then_some(()));
    wait_for("the grace to be over", || (open.visit("").status == 200).then_some(()));
    assert_eq!(open.by("x"), (200, "welcome, number unknown".to_owned()));
    let server = serve(here, port);
    wait_for("the service to be back", || (closed.by(&bob) == welcome(2)).then_some(()));
    wait_for("the service to be back", || (open.visit("").status == 303).then_some(()));
    assert_eq!((closed.by(&ann).0, open.by(&ann).0), (303, 303));
    server.stop();
}

/// A visitor without a pass that is valid here goes to the page of the room.
fn waits(site: &Site, pass: &str, stranger: &str) {
    let (signed, footer) = pass.rsplit_once('.').expect("a footer");
    // One character of what is signed is another, or one of the signature, which stands at the end.
    let flipped = |at: usize| {
        let other = if signed.as_bytes()[at] == b'A' { "B" } else { "A" };
        format!("{}{other}{}.{footer}", &signed[..at], &signed[at + 1..])
    };
    let (other_message, forged) = (flipped(20), flipped(signed.len() - 10));
    for text in ["", "x", "v4.public.", "v4.public..", &pass[..40], signed, &forged, &other_message, stranger] {
        let answer = site.visit(&format!("cookie: firstcome_pass={text}\r\n"));
        assert_eq!(answer.status, 303, "{text}: {}", answer.text());
        let place: Vec<_> = answer.headers("location").collect();
        assert_eq!(place, ["/rooms/sale?back=%2Fbasket%3Fsize%3D1"], "{text}");
        assert_eq!(answer.headers("cache-control").collect::<Vec<_>>(), ["no-store"]);
        assert_eq!(cookies(&answer), "");
    }
    let told = site.visit("accept: application/json\r\n");
    assert_eq!((told.status, &told.json()["code"]), (401, &json!("no_pass")));
}
