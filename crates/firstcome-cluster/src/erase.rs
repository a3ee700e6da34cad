//! Erases a person from coupons and rooms of a cluster.
//!
//! SQL first, then Redis. A claim of the same user in between finds that SQL has passed its ticket over, has the sequencer forget
//! it, and is let in anew: it is that of a new person. A ticket that SQL does not hold yet is written before it is erased.
//!
//! The log of each room in Redis is read, and replaced if it names the user ([`crate::room`]).
//!
//! # Coupons and rooms that stand still
//! They stay as they are: what Redis has of them is evidence. So the erasure searches such a coupon or room for the user,
//! in SQL and in Redis. If it has nothing of the user, the erasure goes past it. If it has something, or that cannot be
//! told, the erasure goes on with all others and ends with the fault: the same erasure again does the rest.

use super::back::is_of_object;
use super::coupon_state::CouponState;
use super::node::Node;
use super::outbox::Entry;
use super::sequencer::{Keys, Sequencer, Stray, number, parts_of, unreadable};
use super::{Cluster, outbox_writer};
use firstcome_core::erase::{Erased, Pseudonym};
use firstcome_core::id::{CouponName, RoomName, UserId};
use firstcome_core::room::{PlaceKey, PlaceState, PlaceView};
use firstcome_redis::{LinkError, Script};
use firstcome_sql::boxed::boxed;
use firstcome_store::edge::{draw_pause, draw_secret};
use firstcome_store::{EraseAnswer, EraseStore, Fault, FaultKind, RoomStore, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

static IS_USER: Script = Script::new("return redis.call('HEXISTS', KEYS[1], ARGV[1])");
static LOOK: Script = Script::new(include_str!("lua/look.lua"));

/// Names that are read at once.
const NAMES_PER_PAGE: usize = 1_000;
/// Entries of an outbox that are read at once.
const ENTRIES_MAX: usize = 64;
/// Between two looks at a ticket that SQL does not hold yet.
const PAUSE: Duration = Duration::from_millis(10);

/// The first error of a coupon or a room that an erasure went past though it may name the person. The erasure ends with
/// it.
#[derive(Default)]
struct Unfinished(Option<StoreError>);

impl Unfinished {
    /// Keeps the error of one coupon or room, so that the erasure goes on with the others.
    ///
    /// # Errors
    /// Any other error: all coupons and rooms would meet it.
    fn keep(&mut self, error: StoreError) -> Result<(), StoreError> {
        if !is_of_object(&error) {
            return Err(error);
        }
        self.0.get_or_insert(error);
        Ok(())
    }
}

/// The fault of a coupon or a room that stands still and may name the person, with the name of that object.
fn standing(object: &str, fault: &Fault) -> StoreError {
    let says = format!(
        "{object} stands still and may name the person, so erase the person again when it goes on: {}",
        fault.detail
    );
    StoreError::Faulted(Arc::new(Fault::new(fault.kind, says)))
}

impl Node {
    /// Erases the claim of a user, and counts it in `claims` if there was one.
    async fn erase_claim(
        self: &Arc<Self>,
        state: &Arc<CouponState>,
        (user, pseudonym): (&UserId, &UserId),
        claims: &mut u64,
    ) -> Result<(), StoreError> {
        self.wait_for_ticket(state, user).await?;
        let (mut row, is_erased) = self.database.erase_claim(state.keys.coupon, user, pseudonym).await?;
        *claims += u64::from(is_erased);
        self.database.erase_dead_letters(state.keys.coupon, user).await?;
        if is_erased {
            // A node that rebuilds what Redis knows may have read the name just before.
            self.refresh(state).await?;
            row = self.database.coupon_again(state.keys.coupon).await?;
        } else {
            // Also if an erasure before, of which this is the repeat, did not come so far.
            self.wait_for_rebuild(state).await?;
        }
        let (generation, position) = (row.generation, row.position);
        if let Some(ticket) = self.sequencer.ticket_of(state.keys, generation, user.as_str()).await?
            && ticket <= position
        {
            let stray = Stray { ticket, user: user.as_str().into(), request: None };
            self.sequencer.forget(state.keys, generation, &stray).await?;
        }
        let mut judged = self.judged(state).await?;
        if !judged.is_whole && judged.probe.generation.is_some() {
            // One of another generation may name the user.
            self.rebuild(state).await?;
            judged = self.judged(state).await?;
        }
        // The last entry that SQL holds stays in Redis, with all its users.
        if judged.probe.anchor.is_some_and(|anchor| is_named_in(&anchor, user)) {
            self.renew(state).await?;
        }
        Ok(())
    }

    /// Returns when SQL has come to the ticket that the sequencer has of a user, if it has one. An error if the coupon
    /// stands still.
    async fn wait_for_ticket(self: &Arc<Self>, state: &Arc<CouponState>, user: &UserId) -> Result<(), StoreError> {
        let until = Instant::now() + self.options.patience;
        loop {
            let row = self.look(state, Some(user.as_str()), None).await?.row;
            // A look that finds the claim tells it while the coupon stands still.
            self.stopped(state)?;
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

    /// The coupons that this node knows and the database lacks: it went back to before they were made.
    async fn missing_coupons(&self) -> Result<Vec<Arc<CouponState>>, StoreError> {
        let mut missing: Vec<Arc<CouponState>> = self.by_name.lock().values().cloned().collect();
        let ids: Vec<i64> = missing.iter().map(|state| state.keys.coupon).collect();
        let mut there = BTreeSet::new();
        for ids in ids.chunks(NAMES_PER_PAGE) {
            there.extend(self.database.coupons_again(ids).await?.into_iter().map(|row| row.id));
        }
        missing.retain(|state| !there.contains(&state.keys.coupon));
        Ok(missing)
    }

    /// Whether a coupon that stands still has something of a user: a claim in SQL, or a ticket or an entry of its
    /// sequencer. What cannot be told counts as something. Takes the lease of the sequencer for a moment, and changes
    /// nothing.
    async fn coupon_mentions(&self, state: &CouponState, user: &UserId) -> Result<bool, StoreError> {
        let keys = state.keys;
        self.wait_for_rebuild(state).await?;
        let open = self.sequencer.probe(keys, 0, 0).await?.generation;
        let rows = self.database.coupons_again(&[keys.coupon]).await?;
        let mut generations = BTreeSet::from([state.position().0]);
        generations.extend(open);
        generations.extend(rows.first().map(|row| row.generation));
        for generation in generations {
            if self.sequencer.generation_mentions(keys, generation, user).await? {
                return Ok(true);
            }
        }
        if self.database.has_claim_of(keys.coupon, user).await? {
            return Ok(true);
        }
        // A node that has not noticed yet may have made the sequencer anew meanwhile.
        Ok(self.sequencer.probe(keys, 0, 0).await?.generation != open)
    }
}

impl Sequencer {
    /// Whether a generation of a sequencer has a user, or an entry of its outbox names the user. Reads the whole outbox:
    /// two round trips, and one more for each further [`ENTRIES_MAX`] entries.
    async fn generation_mentions(&self, keys: Keys, generation: i64, user: &UserId) -> Result<bool, LinkError> {
        let mut run = IS_USER.with_keys(1);
        let is_user = self.link.invoke(run.add(keys.of("users", generation)).add(user)).await?;
        if number(is_user).ok_or_else(unreadable)? != 0 {
            return Ok(true);
        }
        let mut after = 0;
        loop {
            let mut run = LOOK.with_keys(3);
            run.add(keys.key("gate")).add(keys.of("outbox", generation)).add(keys.key("lease"));
            let parts = parts_of(self.link.invoke(run.add(0).add(after).add(ENTRIES_MAX)).await?);
            let entries = parts.and_then(|mut parts| parts.pop()).and_then(parts_of).ok_or_else(unreadable)?;
            let count = entries.len();
            for entry in entries {
                // What is no entry may name the user.
                let Some(entry) = Entry::read(entry) else { return Ok(true) };
                if is_named_in(&entry, user) {
                    return Ok(true);
                }
                after = entry.last;
            }
            if count < ENTRIES_MAX {
                return Ok(false);
            }
        }
    }
}

/// Whether an entry of an outbox names a user, or cannot be read and has the name in it.
fn is_named_in(entry: &Entry, user: &UserId) -> bool {
    let name = user.as_str().as_bytes();
    match &entry.claims {
        Ok(claims) => claims.entrants.iter().any(|it| it.claim.user == *user),
        Err(_) => entry.raw.windows(name.len()).any(|window| window == name),
    }
}

impl Cluster {
    async fn erase_claims(
        &self,
        user: &UserId,
        pseudonym: &UserId,
        unfinished: &mut Unfinished,
    ) -> Result<u64, StoreError> {
        let (mut claims, mut after): (u64, Option<CouponName>) = (0, None);
        loop {
            let page = self.coupon_names(after.as_ref(), NAMES_PER_PAGE).await?;
            for name in &page.items {
                if let Err(error) = self.erase_claim(name, (user, pseudonym), &mut claims).await {
                    unfinished.keep(error)?;
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let missing = match self.node.missing_coupons().await {
            Ok(missing) => missing,
            Err(error) => {
                unfinished.keep(error)?;
                Vec::new()
            }
        };
        for state in missing {
            if self.node.coupon_mentions(&state, user).await? {
                let fault = Fault::new(FaultKind::WentBack, "the database lacks it".to_owned());
                unfinished.keep(standing(&format!("coupon {}", state.row().name), &fault))?;
            }
        }
        Ok(claims)
    }

    /// Erases the claim of a user of one coupon, and counts it in `claims` if there was one. Goes past a coupon that
    /// stands still and has nothing of the user.
    async fn erase_claim(
        &self,
        coupon: &CouponName,
        (user, pseudonym): (&UserId, &UserId),
        claims: &mut u64,
    ) -> Result<(), StoreError> {
        let Some(state) = self.node.state(coupon).await? else { return Ok(()) };
        let Err(error) = self.node.erase_claim(&state, (user, pseudonym), claims).await else { return Ok(()) };
        let Err(StoreError::Faulted(fault)) = self.node.stopped(&state) else { return Err(error) };
        // No node reads what they hold, so they are no evidence.
        self.node.database.erase_dead_letters(state.keys.coupon, user).await?;
        if self.node.coupon_mentions(&state, user).await? {
            return Err(standing(&format!("coupon {coupon}"), &fault));
        }
        Ok(())
    }

    /// Has the living places of a user leave. SQL holds no name of a place that is gone; a log in Redis may.
    async fn erase_places(&self, user: &UserId, unfinished: &mut Unfinished) -> Result<u64, StoreError> {
        let (mut places, mut after): (u64, Option<RoomName>) = (0, None);
        // A database that went back may lack a room whose log Redis has.
        let mut unlisted = self.node.standing_rooms();
        loop {
            let page = self.room_names(after.as_ref(), NAMES_PER_PAGE).await?;
            for name in &page.items {
                unlisted.remove(name);
                match self.erase_place(name, user).await {
                    Ok(has_left) => places += u64::from(has_left),
                    Err(error) => unfinished.keep(error)?,
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for name in &unlisted {
            if let Err(error) = self.erase_place(name, user).await {
                unfinished.keep(error)?;
            }
        }
        Ok(places)
    }

    /// Has the living place of a user in one room leave. Returns whether there was one. False for a room that stands
    /// still and has nothing of the user.
    async fn erase_place(&self, room: &RoomName, user: &UserId) -> Result<bool, StoreError> {
        let error = match self.leave_for_good(room, user).await {
            Err(error) => error,
            left => return left,
        };
        let Some((room_node, fault)) = self.node.standing_room(room) else { return Err(error) };
        if self.node.room_mentions(&room_node, user).await? {
            return Err(standing(&format!("room {room}"), &fault));
        }
        Ok(false)
    }

    async fn leave_for_good(&self, room: &RoomName, user: &UserId) -> Result<bool, StoreError> {
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
            let mut unfinished = Unfinished::default();
            let tickets = self.erase_places(user, &mut unfinished).await?;
            let claims = self.erase_claims(user, &pseudonym.user(), &mut unfinished).await?;
            match unfinished.0 {
                Some(error) => Err(error),
                None => Ok(Ok(Erased { claims, tickets, ..Erased::default() })),
            }
        })
        .await
    }
}
