//! The waiting rooms of a service behind their port.

use super::{Backend, SHOWN_COUNT_MAX, SHOWN_MAX};
use firstcome::cluster::Cluster;
use firstcome::core::id::RoomName;
use firstcome::core::revision::Revision;
use firstcome::core::room::appearance::Appearance;
use firstcome::core::room::{
    Join, OriginReport, PlaceKey, PlaceView, RatePace, Rejection, RenewalKey, RoomSettings, Sight, TicketId,
    TicketNumber,
};
use firstcome::core::time::Now;
use firstcome::embedded::journal::{PassSecret, PassSecretRevocation, PassSecretSet};
use firstcome::{
    Embedded, Glance, Handoff, HeadPage, Joining, LiveAdmissions, Names, PassCheck, Put, ReceiptReply, ReceiptStore,
    RoomAnswer, RoomStore, RoomSummary, Shared, StoreError, TicketAnswer,
};
use std::sync::Arc;

/// The store of waiting rooms.
pub(crate) enum Rooms {
    /// In this process.
    Embedded(Embedded),
    /// On a cluster, with the copies that this node shows to callers without a key.
    Cluster(Cluster, Shared<RoomName, Result<RoomSummary, Rejection>>),
}

impl Rooms {
    pub(crate) fn new(backend: &Backend) -> Self {
        match backend {
            Backend::Embedded(store) => Self::Embedded(store.clone()),
            Backend::Cluster(store, _) => Self::Cluster(store.clone(), Shared::new(SHOWN_MAX, SHOWN_COUNT_MAX)),
        }
    }

    /// Shows a room to a caller without a key. Over a cluster it is at most [`SHOWN_MAX`] old, and it includes every write that this
    /// node has acknowledged.
    pub(crate) async fn shown(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        match self {
            Self::Embedded(store) => store.room(room).await,
            Self::Cluster(store, copies) => copies.get(room, || store.room(room)).await,
        }
    }

    /// Shows how the page of a room looks to a visitor. Over a cluster it is half a second old at most, or older while the
    /// database is away.
    pub(crate) async fn shown_appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        match self {
            Self::Embedded(store) => store.appearance(room).await,
            Self::Cluster(store, _) => Box::pin(store.shown_appearance(room)).await,
        }
    }

    /// Answers a poll at once, if the answer needs neither a write nor a server.
    pub(crate) fn poll_settled(&self, room: &str, ticket: &str) -> Option<Result<TicketAnswer, Rejection>> {
        forward!(self.poll_settled(room, ticket))
    }

    /// Looks at many tickets of a room together. See [`Embedded::glance`].
    pub(crate) fn glance(&self, room: &RoomName, glances: &[Glance], sights: &mut Vec<Option<Sight>>) -> Option<Now> {
        forward!(self.glance(room, glances, sights))
    }

    /// Names the secrets of passes that this node knows. None before the first room.
    pub(crate) fn pass_secret_set(&self) -> Option<PassSecretSet> {
        forward!(self.pass_secret_set())
    }

    /// Reads the secrets of passes that other nodes have made. The embedded store is alone and knows all of them.
    pub(crate) async fn refresh_pass_secrets(&self) -> Result<(), StoreError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Cluster(store, _) => Box::pin(store.refresh_pass_secrets()).await,
        }
    }

    /// Lists rooms by name, closed ones included, for operators.
    pub(crate) async fn names(&self, after: Option<&RoomName>, count: usize) -> Result<Names<RoomName>, StoreError> {
        match self {
            Self::Embedded(store) => Ok(store.room_names(after, count)),
            Self::Cluster(store, _) => Box::pin(store.room_names(after, count)).await,
        }
    }

    /// Returns what a ticket of a room that was just read says, also one that was renewed. `None` if the room never gave it out.
    pub(crate) fn ticket_id(&self, room: &RoomName, ticket: &str) -> Option<TicketId> {
        forward!(self.ticket_id(room, ticket))
    }

    /// Returns published heads of a room. See [`ReceiptStore::room_heads`].
    pub(crate) async fn room_heads(&self, room: &RoomName, after: u64, count: usize) -> RoomAnswer<HeadPage> {
        forward!(self.room_heads(room, after, count).await)
    }

    /// Returns the receipt of a ticket. See [`ReceiptStore::ticket_receipt`].
    pub(crate) async fn ticket_receipt(&self, room: &RoomName, ticket: &str) -> RoomAnswer<ReceiptReply> {
        forward!(self.ticket_receipt(room, ticket).await)
    }

    /// Returns the receipt of a living place. See [`Embedded::place_receipt`].
    pub(crate) async fn place_receipt(&self, room: &RoomName, number: TicketNumber) -> RoomAnswer<ReceiptReply> {
        forward!(self.place_receipt(room, number).await)
    }

    /// Looks a place up without any effect on it.
    pub(crate) async fn place(&self, room: &RoomName, key: PlaceKey<'_>) -> RoomAnswer<Option<PlaceView>> {
        match self {
            Self::Embedded(store) => Ok(store.place(room, key)),
            Self::Cluster(store, _) => Box::pin(store.place(room, key)).await,
        }
    }

    /// Drops the copy that a write has made stale.
    fn forget(&self, room: &RoomName) {
        if let Self::Cluster(_, copies) = self {
            copies.forget(room);
        }
    }
}

impl RoomStore for Rooms {
    async fn put_room(&self, room: &RoomName, revision: impl Into<Revision<RoomSettings>> + Send) -> RoomAnswer<Put> {
        let answer = forward!(self.put_room(room, revision).await);
        self.forget(room);
        answer
    }

    async fn close_room(&self, room: &RoomName) -> RoomAnswer<()> {
        let answer = forward!(self.close_room(room).await);
        self.forget(room);
        answer
    }

    async fn room(&self, room: &RoomName) -> RoomAnswer<RoomSummary> {
        forward!(self.room(room).await)
    }

    async fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> RoomAnswer<()> {
        forward!(self.put_appearance(room, appearance).await)
    }

    async fn appearance(&self, room: &RoomName) -> RoomAnswer<Arc<Appearance>> {
        forward!(self.appearance(room).await)
    }

    async fn join(&self, room: &RoomName, join: Join) -> RoomAnswer<(Joining, TicketAnswer)> {
        let answer = forward!(self.join(room, join).await);
        self.forget(room);
        answer
    }

    async fn poll(&self, room: &RoomName, ticket: &str) -> RoomAnswer<TicketAnswer> {
        forward!(self.poll(room, ticket).await)
    }

    async fn renew(&self, room: &RoomName, ticket: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        forward!(self.renew(room, ticket, key).await)
    }

    async fn hand_off(&self, room: &RoomName, ticket: &str) -> RoomAnswer<Handoff> {
        forward!(self.hand_off(room, ticket).await)
    }

    async fn redeem_handoff(&self, room: &RoomName, code: &str, key: RenewalKey) -> RoomAnswer<TicketAnswer> {
        forward!(self.redeem_handoff(room, code, key).await)
    }

    async fn leave(&self, room: &RoomName, ticket: &str) -> RoomAnswer<()> {
        let answer = forward!(self.leave(room, ticket).await);
        self.forget(room);
        answer
    }

    async fn release(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<()> {
        let answer = forward!(self.release(room, number, admission).await);
        self.forget(room);
        answer
    }

    async fn check_pass(&self, room: &RoomName, number: TicketNumber, admission: u64) -> RoomAnswer<Option<PassCheck>> {
        forward!(self.check_pass(room, number, admission).await)
    }

    async fn admissions(&self, room: &RoomName) -> RoomAnswer<LiveAdmissions> {
        forward!(self.admissions(room).await)
    }

    async fn report_origin(&self, room: &RoomName, report: OriginReport) -> RoomAnswer<RatePace> {
        let answer = forward!(self.report_origin(room, report).await);
        self.forget(room);
        answer
    }

    async fn tick(&self) -> Result<(), StoreError> {
        forward!(self.tick().await)
    }

    fn pass_secrets(&self) -> Vec<PassSecret> {
        forward!(self.pass_secrets())
    }

    async fn rotate_pass_secret(&self) -> Result<PassSecret, StoreError> {
        forward!(self.rotate_pass_secret().await)
    }

    async fn revoke_pass_secret(&self, id: u32) -> Result<PassSecretRevocation, StoreError> {
        forward!(self.revoke_pass_secret(id).await)
    }
}
