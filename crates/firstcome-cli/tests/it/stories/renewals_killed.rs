//! Visitors move their places from device to device, by links that others have read. The service is killed again and again
//! meanwhile, with SIGKILL. A device that was told of its new ticket has the place, and each link before it stays dead. A device
//! that was told nothing asks again, with its key, and finds one ticket.

use crate::support::http::{Client, Lost};
use crate::support::program::firstcome;
use crate::support::server::Server;
use crate::support::{Rng, kill_rounds, wait_for};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: u32 = 6;
const VISITORS: usize = 4;
/// Renewals of a round after which the service may be killed.
const RENEWALS_MAX: u64 = 120;

/// One place, and what its devices hold.
struct Place {
    number: u64,
    ticket: String,
    /// The links that were used.
    void: Vec<String>,
    /// The key of the renewal that comes next: repeated until it is answered.
    key: u32,
}

impl Place {
    fn join(client: &mut Client) -> Self {
        let joined = client.call("POST", "/v1/rooms/sale/tickets", Some(&json!({})));
        assert_eq!(joined.status, 201, "{}", joined.text());
        let told = joined.json();
        Self { number: told["number"].as_u64().expect("a number"), ticket: text(&told), void: Vec::new(), key: 0 }
    }

    /// Moves to another device. An error if no answer came.
    fn renew(&mut self, client: &mut Client) -> Result<(), Lost> {
        let key = format!("device-{}-{:020}", self.number, self.key);
        let answer = client.try_call("POST", &format!("{}/renew", path(&self.ticket)), Some(&key), None)?;
        assert_eq!(answer.status, 200, "{}: {}", self.number, answer.text());
        let told = answer.json();
        assert_eq!(told["number"], self.number);
        self.void.push(std::mem::replace(&mut self.ticket, text(&told)));
        self.key += 1;
        Ok(())
    }

    fn judge(&self, client: &mut Client) {
        let seen = client.get(&path(&self.ticket));
        assert_eq!((seen.status, &seen.json()["number"]), (200, &json!(self.number)), "{}", seen.text());
        for ticket in &self.void {
            let seen = client.get(&path(ticket));
            assert_eq!((seen.status, seen.code().as_str()), (409, "ticket_renewed"), "{}", seen.text());
        }
    }
}

fn path(ticket: &str) -> String {
    format!("/v1/rooms/sale/tickets/{ticket}")
}

fn text(told: &Value) -> String {
    told["ticket"].as_str().expect("a ticket").to_owned()
}

#[test]
fn a_ticket_that_was_renewed_stays_void_through_kills() {
    let here = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start(here.path());
    let settings = json!({"max_active": 1, "paused": true});
    assert_eq!(server.client().put_status("/v1/rooms/sale", &settings), 201);
    let mut places: Vec<Place> = (0..VISITORS).map(|_| Place::join(&mut server.client())).collect();
    let mut rng = Rng::new(7);
    for _ in 0..kill_rounds(ROUNDS) {
        let (kill_after, pause_us) = (1 + rng.below(RENEWALS_MAX), rng.below(2_000));
        let answers = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for place in &mut places {
                let (mut client, answers) = (server.client(), &answers);
                scope.spawn(move || {
                    while place.renew(&mut client).is_ok() {
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            wait_for("the moment to kill", || (kill_after <= answers.load(Ordering::Relaxed)).then_some(()));
            std::thread::park_timeout(Duration::from_micros(pause_us));
            server.kill();
        });
        server = Server::start(here.path());
        let mut client = server.client();
        for place in &mut places {
            // The request of which nothing was heard: it was done or not, and is done once.
            assert!(place.renew(&mut client).is_ok(), "it is answered");
            place.judge(&mut client);
        }
    }
    let renewals: usize = places.iter().map(|place| place.void.len()).sum();
    assert!(VISITORS * 2 < renewals, "{renewals}");
    server.kill();
    let said = firstcome(here.path(), &["verify", "--data", "data"]).well();
    assert!(said.contains("a renewal is of a living ticket"), "{said}");
}
