//! The port for waiting rooms.

use crate::embedded::journal::PassSecret;
use crate::error::StoreError;
use crate::port::Put;
use firstcome_core::id::RoomName;
use firstcome_core::revision::Revision;
use firstcome_core::room::{Join, Rejection, RoomSettings, RoomView, TicketNumber, TicketState};
use firstcome_core::time::Timestamp;
use std::future::Future;

/// Outer: did the store answer? Inner: what was the answer?
pub type RoomAnswer<T> = Result<Result<T, Rejection>, StoreError>;

/// A room as everybody may see it.
#[derive(Clone, PartialEq, Debug)]
pub struct RoomSummary {
    /// The settings in force.
    pub settings: RoomSettings,
    /// Where it stands.
    pub view: RoomView,
    /// When this was true, by the wall clock.
    pub as_of: Timestamp,
}

/// Which place a join led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// A new one.
    New,
    /// That of the same request, which came before.
    SameRequest,
    /// That which the user has already.
    SameUser,
}

/// A ticket as its holder sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketAnswer {
    /// The ticket: who has it has the place.
    pub ticket: Box<str>,
    /// Its number.
    pub number: TicketNumber,
    /// Its user, if it has one and is alive.
    pub user: Option<Box<str>>,
    /// Where it stands.
    pub state: TicketState,
    /// For an admitted one: when its pass ends, by the wall clock.
    pub until: Option<Timestamp>,
    /// When to ask again.
    pub poll_after_ms: u32,
    /// When this was true, by the wall clock.
    pub as_of: Timestamp,
}

/// A pass that is valid now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassCheck {
    /// When it ends if no caller is heard of until then, by the wall clock.
    pub until: Timestamp,
    /// Its user, if it has one.
    pub user: Option<Box<str>>,
}

/// The port for waiting rooms. Every adapter passes `conformance::room`:
///
/// - Linearizable per room: answers are those of [`firstcome_core::room::Room`] applied in some order that agrees with
///   real time. Numbers count that order.
/// - Clock: `now` is the store's own; leases and time-outs run on its steady clock.
/// - Durable before told: a number, a slot taken, a departure. Positions and counts may be ahead of the disk.
/// - Admission needs no caller's call: it goes on by itself. [`RoomStore::tick`] only makes it happen now.
/// - Cancel-safe: a caller that goes away leaves the command done or not done, never half done.
pub trait RoomStore: Send + Sync {
    /// Creates a room, replaces its settings, or opens a closed one again. The settings must have passed
    /// [`RoomSettings::check`]. A [`Revision`] replaces only the settings that it names, and creates nothing.
    ///
    /// Refused: `unknown_room` and `settings_changed` (a revision).
    fn put_room(
        &self,
        room: &RoomName,
        revision: impl Into<Revision<RoomSettings>> + Send,
    ) -> impl Future<Output = RoomAnswer<Put>> + Send;

    /// Closes a room; all its tickets and passes are void. A second time has no effect. Refused: `unknown_room`.
    fn close_room(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Shows a room. Refused: `unknown_room`.
    fn room(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<RoomSummary>> + Send;

    /// Draws the next number. A repeat by the same user or the same request has no second effect.
    ///
    /// Refused, in this order: `unknown_room`, `idempotency_key_reused`, `room_closed`, `room_full`.
    fn join(&self, room: &RoomName, join: Join) -> impl Future<Output = RoomAnswer<(Joining, TicketAnswer)>> + Send;

    /// What the holder of a ticket sees; takes the slot that is offered. Costs no file access while the ticket waits, or
    /// once its slot is taken. Refused: `unknown_room`, `unknown_ticket`.
    fn poll(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<TicketAnswer>> + Send;

    /// Gives up a ticket; a second time has no effect. Refused: `unknown_room`, `unknown_ticket`.
    fn leave(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Gives up the slot of one admission; a second time has no effect. Refused: `unknown_room`.
    fn release(
        &self,
        room: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Whether the slot of this admission is alive; counts as a contact. No file access, unless its time is over and that
    /// is not stored yet. Refused: `unknown_room`.
    fn check_pass(
        &self,
        room: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> impl Future<Output = RoomAnswer<Option<PassCheck>>> + Send;

    /// Does now what time has made due in all rooms, and returns when it is durable.
    fn tick(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The secrets that sign passes, the newest last. Empty before the first room.
    fn pass_secrets(&self) -> Vec<PassSecret>;

    /// From now on passes are signed with a new secret; those that are alive stay valid. Forgets secrets whose last
    /// pass has ended.
    fn rotate_pass_secret(&self) -> impl Future<Output = Result<PassSecret, StoreError>> + Send;
}
