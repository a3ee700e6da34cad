//! Random steps on the rules and on a model that is too simple to be wrong: lists that it searches from the front. Both must
//! give the same answers, and have the same state afterwards.
//!
//! The model does not draw numbers: it takes them over, after a check that they are above all before.

use super::*;
use proptest::prelude::*;

struct Holder {
    waiter: Waiter,
    ends_us: u64,
    heard_of: bool,
}

struct Lock {
    /// Several only if they share the lock.
    holders: Vec<Holder>,
    /// Of the present hold, or the present phase; `None` if it was just drawn.
    fence: Option<u64>,
    /// Shared requests, then exclusive ones, each in the order of arrival. A number that was just drawn is not known yet.
    line: Vec<(Option<u64>, Waiter)>,
}

impl Lock {
    const FREE: Self = Self { holders: Vec::new(), fence: None, line: Vec::new() };

    fn is_shared(&self) -> bool {
        self.holders.first().is_some_and(|holder| holder.waiter.mode.is_shared())
    }

    fn first_exclusive(&self) -> Option<usize> {
        self.line.iter().position(|(_, waiter)| !waiter.mode.is_shared())
    }

    /// Who is next while the lock has holders.
    fn next(&self) -> Option<&Waiter> {
        let at = self.first_exclusive().filter(|_| self.is_shared()).unwrap_or(0);
        self.line.get(at).map(|(_, waiter)| waiter)
    }

    fn next_shared_fits(&self) -> bool {
        self.line.first().is_some_and(|(_, first)| self.has_room_for(first.mode))
    }

    fn free_at_us(&self, mode: Mode) -> u64 {
        let ends = self.holders.iter().map(|holder| holder.ends_us);
        (if mode.is_shared() { ends.min() } else { ends.max() }).unwrap()
    }

    fn has_room_for(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Shared { permits } if self.holders.len() < permits as usize)
    }

    fn join(&mut self, number: Option<u64>, waiter: Waiter) {
        let shared = waiter.mode.is_shared();
        let (from, to) = match self.first_exclusive().unwrap_or(self.line.len()) {
            first if shared => (0, first),
            first => (first, self.line.len()),
        };
        let lower = |(other, _): &&(Option<u64>, Waiter)| other.is_some_and(|other| Some(other) < number);
        let before = number.map_or(to, |_| from + self.line[from..to].iter().filter(lower).count());
        self.line.insert(before, (number, waiter));
    }
}

struct Process {
    id: ClientId,
    seen_us: u64,
    life: u64,
    /// Whether a request of it left a line without its knowledge.
    interrupted: bool,
}

struct Model {
    locks: [Lock; 2],
    processes: Vec<Process>,
    void: Vec<(Request, u64)>,
    now_us: u64,
    told: Vec<String>,
}

const NAMES: [&str; 2] = ["a", "b"];

impl Model {
    const fn new() -> Self {
        Self {
            locks: [Lock::FREE, Lock::FREE],
            processes: Vec::new(),
            void: Vec::new(),
            now_us: START_US,
            told: Vec::new(),
        }
    }

    fn lives(&self, id: ClientId) -> bool {
        self.processes.iter().any(|process| process.id == id && process.seen_us.abs_diff(self.now_us) <= 2_000_000)
    }

    fn interrupt(&mut self, id: ClientId) {
        self.processes.iter_mut().filter(|process| process.id == id).for_each(|process| process.interrupted = true);
    }

    /// Handles a heartbeat. Returns whether the life goes on.
    fn hear_of(&mut self, id: ClientId) -> bool {
        let lives = self.lives(id);
        let now_us = self.now_us;
        let Some(process) = self.processes.iter_mut().find(|process| process.id == id) else {
            self.processes.push(Process { id, seen_us: now_us, life: 0, interrupted: false });
            return false;
        };
        // A process whose last heartbeat is recent is not noted again.
        if 500_000 <= process.seen_us.abs_diff(now_us) {
            process.seen_us = now_us;
        }
        let interrupted = std::mem::take(&mut process.interrupted);
        lives && !interrupted
    }

    /// Ends all holds, and grants the lock to those who are next.
    fn hand_on(&mut self, at: usize) {
        let lock = &mut self.locks[at];
        let was_shared = lock.is_shared();
        lock.holders.clear();
        lock.fence = None;
        while self.locks[at].holders.is_empty() && !self.locks[at].line.is_empty() {
            let lock = &self.locks[at];
            self.serve(at, lock.first_exclusive().filter(|_| was_shared).unwrap_or(0));
        }
        if self.locks[at].is_shared() {
            while self.locks[at].next_shared_fits() {
                self.serve(at, 0);
            }
        }
    }

    /// Takes a waiter out of the line, and grants it the lock if its process lives.
    fn serve(&mut self, at: usize, place: usize) {
        let (_, waiter) = self.locks[at].line.remove(place);
        let id = waiter.request.client;
        if !self.lives(id) {
            return self.interrupt(id);
        }
        let lasts_us = (u64::from(waiter.lease_ms) * 1_000).min(2_000_000);
        self.told.push(format!("{} to {}.{}", NAMES[at], id.0, waiter.request.number));
        self.locks[at].holders.push(Holder { waiter, ends_us: self.now_us + lasts_us, heard_of: false });
    }

    /// Grants a lock that is shared to those who may share it now.
    fn admit(&mut self, at: usize) {
        while self.locks[at].next_shared_fits() && !self.exclusive_waits(at) {
            self.serve(at, 0);
        }
    }

    fn exclusive_waits(&mut self, at: usize) -> bool {
        while let Some(first) = self.locks[at].first_exclusive() {
            let id = self.locks[at].line[first].1.request.client;
            if self.lives(id) {
                return true;
            }
            self.locks[at].line.remove(first);
            self.interrupt(id);
        }
        false
    }

    fn advance(&mut self, at: usize) {
        let now_us = self.now_us;
        let lock = &mut self.locks[at];
        if lock.holders.is_empty() {
            return;
        }
        let ended: Vec<Holder> = lock.holders.extract_if(.., |holder| holder.ends_us <= now_us).collect();
        for holder in &mut lock.holders {
            holder.ends_us = holder.ends_us.min(now_us + u64::from(holder.waiter.lease_ms) * 1_000);
        }
        let was_shared = ended.iter().any(|holder| holder.waiter.mode.is_shared());
        for holder in ended.iter().filter(|holder| !holder.heard_of) {
            self.interrupt(holder.waiter.request.client);
        }
        match self.locks[at].holders.is_empty() {
            true => {
                // Which kind of hold ended decides who is next.
                self.locks[at].holders.extend(ended.into_iter().filter(|_| was_shared).take(1));
                self.hand_on(at);
            }
            false if self.locks[at].is_shared() => self.admit(at),
            false => {}
        }
    }

    fn holds(&mut self, at: usize, request: Request) -> Option<&mut Holder> {
        self.locks[at].holders.iter_mut().find(|holder| holder.waiter.request == request)
    }

    fn ahead(&self, at: usize, request: Request) -> Option<usize> {
        self.locks[at].line.iter().position(|(_, waiter)| waiter.request == request)
    }

    fn acquire(&mut self, at: usize, waiter: &Waiter, wait: Wait, highest: u64) -> String {
        let (request, now_us) = (waiter.request, self.now_us);
        if self.void.iter().any(|(void, until_us)| *void == request && now_us < *until_us) {
            return "void".to_owned();
        }
        self.advance(at);
        if let Some(holder) = self.holds(at, request) {
            let how = if holder.heard_of { "granted" } else { "open" };
            return format!("{how} {}", holder.ends_us);
        }
        let is_new = self.ahead(at, request).is_none();
        let lock = &self.locks[at];
        let joins = is_new && lock.is_shared() && lock.has_room_for(waiter.mode);
        let joins = joins && !lock.line.first().is_some_and(|(_, first)| first.mode.is_shared());
        if lock.holders.is_empty() || joins && !self.exclusive_waits(at) {
            let ends_us = now_us + u64::from(waiter.lease_ms) * 1_000;
            self.locks[at].holders.push(Holder { waiter: waiter.clone(), ends_us, heard_of: true });
            return format!("granted {ends_us}");
        }
        let lock = &mut self.locks[at];
        if is_new {
            let is_taken = |place| {
                lock.line
                    .iter()
                    .any(|(other, by)| *other == Some(place) && by.mode.is_shared() == waiter.mode.is_shared())
            };
            match wait {
                Wait::No => {
                    let (owner, ends_us) = (&lock.holders[0].waiter.owner, lock.free_at_us(waiter.mode));
                    return format!("contended {owner} {} {ends_us}", lock.line.len());
                }
                Wait::Again(place) if place <= highest.max(now_us) && !is_taken(place) => {
                    lock.join(Some(place), waiter.clone());
                }
                _ => lock.join(None, waiter.clone()),
            }
        }
        let goes_on = self.hear_of(request.client);
        let ahead = self.ahead(at, request).unwrap();
        format!("queued {ahead} {goes_on} {}", self.seen(at, request.client))
    }

    fn seen(&self, at: usize, id: ClientId) -> String {
        let lock = &self.locks[at];
        let next = lock.next();
        let others = next.is_some_and(|next| next.request.client != id && self.lives(next.request.client));
        let ends_us = next.map_or(lock.holders[0].ends_us, |next| lock.free_at_us(next.mode));
        format!("{ends_us} {} {}", lock.holders[0].waiter.lease_ms, if others { "others" } else { "mine" })
    }

    fn release(&mut self, at: usize, request: Request, copies: Copies) -> String {
        self.advance(at);
        let said = if self.holds(at, request).is_some() {
            let mine = format!("{} to {}.{}", NAMES[at], request.client.0, request.number);
            self.told.retain(|told| *told != mine);
            if self.locks[at].holders.len() == 1 {
                self.hand_on(at);
            } else {
                self.locks[at].holders.retain(|holder| holder.waiter.request != request);
                self.admit(at);
            }
            "Released".to_owned()
        } else if let Some(ahead) = self.ahead(at, request) {
            self.locks[at].line.remove(ahead);
            self.advance(at);
            format!("Withdrawn {{ ahead: {ahead} }}")
        } else {
            "NotHeld".to_owned()
        };
        if said == "NotHeld" || copies == Copies::Several {
            self.void.retain(|(void, _)| *void != request);
            self.void.push((request, self.now_us + 60_000_000));
        }
        said
    }

    fn renew(&mut self, at: usize, request: Request, lease_ms: u32) -> String {
        self.advance(at);
        let until_us = self.now_us + u64::from(lease_ms) * 1_000;
        let Some(holder) = self.holds(at, request) else { return "None".to_owned() };
        if holder.ends_us <= until_us {
            (holder.ends_us, holder.waiter.lease_ms) = (until_us, lease_ms);
        }
        holder.heard_of = true;
        format!("Some({})", holder.ends_us)
    }

    fn heartbeat(&mut self, id: ClientId) -> String {
        let goes_on = self.hear_of(id);
        let looked = [0, 1].map(|at| {
            self.advance(at);
            if self.locks[at].holders.is_empty() {
                return "free".to_owned();
            }
            let holders = self.locks[at].holders.iter().filter(|holder| holder.waiter.request.client == id);
            let open = holders.clone().filter(|holder| !holder.heard_of).count();
            let missed = holders.filter(|holder| open == 0 || !holder.heard_of).take(open.max(1));
            let missed: Vec<u64> = missed.map(|holder| holder.waiter.request.number).collect();
            format!("{missed:?} {}", self.seen(at, id))
        });
        let process = self.processes.iter_mut().find(|process| process.id == id).unwrap();
        let interrupted = std::mem::take(&mut process.interrupted);
        format!("{} {}", goes_on && !interrupted, looked.join(" "))
    }
}

#[derive(Clone, Debug)]
enum Move {
    Acquire { at: usize, client: u64, number: u64, lease_ms: u32, mode: Mode, wait: u8 },
    Release { at: usize, client: u64, number: u64, copies: Copies },
    Renew { at: usize, client: u64, number: u64, lease_ms: u32 },
    Beat(u64),
    Pass(u64),
    SetBack(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    let who = || (0..2_usize, 0..3_u64, 0..4_u64);
    let lease = || proptest::sample::select(vec![100, 900, 2_000, 5_000, 30_000_u32]);
    let us = prop_oneof![0..2_000_u64, 0..1_500_000_u64, Just(2_000_000), Just(100_000), 0..40_000_000_u64];
    let back = prop_oneof![0..1_000_000_u64, 0..30_000_000_u64, Just(3_600_000_000_u64)];
    let copies = proptest::sample::select(vec![Copies::One, Copies::One, Copies::One, Copies::Several]);
    prop_oneof![
        10 => (who(), lease(), any_mode(), 0..8_u8).prop_map(|((at, client, number), lease_ms, mode, wait)| {
            Move::Acquire { at, client, number, lease_ms, mode, wait }
        }),
        4 => (who(), copies)
            .prop_map(|((at, client, number), copies)| Move::Release { at, client, number, copies }),
        3 => (who(), lease()).prop_map(|((at, client, number), lease_ms)| Move::Renew { at, client, number, lease_ms }),
        4 => (0..3_u64).prop_map(Move::Beat),
        8 => us.prop_map(Move::Pass),
        1 => back.prop_map(Move::SetBack),
    ]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    let exclusive = (0..4_u32).prop_map(|passes| Mode::Exclusive { passes });
    let shared = (1..4_u32).prop_map(|permits| Mode::Shared { permits });
    prop_oneof![exclusive, shared]
}

/// The rules and the model, side by side.
struct Both {
    play: Play,
    model: Model,
    /// The last place of each request, for requests that come back.
    places: Vec<(Request, u64)>,
    released: u64,
}

impl Both {
    /// Chooses a request: mostly one that was not given up before, so that something happens.
    fn request(&self, client: u64, number: u64) -> Request {
        request(client, if number == 3 { 0 } else { self.released / 4 * 3 + number })
    }

    fn life(&mut self, client: ClientId, life: u64, before: u64) -> bool {
        let process = self.model.processes.iter_mut().find(|process| process.id == client).unwrap();
        let goes_on = process.life == life;
        assert!(goes_on || before < process.life.max(before + 1), "{life}");
        process.life = life;
        goes_on
    }

    fn acquire(&mut self, at: usize, waiter: Waiter, wait: u8) {
        let request = waiter.request;
        let place = self.places.iter().rev().find(|(of, _)| *of == request || wait == 7).map(|(_, place)| *place);
        let wait = match (wait, place) {
            (0 | 1, _) => Wait::No,
            (2, _) => Wait::Again(self.play.now_us + 100 * HOUR_MS * 1_000),
            (5.., Some(place)) => Wait::Again(place),
            _ => Wait::Yes,
        };
        let before = self.play.table.last();
        let wanted = self.model.acquire(at, &waiter, wait, before);
        let said = match self.play.acquire(NAMES[at], waiter, wait) {
            Acquired::Granted(Grant { expires_us, taken: Taken::Yes, .. }) => format!("granted {expires_us}"),
            Acquired::Granted(Grant { expires_us, .. }) => format!("open {expires_us}"),
            Acquired::Contended { holder, waiters, expires_us } => format!("contended {holder} {waiters} {expires_us}"),
            Acquired::Void => "void".to_owned(),
            Acquired::Queued { number, ahead, life, seen } => {
                self.places.push((request, number));
                format!("queued {ahead} {} {}", self.life(request.client, life, before), describe_seen(&seen))
            }
        };
        assert_eq!(said, wanted, "{request:?} {wait:?}");
    }

    fn heartbeat(&mut self, client: u64) {
        let before = self.play.table.last();
        let wanted = self.model.heartbeat(ClientId(client));
        let step = Step::Beat {
            bucket: 0,
            client: ClientId(client),
            names: NAMES.iter().map(|name| lock_name(name)).collect(),
        };
        let (answer, pushes) = take(&mut self.play.table, &step, self.play.now_us);
        self.play.pushes.extend(pushes);
        let LockAnswer::Beaten { life, looked } = answer.said else { panic!("{step:?}") };
        let looked = looked.iter().map(|(grants, seen)| match seen {
            None => "free".to_owned(),
            Some(seen) => {
                let found: Vec<u64> = grants.iter().map(|grant| grant.request.number).collect();
                format!("{found:?} {}", describe_seen(seen))
            }
        });
        let looked: Vec<String> = looked.collect();
        assert_eq!(format!("{} {}", self.life(ClientId(client), life, before), looked.join(" ")), wanted);
    }

    fn step(&mut self, step: &Move) {
        let now_us = self.play.now_us;
        match *step {
            Move::Acquire { at, client, number, lease_ms, mode, wait } => {
                let request = self.request(client, number);
                self.acquire(at, Waiter { request, mode, ..lasting(lease_ms, waiter(client, 0)) }, wait);
            }
            Move::Release { at, client, number, copies } => {
                let request = self.request(client, number);
                self.released += 1;
                let wanted = self.model.release(at, request, copies);
                let (released, push) = release(&mut self.play.table, &lock_name(NAMES[at]), request, copies, now_us);
                self.play.pushes.extend(push);
                assert_eq!(format!("{released:?}"), wanted, "{request:?}");
            }
            Move::Renew { at, client, number, lease_ms } => {
                let request = self.request(client, number);
                let wanted = self.model.renew(at, request, lease_ms);
                let (until_us, push) = renew(&mut self.play.table, &lock_name(NAMES[at]), request, lease_ms, now_us);
                self.play.pushes.extend(push);
                assert_eq!(format!("{until_us:?}"), wanted, "{request:?}");
            }
            Move::Beat(client) => self.heartbeat(client),
            Move::Pass(us) => self.play.now_us += us,
            Move::SetBack(us) => self.play.now_us -= us,
        }
        self.model.now_us = self.play.now_us;
    }

    /// Takes over the drawn numbers, and compares the state of both.
    fn compare(&mut self, before: u64) {
        let told = self.play.pushes.drain(..).map(|Push { name, grant }| {
            assert_eq!(grant.taken, Taken::Open);
            format!("{name} to {}.{}", grant.request.client.0, grant.request.number)
        });
        assert_eq!(told.collect::<Vec<String>>(), self.model.told.drain(..).collect::<Vec<String>>());
        let table = &self.play.table;
        let (last, mut entries) = (table.last(), 0);
        assert!(before <= last, "the highest number never falls");
        for (at, lock) in self.model.locks.iter_mut().enumerate() {
            let (name, now_us) = (lock_name(NAMES[at]), self.model.now_us);
            let hold = table.hold(&name);
            assert!(hold.is_some() || lock.line.is_empty(), "{name}: no waiter waits for a free lock");
            let holds: Vec<_> = hold.iter().flat_map(Hold::grants).collect();
            assert_eq!(holds.len(), lock.holders.len(), "{name}");
            for ((waiter, grant), holder) in holds.iter().zip(&lock.holders) {
                let fence = grant.fence.get();
                assert!(lock.fence.map_or(before < fence, |known| known == fence), "{name}: {fence} after {before}");
                assert!(fence + u64::from(waiter.mode.passes()) <= last + 1, "{name}: all passes have a number");
                assert_eq!((*waiter, grant.expires_us), (&holder.waiter, holder.ends_us), "{name}");
                assert_eq!(grant.taken == Taken::Yes, holder.heard_of, "{name}");
                assert!(waiter.mode.is_shared() || holds.len() == 1, "{name}: an exclusive hold is alone");
            }
            lock.fence = holds.first().map(|(_, grant)| grant.fence.get());
            for (place, waiter) in &mut lock.line {
                let number = table.place_of(&name, waiter.request).expect("in line").number();
                assert!(place.map_or(before < number, |known| known == number), "{name}: {number} after {before}");
                *place = Some(number);
            }
            assert!(lock.line.is_sorted_by_key(|(number, waiter)| (!waiter.mode.is_shared(), *number)));
            assert_eq!(table.waiters(&name) as usize, lock.line.len());
            entries += lock.line.len() + holds.len();
            let shown = view(table, &name, now_us);
            let mut living = lock.holders.iter().filter(|holder| now_us < holder.ends_us);
            assert_eq!(shown.holders as usize, living.clone().count());
            assert_eq!(shown.held.map(|(_, _, until)| until), living.next().map(|holder| holder.ends_us));
        }
        assert_eq!(table.len(), entries);
    }
}

fn describe_seen(seen: &WaiterView) -> String {
    let head = if seen.head == Head::Mine { "mine" } else { "others" };
    format!("{} {} {head}", seen.expires_us, seen.lease_ms)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_rules_say_what_a_naive_model_says(moves in proptest::collection::vec(any_move(), 1..120)) {
        let mut both = Both { play: Play::new(), model: Model::new(), places: Vec::new(), released: 0 };
        for step in &moves {
            let before = both.play.table.last();
            both.step(step);
            both.compare(before);
        }
        for at in [0, 1] {
            for client in 0..3 {
                for number in 0..both.released + 4 {
                    both.play.release(NAMES[at], request(client, number));
                }
            }
        }
        assert!(both.play.table.is_empty(), "nothing is left when all is given up");
        assert_eq!(both.play.table.len(), 0);
    }
}
