//! Erases a person from coupons and rooms of a cluster.
//!
//! SQL first, then Redis. A claim of the same user in between finds that SQL has passed its ticket over, has the sequencer forget
//! it, and is let in anew: it is that of a new person. A ticket that SQL does not hold yet is written before it is erased.
//!
//! The log of each room in Redis is read, and replaced if it names the user ([`crate::room`]).

use super::coupon_state::CouponState;
use super::node::Node;
use super::sequencer::Stray;
use super::{Cluster, outbox_writer};
use firstcome_core::erase::{Erased, Pseudonym};
use firstcome_core::id::{CouponName, RoomName, UserId};
use firstcome_core::room::{PlaceKey, PlaceState, PlaceView};
use firstcome_sql::boxed::boxed;
use firstcome_store::edge::{draw_pause, draw_secret};
use firstcome_store::{EraseAnswer, EraseStore, RoomStore, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Names that are read at once.
const NAMES_PER_PAGE: usize = 1_000;
/// Between two looks at a ticket that SQL does not hold yet.
const PAUSE: Duration = Duration::from_millis(10);

impl Node {
    /// Erases the claim of a user. Returns whether there was one.
    async fn erase_claim(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        user: &UserId,
        pseudonym: &UserId,
    ) -> Result<bool, StoreError> {
        self.stopped(state)?;
        self.wait_for_ticket(state, user).await?;
        let (mut row, is_erased) = self.database.erase_claim(state.keys.coupon, user, pseudonym).await?;
        self.database.erase_dead_letters(state.keys.coupon, user).await?;
        if is_erased {
            // A node that rebuilds what Redis knows may have read the name just before.
            self.refresh(state).await?;
            row = self.database.coupon_again(state.keys.coupon).await?;
        }
        let (generation, position) = (row.generation, row.position);
        if let Some(ticket) = self.sequencer.ticket_of(state.keys, generation, user.as_str()).await?
            && ticket <= position
        {
            let stray = Stray { ticket, user: user.as_str().into(), request: None };
            self.sequencer.forget(state.keys, generation, &stray).await?;
        }
        // The last entry that SQL holds stays in Redis, with all its users.
        let probe = self.sequencer.probe(state.keys, generation, position).await?;
        let claims = probe.anchor.as_ref().and_then(|entry| entry.claims.as_ref().ok());
        let names = |claims: &crate::outbox::Entrants| claims.entrants.iter().any(|it| it.claim.user == *user);
        if claims.is_some_and(names) {
            self.renew(state).await?;
        }
        Ok(is_erased)
    }

    /// Returns when SQL has come to the ticket that the sequencer has of a user, if it has one.
    async fn wait_for_ticket(self: &Arc<Self>, state: &Arc<CouponState>, user: &UserId) -> Result<(), StoreError> {
        let until = Instant::now() + self.options.patience;
        loop {
            let row = self.look(state, Some(user.as_str()), None).await?.row;
            let ticket = self.sequencer.ticket_of(state.keys, row.generation, user.as_str()).await?;
            if ticket.is_none_or(|ticket| ticket <= row.position) {
                return Ok(());
            }
            if until < Instant::now() {
                return Err(StoreError::busy_with("nothing was erased of a claim that the database does not hold yet"));
            }
            outbox_writer::ensure_writer(self, state);
            sleep(draw_pause(PAUSE)).await;
        }
    }
}

impl Cluster {
    async fn erase_claims(&self, user: &UserId, pseudonym: &UserId) -> Result<u64, StoreError> {
        let (mut claims, mut after): (u64, Option<CouponName>) = (0, None);
        loop {
            let page = self.coupon_names(after.as_ref(), NAMES_PER_PAGE).await?;
            for name in &page.items {
                if let Some(state) = self.node.state(name).await? {
                    claims += u64::from(self.node.erase_claim(&state, user, pseudonym).await?);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(claims);
            }
        }
    }

    /// Has the living places of a user leave. SQL holds no name of a place that is gone; a log in Redis may.
    async fn erase_places(&self, user: &UserId) -> Result<u64, StoreError> {
        let (mut places, mut after): (u64, Option<RoomName>) = (0, None);
        loop {
            let page = self.room_names(after.as_ref(), NAMES_PER_PAGE).await?;
            for name in &page.items {
                places += u64::from(self.erase_place(name, user).await?);
            }
            after = page.next;
            if after.is_none() {
                return Ok(places);
            }
        }
    }

    async fn erase_place(&self, room: &RoomName, user: &UserId) -> Result<bool, StoreError> {
        let place = self.place(room, PlaceKey::User(user.as_str())).await?.ok().flatten();
        let number = place.as_ref().map(|place| place.number);
        let has_left = match place {
            Some(place) => self.end_place(room, &place).await?,
            None => false,
        };
        self.node.forget_in_log(room, user, number).await?;
        Ok(has_left)
    }

    async fn end_place(&self, room: &RoomName, place: &PlaceView) -> Result<bool, StoreError> {
        if matches!(place.state, PlaceState::Gone(_)) {
            return Ok(false);
        }
        let room_node = self.node.rooms.lock().get(room).cloned();
        let ticket = room_node.and_then(|room_node| {
            let of_copy = room_node.copied(|replica| room_node.living_ticket(replica.room(), place.number));
            of_copy.flatten()
        });
        // Without a ticket the place has ended meanwhile.
        let Some(ticket) = ticket else { return Ok(false) };
        Ok(self.leave(room, &ticket).await?.is_ok())
    }
}

/// Members and listings are in tables of their own: see `firstcome_sql`.
impl EraseStore for Cluster {
    async fn erase(&self, user: &UserId) -> EraseAnswer {
        boxed(async move {
            let secret = draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
            let mut random = [0; 16];
            random.copy_from_slice(&secret[..16]);
            let pseudonym = Pseudonym::new(u128::from_le_bytes(random));
            let tickets = self.erase_places(user).await?;
            let claims = self.erase_claims(user, &pseudonym.user()).await?;
            Ok(Ok(Erased { claims, tickets, ..Erased::default() }))
        })
        .await
    }
}
