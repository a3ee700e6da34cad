//! An operator watches a drop in a browser, and pauses its room.

use super::site_gate::{BROWSER, Browser, NO_STREAMS};
use crate::support::http::{Client, read_answer};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

#[test]
fn a_browser_draws_the_last_minutes_and_the_figures_of_now() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &[NO_STREAMS]);
    let mut client = Client::new(server.address());
    assert_eq!(client.put_status("/v1/rooms/sale", &json!({"max_active": 1})), 201);
    for _ in 0..3 {
        assert_eq!(client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({}))).status, 201);
    }
    let browser = Browser(directory.path());
    let address = format!("http://{}/dashboard", server.address());
    // The script polls the feed and draws, since it gets no stream; the service has taken samples before the page was opened.
    let page = wait_for("the browser to draw the line", || {
        Some(browser.read_with(&address, "en", &[])).filter(|page| page.contains("data-now=\"line\">2<"))
    });
    assert!(6 <= page.matches("<canvas").count(), "a canvas per chart: {page}");
    assert!(page.contains("in line 2") && page.contains("inside 1"), "each line is named with its value: {page}");
    let room = browser.read_with(&format!("{address}/rooms/sale"), "en", &[]);
    assert!(3 <= room.matches("<canvas").count() && room.contains("1 of 1 slots in use"), "{room}");
    // The form works without the script, and from this site alone.
    let post = |headers: &str, body: &str| {
        let mut stream = TcpStream::connect(server.address()).expect("the service listens");
        let length = body.len();
        let kind = "content-type: application/x-www-form-urlencoded";
        let path = "/dashboard/rooms/sale/pause";
        let host = server.address();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{kind}\r\ncontent-length: {length}\r\n{headers}\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("it is sent");
        read_answer(&mut stream).expect("it is answered").0
    };
    let form = browser.read_with(&format!("{address}/rooms/sale/pause"), "en", &[]);
    let field = |name: &str| {
        let (_, rest) = form.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
        rest.split('"').next().unwrap_or_default().replace("&quot;", "%22")
    };
    let body = format!("token={}&tag={}&sure=1", field("token"), field("tag"));
    assert_eq!(post("sec-fetch-site: cross-site\r\n", &body).status, 403);
    assert_eq!(post("sec-fetch-site: same-origin\r\n", &body).status, 303);
    assert_eq!(client.call("GET", "/v1/rooms/sale", None).json()["state"], "paused");
    server.stop();
}

#[test]
fn a_browser_hears_of_samples_by_a_stream_and_polls_no_more() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path());
    let figure = |name: &str| {
        let text = Client::new(server.address()).get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    let (open, events) = ("firstcome_streams{kind=\"operator\"}", "firstcome_stream_events_total");
    let asked = "firstcome_http_requests_total{route=\"get_dashboard\",status=\"200\"}";
    let shown = Browser(directory.path()).show(&format!("http://{}/dashboard", server.address()));
    wait_for("the stream of the page", || (figure(open) == 1).then_some(()));
    let (told, polled) = (figure(events), figure(asked));
    assert!(2 <= polled, "the page, and the first figures: {polled}");
    wait_for("samples", || (told + 3 <= figure(events)).then_some(()));
    assert_eq!((figure(asked), figure(open)), (polled, 1), "no poll beside the stream");
    drop(shown);
    wait_for("the stream to end with the browser", || (figure(open) == 0).then_some(()));
    server.stop();
}
