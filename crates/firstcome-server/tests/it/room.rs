//! Waiting rooms over HTTP. Here is what their tests share.

pub(crate) mod abuse;
pub(crate) mod admissions;
pub(crate) mod appearance;
pub(crate) mod claims;
pub(crate) mod clocks;
pub(crate) mod coupon_page;
pub(crate) mod draw;
pub(crate) mod entrances;
pub(crate) mod first_poll;
pub(crate) mod gate;
pub(crate) mod handoffs;
pub(crate) mod joins;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod page;
pub(crate) mod passes;
pub(crate) mod receipts;
pub(crate) mod renewals;
pub(crate) mod restarts;
pub(crate) mod steering;
pub(crate) mod streams;
pub(crate) mod tickets;
pub(crate) mod trouble;
pub(crate) mod work;

use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use firstcome::RoomStore;
use firstcome::core::time::Timestamp;
use firstcome_server::rfc3339;
use serde_json::{Value, json};

/// Anybody's join.
pub(crate) fn join(room: &str) -> Ask {
    Ask::post(&format!("/v1/rooms/{room}/tickets")).json(&json!({}))
}

/// A back end's join for a user.
pub(crate) fn join_as(room: &str, user: &str) -> Ask {
    join(room).by(SERVICE).json(&json!({"user": user}))
}

/// Where a ticket is asked about.
pub(crate) fn place(room: &str, ticket: &str) -> String {
    format!("/v1/rooms/{room}/tickets/{ticket}")
}

/// A back end's question about a pass.
pub(crate) fn verify(room: &str, pass: &str) -> Ask {
    Ask::post(&format!("/v1/rooms/{room}/passes/verify")).by(SERVICE).json(&json!({"pass": pass}))
}

/// A back end's release of a slot.
pub(crate) fn release(room: &str, pass: &str) -> Ask {
    Ask::post(&format!("/v1/rooms/{room}/passes/release")).by(SERVICE).json(&json!({"pass": pass}))
}

/// A claim by a pass, without any key.
pub(crate) fn claim_by(coupon: &str, pass: &str) -> Ask {
    Ask::post(&format!("/v1/coupons/{coupon}/claims")).json(&json!({})).header("x-firstcome-pass", pass)
}

/// The texts that differ from this one in one character, at each place.
pub(crate) fn flipped(text: &str) -> impl Iterator<Item = String> {
    (0..text.len()).map(move |at| {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    })
}

impl Service {
    /// An admin's PUT of a room.
    pub(crate) async fn put_room(&self, room: &str, settings: Value) -> Answer {
        self.send(Ask::put(&format!("/v1/rooms/{room}")).by(ADMIN).json(&settings)).await
    }

    /// An admin's PUT of a room that must not fail.
    pub(crate) async fn make_room(&self, room: &str, settings: Value) {
        let answer = self.put_room(room, settings).await;
        assert!([200, 201].contains(&answer.status), "{room}: {}", answer.body());
    }

    /// An admin's DELETE of a room.
    pub(crate) async fn close_room(&self, room: &str) -> Answer {
        self.send(Ask::delete(&format!("/v1/rooms/{room}")).by(ADMIN)).await
    }

    /// Anybody's look at a room.
    pub(crate) async fn room(&self, room: &str) -> Value {
        self.send(Ask::get(&format!("/v1/rooms/{room}"))).await.is(200).json()
    }

    /// A ticket that a visitor draws without a key.
    pub(crate) async fn ticket(&self, room: &str) -> String {
        self.send(join(room)).await.is(201).text("ticket")
    }

    /// A ticket that a back end draws for a user.
    pub(crate) async fn ticket_of(&self, room: &str, user: &str) -> String {
        self.send(join_as(room, user)).await.is(201).text("ticket")
    }

    /// A visitor's look at a ticket.
    pub(crate) async fn poll(&self, room: &str, ticket: &str) -> Answer {
        self.send(Ask::get(&place(room, ticket))).await
    }

    /// What a ticket's holder sees.
    pub(crate) async fn standing(&self, room: &str, ticket: &str) -> Value {
        self.poll(room, ticket).await.is(200).json()
    }

    /// The state of a ticket.
    pub(crate) async fn state(&self, room: &str, ticket: &str) -> String {
        self.poll(room, ticket).await.is(200).text("state")
    }

    /// Gives up a ticket.
    pub(crate) async fn leave(&self, room: &str, ticket: &str) -> Answer {
        self.send(Ask::delete(&place(room, ticket))).await
    }

    /// Does what is due.
    pub(crate) async fn tick(&self) {
        self.store.tick().await.expect("the store ticks");
    }

    /// Lets time pass, and does what is due then.
    pub(crate) async fn pass_ms(&self, ms: u64) {
        self.clock.pass_ms(ms);
        self.tick().await;
    }

    /// What time it is, as answers write it.
    pub(crate) fn now(&self) -> String {
        rfc3339::format(self.store.now())
    }

    /// The instant so much later, as answers write it.
    pub(crate) fn later(&self, ms: i64) -> String {
        rfc3339::format(Timestamp::clamped_us(self.store.now().as_us() + ms * 1_000))
    }

    /// The pass of a ticket that must be admitted at the next tick.
    pub(crate) async fn admitted(&self, room: &str, ticket: &str) -> String {
        self.tick().await;
        let answer = self.poll(room, ticket).await.is(200);
        assert_eq!(answer.text("state"), "admitted");
        answer.text("pass")
    }

    /// A pass of a visitor that joins a room that has a slot free.
    pub(crate) async fn pass(&self, room: &str) -> String {
        let ticket = self.ticket(room).await;
        self.admitted(room, &ticket).await
    }

    /// A pass of a user who joins a room that has a slot free.
    pub(crate) async fn pass_of(&self, room: &str, user: &str) -> String {
        let ticket = self.ticket_of(room, user).await;
        self.admitted(room, &ticket).await
    }

    /// What is wrong with a pass; nothing if it is valid.
    pub(crate) async fn wrong_with(&self, room: &str, pass: &str) -> Option<String> {
        let verdict = self.send(verify(room, pass)).await.is(200).json();
        let reason = verdict.get("reason").map(|reason| reason.as_str().expect("a text").to_owned());
        assert_eq!(verdict["valid"], json!(reason.is_none()), "{verdict}");
        reason
    }
}
