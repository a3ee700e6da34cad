//! An operator puts nginx in front of a shop, and lets it ask the service about each visitor's pass. By `auth_request` on
//! `POST …/passes/verify` everybody came in: nginx sees the status alone, and a verdict of "no" has the status 200. A visitor without a
//! cookie and one with a forged cookie both reached the shop, and a `"` in the cookie was a 500.
//!
//! Now `docs/proxies.md` has a configuration that asks `GET …/gate`. This plays that very text with the real nginx.

use crate::archive_rooms::{serve, shown};
use crate::support::http::{Answer, Client, read_answer};
use crate::support::program::{command, run};
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::free_port;
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

const NGINX: &str = "/usr/sbin/nginx";
/// What the shop says.
pub(crate) const SHOP: &str = "welcome to the shop";

/// An nginx of this test's own; killed, by its id, when it is dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it with the block of the documentation, over these servers.
    fn start(directory: &Path, service: SocketAddr, shop: SocketAddr) -> Self {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxies.md")).expect("the page");
        let (_, block) = page.split_once("```nginx\n").expect("a block");
        let (block, _) = block.split_once("```").expect("it ends");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a port")));
        let mut block = block.to_owned();
        for (documented, own) in [("127.0.0.1:8000", address), ("127.0.0.1:8080", service), ("127.0.0.1:3000", shop)] {
            assert!(block.contains(documented), "{documented} is not in the documentation");
            block = block.replace(documented, &own.to_string());
        }
        let here = directory.display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {here}/{name};"))
            .join("\n");
        let text = format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/errors;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}\n{block}}}\n"
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text).expect("it can be written");
        let file = file.to_str().expect("a name");
        let checked = run(command(NGINX, directory).args(["-t", "-q", "-p", ".", "-c", file]));
        checked.well();
        let child = command(NGINX, directory)
            .args(["-p", ".", "-c", file])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        wait_for("nginx to listen", || TcpStream::connect(address).ok());
        Self { child, address }
    }

    /// What a visitor sees who asks for the shop with these headers.
    fn visit(&self, headers: &[u8]) -> Answer {
        self.send("GET /basket", headers)
    }

    fn send(&self, what: &str, headers: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("nginx listens");
        let head = format!("{what} HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n");
        let request = [head.as_bytes(), headers, b"\r\n"].concat();
        stream.write_all(&request).expect("it is sent");
        read_answer(&mut stream).expect("it is answered").0
    }

    fn with_cookie(&self, pass: &[u8]) -> Answer {
        self.visit(&[&b"cookie: theme=dark; firstcome_pass="[..], pass, b"\r\n"].concat())
    }
}

impl Drop for Nginx {
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
fn a_visitor_without_a_valid_pass_does_not_reach_the_shop() {
    if !machine_has("nginx", Path::new(NGINX).exists()) {
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

    let nginx = Nginx::start(here, server.address(), shop());
    let waits = |answer: Answer, who: &str| {
        assert_eq!(answer.status, 503, "{who}: {}", answer.text());
        assert!(answer.text().contains("/rooms/sale/join?back=%2Fbasket"), "{who} sees no way in: {}", answer.text());
        assert!(!answer.text().contains(SHOP), "{who} reached the shop");
    };
    waits(nginx.visit(b""), "a visitor without a cookie");
    let last = if pass.ends_with('A') { "B" } else { "A" };
    let forged = format!("{}{last}", &pass[..pass.len() - 1]);
    for text in [&b""[..], b"x", b"\"", b"\xff", &pass.as_bytes()[..40], forged.as_bytes()] {
        waits(nginx.with_cookie(text), &String::from_utf8_lossy(text));
    }
    let served = nginx.with_cookie(pass.as_bytes());
    assert_eq!((served.status, served.text().as_str()), (200, SHOP));
    // A shop with a password of its own.
    let headers = format!("authorization: Basic YW5uOnNlY3JldA==\r\nx-firstcome-pass: {pass}\r\n");
    assert_eq!(nginx.visit(headers.as_bytes()).status, 200);
    waits(nginx.visit(b"authorization: Basic YW5uOnNlY3JldA==\r\n"), "a visitor with a password of the shop");
    // The visit is over.
    let mut back_end = Client::with_key(server.address(), &service);
    let released = back_end.call("POST", "/v1/rooms/sale/passes/release", Some(&json!({"pass": pass})));
    assert_eq!(released.status, 204);
    waits(nginx.with_cookie(pass.as_bytes()), "a visitor whose slot was given back");
    // A visitor without scripts gets in by the page: joins, looks again, and goes back to the basket.
    let joined = nginx.send("POST /rooms/sale/join?back=%2Fbasket", b"");
    assert_eq!(joined.status, 303, "{}", joined.text());
    let place = cookies(&joined);
    let page = wait_for("the visitor to be admitted", || {
        let page = nginx.send("GET /rooms/sale?back=%2Fbasket", place.as_bytes());
        (page.status == 200).then_some(page)
    });
    assert!(page.text().contains("href=\"/basket\""), "{}", page.text());
    let served = nginx.visit(cookies(&page).as_bytes());
    assert_eq!((served.status, served.text().as_str()), (200, SHOP));
    for path in ["/assets/room.css?0.1.0", "/assets/room.js?0.1.0"] {
        assert_eq!(nginx.send(&format!("GET {path}"), b"").status, 200, "{path}");
    }
    // The operator did not name the proxy: the log says so once, and the first page too.
    let warning = "X-Forwarded-For came from an address that is not trusted";
    assert_eq!(server.errors().matches(warning).count(), 1, "{}", server.errors());
    assert!(client.get("/").text().contains("<code>--trusted-proxy</code>"));
    server.stop();
    // A service that is away lets no visitor in.
    assert_eq!(nginx.with_cookie(pass.as_bytes()).status, 500);
}
