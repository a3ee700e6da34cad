//! Waiting rooms over any store.

use crate::Error;
use crate::request::{checked_key, request_id};
#[cfg(feature = "sqlite")]
use firstcome_store::Fault;
use firstcome_store::core::id::{NameError, RequestId, RoomName, UserId};
use firstcome_store::core::room::{Join, Rejection, RoomSettings, TicketNumber, TicketState};
use firstcome_store::{Embedded, Joining, PassCheck, Put, RoomStore, RoomSummary, TicketAnswer};
use std::sync::Arc;

/// Waiting rooms that admit in the order of arrival. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::core::room::{RoomSettings, TicketState};
/// use firstcome::{Admission, WaitingRooms};
///
/// let rooms = WaitingRooms::memory(); // or Coupons::rooms(), to have both in one store
/// let sale = rooms.room("sale")?;
/// sale.put(RoomSettings::with_slots(1)).await?.unwrap();
///
/// let (_, ann) = sale.join().send().await?.unwrap();
/// let (_, bob) = sale.join_user("bob")?.idempotency_key("order-7")?.send().await?.unwrap();
/// assert_eq!((ann.number.get(), bob.number.get()), (1, 2));
///
/// rooms.tick().await?; // happens by itself, too, some 20 times a second
/// let place = sale.poll(&ann.ticket).await?.unwrap(); // the first poll takes the slot
/// let slot = Admission::of(&place).ok_or("ann is admitted")?;
/// assert!(sale.check(slot).await?.unwrap().is_some());
/// let place = sale.poll(&bob.ticket).await?.unwrap();
/// assert!(matches!(place.state, TicketState::Waiting { position: 0, .. }));
///
/// sale.release(slot).await?.unwrap(); // ann has paid: the slot is free
/// assert!(sale.check(slot).await?.unwrap().is_none());
/// rooms.tick().await?;
/// assert!(Admission::of(&sale.poll(&bob.ticket).await?.unwrap()).is_some());
/// # Ok(()) }
/// ```
///
/// # What it promises
/// - Numbers 1, 2, 3 … in the order in which joins were accepted, each once, for ever: also across crashes, and when a
///   closed room opens again.
/// - Admission in the order of numbers among those who are present. A visitor that was silent too long is passed over, keeps
///   the number, and is next on coming back.
/// - Never more than [`RoomSettings::max_active`] slots at once, and never faster than [`RoomSettings::admit`].
/// - A position never rises from one answer to the next.
/// - Told means durable, for numbers, slots and departures, as far as the store's [`crate::Durability`] says.
///
/// # What it does not promise
/// - A position across a restart: then all tickets count as just seen, and those who were passed over may stand before
///   you again.
/// - The time that an answer estimates.
/// - Order between joins that overlap in time. If one was answered before the other was sent, it is first.
///
/// # Errors and refusals
/// The outer result of every call is [`Error`]: a name or a value that is none, or a store that gave no answer. The
/// inner one is what a rule says. After [`crate::StoreError::Unknown`] send the same request again: with a user or an
/// idempotency key it has no second effect. An anonymous join without a key may then hold a second number, which no visitor
/// polls for and which is passed over.
///
/// Every future may be dropped: what it asked for is then done or not done, never half done.
pub struct WaitingRooms<S = Embedded> {
    store: Arc<S>,
}

impl<S> Clone for WaitingRooms<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl WaitingRooms {
    /// Rooms in memory, gone with the process.
    pub fn memory() -> Self {
        Self::over(Embedded::memory())
    }

    /// Rooms in a directory, which is made if it is absent. Durable: told means synced to disk.
    ///
    /// Blocks while it loads. Only one process can have it open; refused with a [`Fault`] that says what to do. To have
    /// coupons in the same directory, open [`crate::Coupons`] and ask it for its [`crate::Coupons::rooms`].
    #[cfg(feature = "sqlite")]
    pub fn open(directory: impl AsRef<std::path::Path>) -> Result<Self, Fault> {
        let clock = Arc::new(firstcome_store::edge::SystemClock::default());
        firstcome_sqlite::open(directory.as_ref(), clock).map(Self::over)
    }
}

impl<S: RoomStore> WaitingRooms<S> {
    /// Rooms over a store of one's own choice.
    pub fn over(store: S) -> Self {
        Self::sharing(Arc::new(store))
    }

    pub(crate) const fn sharing(store: Arc<S>) -> Self {
        Self { store }
    }

    /// The store itself.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// A room by its name. It need not exist yet.
    pub fn room(&self, name: &str) -> Result<WaitingRoom<S>, Error> {
        let name = RoomName::parse(name).map_err(|error| Error::Name { field: "room", error })?;
        Ok(WaitingRoom { store: Arc::clone(&self.store), name })
    }

    /// Does now what time has made due in all rooms, and returns when it is durable. [`Embedded`] does it by itself.
    pub async fn tick(&self) -> Result<(), Error> {
        Ok(self.store.tick().await?)
    }
}

/// One waiting room of a store.
pub struct WaitingRoom<S = Embedded> {
    store: Arc<S>,
    name: RoomName,
}

impl<S> Clone for WaitingRoom<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), name: self.name.clone() }
    }
}

/// One admission of one ticket: what a pass stands for over HTTP. Good until its slot ends, and for no other slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admission {
    /// The ticket's number.
    pub number: TicketNumber,
    /// The room's number of this admission.
    pub admission: u64,
}

impl Admission {
    /// That of a ticket which has taken its slot; `None` while it waits, and once it is over.
    pub const fn of(answer: &TicketAnswer) -> Option<Self> {
        match answer.state {
            TicketState::Admitted { slot, .. } => Some(Self { number: answer.number, admission: slot.admission }),
            TicketState::Waiting { .. } | TicketState::Gone(_) => None,
        }
    }
}

impl<S: RoomStore> WaitingRoom<S> {
    /// Its name.
    pub const fn name(&self) -> &RoomName {
        &self.name
    }

    /// Creates the room, replaces its settings, or opens it again after [`Self::close`]: numbers go on, earlier tickets
    /// stay void. Slots that were given keep their ends. One step of the store.
    pub async fn put(&self, settings: RoomSettings) -> Result<Result<Put, Rejection>, Error> {
        settings.check().map_err(|(field, says)| Error::Settings { field, says })?;
        Ok(self.store.put_room(&self.name, settings).await?)
    }

    /// Closes the room: all its tickets and slots are void. A second time has no effect. Refused: `unknown_room`.
    pub async fn close(&self) -> Result<Result<(), Rejection>, Error> {
        Ok(self.store.close_room(&self.name).await?)
    }

    /// Settings, people in line, slots in use, state. No file access. Refused: `unknown_room`.
    pub async fn view(&self) -> Result<Result<RoomSummary, Rejection>, Error> {
        Ok(self.store.room(&self.name).await?)
    }

    /// Begins to join for the visitor that will have the ticket; nothing happens before [`JoinRequest::send`].
    pub const fn join(&self) -> JoinRequest<'_, S> {
        JoinRequest { room: self, user: None, key: None }
    }

    /// Begins to join for a user, who has at most one living place.
    pub fn join_user(&self, user: &str) -> Result<JoinRequest<'_, S>, Error> {
        let user = UserId::parse(user).map_err(|error: NameError| Error::Name { field: "user", error })?;
        Ok(JoinRequest { room: self, user: Some(user), key: None })
    }

    /// Where a ticket stands; takes the slot that is offered to it. To be asked again after
    /// [`TicketAnswer::poll_after_ms`]: who is silent for three times that (at least 30 s) is passed over.
    ///
    /// No file access while the ticket waits, or once it has its slot. Refused: `unknown_room`, `unknown_ticket` (also
    /// for a ticket that was forged or is another room's).
    pub async fn poll(&self, ticket: &str) -> Result<Result<TicketAnswer, Rejection>, Error> {
        Ok(self.store.poll(&self.name, ticket).await?)
    }

    /// Gives up a ticket: its place in line or its slot, which is free at once. A second time has no effect. One step
    /// of the store. Refused: `unknown_room`, `unknown_ticket`.
    pub async fn leave(&self, ticket: &str) -> Result<Result<(), Rejection>, Error> {
        Ok(self.store.leave(&self.name, ticket).await?)
    }

    /// Whether an admission is good now, and until when; counts as a contact for the idle time-out. No file access.
    /// Refused: `unknown_room`.
    pub async fn check(&self, admission: Admission) -> Result<Result<Option<PassCheck>, Rejection>, Error> {
        let Admission { number, admission } = admission;
        Ok(self.store.check_pass(&self.name, number, admission).await?)
    }

    /// Gives a slot back: the visit is over. Nothing happens if it is over already. One step of the store. Refused:
    /// `unknown_room`.
    pub async fn release(&self, admission: Admission) -> Result<Result<(), Rejection>, Error> {
        let Admission { number, admission } = admission;
        Ok(self.store.release(&self.name, number, admission).await?)
    }
}

/// A join that is about to be sent.
///
/// Dropping the future of [`Self::send`] leaves it done or not done, never half done. With a user or a key send the
/// same one again to learn which.
pub struct JoinRequest<'a, S = Embedded> {
    room: &'a WaitingRoom<S>,
    user: Option<UserId>,
    key: Option<String>,
}

impl<S: RoomStore> JoinRequest<'_, S> {
    /// Makes a repeat of this very request recognisable as long as its ticket lives: it leads to the same place, and
    /// the key with another user is refused as `idempotency_key_reused`.
    ///
    /// A visitor that knows the key of an anonymous join gets its ticket: let strangers choose none that can be guessed.
    pub fn idempotency_key(mut self, key: &str) -> Result<Self, Error> {
        self.key = Some(checked_key(key)?);
        Ok(self)
    }

    /// Draws the next number, or finds the living place of the same user or the same request. One step of the store;
    /// on disk, one sync shared with everything else that has arrived. The ticket is a secret of its holder.
    ///
    /// Refused, in this order: `unknown_room`, `idempotency_key_reused`, `room_closed`, `room_full`.
    pub async fn send(self) -> Result<Result<(Joining, TicketAnswer), Rejection>, Error> {
        let Self { room, user, key } = self;
        let request = key.map(|key| request_of(&room.name, user.as_ref(), &key));
        Ok(room.store.join(&room.name, Join { user, request }).await?)
    }
}

fn request_of(room: &RoomName, user: Option<&UserId>, key: &str) -> RequestId {
    request_id(&[b"library", room.as_str().as_bytes()], key, &[user.map_or("", UserId::as_str).as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coupons, Outcome};
    use firstcome_store::core::coupon::{CouponLimit, CouponSettings};
    use firstcome_store::core::room::{Departure, RoomState};
    use firstcome_store::core::time::Timestamp;
    use firstcome_store::edge::ManualClock;

    type JoinReply = Result<Result<(Joining, TicketAnswer), Rejection>, Error>;

    fn rooms() -> (WaitingRooms, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(1_893_456_000_000_000)));
        (WaitingRooms::over(Embedded::memory_with(Arc::clone(&clock) as _)), clock)
    }

    fn place(told: JoinReply) -> (Joining, TicketAnswer) {
        told.unwrap().unwrap()
    }

    fn position(answer: &TicketAnswer) -> u32 {
        match answer.state {
            TicketState::Waiting { position, .. } => position,
            state => panic!("{state:?}"),
        }
    }

    #[tokio::test]
    async fn names_values_and_settings_are_checked_before_the_store_is_asked() {
        let (rooms, _) = rooms();
        for wrong in ["", "-a", "a b", "é", &"a".repeat(129)] {
            assert!(matches!(rooms.room(wrong), Err(Error::Name { field: "room", .. })), "{wrong}");
            let sale = rooms.room("sale").unwrap();
            assert!(matches!(sale.join_user(wrong), Err(Error::Name { field: "user", .. })), "{wrong}");
        }
        let sale = rooms.room("sale").unwrap();
        assert!(matches!(sale.join_user("pass:7"), Err(Error::Name { field: "user", .. })));
        for wrong in ["", &"k".repeat(129)] {
            let wanted = "1 to 128 bytes";
            let error = sale.join().idempotency_key(wrong).err().unwrap();
            assert!(matches!(error, Error::Invalid { field: "idempotency key", wanted: told } if told == wanted));
        }
        let error = sale.put(RoomSettings::defaults()).await.unwrap_err();
        assert_eq!(error.to_string(), "admit or max_active must be given");
        let error = sale.put(RoomSettings::with_slots(0)).await.unwrap_err();
        assert!(matches!(error, Error::Settings { field: "max_active", .. }));
        assert_eq!(sale.view().await.unwrap(), Err(Rejection::UnknownRoom), "nothing was made");
        assert_eq!(sale.join().send().await.unwrap().unwrap_err(), Rejection::UnknownRoom);
        assert_eq!(sale.poll("x").await.unwrap().unwrap_err(), Rejection::UnknownRoom);
        assert_eq!(sale.leave("x").await.unwrap(), Err(Rejection::UnknownRoom));
        assert_eq!(sale.close().await.unwrap(), Err(Rejection::UnknownRoom));
    }

    #[tokio::test]
    async fn a_repeat_by_user_or_key_leads_to_the_same_place() {
        let (rooms, _) = rooms();
        let sale = rooms.room("sale").unwrap();
        assert_eq!(sale.put(RoomSettings::with_rate(1, 60_000)).await.unwrap(), Ok(Put::Created));
        let keyed = |user: &str| sale.join_user(user).unwrap().idempotency_key("k1").unwrap().send();
        let (joining, ann) = place(keyed("ann").await);
        assert_eq!((joining, ann.number.get()), (Joining::New, 1));
        let (joining, again) = place(keyed("ann").await);
        assert_eq!((joining, &again.ticket), (Joining::SameRequest, &ann.ticket));
        let (joining, again) = place(sale.join_user("ann").unwrap().send().await);
        assert_eq!((joining, &again.ticket), (Joining::SameUser, &ann.ticket));
        assert_eq!(keyed("bob").await.unwrap().unwrap_err(), Rejection::KeyReused(ann.number));
        // Without a user a visitor that has the key has the ticket; in another room the key is another one.
        let (_, first) = place(sale.join().idempotency_key("k2").unwrap().send().await);
        let (joining, again) = place(sale.join().idempotency_key("k2").unwrap().send().await);
        assert_eq!((joining, &again.ticket), (Joining::SameRequest, &first.ticket));
        let other = rooms.room("other").unwrap();
        other.put(RoomSettings::with_slots(1)).await.unwrap().unwrap();
        let (joining, elsewhere) = place(other.join().idempotency_key("k2").unwrap().send().await);
        assert_eq!((joining, elsewhere.number.get()), (Joining::New, 1));
        assert_eq!(other.poll(&first.ticket).await.unwrap().unwrap_err(), Rejection::UnknownTicket);
        assert_eq!(sale.view().await.unwrap().unwrap().view.waiting, 2);
    }

    #[tokio::test]
    async fn positions_fall_to_the_slot_and_a_slot_is_one_admission() {
        let (rooms, clock) = rooms();
        let sale = rooms.room("sale").unwrap();
        sale.put(RoomSettings { claim_window_ms: 1_000, ..RoomSettings::with_slots(1) }).await.unwrap().unwrap();
        let mut tickets = Vec::new();
        for _ in 0..4 {
            tickets.push(place(sale.join().send().await).1.ticket);
        }
        let mut before = u32::MAX;
        for ahead in &tickets[..3] {
            rooms.tick().await.unwrap();
            let slot = Admission::of(&sale.poll(ahead).await.unwrap().unwrap()).unwrap();
            let now = position(&sale.poll(&tickets[3]).await.unwrap().unwrap());
            assert!(now < before);
            before = now;
            let check = sale.check(slot).await.unwrap().unwrap().unwrap();
            assert_eq!(check.user, None);
            let other = Admission { admission: slot.admission + 1, ..slot };
            assert_eq!(sale.check(other).await.unwrap(), Ok(None));
            sale.release(other).await.unwrap().unwrap();
            assert!(sale.check(slot).await.unwrap().unwrap().is_some(), "another admission's release gives up nothing");
            for _ in 0..2 {
                sale.release(slot).await.unwrap().unwrap();
            }
            assert_eq!(sale.check(slot).await.unwrap(), Ok(None));
        }
        assert_eq!(before, 0);
        // A visitor that does not take the slot in its window is next again.
        rooms.tick().await.unwrap();
        clock.pass_ms(1_000);
        let answer = sale.poll(&tickets[3]).await.unwrap().unwrap();
        assert_eq!((position(&answer), Admission::of(&answer)), (0, None));
        rooms.tick().await.unwrap();
        assert!(Admission::of(&sale.poll(&tickets[3]).await.unwrap().unwrap()).is_some());
        sale.leave(&tickets[3]).await.unwrap().unwrap();
        let left = sale.poll(&tickets[3]).await.unwrap().unwrap();
        assert_eq!(left.state, TicketState::Gone(Departure::Left));
    }

    #[tokio::test]
    async fn a_closed_room_voids_its_tickets_and_its_numbers_go_on() {
        let (rooms, _) = rooms();
        let sale = rooms.room("sale").unwrap();
        sale.put(RoomSettings::with_slots(1)).await.unwrap().unwrap();
        let (_, ann) = place(sale.join_user("ann").unwrap().send().await);
        for _ in 0..2 {
            sale.close().await.unwrap().unwrap();
        }
        assert_eq!(sale.view().await.unwrap().unwrap().view.state, RoomState::Closed);
        assert_eq!(sale.join().send().await.unwrap().unwrap_err(), Rejection::Closed);
        assert_eq!(sale.put(RoomSettings::with_slots(1)).await.unwrap(), Ok(Put::Replaced));
        let (joining, again) = place(sale.join_user("ann").unwrap().send().await);
        assert_eq!((joining, again.number.get()), (Joining::New, 2));
        assert_ne!(again.ticket, ann.ticket);
    }

    #[tokio::test]
    async fn one_store_holds_coupons_and_rooms() {
        let directory = tempfile::tempdir().unwrap();
        let ticket = {
            let coupons = Coupons::open(directory.path()).unwrap();
            let launch = coupons.coupon("launch").unwrap();
            let limit = CouponLimit::new(1).unwrap();
            launch.put(CouponSettings::with_limit(limit)).await.unwrap().unwrap();
            assert!(matches!(launch.claim("ann").unwrap().send().await.unwrap(), Outcome::Issued(_)));
            let sale = coupons.rooms().room("sale").unwrap();
            sale.put(RoomSettings::with_rate(1, 60_000)).await.unwrap().unwrap();
            let (_, joined) = place(sale.join().send().await);
            coupons.store().close();
            joined.ticket
        };
        let rooms = WaitingRooms::open(directory.path()).unwrap();
        let sale = rooms.clone().room("sale").unwrap().clone();
        assert_eq!(sale.poll(&ticket).await.unwrap().unwrap().number.get(), 1);
        assert_eq!(place(sale.join().send().await).1.number.get(), 2);
    }
}
