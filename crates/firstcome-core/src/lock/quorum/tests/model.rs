//! Simulates nodes and clients over a network that delays, loses and doubles messages. Nodes crash and forget, clients stop
//! and pause, and clocks drift apart. One seed is one schedule.
//!
//! The model trusts no client's view of itself: it records grants, sent messages and answers, in true time.

mod judge;
mod random;

use self::random::Random;
use super::super::super::Fence;
use super::super::*;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

const START_US: u64 = 1_700_000_000_000_000;
/// How far the clocks differ at the start: no client relies on it.
const APART_US: u64 = 3_600_000_000;
const CLIENTS: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) nodes: usize,
    /// Whether nodes crash, and come back with their memory or empty; a minority at a time.
    pub(super) crashes: bool,
    /// Whether the clock of node 0 jumps. Then that node does not forget.
    pub(super) jumps: bool,
    /// Breaks the rules: a node that forgot joins with its own clock as its counter.
    pub(super) joins_by_time: bool,
}

/// The results of schedules.
#[derive(Default, Debug)]
pub(super) struct ScheduleSummary {
    pub(super) broken: Vec<String>,
    pub(super) grants: usize,
    pub(super) overlaps: usize,
    /// Grants reported after a higher fence, by an attempt that began before that one was reported.
    pub(super) behind: usize,
    pub(super) written_back: usize,
    pub(super) renewed: usize,
    pub(super) lost_holds: usize,
    pub(super) undone_late: usize,
    pub(super) too_late: usize,
    pub(super) joined: usize,
}

#[derive(Clone, Copy)]
enum Message {
    Take { hint: u64 },
    WriteBack(Fence),
    Renew(Fence),
    Release,
    Known,
    Join { birth_us: u64, counter: u64 },
}

#[derive(Clone, Copy)]
enum Reply {
    Taken(Answer),
    Written(Written),
    Renewed(Renewed),
    Known(Known),
}

#[derive(Clone, Copy)]
enum Event {
    ToNode { node: usize, round: usize, message: Message },
    ToClient { node: usize, round: usize, reply: Reply },
    TimeUp { round: usize },
    Next { client: usize, life: u64 },
    Renew { attempt: usize },
    Over { attempt: usize, releases: bool },
    Crash { node: usize },
    Back { node: usize, empty: bool },
    Jump,
}

enum Kind {
    Take,
    WriteBack,
    Renew(Renewal),
    Release,
    Join { newcomer: usize, birth_us: u64, joining: Joining },
}

/// Messages that were sent together, and what their answers are for.
struct Round {
    attempt: usize,
    begun_us: u64,
    kind: Kind,
}

struct Client {
    rate: u64,
    hint: u64,
    /// A new number after the client has stopped.
    life: u64,
    paused_until: u64,
}

struct Attempt {
    client: usize,
    life: u64,
    tally: Votes,
    /// The beginning in true time, and by the client's clock.
    begun: u64,
    begun_us: u64,
    held: Option<Fence>,
    until_us: u64,
    renewals: Vec<usize>,
    renewals_left: u64,
    over: bool,
    /// The step of the end, and the steps of messages and answers per node.
    closed: u64,
    yes_heard: Vec<u64>,
    no_heard: Vec<bool>,
    released: Vec<u64>,
}

/// Some attempts want one fence, some several.
fn passes_of(attempt: usize) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(attempt as u32 % 3)
}

struct Server {
    node: Node,
    key: Option<NodeHold>,
    rate: u64,
    offset_us: u64,
    down: bool,
}

/// A grant as it was reported.
struct ToldGrant {
    attempt: usize,
    /// Its first and its last fence.
    first: u64,
    fence: u64,
    at: u64,
    until: u64,
}

pub(super) struct World {
    setting: Setting,
    quorum: Quorum,
    lease_ms: u32,
    loss: u64,
    random: Random,
    now: u64,
    step: u64,
    queue: BTreeMap<(u64, u64), Event>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    attempts: Vec<Attempt>,
    rounds: Vec<Round>,
    told: Vec<ToldGrant>,
    ends: u64,
    seen: ScheduleSummary,
}

/// Plays one schedule to its end.
pub(super) fn play(seed: u64, setting: Setting) -> ScheduleSummary {
    let mut world = World::new(seed, setting);
    while let Some(((now, _), event)) = world.queue.pop_first() {
        world.now = now;
        world.step += 1;
        world.happen(event);
    }
    world.check_undone();
    world.seen
}

impl World {
    fn new(seed: u64, setting: Setting) -> Self {
        let mut random = Random(seed);
        let lease_ms = 200 + random.below(800) as u32;
        let ends = u64::from(lease_ms) * 1_000 * 4;
        let rate = |random: &mut Random| [995_000, 1_000_000, 1_005_000][random.below(3) as usize];
        let servers = (0..setting.nodes)
            .map(|_| {
                let offset_us = START_US + random.below(2 * APART_US);
                let mut node = Node::default();
                node.begin(offset_us);
                Server { node, key: None, rate: rate(&mut random), offset_us, down: false }
            })
            .collect();
        let clients =
            (0..CLIENTS).map(|_| Client { rate: rate(&mut random), hint: 0, life: 0, paused_until: 0 }).collect();
        let mut world = Self {
            quorum: Quorum::of(setting.nodes).unwrap(),
            loss: random.below(10),
            setting,
            lease_ms,
            random,
            now: 0,
            step: 0,
            queue: BTreeMap::new(),
            servers,
            clients,
            attempts: Vec::new(),
            rounds: Vec::new(),
            told: Vec::new(),
            ends,
            seen: ScheduleSummary::default(),
        };
        for client in 0..CLIENTS {
            world.soon(5_000, Event::Next { client, life: 0 });
        }
        for _ in 0..if setting.crashes { 3 } else { 0 } {
            let node = world.random.below(setting.nodes as u64) as usize;
            world.soon(ends, Event::Crash { node });
        }
        for _ in 0..if setting.jumps { 3 } else { 0 } {
            world.soon(ends, Event::Jump);
        }
        world
    }

    fn lease_us(&self) -> u64 {
        u64::from(self.lease_ms) * 1_000
    }

    fn at(&mut self, when: u64, event: Event) {
        self.step += 1;
        self.queue.insert((when, self.step), event);
    }

    fn soon(&mut self, within: u64, event: Event) {
        let when = self.now + 1 + self.random.below(within);
        self.at(when, event);
    }

    /// Most messages are quick, some are late, and a few arrive when they no longer matter.
    fn delay(&mut self) -> u64 {
        let most = match self.random.below(100) {
            0..70 => 500,
            70..90 => 5_000,
            90..98 => 50_000,
            _ => self.lease_us() * 3 / 2,
        };
        20 + self.random.below(most)
    }

    fn send(&mut self, node: usize, round: usize, message: Message) {
        if matches!(message, Message::Release) {
            let attempt = self.rounds[round].attempt;
            self.attempts[attempt].released[node] = self.step + 1;
        }
        for copy in 0..2 {
            if if copy == 0 { self.random.in_100(self.loss) } else { !self.random.in_100(5) } {
                continue;
            }
            let when = self.now + self.delay();
            self.at(when, Event::ToNode { node, round, message });
        }
    }

    fn client_us(&self, client: usize) -> u64 {
        self.now * self.clients[client].rate / 1_000_000
    }

    fn node_us(&self, node: usize) -> u64 {
        self.servers[node].offset_us + self.now * self.servers[node].rate / 1_000_000
    }

    /// Returns the true time at which a client's clock has advanced by `us`.
    fn after(&self, client: usize, us: u64) -> u64 {
        self.now + us * 1_000_000 / self.clients[client].rate
    }

    fn round(&mut self, attempt: usize, kind: Kind, nodes: Nodes, message: Message) {
        let begun_us = self.client_us(self.attempts[attempt].client);
        let round = self.rounds.len();
        if matches!(kind, Kind::Renew(_)) {
            self.attempts[attempt].renewals.push(round);
        }
        self.rounds.push(Round { attempt, begun_us, kind });
        for node in nodes.iter() {
            self.send(node, round, message);
        }
        let when = self.now + 5_000 + self.random.below(50_000);
        self.at(when, Event::TimeUp { round });
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToNode { node, round, message } => self.at_node(node, round, message),
            Event::ToClient { node, round, reply } => {
                if self.is_there(round) && !self.postponed(round, Event::ToClient { node, round, reply }) {
                    self.on_reply(node, round, reply);
                }
            }
            Event::TimeUp { round } => {
                if self.is_there(round) && !self.postponed(round, Event::TimeUp { round }) {
                    self.time_up(round);
                }
            }
            Event::Next { client, life } => self.next(client, life),
            Event::Renew { attempt } => self.renew(attempt),
            Event::Over { attempt, releases } => self.over(attempt, releases),
            Event::Crash { node } => self.crash(node),
            Event::Back { node, empty } => {
                let server = &mut self.servers[node];
                server.down = false;
                if empty {
                    (server.node, server.key) = (Node::default(), None);
                }
            }
            Event::Jump => self.servers[0].offset_us += self.random.below(u64::from(self.lease_ms) * 2_000),
        }
    }

    fn is_there(&self, round: usize) -> bool {
        let attempt = &self.attempts[self.rounds[round].attempt];
        self.clients[attempt.client].life == attempt.life
    }

    fn postponed(&mut self, round: usize, event: Event) -> bool {
        let until = self.clients[self.attempts[self.rounds[round].attempt].client].paused_until;
        let postponed = self.now < until;
        if postponed {
            self.at(until, event);
        }
        postponed
    }

    /// Crashes a node, unless a minority is down or has forgotten already.
    fn crash(&mut self, node: usize) {
        let now_us: Vec<u64> = (0..self.setting.nodes).map(|node| self.node_us(node)).collect();
        let votes = |(server, now_us): (&mut Server, &u64)| {
            !server.down && matches!(server.node.known(*now_us), Known::Counter { joined: true, .. })
        };
        let voting = self.servers.iter_mut().zip(&now_us).map(votes).filter(|votes| *votes).count();
        if self.servers[node].down || voting <= self.setting.nodes / 2 + 1 {
            return;
        }
        self.servers[node].down = true;
        let empty = self.random.in_100(70) && !(self.setting.jumps && node == 0);
        let lease_us = self.lease_us();
        self.soon(lease_us / 2, Event::Back { node, empty });
    }

    fn at_node(&mut self, node: usize, round: usize, message: Message) {
        if self.servers[node].down {
            return;
        }
        let now_us = self.node_us(node);
        let holder_key = self.rounds[round].attempt as HolderKey;
        let (lease_ms, longest_ms) = (self.lease_ms, self.lease_ms);
        // Other locks of the node draw from the same counter.
        for _ in 0..self.random.below(3) {
            let _ = self.servers[node].node.take(&mut None, (0, lease_ms, 0, NonZeroU32::MIN), longest_ms, now_us);
        }
        let Server { node: rules, key, .. } = &mut self.servers[node];
        let reply = match message {
            Message::Take { hint } => {
                let asked = (holder_key, lease_ms, hint, passes_of(self.rounds[round].attempt));
                Reply::Taken(rules.take(key, asked, longest_ms, now_us))
            }
            Message::WriteBack(fence) => Reply::Written(rules.write_back(key, holder_key, fence, now_us)),
            Message::Renew(fence) => Reply::Renewed(rules.renew(key, (holder_key, lease_ms, fence), now_us)),
            Message::Known => Reply::Known(rules.known(now_us)),
            Message::Release => {
                rules.release(key, holder_key, now_us);
                return;
            }
            Message::Join { birth_us, counter } => {
                let voted = matches!(rules.known(now_us), Known::Counter { joined: true, .. });
                self.seen.joined += usize::from(rules.join(birth_us, counter, longest_ms, now_us) && !voted);
                return;
            }
        };
        assert!(key.is_none_or(|held| held.ends_us <= now_us + u64::from(lease_ms) * 1_000), "a key ends");
        if !self.random.in_100(self.loss) {
            let when = self.now + self.delay();
            self.at(when, Event::ToClient { node, round, reply });
        }
    }

    fn next(&mut self, client: usize, life: u64) {
        if self.ends < self.now || self.clients[client].life != life {
            return;
        }
        if self.random.in_100(5) {
            self.clients[client].paused_until = self.now + self.random.below(self.lease_us());
        }
        let (none, nodes) = (vec![0; self.setting.nodes], self.quorum.all());
        let attempt = self.attempts.len();
        self.attempts.push(Attempt {
            client,
            life,
            tally: Votes::new(self.quorum, self.lease_ms),
            begun: self.now,
            begun_us: self.client_us(client),
            held: None,
            until_us: 0,
            renewals: Vec::new(),
            renewals_left: self.random.below(4),
            over: false,
            closed: 0,
            yes_heard: none.clone(),
            no_heard: vec![false; self.setting.nodes],
            released: none,
        });
        let hint = self.clients[client].hint;
        self.round(attempt, Kind::Take, nodes, Message::Take { hint });
    }

    fn on_reply(&mut self, node: usize, round: usize, reply: Reply) {
        let attempt = self.rounds[round].attempt;
        let elapsed_us = self.client_us(self.attempts[attempt].client) - self.rounds[round].begun_us;
        let state = &mut self.attempts[attempt];
        match reply {
            Reply::Taken(answer) => {
                match answer {
                    Answer::Granted(_) => state.yes_heard[node] = self.step,
                    _ => state.no_heard[node] = true,
                }
                let step = state.tally.on_reply(node, answer, elapsed_us);
                if let Answer::Young { birth_us, ripe: true } = answer {
                    self.introduce(attempt, node, birth_us);
                }
                self.obey(attempt, node, step);
            }
            Reply::Written(written) => {
                let (client, begun_us) = (state.client, state.begun_us);
                let elapsed_us = self.client_us(client) - begun_us;
                let step = self.attempts[attempt].tally.written(node, written, elapsed_us);
                self.obey(attempt, node, step);
            }
            Reply::Renewed(renewed) => {
                if renewed == Renewed::Yes {
                    state.yes_heard[node] = self.step;
                }
                self.renewal(round, node, renewed, elapsed_us);
            }
            Reply::Known(known) => {
                let Kind::Join { newcomer, birth_us, joining } = &mut self.rounds[round].kind else { return };
                let (newcomer, birth_us) = (*newcomer, *birth_us);
                if let Some(counter) = joining.on_reply(node, known) {
                    self.send(newcomer, round, Message::Join { birth_us, counter });
                }
            }
        }
    }

    fn introduce(&mut self, attempt: usize, newcomer: usize, birth_us: u64) {
        let joining = Joining::of(self.quorum, newcomer);
        let others = joining.others();
        let round = self.rounds.len();
        self.round(attempt, Kind::Join { newcomer, birth_us, joining }, others, Message::Known);
        if self.setting.joins_by_time {
            self.send(newcomer, round, Message::Join { birth_us, counter: 0 });
        }
    }

    fn time_up(&mut self, round: usize) {
        let attempt = self.rounds[round].attempt;
        let elapsed_us = self.client_us(self.attempts[attempt].client) - self.rounds[round].begun_us;
        for node in 0..self.setting.nodes {
            let tally = &mut self.attempts[attempt].tally;
            match &self.rounds[round].kind {
                Kind::Take => {
                    let step = tally.on_reply(node, Answer::Silent, elapsed_us);
                    self.obey(attempt, node, step);
                }
                Kind::WriteBack => {
                    let elapsed_us = self.client_us(self.attempts[attempt].client) - self.attempts[attempt].begun_us;
                    let step = self.attempts[attempt].tally.written(node, Written::Silent, elapsed_us);
                    self.obey(attempt, node, step);
                }
                Kind::Renew(_) => self.renewal(round, node, Renewed::Silent, elapsed_us),
                Kind::Release | Kind::Join { .. } => {}
            }
        }
    }

    fn obey(&mut self, attempt: usize, node: usize, step: Step) {
        match step {
            Step::Wait => {}
            Step::WriteBack { fence, nodes } => {
                self.seen.written_back += 1;
                self.round(attempt, Kind::WriteBack, nodes, Message::WriteBack(fence));
            }
            Step::Granted { fence, left_us } => self.granted(attempt, fence, left_us),
            Step::Lost { why, undo } => {
                self.seen.too_late += usize::from(why == Lost::TooLate);
                self.closed(attempt, undo);
                // A client that comes again just when the keys of others run out meets the edge of their validity.
                let lasts_us = if let Lost::Held { lasts_us } = why { lasts_us } else { 0 };
                let pause = if self.random.in_100(50) { lasts_us } else { self.random.below(self.lease_us() / 3) };
                let Attempt { client, life, .. } = self.attempts[attempt];
                let when = self.now + pause + self.random.below(2_000);
                self.at(when, Event::Next { client, life });
            }
            Step::Undo => {
                self.seen.undone_late += 1;
                self.closed_on(attempt, node);
            }
        }
    }

    fn granted(&mut self, attempt: usize, fence: Fence, left_us: u64) {
        let client = self.attempts[attempt].client;
        let until = self.after(client, left_us);
        self.check_grant(attempt, fence.get(), until);
        self.clients[client].hint = self.clients[client].hint.max(fence.get());
        let now_us = self.client_us(client);
        let state = &mut self.attempts[attempt];
        (state.held, state.until_us) = (Some(fence), now_us + left_us);
        self.go_on(attempt, left_us);
    }

    /// Chooses the holder's next step.
    fn go_on(&mut self, attempt: usize, left_us: u64) {
        let Attempt { client, renewals_left, .. } = self.attempts[attempt];
        let end = self.after(client, left_us);
        match self.random.below(100) {
            0..15 => {
                // The client stops without a release. A client without any memory takes its place.
                let revived = &mut self.clients[client];
                (revived.life, revived.hint) = (revived.life + 1, 0);
                let life = revived.life;
                let lease_us = self.lease_us();
                self.soon(lease_us, Event::Next { client, life });
            }
            15..40 => {
                let releases = self.random.in_100(50);
                self.at(end, Event::Over { attempt, releases });
            }
            40..80 if 0 < renewals_left => {
                self.attempts[attempt].renewals_left -= 1;
                self.soon(left_us * 9 / 10, Event::Renew { attempt });
            }
            _ => self.soon(left_us * 9 / 10, Event::Over { attempt, releases: true }),
        }
    }

    fn renew(&mut self, attempt: usize) {
        let Attempt { client, life, until_us, held, over, .. } = self.attempts[attempt];
        if self.clients[client].life != life || over {
            return;
        }
        let left_us = until_us.saturating_sub(self.client_us(client));
        let (Some(renewal), Some(fence)) = (Renewal::new(self.quorum, self.lease_ms, left_us), held) else {
            return self.over(attempt, true);
        };
        let nodes = self.quorum.all();
        self.round(attempt, Kind::Renew(renewal), nodes, Message::Renew(fence));
    }

    fn renewal(&mut self, round: usize, node: usize, renewed: Renewed, elapsed_us: u64) {
        let attempt = self.rounds[round].attempt;
        let Kind::Renew(renewal) = &mut self.rounds[round].kind else { return };
        match renewal.on_reply(node, renewed, elapsed_us) {
            RenewalStep::Wait => {}
            RenewalStep::Renewed { left_us } => {
                self.seen.renewed += 1;
                let client = self.attempts[attempt].client;
                let until = self.after(client, left_us);
                self.attempts[attempt].until_us = self.client_us(client) + left_us;
                let told = self.told.iter_mut().rfind(|told| told.attempt == attempt).unwrap();
                told.until = told.until.max(until);
                self.go_on(attempt, left_us);
            }
            RenewalStep::Failed => self.renew(attempt),
            RenewalStep::Lost => {
                self.seen.lost_holds += 1;
                self.over(attempt, true);
            }
            RenewalStep::Undo => {
                self.seen.undone_late += 1;
                self.closed_on(attempt, node);
            }
        }
    }

    /// Ends the hold: its holder does nothing under it from now on.
    fn over(&mut self, attempt: usize, releases: bool) {
        let Attempt { client, life, over, .. } = self.attempts[attempt];
        if self.clients[client].life != life || over {
            return;
        }
        self.attempts[attempt].over = true;
        let now = self.now;
        self.told.iter_mut().filter(|told| told.attempt == attempt).for_each(|told| told.until = told.until.min(now));
        if releases {
            let nodes = self.attempts[attempt].tally.close();
            for round in self.attempts[attempt].renewals.clone() {
                if let Kind::Renew(renewal) = &mut self.rounds[round].kind {
                    renewal.close();
                }
            }
            self.closed(attempt, nodes);
        }
        let lease_us = self.lease_us();
        self.soon(lease_us / 10, Event::Next { client, life });
    }

    fn closed(&mut self, attempt: usize, nodes: Nodes) {
        self.attempts[attempt].closed = self.step;
        self.round(attempt, Kind::Release, nodes, Message::Release);
    }

    fn closed_on(&mut self, attempt: usize, node: usize) {
        let round = self.rounds.len();
        self.round(attempt, Kind::Release, Nodes::NONE, Message::Release);
        self.send(node, round, Message::Release);
    }
}
