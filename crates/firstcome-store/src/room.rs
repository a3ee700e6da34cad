//! The port for waiting rooms.

use crate::embedded::journal::{PassSecret, PassSecretRevocation};
use crate::error::StoreError;
use crate::handoff::Handoff;
use crate::port::Put;
use crate::watch::PlaceStream;
use firstcome_core::id::RoomName;
use firstcome_core::revision::Revision;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{
    Contact, DrawView, Join, OriginReport, RatePace, RateReason, Rejection, RenewalKey, Room, RoomSettings, RoomView,
    TicketId, TicketNumber, TicketState,
};
use firstcome_core::time::{Now, Timestamp};
use std::future::Future;
use std::sync::Arc;

/// The outer result says whether the store replied, the inner one what it replied.
pub type RoomAnswer<T> = Result<Result<T, Rejection>, StoreError>;

/// A room as every client may see it.
#[derive(Clone, PartialEq, Debug)]
pub struct RoomSummary {
    /// The settings in force.
    pub settings: RoomSettings,
    /// The state of the room.
    pub view: RoomView,
    /// What the room publishes of its draw; `None` if its settings ask for none and none took place.
    pub draw: Option<DrawView>,
    /// When this was true, by the wall clock.
    pub as_of: Timestamp,
}

/// Sums over rooms, for metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoomTotals {
    /// Rooms, closed ones included.
    pub rooms: u64,
    /// Visitors in line.
    pub waiting: u64,
    /// Slots that are offered or taken.
    pub active: u64,
    /// Numbers that the rooms have drawn, by any node.
    pub drawn: u64,
    /// Admissions that the rooms have given, by any node.
    pub admissions: u64,
    /// Tickets that ended because their visitors never polled, since this process took up each room.
    pub unpolled: u64,
    /// How many rooms have their rate for each reason, in the order of [`RateReason::ALL`].
    pub reasons: [u64; RateReason::ALL.len()],
    /// The smallest part of its limit that reports of the origin leave a room: 0.25 to 1.
    pub origin_share_min: f64,
    /// Visitors per second who took their slots lately.
    pub arrivals_per_s: f64,
    /// Visitors per second who were admitted lately in place of others who did not come.
    pub made_up_per_s: f64,
}

impl Default for RoomTotals {
    fn default() -> Self {
        Self {
            rooms: 0,
            waiting: 0,
            active: 0,
            drawn: 0,
            admissions: 0,
            unpolled: 0,
            reasons: [0; RateReason::ALL.len()],
            origin_share_min: 1.0,
            arrivals_per_s: 0.0,
            made_up_per_s: 0.0,
        }
    }
}

impl RoomTotals {
    /// Adds a room.
    pub fn add(&mut self, room: &Room, now: Now) {
        let view = room.view(now);
        let RatePace { reason, origin_share, arrivals_per_s, made_up_per_s, .. } = view.pace;
        self.rooms += 1;
        self.waiting += u64::from(view.waiting);
        self.active += u64::from(view.active);
        self.drawn += u64::from(room.drawn());
        self.admissions += room.admissions();
        self.unpolled += room.unpolled_count();
        self.reasons[reason as usize] += 1;
        self.origin_share_min = self.origin_share_min.min(origin_share);
        self.arrivals_per_s += arrivals_per_s;
        self.made_up_per_s += made_up_per_s;
    }
}

/// Which place a join returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// A new one.
    New,
    /// The place from an earlier copy of the same request.
    SameRequest,
    /// The place that the user has already.
    SameUser,
}

/// A ticket as its holder sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketAnswer {
    /// The ticket: a client that has it has the place.
    pub ticket: Box<str>,
    /// Its number.
    pub number: TicketNumber,
    /// The user, if the ticket has one and lives.
    pub user: Option<Box<str>>,
    /// The state of the ticket.
    pub state: TicketState,
    /// For an admitted ticket: when its pass ends, by the wall clock.
    pub until: Option<Timestamp>,
    /// When to poll again.
    pub poll_after_ms: u32,
    /// When this was true, by the wall clock.
    pub as_of: Timestamp,
}

/// A look at one ticket, together with glances at others of its room: see [`Embedded::glance`](crate::Embedded::glance).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glance {
    /// The ticket that the visitor showed. One that was renewed shows [`Sight::Poll`](firstcome_core::room::Sight::Poll).
    pub ticket: TicketId,
    /// Whether the look counts as a contact of the visitor.
    pub contact: Contact,
}

/// A pass that is valid now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassCheck {
    /// When it ends without a further contact, by the wall clock.
    pub until: Timestamp,
    /// Its user, if it has one.
    pub user: Option<Box<str>>,
}

/// The admissions of a room that have not ended, at one instant. See [`RoomStore::admissions`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveAdmissions {
    /// The number of the ticket, and the admission, by number.
    pub admissions: Vec<(TicketNumber, u64)>,
    /// When this was true, by the wall clock.
    pub as_of: Timestamp,
}

/// The port for waiting rooms. Every adapter passes `conformance::room`:
///
/// - Linearizable per room: replies are those of [`firstcome_core::room::Room`], applied in some order that agrees with
///   real time. Numbers count that order.
/// - Clock: `now` is the store's own; leases and time-outs run on its steady clock.
/// - Durable before the reply: a number, a slot taken, a departure, a renewal. Positions and counts may be ahead of the disk.
/// - Admission needs no call: the store admits by itself. [`RoomStore::tick`] only does it now.
/// - Cancel-safe: a caller that drops its future leaves the command done or not done, never half done.
pub trait RoomStore: Send + Sync {
    /// Creates a room, replaces its settings, or opens a closed room again. The settings must have passed
    /// [`RoomSettings::check`]. A [`Revision`] that names the settings in force replaces only those, and creates
    /// nothing.
    ///
    /// Refused: `unknown_room` and `settings_changed` (a revision), `draw_fixed`
    /// ([`Room::judge_settings`](firstcome_core::room::Room::judge_settings)).
    fn put_room(
        &self,
        room: &RoomName,
        revision: impl Into<Revision<RoomSettings>> + Send,
    ) -> impl Future<Output = RoomAnswer<Put>> + Send;

    /// Closes a room; all its tickets and passes become void. A second call has no effect. Refused: `unknown_room`.
    fn close_room(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Shows a room. Refused: `unknown_room`.
    fn room(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<RoomSummary>> + Send;

    /// Replaces how the page of a room looks; the last call counts. The appearance must have passed
    /// [`Appearance::check`]. It outlives [`Self::close_room`]. One step of the store. Refused: `unknown_room`.
    fn put_appearance(&self, room: &RoomName, appearance: Appearance) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Shows how the page of a room looks; the default if that was never put. Refused: `unknown_room`.
    fn appearance(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<Arc<Appearance>>> + Send;

    /// Draws the next number. A repeat by the same user or the same request has no second effect.
    ///
    /// Refused, in this order: `unknown_room`, `idempotency_key_reused`, `room_closed`, `room_full`.
    fn join(&self, room: &RoomName, join: Join) -> impl Future<Output = RoomAnswer<(Joining, TicketAnswer)>> + Send;

    /// Shows a ticket to its holder, and takes the slot that is offered to it. No file access while the ticket waits,
    /// or once its slot is taken. Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed`.
    fn poll(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<TicketAnswer>> + Send;

    /// Opens a stream of the places of a ticket near the front, by which [`TicketWatch`](crate::TicketWatch) learns of a change
    /// sooner than by polls. It takes no slot, and its visitor counts as present. `None` if the store has no streams or refuses
    /// this one: then a watch polls. Of the adapters of firstcome only the one over HTTP has streams; one request.
    fn place_stream(&self, room: &RoomName, ticket: &str) -> impl Future<Output = Option<Box<dyn PlaceStream>>> + Send {
        let _ = (room, ticket);
        std::future::ready(None)
    }

    /// Gives up a ticket. A second call has no effect. Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed`.
    fn leave(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Gives the place of a ticket another ticket, and polls with it like [`Self::poll`]. When the reply comes, the renewal is
    /// durable, and each method refuses the ticket that was shown: on this node at once, on other nodes of a cluster within
    /// 250 ms. Number, place and pass stay. A repeat with the same `key` and the same `ticket` returns the same new ticket, until
    /// that one is renewed. A place that is gone keeps its ticket.
    ///
    /// Refused, in this order: `unknown_room`, `unknown_ticket`, `ticket_renewed` (by a request with another key). One write,
    /// shared by its batch. The first renewal of a living place adds about 60 bytes of memory and one row.
    fn renew(
        &self,
        room: &RoomName,
        ticket: &str,
        key: RenewalKey,
    ) -> impl Future<Output = RoomAnswer<TicketAnswer>> + Send;

    /// Makes a code that moves the place of an admitted ticket to a site, once: the site redeems it with
    /// [`Self::redeem_handoff`]. The ticket stays valid until then. Any number of codes of one ticket are redeemed once together. A
    /// poll, and no further write.
    ///
    /// Refused, in this order: `unknown_room`, `unknown_ticket`, `ticket_renewed`, `not_admitted`.
    fn hand_off(&self, room: &RoomName, ticket: &str) -> impl Future<Output = RoomAnswer<Handoff>> + Send;

    /// Redeems a code of [`Self::hand_off`]: renews its ticket with all promises of [`Self::renew`], and returns the place with its
    /// new ticket. A repeat with the same `key` returns the same, until the code ends. A visitor whose slot has ended meanwhile is
    /// returned as gone.
    ///
    /// Refused, in this order: `unknown_room`, `invalid_handoff` (forged, ended, or of another room), `handoff_used` (by a request
    /// with another key).
    fn redeem_handoff(
        &self,
        room: &RoomName,
        code: &str,
        key: RenewalKey,
    ) -> impl Future<Output = RoomAnswer<TicketAnswer>> + Send;

    /// Gives up the slot of one admission. A second call has no effect. Refused: `unknown_room`.
    fn release(
        &self,
        room: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> impl Future<Output = RoomAnswer<()>> + Send;

    /// Returns until when the slot of this admission is valid, or `None` if it is not. Counts as a contact. No file
    /// access, unless the slot has just ended and that is not stored yet. Refused: `unknown_room`.
    fn check_pass(
        &self,
        room: &RoomName,
        number: TicketNumber,
        admission: u64,
    ) -> impl Future<Output = RoomAnswer<Option<PassCheck>>> + Send;

    /// Returns all admissions that have not ended, with those whose slot is still offered: a pass of any other admission is
    /// void, unless the room admitted it later. No contact, and no file access; looks at each slot. Refused: `unknown_room`.
    fn admissions(&self, room: &RoomName) -> impl Future<Output = RoomAnswer<LiveAdmissions>> + Send;

    /// Takes a report of the origin: see [`Room::report_origin`](firstcome_core::room::Room::report_origin). Returns what the
    /// rate is then. A process that is killed within the next second may forget the report. Refused: `unknown_room`.
    fn report_origin(&self, room: &RoomName, report: OriginReport)
    -> impl Future<Output = RoomAnswer<RatePace>> + Send;

    /// Does everything that is due now in all rooms, and returns when it is durable.
    fn tick(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the secrets that sign passes, the newest last. Empty before the first room.
    fn pass_secrets(&self) -> Vec<PassSecret>;

    /// Signs passes with a new secret from now on; live passes stay valid. Forgets secrets whose last pass has ended.
    fn rotate_pass_secret(&self) -> impl Future<Output = Result<PassSecret, StoreError>> + Send;

    /// Revokes the secret of this number: its passes are void once this has returned, before their ends. If it is the one that
    /// signs, a new one signs from then on, in the same step. Slots stay as they are, and the next poll brings a pass of
    /// another secret. The revocation is durable. A second time has no effect.
    ///
    /// Over a cluster other nodes accept its passes until they have read the secrets again, about a second later.
    fn revoke_pass_secret(&self, id: u32) -> impl Future<Output = Result<PassSecretRevocation, StoreError>> + Send;
}
