//! Limits connections, in all and per address, chooses the idle connection that makes room for a new one, and counts
//! the time of each phase of all connections.
//!
//! One lock, taken when a connection opens, when it ends, and twice a second, never for a request. An idle connection
//! has no timer of its own, so it wakes no thread.

use super::stream::PeerStream;
use super::watch::{Leaving, Phase, Protocol, Tick, Watch, Watched};
use super::{Limits, TICK};
use crate::address::network;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many idle connections one search chooses at most. A flood then searches once per so many newcomers.
const CHOSEN_MAX: usize = 64;
/// How long the server waits after a search that found no idle connection before it searches again.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The connections of one listener.
pub(super) struct ConnectionSlots {
    max: usize,
    per_address: Option<NonZeroUsize>,
    state: Mutex<State>,
    /// Told when the first connection opens, and when the last one has ended.
    changed: Notify,
}

#[derive(Default)]
struct State {
    count: usize,
    next_id: u64,
    groups: HashMap<IpAddr, Group>,
    /// Connections that have given up their slot and have not ended yet.
    leaving: HashMap<u64, Arc<Watch>>,
    chosen: Chosen,
    is_stopping: bool,
}

/// The connections of one address.
#[derive(Default)]
struct Group {
    open: HashMap<u64, Arc<Watch>>,
    chosen: Chosen,
}

/// Idle connections that the server closes next; the longest idle is the last.
#[derive(Default)]
struct Chosen {
    queue: Vec<(IpAddr, u64)>,
    looked_in_vain: Option<Instant>,
}

/// Why a connection gets no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotRefusal {
    /// The port has its most connections, and none of them is idle.
    Full,
    /// The address has its most connections, and none of them is idle.
    Address,
}

/// Whether an address has a limit of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    PerAddress,
    /// For trusted proxies, which speak for many clients.
    None,
}

/// The slot of one connection. Dropping it frees the slot.
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    address: IpAddr,
    id: u64,
    pub(super) watch: Arc<Watch>,
    /// Whether the server closed an idle connection for it.
    pub(super) made_room: bool,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize, per_address: Option<NonZeroUsize>) -> Self {
        Self { max, per_address, state: Mutex::default(), changed: Notify::new() }
    }

    /// Counts the time of each connection for ever, and calls `overdue` for each that it ends because it has used up
    /// its time. Without connections it waits for one.
    pub(super) async fn watch_over(&self, limits: &Limits, overdue: impl Fn()) {
        loop {
            self.until(|state| !state.is_empty()).await;
            tokio::time::sleep(TICK).await;
            let state = self.state.lock();
            state.watches().filter(|watch| watch.check(limits) == Tick::Overdue).for_each(|_| overdue());
        }
    }

    /// Lets each connection end after its next answer, and those that open later after their first one.
    pub(super) fn begin_stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        state.watches().for_each(|watch| watch.begin_stop());
    }

    /// Waits until all connections have ended.
    pub(super) async fn emptied(&self) {
        self.until(State::is_empty).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Listens before it looks, so that it misses no change in between.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Gives a connection a slot. If none is free, the longest idle connection is closed: one of the same address if
    /// that address has its most connections. Never closes a connection that has a request under way.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, limit: Limit) -> Result<ConnectionSlot, SlotRefusal> {
        let address = network(peer);
        let mut state = self.state.lock();
        let mut made_room = false;
        let own_max = self.per_address.filter(|_| limit == Limit::PerAddress).map_or(usize::MAX, NonZeroUsize::get);
        if own_max <= state.groups.get(&address).map_or(0, |group| group.open.len()) {
            made_room = state.let_go_of(address);
            if !made_room {
                return Err(SlotRefusal::Address);
            }
        }
        if self.max <= state.count {
            made_room = state.let_go();
            if !made_room {
                return Err(SlotRefusal::Full);
            }
        }
        let (id, watch) = (state.next_id, Arc::new(Watch::default()));
        if state.is_stopping {
            watch.begin_stop();
        }
        if state.is_empty() {
            self.changed.notify_waiters();
        }
        state.next_id += 1;
        state.count += 1;
        state.groups.entry(address).or_default().open.insert(id, Arc::clone(&watch));
        Ok(ConnectionSlot { places: Arc::clone(self), address, id, watch, made_room })
    }

    /// Closes the longest idle connection, for example to free its file descriptor. Returns false if none is idle.
    pub(super) fn make_room(&self) -> bool {
        self.state.lock().let_go()
    }
}

impl ConnectionSlot {
    /// Wraps the stream of this connection, so that the time of each phase is counted.
    pub(crate) fn watched<S: PeerStream + Send>(
        &self,
        stream: S,
    ) -> impl AsyncRead + AsyncWrite + Unpin + Send + use<S> {
        Watched::new(stream, Arc::clone(&self.watch), Protocol::Sequential)
    }

    /// Says that a request is under way, or that its connection has become something else: it is not idle.
    pub(crate) fn begin_request(&self) {
        self.watch.enter(Phase::Busy);
    }

    /// Says that the answer is whole, and that the connection waits for its next request.
    pub(crate) fn end_request(&self) {
        self.watch.enter(Phase::Idle);
    }

    /// Says that a reader takes the body of a request until the returned guard is dropped, also after the answer. Until then the
    /// connection is not idle.
    pub(crate) fn begin_body(self: &Arc<Self>) -> KeptBody {
        self.watch.begin_body();
        KeptBody(Arc::clone(self))
    }

    /// Lets the peer take so many times longer than [`Limits::write`] to take the next bytes, from this answer on.
    pub(crate) fn allow_write(&self, times: u32) {
        self.watch.allow_write(times);
    }

    /// Whether the connection ends after its next answer.
    pub(crate) fn is_leaving(&self) -> bool {
        self.watch.is_leaving()
    }

    /// Runs what serves this connection, until it ends or has used up its time. Wakes it when it has to leave.
    pub(crate) async fn until_end<T>(&self, served: Pin<&mut impl Future<Output = T>>) {
        self.watch.until_end(served).await;
    }
}

/// The body of a request whose reader outlives the answer.
pub(crate) struct KeptBody(Arc<ConnectionSlot>);

impl KeptBody {
    /// Says that the reader has taken some of it.
    pub(crate) fn take(&self) {
        self.0.watch.take_body();
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        self.0.watch.end_body();
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        if state.remove(self.address, self.id).is_none() {
            state.leaving.remove(&self.id);
        }
        if state.is_empty() {
            self.places.changed.notify_waiters();
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.leaving.is_empty()
    }

    fn watches(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.groups.values().flat_map(|group| group.open.values()).chain(self.leaving.values())
    }

    /// Removes a connection from the table. Returns `None` if it was removed already.
    fn remove(&mut self, address: IpAddr, id: u64) -> Option<Arc<Watch>> {
        let group = self.groups.get_mut(&address)?;
        let watch = group.open.remove(&id)?;
        if group.open.is_empty() {
            self.groups.remove(&address);
        }
        self.count -= 1;
        Some(watch)
    }

    /// Closes the longest idle connection of the port.
    fn let_go(&mut self) -> bool {
        let mut chosen = std::mem::take(&mut self.chosen);
        let groups = |state: &Self| state.groups.iter().flat_map(|(&address, group)| idle(address, group)).collect();
        let has_left = self.let_go_one(&mut chosen, groups);
        self.chosen = chosen;
        has_left
    }

    /// Closes the longest idle connection of one address.
    fn let_go_of(&mut self, address: IpAddr) -> bool {
        let Some(group) = self.groups.get_mut(&address) else { return false };
        let mut chosen = std::mem::take(&mut group.chosen);
        let own = |state: &Self| state.groups.get(&address).map_or(Vec::new(), |group| idle(address, group).collect());
        let has_left = self.let_go_one(&mut chosen, own);
        if let Some(group) = self.groups.get_mut(&address) {
            group.chosen = chosen;
        }
        has_left
    }

    fn let_go_one(&mut self, chosen: &mut Chosen, find: impl Fn(&Self) -> Vec<(u32, (IpAddr, u64))>) -> bool {
        // The connections of the last search may all be busy or gone: a second search then finds others.
        for _ in 0..2 {
            if chosen.queue.is_empty() {
                chosen.look(|| find(self));
            }
            while let Some((address, id)) = chosen.queue.pop() {
                if self.leave(address, id) {
                    return true;
                }
            }
        }
        false
    }

    /// Closes a connection if it is still idle.
    fn leave(&mut self, address: IpAddr, id: u64) -> bool {
        let open = self.groups.get(&address).and_then(|group| group.open.get(&id));
        if open.is_none_or(|watch| watch.idle_ticks().is_none()) {
            return false;
        }
        if let Some(watch) = self.remove(address, id) {
            watch.leave(Leaving::WhenQuiet);
            self.leaving.insert(id, watch);
        }
        true
    }
}

fn idle(address: IpAddr, group: &Group) -> impl Iterator<Item = (u32, (IpAddr, u64))> {
    group.open.iter().filter_map(move |(&id, watch)| Some((watch.idle_ticks()?, (address, id))))
}

impl Chosen {
    fn look(&mut self, found: impl FnOnce() -> Vec<(u32, (IpAddr, u64))>) {
        if self.looked_in_vain.is_some_and(|at| at.elapsed() < LOOK_PAUSE) {
            return;
        }
        let mut found = found();
        // Of two connections that are idle for equally many ticks, the older one has the lower id and leaves first.
        found.sort_unstable_by_key(|&(ticks, (_, id))| (ticks, std::cmp::Reverse(id)));
        let surplus = found.len().saturating_sub(CHOSEN_MAX);
        self.queue = found.drain(surplus..).map(|(_, place)| place).collect();
        self.looked_in_vain = self.queue.is_empty().then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::Phase;
    use super::*;
    use firstcome::edge::Stopwatch;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 8));

    fn places(max: usize, per_address: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots::new(max, NonZeroUsize::new(per_address)))
    }

    fn take(places: &Arc<ConnectionSlots>, peer: IpAddr) -> ConnectionSlot {
        let Ok(place) = places.take(peer, Limit::PerAddress) else { panic!("there is no place") };
        place
    }

    fn refused(places: &Arc<ConnectionSlots>, peer: IpAddr) -> Option<SlotRefusal> {
        places.take(peer, Limit::PerAddress).err()
    }

    /// Returns once `time` has passed.
    fn pass(time: Duration) {
        let watch = Stopwatch::start();
        while watch.elapsed() < time {
            std::thread::yield_now();
        }
    }

    fn idle_for(place: &ConnectionSlot, ticks: u32) {
        place.watch.enter(Phase::Idle);
        (0..ticks).for_each(|_| place.watch.tick());
    }

    #[test]
    fn the_longest_idle_leaves_first_and_no_busy_one_ever() {
        let places = places(4, 0);
        let open: Vec<ConnectionSlot> = (0..4).map(|_| take(&places, HERE)).collect();
        for (place, ticks) in open.iter().zip([5, 9, 3, 9]) {
            idle_for(place, ticks);
        }
        open[3].watch.enter(Phase::Busy);
        let leaving =
            |open: &[ConnectionSlot]| -> Vec<bool> { open.iter().map(|place| place.watch.may_go()).collect() };
        let newcomer = take(&places, THERE);
        assert!(newcomer.made_room);
        assert_eq!(leaving(&open), [false, true, false, false]);
        let second = take(&places, THERE);
        assert_eq!(leaving(&open), [true, true, false, false]);
        // The connection that is left in the queue gets a request meanwhile.
        open[2].watch.enter(Phase::Head);
        assert_eq!(refused(&places, THERE), Some(SlotRefusal::Full));
        drop(second);
        assert!(!take(&places, THERE).made_room);
        // A connection that was closed for another one frees no second slot when it is dropped.
        drop(open);
        assert_eq!(places.state.lock().count, 1);
        drop(newcomer);
        let state = places.state.lock();
        assert!(state.count == 0 && state.groups.is_empty());
    }

    #[test]
    fn who_has_just_become_idle_does_not_leave() {
        let places = places(1, 0);
        let only = take(&places, HERE);
        for ticks in [0, 1] {
            idle_for(&only, ticks);
            assert_eq!(refused(&places, HERE), Some(SlotRefusal::Full), "{ticks}");
        }
        pass(LOOK_PAUSE);
        idle_for(&only, 2);
        assert!(take(&places, HERE).made_room);
    }

    #[test]
    fn an_address_makes_room_for_itself_alone_unless_it_is_a_proxy() {
        let places = places(100, 2);
        let other = take(&places, THERE);
        idle_for(&other, 50);
        let own = [take(&places, HERE), take(&places, HERE)];
        assert_eq!(refused(&places, HERE), Some(SlotRefusal::Address));
        pass(LOOK_PAUSE);
        idle_for(&own[1], 2);
        assert!(take(&places, HERE).made_room);
        assert!(own[1].watch.may_go() && !own[0].watch.may_go() && !other.watch.may_go());
        let proxied: Vec<_> = (0..50).map(|_| places.take(HERE, Limit::None).is_ok()).collect();
        assert!(proxied.iter().all(|&taken| taken));
        // A /64 of IPv6 is one address.
        let networks: [IpAddr; 4] =
            ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"].map(|text| text.parse().unwrap());
        let _held = [take(&places, networks[0]), take(&places, networks[1])];
        assert_eq!(refused(&places, networks[2]), Some(SlotRefusal::Address));
        assert_eq!(refused(&places, networks[3]), None);
    }
}
