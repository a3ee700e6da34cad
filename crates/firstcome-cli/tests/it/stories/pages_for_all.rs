//! The pages of rooms and coupons in each of their states, judged by axe-core in a real browser: WCAG 2.2 AA and its best
//! practices, in the light and in the dark, on a phone, from right to left, and in colours of an organiser.
//!
//! The pages come from a service and are shown by a stand of this test, which adds axe to them: their own policy allows no
//! script but theirs.

use super::behind_proxies::cookies;
use super::site_gate::{BROWSER, Browser};
use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{PROGRAM, command};
use crate::support::server::Server;
use crate::support::{PATIENCE, machine_has, stand, wait_for};
use firstcome::edge::Stopwatch;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

const KEY: &str = "admin-key-of-the-pages-0123456789";

/// Runs axe in a frame for each page, and writes down what it found.
const JUDGE: &str = r#"
const names = JSON.parse(document.body.dataset.names);
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const load = name => new Promise(loaded => {
  const frame = document.createElement('iframe');
  frame.width = 390; frame.height = 844; frame.title = name; frame.src = '/page/' + name;
  frame.onload = () => loaded(frame.contentWindow);
  document.body.append(frame);
});
/// The clock of the browser stands while it waits for an answer, and the work takes time of the machine.
const works = async page => {
  const isAtWork = () => page.getElementById('work').textContent.includes('%');
  while (!isAtWork() && await (await fetch('/patience')).text() === 'left');
};
(async () => {
  const told = {};
  for (const name of names) {
    const page = await load(name);
    if (name === 'working') await works(page.document);
    const found = await page.axe.run(page.document, { runOnly: { type: 'tag', values: tags } });
    told[name] = {
      wrong: found.violations.map(rule => rule.id + ': ' + rule.nodes.map(node => node.html).join(' ')),
      passed: found.passes.map(rule => rule.id),
      work: page.document.getElementById('work')?.textContent,
      dark: page.matchMedia('(prefers-color-scheme: dark)').matches,
    };
  }
  const out = document.createElement('pre');
  out.id = 'told';
  out.textContent = JSON.stringify(told);
  document.body.append(out);
})();
"#;

/// Where `bench/peers/install target/peers node` puts axe.
fn axe() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let peers = std::env::var_os("FIRSTCOME_PEERS").map_or_else(beside, PathBuf::from);
    peers.join("node/node_modules/axe-core/axe.min.js")
}

pub(super) fn ask(service: SocketAddr, what: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(service).expect("the service listens");
    let request = format!("{what} HTTP/1.1\r\nhost: {service}\r\ncontent-length: 0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    read_answer(&mut stream).expect("it is answered").0
}

/// The pages by their names, as visitors without scripts see them.
struct Pages {
    service: SocketAddr,
    /// The one that demands work before a join.
    strict: SocketAddr,
    pages: BTreeMap<String, String>,
}

impl Pages {
    /// Keeps a page, which must be in this phase in the end.
    fn keep(&mut self, name: &str, phase: &str, path: &str, headers: &str) {
        let page = wait_for(phase, || {
            let text = ask(self.service, &format!("GET {path}"), headers).text();
            text.contains(&format!("data-phase=\"{phase}\"")).then_some(text)
        });
        assert!(self.pages.insert(name.to_owned(), page).is_none(), "{name} twice");
    }

    /// Keeps a page of the dashboard, which a service in development mode shows to any caller on this machine.
    fn keep_of_operators(&mut self, name: &str, path: &str) {
        let answer = ask(self.service, &format!("GET {path}"), "");
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.status);
        assert!(self.pages.insert(name.to_owned(), answer.text()).is_none(), "{name} twice");
    }

    fn join(&self, room: &str) -> String {
        cookies(&ask(self.service, &format!("POST /rooms/{room}/join"), ""))
    }
}

/// Brings rooms and coupons into each state that has a page.
fn pages(server: &Server, strict: &Server) -> Pages {
    let mut client = Client::new(server.address());
    let mut made = |path: &str, settings: Value| {
        let status = client.put_status(path, &settings);
        assert!([200, 201].contains(&status), "{path}: {status}");
    };
    made("/v1/rooms/sale", json!({"max_active": 1, "message": "Please be patient"}));
    made("/v1/rooms/later", json!({"max_active": 1, "opens_at": "2100-01-01T00:00:00Z"}));
    made("/v1/rooms/still", json!({"max_active": 1, "paused": true}));
    made("/v1/rooms/short", json!({"max_active": 1, "active_ttl_ms": 100}));
    made("/v1/rooms/over", json!({"max_active": 1}));
    for (coupon, limit, opens_at) in
        [("some", 3, "2020-01-01T00:00:00Z"), ("one", 1, "2020-01-01T00:00:00Z"), ("soon", 3, "2100-01-01T00:00:00Z")]
    {
        made(&format!("/v1/coupons/{coupon}"), json!({"limit": limit, "opens_at": opens_at}));
    }
    let (service, strict) = (server.address(), strict.address());
    let mut pages = Pages { service, strict, pages: BTreeMap::new() };
    let [ann, bob, cid] = [0; 3].map(|_| pages.join("sale"));
    pages.keep("join", "join", "/rooms/sale", "");
    pages.keep("full", "full", "/rooms/sale?full=1", "");
    pages.keep("cookies", "cookies", "/rooms/sale?joined=1", "");
    pages.keep("admitted", "admitted", "/rooms/sale?back=%2Fshop", &ann);
    pages.keep("almost", "almost", "/rooms/sale", &bob);
    pages.keep("waiting", "waiting", "/rooms/sale", &cid);
    for language in ["ko", "ar", "de"] {
        pages.keep(language, "waiting", "/rooms/sale", &format!("{cid}accept-language: {language}\r\n"));
    }
    for (room, phase) in [("later", "scheduled"), ("still", "paused"), ("short", "expired")] {
        let place = pages.join(room);
        pages.keep(phase, phase, &format!("/rooms/{room}"), &place);
    }
    let left = pages.join("still");
    ask(pages.service, "POST /rooms/still/leave", &left);
    pages.keep("left", "left", "/rooms/still", &left);
    assert_eq!(client.call("DELETE", "/v1/rooms/over", None).status, 204);
    pages.keep("over", "over", "/rooms/over", "");

    let visitor = cookies(&ask(pages.service, "GET /coupons/one", ""));
    pages.keep("claim", "claim", "/coupons/some", &visitor);
    pages.keep("early", "early", "/coupons/soon", &visitor);
    ask(pages.service, "POST /coupons/one/claim", &visitor);
    pages.keep("claimed", "claimed", "/coupons/one", &visitor);
    pages.keep("soldout", "soldout", "/coupons/one", "");
    assert_eq!(client.call("DELETE", "/v1/coupons/some", None).status, 204);
    pages.keep("ended", "ended", "/coupons/some", "");

    // As far as colours may go: each pair just above the contrast that is asked for.
    let look = json!({
        "texts": {"title": "Spring concert", "next": "Each visitor may buy four tickets.", "footer": "Help: +49 30 1234"},
        "colors": {"accent": "#767676", "background": "#ffffff", "text": "#767676"},
        "logo": "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=",
    });
    assert_eq!(client.put_status("/v1/rooms/sale/appearance", &look), 200);
    pages.keep("dressed", "waiting", "/rooms/sale", &cid);
    keep_those_of_operators(&mut pages);
    keep_those_with_work(&mut pages);
    pages
}

/// Keeps the page of a room that demands work: once as it comes, and once to let its script work.
fn keep_those_with_work(pages: &mut Pages) {
    let mut client = Client::with_key(pages.strict, KEY);
    assert_eq!(client.put_status("/v1/rooms/earned", &json!({"max_active": 1})), 201);
    let page = ask(pages.strict, "GET /rooms/earned", "").text();
    assert!(page.contains("data-phase=\"join\"") && page.contains("wait 1343 s"), "{page}");
    for name in ["work", "working"] {
        assert!(pages.pages.insert(name.to_owned(), page.clone()).is_none(), "{name} twice");
    }
}

/// What a join without work is told, with more work than a browser ever does: the page is still at work when axe looks.
fn told_to_work(strict: SocketAddr) -> Vec<u8> {
    let told = ask(strict, "POST /rooms/earned/join", "accept: application/json\r\n").text();
    assert!(told.contains("\"bits\":26"), "{told}");
    told.replace("\"bits\":26", "\"bits\":32").into_bytes()
}

fn keep_those_of_operators(pages: &mut Pages) {
    for (name, path) in [
        ("receipts", "/receipts"),
        ("operators-overview", "/dashboard"),
        ("operators-rooms", "/dashboard/rooms"),
        ("operators-room", "/dashboard/rooms/sale"),
        ("operators-limits", "/dashboard/rooms/sale/limits"),
        ("operators-close", "/dashboard/rooms/sale/close"),
        ("operators-coupon", "/dashboard/coupons/one"),
        ("operators-members", "/dashboard/members"),
        ("operators-locks", "/dashboard/locks"),
        ("operators-find", "/dashboard/find?kind=user&in=sale&what=eve"),
        ("operators-audit", "/dashboard/audit"),
    ] {
        pages.keep_of_operators(name, path);
    }
}

/// Shows the pages with axe in them, and what they load.
fn shown(pages: Pages, axe: Vec<u8>) -> (SocketAddr, usize) {
    let mut names: Vec<String> = pages.pages.keys().cloned().collect();
    let count = names.len();
    names.push("broken".to_owned());
    let begin = format!(
        "<!doctype html><title>all</title><body data-names='{}'><script src=/judge.js></script>",
        serde_json::to_string(&names).expect("texts")
    );
    // The wait for the page that works begins with its first look.
    let mut asked: Option<Stopwatch> = None;
    let answer = move |path: &str| -> (String, Vec<u8>) {
        let html = "text/html; charset=utf-8".to_owned();
        if path == "/" {
            return (html, begin.clone().into_bytes());
        }
        if let Some(name) = path.strip_prefix("/page/") {
            // What axe must find.
            let broken =
                || pages.pages["waiting"].replace(" lang=\"en\"", "").replacen("<h1", "<img src=\"/x\"><h1", 1);
            let page = pages.pages.get(name).cloned().unwrap_or_else(broken);
            if name == "working" {
                return (html, page.replacen("<script ", "<script src=/axe.js></script><script ", 1).into_bytes());
            }
            // The page's own script would ask for the place, and change what is judged.
            let (head, rest) = page.split_once("<script ").expect("the page has its script");
            // The page that demands work has two.
            let ends = if name == "work" { rest.rsplit_once("</script>") } else { rest.split_once("</script>") };
            let (_, rest) = ends.expect("it ends");
            return (html, format!("{head}<script src=/axe.js></script>{rest}").into_bytes());
        }
        match path {
            "/axe.js" => ("text/javascript".into(), axe.clone()),
            "/judge.js" => ("text/javascript".into(), JUDGE.into()),
            "/patience" => {
                let asked = asked.get_or_insert_with(Stopwatch::start);
                ("text/plain".into(), if asked.elapsed() < PATIENCE { "left" } else { "none" }.into())
            }
            "/rooms/earned/join" => ("application/json".into(), told_to_work(pages.strict)),
            _ => {
                let answer = ask(pages.service, &format!("GET {path}"), "");
                let kind = answer.headers("content-type").next().unwrap_or("text/plain").to_owned();
                (kind, answer.text().into_bytes())
            }
        }
    };
    (stand::stand(answer), count)
}

/// What axe found on each page.
fn judged(here: &Path, address: SocketAddr, scheme: &str) -> BTreeMap<String, Value> {
    let page = Browser(here).read_with(&format!("http://{address}/"), "en", &[scheme]);
    let (_, told) = page.split_once("<pre id=\"told\">").unwrap_or_else(|| panic!("axe told nothing: {page}"));
    let told = told.split("</pre>").next().unwrap_or_default();
    let told = told.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&told).expect("JSON")
}

#[test]
fn each_page_can_be_used_by_everybody() {
    let axe = axe();
    let has_axe = machine_has("axe-core (bench/peers/install target/peers node)", axe.is_file());
    if !machine_has("chromium", Path::new(BROWSER).exists()) || !has_axe {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path());
    let mut serve = command(PROGRAM, directory.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "strict", "--join-work", "26"]);
    let strict = Server::spawn(serve.env("FIRSTCOME_ADMIN_KEY", KEY));
    let (address, count) = shown(pages(&server, &strict), std::fs::read(axe).expect("axe"));
    assert!(20 <= count, "{count} pages");
    for (scheme, is_dark) in [("preferredColorScheme=1", false), ("preferredColorScheme=0", true)] {
        let mut told = judged(directory.path(), address, &format!("--blink-settings={scheme}"));
        let broken = told.remove("broken").expect("it was judged")["wrong"].to_string();
        assert!(broken.contains("html-has-lang") && broken.contains("image-alt"), "axe sees nothing: {broken}");
        assert_eq!(told.len(), count);
        let work = told["working"]["work"].as_str().unwrap_or_default();
        assert!(work.ends_with(" %"), "the page is not at work: {work}");
        for (name, told) in told {
            assert_eq!(told["dark"], is_dark, "{name}");
            let passed = told["passed"].as_array().expect("a list");
            assert!(passed.iter().any(|rule| rule == "color-contrast"), "{name}: contrast was not judged");
            assert_eq!(told["wrong"], json!([]), "{name} in {scheme}");
        }
    }
    server.stop();
    strict.stop();
}
