//! A shop that lets in visitors with a pass of the waiting room, and sends others to the line. It asks the service in the
//! background, and makes no call within a request:
//! `pass URL KEYFILE ROOM < PASSES`, where KEYFILE has a service key and each line of the input is what a visitor shows.
//!
//! `cargo run -p firstcome --features pass --example pass -- http://127.0.0.1:8080 key.txt sale`

use firstcome::pass::{PassError, PassVerifier};
use std::io::BufRead;
use std::time::Duration;

/// How long the shop waits for the first answer of the service.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, key_file, room] = &arguments[..] else { return Err("usage: pass URL KEYFILE ROOM < PASSES".into()) };
    let key = std::fs::read_to_string(key_file)?;

    let passes = PassVerifier::start(url, key.trim(), room)?;
    if tokio::time::timeout(FIRST_ANSWER, passes.ready()).await.is_err() {
        return Err(match passes.status().fault {
            Some(fault) => format!("{url} does not say which passes are valid: {fault}").into(),
            None => format!("{url} does not answer").into(),
        });
    }

    for shown in std::io::stdin().lock().lines() {
        match passes.check(shown?.trim()) {
            Ok(pass) => println!("welcome, number {}", pass.number.get()),
            // The visitor has no place here. The page of the room gives one.
            Err(PassError::Refused(why)) => println!("to the line, {url}/rooms/{room}: {}", why.code()),
            // Not the fault of the visitor: the same pass may count in a moment.
            Err(error) => println!("please try again: {error}"),
        }
    }
    Ok(())
}
