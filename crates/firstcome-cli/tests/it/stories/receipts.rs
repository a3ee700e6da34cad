//! A visitor who waited for hours and got nothing had only the service's own word that no other visitor was let in ahead.
//!
//! Now the service publishes signed heads, and gives receipts that a visitor can check: with the program, and in a browser. This
//! keeps heads and a receipt through a kill of the service, and shows each of them what it must find.

use super::site_gate::{BROWSER, Browser};
use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome};
use crate::support::server::Server;
use crate::support::{machine_has, stand, wait_for};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

const ROOM: &str = "/v1/rooms/sale";

fn join(client: &mut Client) -> String {
    let joined = client.call("POST", &format!("{ROOM}/tickets"), Some(&json!({}))).json();
    joined["ticket"].as_str().expect("a ticket").to_owned()
}

/// The receipt of a ticket, once a head covers it.
fn receipt(server: &Server, ticket: &str) -> String {
    wait_for("a head that covers the ticket", || {
        let answer = server.client().get(&format!("{ROOM}/tickets/{ticket}/receipt"));
        (answer.status == 200).then(|| answer.text())
    })
}

fn keep(here: &Path, name: &str, text: &str) {
    std::fs::write(here.join(name), text).expect("it is written");
}

fn verify(here: &Path, receipt: &str, more: &[&str]) -> Ended {
    firstcome(here, &[&["verify", "--receipt", receipt], more].concat())
}

#[test]
fn a_receipt_stays_true_through_a_kill_and_the_program_finds_what_does_not_fit() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = Server::start(here);
    let mut client = server.client();
    assert_eq!(client.put_status(ROOM, &json!({"max_active": 1})), 201);
    let (_, second) = (join(&mut client), join(&mut client));
    keep(here, "receipt", &receipt(&server, &second));
    keep(here, "before", &server.client().get(&format!("{ROOM}/heads")).text());
    server.kill();

    let mut server = Server::start(here);
    let third = join(&mut server.client());
    keep(here, "later", &receipt(&server, &third));
    keep(here, "after", &server.client().get(&format!("{ROOM}/heads")).text());
    server.kill();
    firstcome(here, &["verify", "--data", "data"]).well();

    let told: Value = serde_json::from_str(&verify(here, "receipt", &["--heads", "before", "--heads", "after"]).well())
        .expect("JSON where there is no terminal");
    assert_eq!((&told["receipt"]["number"], &told["receipt"]["about"]), (&json!(2), &json!("room sale")));
    assert_eq!(told["receipt"]["heads_confirmed"], json!(2), "one head, which both files have");
    let key = told["receipt"]["key"].as_str().expect("a key").to_owned();
    verify(here, "later", &["--heads", "after", "--key", &key]).well();

    let genuine = std::fs::read_to_string(here.join("receipt")).expect("it is there");
    keep(here, "forged", &genuine.replacen("number 2", "number 1", 1));
    assert!(verify(here, "forged", &[]).with(1).contains("a signature does not fit the key"));
    keep(here, "none", "key none\n");
    assert!(verify(here, "none", &[]).with(1).contains("is no receipt"));
    assert!(verify(here, "receipt", &["--key", &"0".repeat(64)]).with(1).contains("another key"));
    verify(here, "receipt", &["--key", "0"]).with(2);
    verify(here, "absent", &[]).with(2);
    // A service that forgot its heads signs others with the same key: both together prove it.
    firstcome(here, &["export", "--data", "data", "--output", "all.jsonl"]).well();
    let all = std::fs::read_to_string(here.join("all.jsonl")).expect("it is there");
    let rows: Vec<&str> = all.lines().filter(|line| !line.contains(r#""kind":"head""#)).collect();
    assert!(rows.len() < all.lines().count(), "an export has the heads");
    keep(here, "rest.jsonl", &rows[1..rows.len() - 1].join("\n"));
    firstcome(here, &["import", "--data", "data2", "rest.jsonl"]).well();
    firstcome(here, &["import", "--data", "data3", "all.jsonl"]).well();
    firstcome(here, &["verify", "--data", "data3"]).well();
    let heads = |data: &str, wanted: &str| {
        let mut serve = command(PROGRAM, here);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data", data, "--dev"]);
        let server = Server::spawn(&mut serve);
        let heads = wait_for("a head", || {
            let text = server.client().get(&format!("{ROOM}/heads")).text();
            text.contains(wanted).then_some(text)
        });
        server.stop();
        heads
    };
    keep(here, "forgotten", &heads("data2", "sequence 1\n"));
    keep(here, "kept", &heads("data3", "sequence 2\n"));
    assert!(verify(here, "receipt", &["--heads", "forgotten"]).with(1).contains("signed two different heads 1"));
    verify(here, "receipt", &["--heads", "kept"]).well();
}

/// Shows the page of a service with these files chosen, and sends its form.
fn checked(service: SocketAddr, receipt: &str, heads: &str) -> SocketAddr {
    let chosen = json!({"receipt": receipt, "heads": heads}).to_string();
    let choose = format!(
        "const chosen = {chosen};
         addEventListener('load', () => {{
           for (const [name, text] of Object.entries(chosen)) {{
             const files = new DataTransfer();
             if (text) files.items.add(new File([text], name));
             document.getElementById(name).files = files.files;
           }}
           document.querySelector('form').requestSubmit();
         }});"
    );
    stand::stand(move |path| {
        let of_service = |path: &str| Client::new(service).get(path).text();
        let body = match path {
            "/choose.js" => choose.clone(),
            "/" => of_service("/receipts").replace("</head>", "<script src=\"/choose.js\" defer></script></head>"),
            path => of_service(path),
        };
        let kind = if path.contains(".js") { "text/javascript" } else { "text/html; charset=utf-8" };
        (kind.to_owned(), body.into_bytes())
    })
}

#[test]
fn a_browser_checks_a_receipt_by_itself() {
    if !machine_has("chromium", Path::new(BROWSER).exists()) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let server = Server::start(here);
    let mut client = server.client();
    assert_eq!(client.put_status(ROOM, &json!({"max_active": 1})), 201);
    let (first, second) = (join(&mut client), join(&mut client));
    assert_eq!(client.get(&format!("{ROOM}/tickets/{first}")).status, 200);
    receipt(&server, &second);
    // Later heads show the admission.
    let inside = wait_for("a head after the admission", || {
        Some(receipt(&server, &first)).filter(|text| text.contains("\nadmitted_by "))
    });
    let waiting = receipt(&server, &second);
    let heads = server.client().get(&format!("{ROOM}/heads")).text();
    let told = |receipt: &str, heads: &str| {
        let address = checked(server.address(), receipt, heads);
        let page = Browser(here).read_with(&format!("http://{address}/"), "en", &[]);
        let (_, told) = page.split_once("id=\"told\"").expect("the page has a place for it");
        told.to_owned()
    };
    let page = told(&inside, &heads);
    assert!(page.contains("The receipt is genuine.") && page.contains("<dt>Admitted</dt>"), "{page}");
    let page = told(&waiting, "");
    assert!(page.contains("The receipt is genuine.") && page.contains("<dt>Number</dt><dd>2</dd>"), "{page}");
    let page = told(&waiting.replacen("number 2", "number 3", 1), "");
    assert!(page.contains("Wrong: a signature does not fit the key"), "{page}");
    let page = told(&waiting, &heads.replacen("given 2", "given 3", 1));
    assert!(page.contains("Wrong: a signature does not fit the key"), "{page}");
    let page = told("nothing", "");
    assert!(page.contains("Wrong: this is no receipt"), "{page}");
    server.stop();
}
