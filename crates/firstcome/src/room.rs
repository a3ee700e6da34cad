//! Waiting rooms, on any store.

use crate::AnyStore;
use crate::error::{InputError, RoomError, flat};
use crate::request::{checked_key, request_id};
use firstcome_store::core::id::{NameError, RequestId, RoomName, UserId};
use firstcome_store::core::room::appearance::Appearance;
use firstcome_store::core::room::{Join, OriginReport, RatePace, RenewalKey, RoomSettings, TicketNumber, TicketState};
use firstcome_store::{
    Handoff, Joining, LiveAdmissions, PassCheck, Put, RoomStore, RoomSummary, TicketAnswer, TicketWatch,
};
use std::fmt;
use std::sync::Arc;

/// One waiting room of a store: it admits in the order of arrival. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::core::room::{RoomSettings, TicketState};
/// use firstcome::{Admission, Store};
///
/// let store = Store::memory();
/// let sale = store.room("sale")?;
/// sale.put(RoomSettings::with_slots(1)).await?;
///
/// let (_, ann) = sale.join().send().await?;
/// let (_, bob) = sale.join_user("bob")?.idempotency_key("order-7")?.send().await?;
/// assert_eq!((ann.number.get(), bob.number.get()), (1, 2));
///
/// store.tick().await?; // happens by itself, too, some 20 times a second
/// let place = sale.poll(&ann.ticket).await?; // the first poll takes the slot
/// let slot = Admission::of(&place).ok_or("ann is admitted")?;
/// assert!(sale.check(slot).await?.is_some());
/// let place = sale.poll(&bob.ticket).await?;
/// assert!(matches!(place.state, TicketState::Waiting { position: 0, .. }));
///
/// sale.release(slot).await?; // ann has paid: the slot is free
/// assert!(sale.check(slot).await?.is_none());
/// store.tick().await?;
/// assert!(Admission::of(&sale.poll(&bob.ticket).await?).is_some());
/// # Ok(()) }
/// ```
///
/// # What it promises
/// - Numbers 1, 2, 3 … in the order in which the store accepted the joins. Each number is given once, also across
///   crashes, and when a closed room opens again.
/// - Admission in the order of numbers among the visitors who are present. A visitor that is silent for too long is
///   passed over, keeps the number, and is next on coming back.
/// - Never more than [`RoomSettings::max_active`] slots at once, and never faster than [`RoomSettings::admit`].
/// - A position never rises from one reply to the next.
/// - Numbers, slots and departures are durable before the reply, as far as the store's [`crate::Durability`] says.
///
/// # What it does not promise
/// - A position across a restart: all tickets then count as just seen, so visitors who were passed over may be ahead
///   again.
/// - The time that a reply estimates.
/// - Order between joins that overlap in time. A join that was answered before another was sent comes first.
///
/// # Errors and refusals
/// [`Error::Refused`](crate::Error::Refused) is the decision of a rule. After [`Error::Unknown`](crate::Error::Unknown)
/// send the same request again: with a user or an idempotency key it has no second effect. A repeated anonymous join without a key may draw a second number. No
/// visitor polls for it, so the room passes it over.
///
/// Dropping a future leaves its request done or not done, never half done.
pub struct WaitingRoom<S = AnyStore> {
    pub(crate) store: Arc<S>,
    pub(crate) name: RoomName,
}

impl<S> fmt::Debug for WaitingRoom<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitingRoom({})", self.name)
    }
}

impl<S> Clone for WaitingRoom<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: self.name.clone() }
    }
}

/// One admission of one ticket, as [`Self::of`] reads it from an answer; see [`WaitingRoom`]. Over HTTP it is a pass. Valid until its slot ends, and for no other slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admission {
    /// The ticket's number.
    pub number: TicketNumber,
    /// The room's number of this admission.
    pub admission: u64,
}

impl Admission {
    /// Returns the admission of a ticket that has taken its slot; `None` while the ticket waits, and once it is over.
    pub const fn of(answer: &TicketAnswer) -> Option<Self> {
        match answer.state {
            TicketState::Admitted { slot, .. } => Some(Self { number: answer.number, admission: slot.admission }),
            TicketState::InDraw { .. } | TicketState::Waiting { .. } | TicketState::Gone(_) => None,
        }
    }
}

impl<S: RoomStore> WaitingRoom<S> {
    /// The name of the room.
    pub const fn name(&self) -> &RoomName {
        &self.name
    }

    /// Creates the room, replaces its settings, or opens it again after [`Self::close`]. A room that opens again
    /// continues its numbers, and earlier tickets stay void. Slots that are taken keep their ends. One step of the
    /// store.
    pub async fn put(&self, settings: RoomSettings) -> Result<Put, RoomError> {
        settings.check().map_err(|(field, says)| InputError::Settings { field, says })?;
        flat(self.store.put_room(&self.name, settings).await)
    }

    /// Closes the room: all its tickets and slots become void. Closing it again has no effect. Refused: `unknown_room`.
    pub async fn close(&self) -> Result<(), RoomError> {
        flat(self.store.close_room(&self.name).await)
    }

    /// Shows the settings, the length of the line, the slots in use, and the state. No file access. Refused:
    /// `unknown_room`.
    pub async fn view(&self) -> Result<RoomSummary, RoomError> {
        flat(self.store.room(&self.name).await)
    }

    /// Sets how the page of the room looks; the last call counts, and [`Appearance::default`] is the usual look. Refused:
    /// `unknown_room`. Fails with [`InputError::Appearance`] if [`Appearance::check`] refuses it. One step of the store.
    pub async fn put_appearance(&self, appearance: Appearance) -> Result<(), RoomError> {
        appearance.check().map_err(InputError::Appearance)?;
        flat(self.store.put_appearance(&self.name, appearance).await)
    }

    /// Shows how the page of the room looks. On a cluster this asks the database. Refused: `unknown_room`.
    pub async fn appearance(&self) -> Result<Arc<Appearance>, RoomError> {
        flat(self.store.appearance(&self.name).await)
    }

    /// Begins to join without a user: the visitor with the ticket has the place. Nothing happens before
    /// [`JoinRequest::send`].
    pub const fn join(&self) -> JoinRequest<'_, S> {
        JoinRequest { room: self, user: None, key: None }
    }

    /// Begins to join for a user, who has at most one live place.
    pub fn join_user(&self, user: &str) -> Result<JoinRequest<'_, S>, InputError> {
        let user = UserId::parse(user).map_err(|error: NameError| InputError::Name { field: "user", error })?;
        Ok(JoinRequest { room: self, user: Some(user), key: None })
    }

    /// Shows where a ticket stands, and takes the slot that is offered to it. Call it again after
    /// [`TicketAnswer::poll_after_ms`]: a visitor that is silent for three times that (at least 30 s) is passed over.
    ///
    /// No file access while the ticket waits, or once it has its slot. Refused: `unknown_room`, `unknown_ticket` (also
    /// for a forged ticket, or one of another room), `ticket_renewed`.
    pub async fn poll(&self, ticket: &str) -> Result<TicketAnswer, RoomError> {
        flat(self.store.poll(&self.name, ticket).await)
    }

    /// Watches a ticket: [`RoomWatch::next`] returns each new place until the turn. Asks the store for nothing before.
    pub fn watch(&self, ticket: &str) -> RoomWatch<S> {
        RoomWatch(TicketWatch::new(Arc::clone(&self.store), self.name.clone(), ticket))
    }

    /// Gives the place of a ticket another ticket, so that this one is void: see [`RoomStore::renew`]. Call it with a ticket that
    /// came in a link, which other people may have seen. `key` are 128 random bits of the caller: repeat the call with the same
    /// ones until an answer comes. One step of the store. Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed` (another
    /// caller was first).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::Store;
    /// use firstcome::core::room::{RenewalKey, RoomSettings};
    ///
    /// let sale = Store::memory().room("sale")?;
    /// sale.put(RoomSettings::with_slots(1)).await?;
    /// let (_, ann) = sale.join().send().await?;
    /// let key = RenewalKey::new(0x5eed_0000_1111_2222_3333_4444_5555_6666); // drawn at random
    /// let renewed = sale.renew(&ann.ticket, key).await?;
    /// assert_eq!(renewed.number, ann.number);
    /// assert!(sale.poll(&ann.ticket).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self, ticket: &str, key: RenewalKey) -> Result<TicketAnswer, RoomError> {
        flat(self.store.renew(&self.name, ticket, key).await)
    }

    /// Makes a code that moves the place of an admitted visitor to a site on another host, once: see [`RoomStore::hand_off`]. Append
    /// it to the address of the site, as the parameter `firstcome_handoff`. It ends after a minute, and with the slot. A poll.
    /// Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed`, `not_admitted`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::core::room::{RenewalKey, RoomSettings};
    /// use firstcome::{Admission, Store};
    ///
    /// let store = Store::memory();
    /// let sale = store.room("sale")?;
    /// sale.put(RoomSettings::with_slots(1)).await?;
    /// let (_, ann) = sale.join().send().await?;
    /// store.tick().await?;
    /// let handoff = sale.hand_off(&ann.ticket).await?;
    ///
    /// // At the site, with bits that it draws at random for each arrival:
    /// let arrived = sale.redeem_handoff(&handoff.code, RenewalKey::new(0x5eed)).await?;
    /// assert!(Admission::of(&arrived).is_some());
    /// assert!(sale.redeem_handoff(&handoff.code, RenewalKey::new(0x0dd)).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn hand_off(&self, ticket: &str) -> Result<Handoff, RoomError> {
        flat(self.store.hand_off(&self.name, ticket).await)
    }

    /// Redeems a code of [`Self::hand_off`], and returns the place with a new ticket: see [`RoomStore::redeem_handoff`]. The ticket of
    /// which the code was made is void then. `key` are 128 random bits of the caller: repeat the call with the same ones until an
    /// answer comes. One step of the store. Refused: `unknown_room`, `invalid_handoff`, `handoff_used`.
    pub async fn redeem_handoff(&self, code: &str, key: RenewalKey) -> Result<TicketAnswer, RoomError> {
        flat(self.store.redeem_handoff(&self.name, code, key).await)
    }

    /// Gives up a ticket: its place in line, or its slot, which is free at once. A second call has no effect. One step
    /// of the store. Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed`.
    pub async fn leave(&self, ticket: &str) -> Result<(), RoomError> {
        flat(self.store.leave(&self.name, ticket).await)
    }

    /// Returns until when an admission is valid, or `None` if it is not. Counts as a contact for the idle time-out. No
    /// file access. Refused: `unknown_room`.
    pub async fn check(&self, admission: Admission) -> Result<Option<PassCheck>, RoomError> {
        let Admission { number, admission } = admission;
        flat(self.store.check_pass(&self.name, number, admission).await)
    }

    /// Returns all admissions that have not ended, with those whose slot is still offered. So a program that verifies passes by
    /// their signature also learns which of them are void. No contact. Looks at each slot. Refused: `unknown_room`.
    pub async fn admissions(&self) -> Result<LiveAdmissions, RoomError> {
        flat(self.store.admissions(&self.name).await)
    }

    /// Reports how the origin is, and returns what the rate is then. A report of trouble lowers it by three tenths, down to a
    /// quarter; a good one raises it by a twentieth; at most one report in 5 s has an effect. When reports end, half of the
    /// reduction is left after each 30 s. Refused: `unknown_room`.
    pub async fn report_origin(&self, report: OriginReport) -> Result<RatePace, RoomError> {
        flat(self.store.report_origin(&self.name, report).await)
    }

    /// Gives a slot back at the end of a visit. Has no effect if the visit is over already. One step of the store.
    /// Refused: `unknown_room`.
    pub async fn release(&self, admission: Admission) -> Result<(), RoomError> {
        let Admission { number, admission } = admission;
        flat(self.store.release(&self.name, number, admission).await)
    }
}

/// Returns each new place of a ticket until its turn: see [`WaitingRoom::watch`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::core::room::{RoomSettings, TicketState};
/// use firstcome::{Admission, Store};
///
/// let sale = Store::memory().room("sale")?;
/// sale.put(RoomSettings::with_slots(1)).await?;
/// let (_, ann) = sale.join().send().await?;
/// let mut watch = sale.watch(&ann.ticket);
/// while let Some(place) = watch.next().await? {
///     match place.state {
///         TicketState::Waiting { position, .. } => println!("{position} people are before you"),
///         state => println!("{state:?}"),
///     }
/// #   if Admission::of(&place).is_some() { break }
/// }
/// # Ok(()) }
/// ```
///
/// # What it promises
/// - Each place differs from the one before. The last one is an admission, whose slot the watch has taken, or the end of the
///   ticket.
/// - A dropped future of [`Self::next`] loses no place: the next call returns it. If the future is dropped while it takes a
///   slot, the slot may be taken, and the next call returns the admission.
/// - While a future is awaited the visitor is present. A visitor who is silent for three times
///   [`TicketAnswer::poll_after_ms`] (at least 30 s) is passed over.
///
/// # What it does not promise
/// - Every place: between two polls a visitor may move up several times.
///
/// # What it costs
/// | store | how it learns of a place | round trips |
/// |---|---|---|
/// | in memory, in a directory | a poll each [`TicketAnswer::poll_after_ms`] (2 s to a minute) | none; one sync for the slot |
/// | on a cluster | the same | none while the ticket waits: the node answers from its copy of the room; one to Redis for the slot |
/// | of a service over HTTP | near the front by a stream, within about a second; elsewhere by polls | one a poll; for a stream one a minute and the poll before it, on a connection of its own |
///
/// Needs a Tokio runtime with time, on each store.
pub struct RoomWatch<S = AnyStore>(TicketWatch<S>);

impl<S> fmt::Debug for RoomWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<S: RoomStore> RoomWatch<S> {
    /// Waits for the next place. The first one comes at once. `None` after the last one, and after a refusal.
    ///
    /// Refused: `unknown_room`, `unknown_ticket`, `ticket_renewed`. After any other error call it again: the watch goes on, a
    /// second later. A stream that the service refuses, or that breaks off, is no error.
    pub async fn next(&mut self) -> Result<Option<TicketAnswer>, RoomError> {
        flat(self.0.next().await)
    }
}

/// A join, before it is sent.
///
/// Dropping the future of [`Self::send`] leaves the join done or not done, never half done. To learn which, send the
/// same join with the same user or idempotency key again.
#[must_use = "nothing is sent before `send`"]
pub struct JoinRequest<'a, S = AnyStore> {
    room: &'a WaitingRoom<S>,
    user: Option<UserId>,
    key: Option<String>,
}

firstcome_store::core::debug_by_name!(['a, S] JoinRequest<'a, S>);

impl<S: RoomStore> JoinRequest<'_, S> {
    /// Makes a repeat of this request recognisable as long as its ticket lives. The repeat returns the same place. The
    /// same key with another user is refused as `idempotency_key_reused`.
    ///
    /// A client that knows the key of an anonymous join gets its ticket, so make keys hard to guess.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, InputError> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Draws the next number, or finds the live place of the same user or the same request. One step of the store; on
    /// disk, one sync shared with all other requests that have arrived. The ticket is a secret of its holder.
    ///
    /// Refused, in this order: `unknown_room`, `idempotency_key_reused`, `room_closed`, `room_full`.
    pub async fn send(self) -> Result<(Joining, TicketAnswer), RoomError> {
        let Self { room, user, key } = self;
        let request = key.map(|key| request_of(&room.name, user.as_ref(), &key));
        flat(room.store.join(&room.name, Join { user, request }).await)
    }
}

fn request_of(room: &RoomName, user: Option<&UserId>, key: &str) -> RequestId {
    request_id(&[b"library", room.as_str().as_bytes()], key, &[user.map_or("", UserId::as_str).as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::{Outcome, Store};
    use firstcome_store::Embedded;
    use firstcome_store::core::coupon::{CouponLimit, CouponSettings};
    use firstcome_store::core::room::Rejection;
    use firstcome_store::core::room::{Departure, RoomState};
    use firstcome_store::core::time::Timestamp;
    use firstcome_store::edge::ManualClock;

    type JoinReply = Result<(Joining, TicketAnswer), RoomError>;

    fn store() -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_893_456_000_000_000)));
        (Store::over(Embedded::memory_with(Arc::clone(&clock) as _).into()), clock)
    }

    fn place(told: JoinReply) -> (Joining, TicketAnswer) {
        told.unwrap()
    }

    fn position(answer: &TicketAnswer) -> u32 {
        match answer.state {
            TicketState::Waiting { position, .. } => position,
            state => panic!("{state:?}"),
        }
    }

    #[tokio::test]
    async fn names_values_and_settings_are_checked_before_the_store_is_asked() {
        let (store, _) = store();
        for wrong in ["", "-a", "a b", "é", &"a".repeat(129)] {
            assert!(matches!(store.room(wrong), Err(InputError::Name { field: "room", .. })), "{wrong}");
            let sale = store.room("sale").unwrap();
            assert!(matches!(sale.join_user(wrong), Err(InputError::Name { field: "user", .. })), "{wrong}");
        }
        let sale = store.room("sale").unwrap();
        assert!(matches!(sale.join_user("pass:7"), Err(InputError::Name { field: "user", .. })));
        for wrong in ["", &"k".repeat(129)] {
            let wanted = "1 to 128 bytes";
            let error = sale.join().idempotency_key(wrong).err().unwrap();
            assert!(matches!(error, InputError::Value { field: "idempotency key", wanted: told } if told == wanted));
        }
        let error = sale.put(RoomSettings::defaults()).await.unwrap_err();
        assert_eq!(error.to_string(), "admit or max_active must be given");
        let error = sale.put(RoomSettings::with_slots(0)).await.unwrap_err();
        assert!(matches!(error, Error::Input(InputError::Settings { field: "max_active", .. })));
        assert_eq!(sale.view().await, Err(Error::Refused(Rejection::UnknownRoom)), "nothing was made");
        assert_eq!(sale.join().send().await.unwrap_err(), Error::Refused(Rejection::UnknownRoom));
        assert_eq!(sale.poll("x").await.unwrap_err(), Error::Refused(Rejection::UnknownRoom));
        assert_eq!(sale.leave("x").await, Err(Error::Refused(Rejection::UnknownRoom)));
        assert_eq!(sale.close().await, Err(Error::Refused(Rejection::UnknownRoom)));
    }

    #[tokio::test]
    async fn a_repeat_by_user_or_key_leads_to_the_same_place() {
        let (store, _) = store();
        let sale = store.room("sale").unwrap();
        assert_eq!(sale.put(RoomSettings::with_rate(1, 60_000)).await, Ok(Put::Created));
        let keyed = |user: &str| sale.join_user(user).unwrap().idempotency_key("k1").unwrap().send();
        let (joining, ann) = place(keyed("ann").await);
        assert_eq!((joining, ann.number.get()), (Joining::New, 1));
        let (joining, again) = place(keyed("ann").await);
        assert_eq!((joining, &again.ticket), (Joining::SameRequest, &ann.ticket));
        let (joining, again) = place(sale.join_user("ann").unwrap().send().await);
        assert_eq!((joining, &again.ticket), (Joining::SameUser, &ann.ticket));
        assert_eq!(keyed("bob").await.unwrap_err(), Error::Refused(Rejection::KeyReused(ann.number)));
        // Without a user, the key alone leads to the ticket. In another room the same key is a different one.
        let (_, first) = place(sale.join().idempotency_key("k2").unwrap().send().await);
        let (joining, again) = place(sale.join().idempotency_key("k2").unwrap().send().await);
        assert_eq!((joining, &again.ticket), (Joining::SameRequest, &first.ticket));
        let other = store.room("other").unwrap();
        other.put(RoomSettings::with_slots(1)).await.unwrap();
        let (joining, elsewhere) = place(other.join().idempotency_key("k2").unwrap().send().await);
        assert_eq!((joining, elsewhere.number.get()), (Joining::New, 1));
        assert_eq!(other.poll(&first.ticket).await.unwrap_err(), Error::Refused(Rejection::UnknownTicket));
        assert_eq!(sale.view().await.unwrap().view.waiting, 2);
    }

    #[tokio::test]
    async fn positions_fall_to_the_slot_and_a_slot_is_one_admission() {
        let (store, clock) = store();
        let sale = store.room("sale").unwrap();
        sale.put(RoomSettings { claim_window_ms: 1_000, ..RoomSettings::with_slots(1) }).await.unwrap();
        let mut tickets = Vec::new();
        for _ in 0..4 {
            tickets.push(place(sale.join().send().await).1.ticket);
        }
        let mut before = u32::MAX;
        for ahead in &tickets[..3] {
            store.tick().await.unwrap();
            let slot = Admission::of(&sale.poll(ahead).await.unwrap()).unwrap();
            let now = position(&sale.poll(&tickets[3]).await.unwrap());
            assert!(now < before);
            before = now;
            let check = sale.check(slot).await.unwrap().unwrap();
            assert_eq!(check.user, None);
            let other = Admission { admission: slot.admission + 1, ..slot };
            assert_eq!(sale.check(other).await, Ok(None));
            sale.release(other).await.unwrap();
            assert!(sale.check(slot).await.unwrap().is_some(), "another admission's release gives up nothing");
            for _ in 0..2 {
                sale.release(slot).await.unwrap();
            }
            assert_eq!(sale.check(slot).await, Ok(None));
        }
        assert_eq!(before, 0);
        // A visitor that misses its claim window is next again.
        store.tick().await.unwrap();
        clock.pass_ms(1_000);
        let answer = sale.poll(&tickets[3]).await.unwrap();
        assert_eq!((position(&answer), Admission::of(&answer)), (0, None));
        store.tick().await.unwrap();
        assert!(Admission::of(&sale.poll(&tickets[3]).await.unwrap()).is_some());
        sale.leave(&tickets[3]).await.unwrap();
        let left = sale.poll(&tickets[3]).await.unwrap();
        assert_eq!(left.state, TicketState::Gone(Departure::Left));
    }

    #[tokio::test]
    async fn a_closed_room_voids_its_tickets_and_its_numbers_go_on() {
        let (store, _) = store();
        let sale = store.room("sale").unwrap();
        sale.put(RoomSettings::with_slots(1)).await.unwrap();
        let (_, ann) = place(sale.join_user("ann").unwrap().send().await);
        for _ in 0..2 {
            sale.close().await.unwrap();
        }
        assert_eq!(sale.view().await.unwrap().view.state, RoomState::Closed);
        assert_eq!(sale.join().send().await.unwrap_err(), Error::Refused(Rejection::Closed));
        assert_eq!(sale.put(RoomSettings::with_slots(1)).await, Ok(Put::Replaced));
        let (joining, again) = place(sale.join_user("ann").unwrap().send().await);
        assert_eq!((joining, again.number.get()), (Joining::New, 2));
        assert_ne!(again.ticket, ann.ticket);
    }

    #[tokio::test]
    async fn one_store_holds_coupons_and_rooms() {
        let directory = tempfile::tempdir().unwrap();
        let ticket = {
            let store = Store::open(directory.path()).unwrap();
            let launch = store.coupon("launch").unwrap();
            let limit = CouponLimit::new(1).unwrap();
            launch.put(CouponSettings::with_limit(limit)).await.unwrap();
            assert!(matches!(launch.claim("ann").unwrap().send().await.unwrap(), Outcome::Issued(_)));
            let sale = store.room("sale").unwrap();
            sale.put(RoomSettings::with_rate(1, 60_000)).await.unwrap();
            let (_, joined) = place(sale.join().send().await);
            store.store().as_embedded().expect("it is in a directory").close();
            joined.ticket
        };
        let store = Store::open(directory.path()).unwrap();
        let sale = store.clone().room("sale").unwrap().clone();
        assert_eq!(sale.poll(&ticket).await.unwrap().number.get(), 1);
        assert_eq!(place(sale.join().send().await).1.number.get(), 2);
    }
}
