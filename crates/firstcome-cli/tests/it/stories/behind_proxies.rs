//! An operator puts a proxy in front of a shop, and lets it ask the service about each visitor's pass. By `auth_request` on
//! `POST …/passes/verify` everybody came in: nginx sees the status alone, and a verdict of "no" has the status 200. A visitor without a
//! cookie and one with a forged cookie both reached the shop, and a `"` in the cookie was a 500.
//!
//! Now `docs/proxies.md` has configurations that ask `GET …/gate`. This plays these very texts with the real proxies.

use crate::archive_rooms::{serve, shown};
use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{command, run};
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::free_port;
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// What the shop says.
pub(crate) const SHOP: &str = "welcome to the shop";

/// A proxy that can ask before it passes a request on.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Nginx,
    HaProxy,
    Caddy,
}

impl Kind {
    const fn program(self) -> &'static str {
        match self {
            Self::Nginx => "/usr/sbin/nginx",
            Self::HaProxy => "/usr/sbin/haproxy",
            Self::Caddy => "/usr/bin/caddy",
        }
    }

    /// What a visitor gets when the service is away.
    const fn status_without_service(self) -> u16 {
        match self {
            Self::Nginx => 500,
            Self::HaProxy => 503,
            Self::Caddy => 502,
        }
    }

    fn is_installed(self) -> bool {
        machine_has(&format!("{self:?}"), Path::new(self.program()).exists())
    }

    /// Writes what the documentation says over these addresses, and returns the arguments that start the proxy with it.
    fn configure(self, directory: &Path, places: &Places) -> Vec<String> {
        let file = |name: &str, text: String| -> PathBuf {
            let path = directory.join(name);
            fs::write(&path, text).expect("it can be written");
            path
        };
        let shown = |path: PathBuf| path.to_str().expect("a name").to_owned();
        let here = directory.display();
        match self {
            Self::Nginx => {
                let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|name| format!("{name}_temp_path {here}/{name};"))
                    .join("\n");
                let block = places.put_into(&block("nginx"));
                let text = format!(
                    "daemon off; master_process off; pid {here}/pid; error_log {here}/errors;\nevents {{}}\n\
                     http {{\naccess_log off;\n{paths}\n{block}}}\n"
                );
                let file = shown(file("nginx.conf", text));
                run(command(self.program(), directory).args(["-t", "-q", "-p", ".", "-c", &file])).well();
                ["-p", ".", "-c", &file].map(str::to_owned).to_vec()
            }
            Self::HaProxy => {
                file("firstcome.lua", block("lua").replace("127.0.0.1:8080", &places.service.to_string()));
                let file = shown(file("haproxy.cfg", places.put_into(&block("haproxy"))));
                ["-C", &here.to_string(), "-f", &file].map(str::to_owned).to_vec()
            }
            Self::Caddy => {
                // Tests have no certificate, and no port that all of them could share.
                let block = block("caddy").replace("shop.example.com", "http://127.0.0.1:8000");
                let text = format!("{{\nadmin off\n}}\n{}", places.put_into(&block));
                let file = shown(file("Caddyfile", text));
                ["run", "--adapter", "caddyfile", "--config", &file].map(str::to_owned).to_vec()
            }
        }
    }
}

/// Returns the block of the documentation in this language.
fn block(language: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxies.md")).expect("the page");
    let (_, block) = page.split_once(&format!("```{language}\n")).expect("a block");
    block.split_once("```").expect("it ends").0.to_owned()
}

/// Where things listen.
struct Places {
    proxy: SocketAddr,
    service: SocketAddr,
    shop: SocketAddr,
}

impl Places {
    /// Puts them in place of the addresses that the documentation shows.
    fn put_into(&self, block: &str) -> String {
        let mut block = block.to_owned();
        let shown = [("127.0.0.1:8000", self.proxy), ("127.0.0.1:8080", self.service), ("127.0.0.1:3000", self.shop)];
        for (documented, own) in shown {
            assert!(block.contains(documented), "{documented} is not in the documentation");
            block = block.replace(documented, &own.to_string());
        }
        block
    }
}

/// A proxy of this test's own; killed, by its id, when it is dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    /// Starts it with the text of the documentation, over these servers.
    fn start(kind: Kind, directory: &Path, service: SocketAddr, shop: SocketAddr) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a port")));
        let arguments = kind.configure(directory, &Places { proxy: address, service, shop });
        let child = command(kind.program(), directory)
            .args(arguments)
            // Caddy keeps its state below it.
            .env("HOME", directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        wait_for("the proxy to listen", || TcpStream::connect(address).ok());
        Self { child, address }
    }

    /// What a visitor sees who asks for the shop with these headers.
    fn visit(&self, headers: &[u8]) -> Answer {
        self.send("GET /basket", headers)
    }

    fn send(&self, what: &str, headers: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let head = format!("{what} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n");
        let request = [head.as_bytes(), headers, b"\r\n"].concat();
        stream.write_all(&request).expect("it is sent");
        read_answer(&mut stream).expect("it is answered").0
    }

    fn with_cookie(&self, pass: &[u8]) -> Answer {
        self.visit(&[&b"cookie: theme=dark; firstcome_pass="[..], pass, b"\r\n"].concat())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The cookies that an answer sets, as a browser sends them back.
pub(crate) fn cookies(answer: &Answer) -> String {
    let pairs = answer.headers("set-cookie").filter_map(|line| line.split(';').next());
    pairs.map(|pair| format!("cookie: {pair}\r\n")).collect()
}

/// A shop that welcomes each request.
pub(crate) fn shop() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4_096];
            // A request of this test fits into one read; nginx waits for the answer either way.
            let _ = stream.read(&mut head);
            let length = SHOP.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{SHOP}");
        }
    });
    address
}

#[test]
fn a_visitor_without_a_valid_pass_does_not_reach_the_shop_behind_nginx() {
    play(Kind::Nginx);
}

#[test]
fn a_visitor_without_a_valid_pass_does_not_reach_the_shop_behind_haproxy() {
    play(Kind::HaProxy);
}

#[test]
fn a_visitor_without_a_valid_pass_does_not_reach_the_shop_behind_caddy() {
    play(Kind::Caddy);
}

fn play(kind: Kind) {
    if !kind.is_installed() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = serve(here, "data");
    let (admin, service) = (shown(&mut server, "admin"), shown(&mut server, "service"));
    let mut client = Client::with_key(server.address(), &admin);
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    let joined = client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({}))).json();
    let ticket = format!("/v1/rooms/sale/tickets/{}", joined["ticket"].as_str().expect("a ticket"));
    let pass = wait_for("a pass", || client.get(&ticket).json().get("pass").cloned());
    let pass = pass.as_str().expect("a text").to_owned();

    let proxy = Proxy::start(kind, here, server.address(), shop());
    let waits = |answer: Answer, who: &str| {
        assert_eq!(answer.status, 503, "{who}: {}", answer.text());
        assert!(answer.text().contains("/rooms/sale/join?back=%2Fbasket"), "{who} sees no way in: {}", answer.text());
        assert!(!answer.text().contains(SHOP), "{who} reached the shop");
    };
    waits(proxy.visit(b""), "a visitor without a cookie");
    let last = if pass.ends_with('A') { "B" } else { "A" };
    let forged = format!("{}{last}", &pass[..pass.len() - 1]);
    for text in [&b""[..], b"x", b"\"", b"\xff", &pass.as_bytes()[..40], forged.as_bytes()] {
        waits(proxy.with_cookie(text), &String::from_utf8_lossy(text));
    }
    let served = proxy.with_cookie(pass.as_bytes());
    assert_eq!((served.status, served.text().as_str()), (200, SHOP));
    // A shop with a password of its own.
    let headers = format!("authorization: Basic YW5uOnNlY3JldA==\r\nx-firstcome-pass: {pass}\r\n");
    assert_eq!(proxy.visit(headers.as_bytes()).status, 200);
    waits(proxy.visit(b"authorization: Basic YW5uOnNlY3JldA==\r\n"), "a visitor with a password of the shop");
    // A program is told in JSON what to do.
    let told = proxy.visit(b"accept: application/json\r\n");
    assert_eq!((told.status, &told.json()["code"]), (401, &json!("no_pass")));
    // The visit is over.
    let mut back_end = Client::with_key(server.address(), &service);
    let released = back_end.call("POST", "/v1/rooms/sale/passes/release", Some(&json!({"pass": pass})));
    assert_eq!(released.status, 204);
    waits(proxy.with_cookie(pass.as_bytes()), "a visitor whose slot was given back");
    // A visitor without scripts gets in by the page: joins, looks again, and goes back to the basket.
    let joined = proxy.send("POST /rooms/sale/join?back=%2Fbasket", b"");
    assert_eq!(joined.status, 303, "{}", joined.text());
    let place = cookies(&joined);
    let page = wait_for("the visitor to be admitted", || {
        let page = proxy.send("GET /rooms/sale?back=%2Fbasket", place.as_bytes());
        (page.status == 200).then_some(page)
    });
    assert!(page.text().contains("href=\"/basket\""), "{}", page.text());
    let served = proxy.visit(cookies(&page).as_bytes());
    assert_eq!((served.status, served.text().as_str()), (200, SHOP));
    for path in ["/assets/room.css?0.1.0", "/assets/room.js?0.1.0"] {
        assert_eq!(proxy.send(&format!("GET {path}"), b"").status, 200, "{path}");
    }
    // The operator did not name the proxy: the log says so once, and the first page too.
    let warning = "X-Forwarded-For came from an address that is not trusted";
    assert_eq!(server.errors().matches(warning).count(), 1, "{}", server.errors());
    assert!(client.get("/").text().contains("<code>--trusted-proxy</code>"));
    server.stop();
    // A service that is away lets no visitor in.
    assert_eq!(proxy.with_cookie(pass.as_bytes()).status, kind.status_without_service());
}
