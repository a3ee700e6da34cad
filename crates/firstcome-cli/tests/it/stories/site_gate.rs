//! The owner of a shop puts `firstcome gate` before it: no proxy to configure, no page to write. The gate is killed while
//! one visitor is inside and one waits. Both find their places again.

use super::behind_proxies::{SHOP, cookies, shop};
use super::one_address::{connect_from, raise_own_limit};
use super::pages_for_all::ask;
use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use crate::support::{machine_has, stand, wait_for};
use firstcome_test_servers::Kind;
use serde_json::json;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const KEY: &str = "the-key-of-who-runs-the-gate";

/// A gate that runs.
struct Gate {
    server: Server,
    address: SocketAddr,
}

impl Gate {
    fn start(here: &Path, shop: SocketAddr, limits: &[&str]) -> Self {
        Self::on(here, SocketAddr::from(([127, 0, 0, 1], 0)), shop, limits)
    }

    /// Starts it at the address that it had: a browser keeps cookies for that one.
    fn restart(here: &Path, address: SocketAddr, shop: SocketAddr) -> Self {
        Self::on(here, address, shop, &[NO_STREAMS])
    }

    fn on(here: &Path, address: SocketAddr, shop: SocketAddr, limits: &[&str]) -> Self {
        let mut gate = command(PROGRAM, here);
        // Only a cluster uses the secret.
        gate.env("FIRSTCOME_SECRET", SECRET).env("FIRSTCOME_ADMIN_KEY", KEY);
        gate.args(["gate", "--upstream", &format!("http://{shop}"), "--room", "sale", "--data", "data"]);
        gate.args(["--listen", &address.to_string(), "--service-listen", "127.0.0.1:0", "--path", "/basket/*"])
            .args(limits);
        let mut server = Server::spawn(&mut gate);
        let line = server.line("gate on http://");
        let address = line.trim_start_matches("gate on http://").split(',').next().and_then(|text| text.parse().ok());
        Self { server, address: address.unwrap_or_else(|| panic!("no address in {line}")) }
    }

    /// The place of a visitor who has just been admitted.
    #[track_caller]
    fn admitted(&self) -> String {
        let place = cookies(&self.ask("POST /.firstcome/rooms/sale/join", ""));
        self.page(&place, "admitted");
        place
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
    let mut gate = Gate::start(here, shop, &["--max-active", "1", "--admit", "100/s", "--first-poll", "10m"]);
    assert_eq!(gate.ask("GET /about", "").text(), SHOP, "a path without a room before it");
    assert_eq!(gate.ask("GET /basket/1", "").status, 503);
    let ann = cookies(&gate.ask("POST /.firstcome/rooms/sale/join", ""));
    let pass = cookies(&gate.page(&ann, "admitted"));
    gate.lets_in(&pass);
    let bob = cookies(&gate.ask("POST /.firstcome/rooms/sale/join", ""));
    gate.page(&bob, "almost");

    gate.server.kill();
    // The room is there: the limits need not be given again, and others change nothing.
    let look = json!({"texts": {"title": "Spring concert"}}).to_string();
    std::fs::write(here.join("look.json"), look).expect("it is written");
    std::fs::write(here.join("logo.svg"), "<svg xmlns='http://www.w3.org/2000/svg'/>").expect("it is written");
    let look = ["--appearance", "look.json", "--logo", "logo.svg"];
    let gate = Gate::start(here, shop, &[&["--max-active", "9"], &look[..]].concat());
    gate.server.wait_for_log("change nothing");
    let page = gate.page(&bob, "almost").text();
    assert!(page.contains(">Spring concert<"), "{page}");
    let (_, logo) = page.split_once("src=\"/.firstcome/rooms/sale/logo?").expect("a logo");
    let logo = logo.split('"').next().unwrap_or_default();
    let logo = gate.ask(&format!("GET /.firstcome/rooms/sale/logo?{logo}"), "");
    assert_eq!((logo.status, logo.headers("content-type").next()), (200, Some("image/svg+xml")));
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
fn gates_of_a_cluster_share_their_room() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let shop = shop();
    let limits = ["--max-active", "1", "--redis", world.redis.url(), "--sql", world.sql.url()];
    let mut one = Gate::start(world.here(), shop, &limits);
    let two = Gate::start(world.here(), shop, &limits);
    let ann = cookies(&one.ask("POST /.firstcome/rooms/sale/join", ""));
    let pass = cookies(&one.page(&ann, "admitted"));
    one.lets_in(&pass);
    wait_for("the other gate to know the slot", || (two.ask("GET /basket/1", &pass).status == 200).then_some(()));
    let bob = cookies(&two.ask("POST /.firstcome/rooms/sale/join", ""));
    assert!(two.page(&bob, "almost").text().contains(">2</dd>"));
    one.server.kill();
    assert_eq!(two.ask("POST /.firstcome/rooms/sale/leave", &ann).status, 303);
    two.lets_in(&cookies(&two.page(&bob, "admitted")));
    two.server.stop();
}

#[test]
fn gates_whose_stores_die_go_on_for_their_grace_and_then_close_or_open() {
    let Some(mut world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    let (shop, redis, sql) = (shop(), world.redis.url().to_owned(), world.sql.url().to_owned());
    let limits = ["--max-active", "1", "--redis", &redis, "--sql", &sql, "--grace", "6s"];
    let close = Gate::start(world.here(), shop, &limits);
    let open = Gate::start(world.here(), shop, &[&limits[..], &["--on-loss", "open"]].concat());
    let ann = cookies(&close.ask("POST /.firstcome/rooms/sale/join", ""));
    let pass = cookies(&close.page(&ann, "admitted"));
    close.lets_in(&pass);
    wait_for("the other gate to know the slot", || (open.ask("GET /basket/1", &pass).status == 200).then_some(()));
    world.redis.kill();
    world.sql.kill();
    close.lets_in(&pass);
    open.lets_in(&pass);
    close.server.wait_for_log("the gate lets no visitor in");
    let page = close.ask("GET /basket/1", &pass);
    assert!(page.status == 503 && page.text().contains("no visitor comes in"), "{}", page.text());
    open.server.wait_for_log("the gate lets all visitors in");
    open.lets_in("");
    world.restart();
    for gate in [&close, &open] {
        gate.server.wait_for_log("the store answers again");
        wait_for("the slot to be known again", || (gate.ask("GET /basket/1", &pass).status == 200).then_some(()));
        assert_eq!(gate.ask("GET /basket/1", "").status, 503);
    }
}

#[test]
fn ten_thousand_idle_connections_of_one_address_keep_no_visitor_out_of_the_gate() {
    let directory = tempfile::tempdir().expect("a directory");
    let count = raise_own_limit().saturating_sub(1_000).min(10_000);
    let gate = Gate::start(directory.path(), shop(), &["--max-active", "9", "--admit", "100/s"]);
    let idle: Vec<TcpStream> =
        (0..count).map(|_| connect_from([127, 0, 0, 2], gate.address).expect("it listens")).collect();
    assert_eq!(gate.ask("GET /about", "").text(), SHOP);
    assert_eq!(gate.ask("GET /basket/1", "").status, 503);
    gate.lets_in(&cookies(&gate.page(&gate.admitted(), "admitted")));
    let figures = Client::with_key(gate.server.address(), KEY).get("/metrics").text();
    let of = |name: &str| {
        let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse::<u64>().expect("a number")
    };
    let over = of("firstcome_connections_refused_address_total") + of("firstcome_connections_made_room_total");
    assert!(count - 1_100 <= over + of("firstcome_connections_overdue_total"), "{over} of {count}");
    assert_eq!(of("firstcome_connections_refused_total"), 0);
    drop(idle);
}

/// For a browser that reads a page on a clock of its own: that clock stands still while a stream is open.
pub(super) const NO_STREAMS: &str = "--streams-max=0";

pub(super) const BROWSER: &str = "/usr/bin/chromium";

/// A browser with a memory of its own in this directory.
pub(super) struct Browser<'a>(pub(super) &'a Path);

impl Browser<'_> {
    /// What stands on a page after its script has run for some seconds of the browser's own clock.
    fn read(&self, address: &str, language: &str) -> String {
        self.read_with(address, language, &[])
    }

    /// The same with more arguments.
    pub(super) fn read_with(&self, address: &str, language: &str, more: &[&str]) -> String {
        let language = format!("--accept-lang={language}");
        let seen = ["--virtual-time-budget=9000", "--dump-dom", address];
        run(self.alone().args(more).arg(&language).args(seen)).well()
    }

    fn alone(&self) -> Command {
        let mut browser = command(BROWSER, self.0);
        browser.arg(format!("--user-data-dir={}", self.0.join("browser").display()));
        // The sandbox of the browser needs rights that a container may not have; the pages are our own.
        browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        browser
    }

    /// Shows a page until the answer is dropped, on the clock of this machine.
    pub(super) fn show(&self, address: &str) -> Shown {
        let mut browser = self.alone();
        browser.args(["--remote-debugging-port=0", "--accept-lang=en", address]);
        browser.stdout(Stdio::null()).stderr(Stdio::null());
        let browser = KilledOnDrop(browser.spawn().expect("it starts"));
        let port = self.0.join("browser/DevToolsActivePort");
        let port = wait_for("the browser to listen", || {
            std::fs::read_to_string(&port).ok()?.lines().next()?.parse::<u16>().ok()
        });
        Shown { tools: SocketAddr::from(([127, 0, 0, 1], port)), _browser: browser }
    }
}

/// A page that a browser shows.
pub(super) struct Shown {
    tools: SocketAddr,
    _browser: KilledOnDrop,
}

impl Shown {
    fn title(&self) -> String {
        let pages = Client::new(self.tools).get("/json/list").json();
        let pages = pages.as_array().expect("a list");
        let page = pages.iter().find(|page| page["type"] == "page").expect("a page");
        page["title"].as_str().expect("a title").to_owned()
    }
}

/// Passes GETs on to a gate, as a browser that keeps these cookies sends them.
fn with_cookies(gate: SocketAddr, cookies: String) -> SocketAddr {
    stand::stand(move |path| {
        let answer = ask(gate, &format!("GET {path}"), &cookies);
        let kind = answer.headers("content-type").next().unwrap_or("text/plain").to_owned();
        (kind, answer.text().into_bytes())
    })
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_browser_joins_waits_and_reaches_the_page_that_it_wanted() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut gate = Gate::start(here, shop(), &["--max-active", "1", NO_STREAMS]);
    let ann = gate.admitted();
    let browser = Browser(here);
    let wanted = format!("http://{}/basket/1", gate.address);
    // The script joins by itself. Later visits show the same place.
    let in_line = || {
        wait_for("the browser to show the place", || {
            Some(browser.read(&wanted, "ko-KR")).filter(|page| page.contains("data-phase=\"almost\""))
        })
    };
    let page = in_line();
    assert!(page.contains("<html lang=\"ko\""), "{page}");
    assert!(page.contains("앞에 기다리는 사람이 없습니다") && page.contains(">2</dd>"), "{page}");
    gate.server.kill();
    let gate = Gate::restart(here, gate.address, shop());
    let page = in_line();
    assert!(page.contains(">2</dd>"), "{page}");
    assert_eq!(gate.ask("POST /.firstcome/rooms/sale/leave", &ann).status, 303);
    // It goes in by itself, to the page that the visitor wanted.
    wait_for("the browser to reach the shop", || browser.read(&wanted, "ko-KR").contains(SHOP).then_some(()));
    gate.server.stop();
}

#[test]
fn a_browser_hears_of_its_turn_by_a_stream() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let gate = Gate::start(here, shop(), &["--max-active", "1"]);
    let ann = gate.admitted();
    let counted = |line: &str| {
        let metrics = Client::with_key(gate.server.address(), KEY).get("/metrics").text();
        let counts = metrics.lines().any(|counted| counted == line);
        counts.then_some(()).ok_or(metrics)
    };
    let shown = Browser(here).show(&format!("http://{}/basket/1", gate.address));
    wait_for("the page to open a stream", || counted(r#"firstcome_streams{kind="ticket"} 1"#).ok());
    assert_eq!(shown.title(), "No one is ahead of you · Almost there");
    assert_eq!(gate.ask("POST /.firstcome/rooms/sale/leave", &ann).status, 303);
    // A page of plain text has its address as its title.
    wait_for("the browser to reach the shop", || shown.title().ends_with("/basket/1").then_some(()));
    assert_eq!(counted(r#"firstcome_streams_ended_total{reason="turn"} 1"#), Ok(()));
    drop(shown);
    gate.server.stop();
}

#[test]
fn a_browser_works_for_its_place_and_reaches_the_page_that_it_wanted() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let gate = Gate::start(here, shop(), &["--max-active", "1", "--join-work", "14"]);
    let metrics = || Client::with_key(gate.server.address(), KEY).get("/metrics").text();
    let joined = |count: u32| metrics().contains(&format!("\nfirstcome_room_joined_total {count}\n"));
    let told = gate.ask("POST /.firstcome/rooms/sale/join", "accept: application/json\r\n");
    assert_eq!((told.status, told.text().contains("\"bits\":14")), (403, true), "{}", told.text());
    assert!(joined(0), "without work there is no place");
    let shown = Browser(here).show(&format!("http://{}/basket/1", gate.address));
    // The script solves a challenge, joins by itself, and goes in. A page of plain text has its address as its title.
    wait_for("the browser to have a place", || joined(1).then_some(()));
    wait_for("the browser to reach the shop", || shown.title().ends_with("/basket/1").then_some(()));
    drop(shown);
    gate.server.stop();
}

#[test]
fn a_browser_without_scripts_has_its_place_and_sees_its_turn() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let gate = Gate::start(here, shop(), &["--max-active", "1"]);
    let ann = gate.admitted();
    // The browser's own setting for sites: 2 is to block.
    let settings = json!({"profile": {"default_content_setting_values": {"javascript": 2}}});
    std::fs::create_dir_all(here.join("browser/Default")).expect("it can be made");
    std::fs::write(here.join("browser/Default/Preferences"), settings.to_string()).expect("it is written");
    let browser = Browser(here);
    let read = |path: &str| browser.read(&format!("http://{}/.firstcome/rooms/sale{path}", gate.address), "en");
    // With scripts it would have joined by itself.
    let page = read("");
    assert!(page.contains("data-phase=\"join\"") && page.contains("Join the line</button>"), "{page}");
    let bob = cookies(&gate.ask("POST /.firstcome/rooms/sale/join", ""));
    let ticket = bob.split(['=', '~']).nth(1).expect("a ticket");
    let page = read(&format!("?ticket={ticket}"));
    assert!(page.contains("Take the place</button>"), "a link offers the place: {page}");
    // This browser presses no button.
    let address = with_cookies(gate.address, bob);
    let read = |path: &str| browser.read(&format!("http://{address}/.firstcome/rooms/sale{path}"), "en");
    let page = read("");
    assert!(page.contains("data-phase=\"almost\"") && page.contains("No one is ahead of you"), "{page}");
    for link in ["Check now</a>", "Update by itself</a>"] {
        assert!(page.contains(link), "{link}: {page}");
    }
    assert_eq!(gate.ask("POST /.firstcome/rooms/sale/leave", &ann).status, 303);
    wait_for("the turn", || read("?auto=1").contains("data-phase=\"admitted\"").then_some(()));
    let page = read("?back=%2Fbasket%2F1");
    assert!(page.contains("data-go=\"\" href=\"/basket/1\""), "{page}");
    gate.server.stop();
}

#[test]
fn the_limits_of_a_gate_make_its_room_and_change_nothing_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let shop = shop();
    let settings = |gate: &Gate| {
        let room = Client::with_key(gate.server.address(), KEY).get("/v1/rooms/sale").json();
        ["max_active", "admit", "first_poll_ms"].map(|field| room["settings"][field].clone())
    };
    let limits = ["--max-active", "1", "--admit", "100/s", "--first-poll", "10m"];
    let wanted = [json!(1), json!({"count": 100, "every_ms": 1_000}), json!(600_000)];
    for start in ["the first", "a second"] {
        let gate = Gate::start(directory.path(), shop, &limits);
        assert_eq!(settings(&gate), wanted, "{start} start");
        assert!(!gate.server.errors().contains("change nothing"), "{start} start gives no other limits");
        gate.server.stop();
    }
    for (at, other) in [(1, "2"), (3, "99/s"), (5, "9m")] {
        let mut limits = limits;
        limits[at] = other;
        let gate = Gate::start(directory.path(), shop, &limits);
        gate.server.wait_for_log("change nothing");
        assert_eq!(settings(&gate), wanted, "{limits:?}");
        gate.server.stop();
    }
}

#[test]
fn a_gate_makes_no_room_without_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["gate", "--dev", "--upstream", "http://127.0.0.1:1", "--room", "sale", "--data", "data"];
    let ports = ["--listen", "127.0.0.1:0", "--service-listen", "127.0.0.1:0"];
    let told = firstcome(directory.path(), &[&arguments[..], &ports].concat()).with(2);
    assert!(told.contains("--admit, --max-active or both"), "{told}");
    for (flags, says) in [
        (&["--first-poll", "2m"][..], "--first-poll is for a room that the gate makes"),
        (&["--max-active", "1", "--first-poll", "10ms"], "--first-poll: first_poll_ms must be 100 to 604800000"),
    ] {
        let told = firstcome(directory.path(), &[&arguments[..], &ports, flags].concat()).with(2);
        assert!(told.contains(says), "{told}");
    }
    std::fs::write(directory.path().join("bad.json"), "{\"colors\":{}}").expect("it is written");
    for (flag, file, says) in [
        ("--appearance", "bad.json", "missing field"),
        ("--appearance", "nowhere.json", "cannot read nowhere.json"),
        ("--logo", "bad.json", "must be a PNG"),
    ] {
        let told = firstcome(directory.path(), &[&arguments[..], &ports, &[flag, file]].concat()).with(2);
        assert!(told.contains(says), "{told}");
    }
}
