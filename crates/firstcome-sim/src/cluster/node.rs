//! What a node does with one coupon: it claims at the sequencer, drains into the database, and looks whether both are what they were.

use super::history::{Answer, ClusterReply, History, Write};
use super::redis::{DrawReply, Entry, Probe, Redis};
use super::sql::{NodeClaimRow, NodeCouponRow, Sql, User};
use super::tasks::{Task, pause};
use crate::report::Report;
use crate::rng::Rng;
use firstcome_core::coupon::stream::{self, GoesOn, Keeps, SequencerMark, Stream};
use std::cell::RefCell;
use std::rc::Rc;

/// Entries that are written in one transaction.
const BATCH: usize = 3;
/// Tries of a claim before its caller is told.
const TRIES: usize = 24;
/// Tries to find or make a sequencer.
const MENDS: usize = 6;

/// A server, and how calls reach it.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Whether it answers.
    pub is_up: bool,
    /// Starts and restores that there were: calls of before are mostly broken off.
    pub runs: u64,
    /// Steps that a call takes at most in either direction.
    pub delay: u64,
    /// Requests and answers that are lost, per thousand.
    pub lost_per_mille: u64,
}

/// What a node knows.
#[derive(Clone, Copy, Default, Debug)]
pub struct Known {
    /// The coupon as the database last had it, by this node's own rule.
    pub row: Option<NodeCouponRow>,
    /// The same as the world saw it answered.
    pub acknowledged: Option<NodeCouponRow>,
    /// The run of Redis whose sequencer was seen to be whole.
    pub trusted: Option<u64>,
    /// Whether it has seen that the database went back.
    pub stands_still: bool,
    /// What Redis kept of what it acknowledged when the node last looked.
    pub keeps: Option<Keeps>,
    /// Whether a task looks whether all is well.
    pub checks: bool,
    /// Whether a task drains.
    pub drains: bool,
    /// Whether a task looks at the sequencer, or makes it anew.
    pub mends: bool,
}

/// Everything that calls share.
pub struct Shared {
    /// Chance of calls.
    pub rng: Rng,
    /// The servers.
    pub redis: (Reach, Redis),
    /// The servers.
    pub sql: (Reach, Sql),
    /// The nodes.
    pub nodes: Vec<Known>,
    /// What happened.
    pub history: History,
    /// What was reached.
    pub report: Report,
    /// Tasks that begin.
    pub spawned: Vec<(usize, Task)>,
}

/// Cheap to clone.
pub type World = Rc<RefCell<Shared>>;

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failed {
    Unavailable,
    Unknown,
    WentBack,
}

/// One call to a server: the request may be lost, then it is one step there, then the answer may be lost.
async fn call<S, T>(
    world: &World,
    server: impl Fn(&mut Shared) -> &mut (Reach, S),
    act: impl FnOnce(&mut Shared) -> T,
) -> Result<T, Failed> {
    let begin = |shared: &mut Shared| {
        let Reach { delay, runs, .. } = server(shared).0;
        (shared.rng.below(delay + 1), runs)
    };
    let (steps, runs) = begin(&mut world.borrow_mut());
    pause(steps).await;
    let (answer, steps) = {
        let shared = &mut *world.borrow_mut();
        let Reach { is_up, runs: now, lost_per_mille, .. } = server(shared).0;
        if !is_up {
            return Err(Failed::Unavailable);
        }
        // A connection ends with the server that it led to, and with it what was under way.
        if now != runs || shared.rng.chance(lost_per_mille) {
            return Err(Failed::Unknown);
        }
        let answer = act(shared);
        (answer, begin(shared).0)
    };
    pause(steps).await;
    let shared = &mut *world.borrow_mut();
    let reach = &server(shared).0;
    let (lost, broken) = (reach.lost_per_mille, reach.runs != runs);
    if shared.rng.chance(lost) || (broken && shared.rng.chance(900)) { Err(Failed::Unknown) } else { Ok(answer) }
}

async fn at_redis<T>(world: &World, act: impl FnOnce(&mut Redis) -> T) -> Result<T, Failed> {
    call(world, |shared| &mut shared.redis, |shared| act(&mut shared.redis.1)).await
}

async fn at_sql<T>(world: &World, act: impl FnOnce(&mut Shared) -> T) -> Result<T, Failed> {
    call(world, |shared| &mut shared.sql, act).await
}

/// One node at work.
#[derive(Clone)]
pub struct Node {
    world: World,
    at: usize,
}

impl Node {
    /// The node of this number.
    pub const fn new(world: World, at: usize) -> Self {
        Self { world, at }
    }

    fn known(&self) -> Known {
        self.world.borrow().nodes[self.at]
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.world.borrow_mut().nodes[self.at]);
    }

    fn runs(&self) -> u64 {
        self.world.borrow().redis.0.runs
    }

    fn spawn(&self, task: Task) {
        self.world.borrow_mut().spawned.push((self.at, task));
    }

    /// Takes over what the database has answered.
    fn acknowledge(&self, row: NodeCouponRow) {
        self.change(|known| {
            let is_more = |old: &NodeCouponRow| row.position < old.position && row.loss_accepted <= old.generation;
            known.acknowledged = Some(known.acknowledged.filter(is_more).unwrap_or(row));
        });
    }

    /// The coupon, and the claim of a user.
    async fn read(&self, user: Option<User>) -> Result<(NodeCouponRow, Option<NodeClaimRow>), Failed> {
        let read = at_sql(&self.world, |shared| {
            let sql = &shared.sql.1;
            (sql.row, user.and_then(|user| sql.claims.get(&user).copied()))
        });
        let before = self.known().row;
        let read = read.await?;
        self.acknowledge(read.0);
        self.learn(before, read.0);
        Ok(read)
    }

    /// Finds the sequencer whole, makes it anew, or finds that the database went back. One task of a node at a time.
    async fn rebuild(&self) -> Result<(), Failed> {
        while self.known().mends {
            pause(1).await;
        }
        self.change(|known| known.mends = true);
        let mended = self.rebuild_alone().await;
        self.change(|known| known.mends = false);
        mended
    }

    async fn rebuild_alone(&self) -> Result<(), Failed> {
        for _ in 0..MENDS {
            let (runs, known) = (self.runs(), self.known().row);
            let (row, _) = self.read(None).await?;
            let seen = at_redis(&self.world, |redis| redis.probe(row.position)).await?;
            // What the sequencer has heard was there when this is read.
            if self.read(None).await?.0 != row {
                continue;
            }
            match judge(known, seen, row) {
                Stream::Whole => {
                    self.change(|known| (known.stands_still, known.trusted) = (false, Some(runs)));
                    return Ok(());
                }
                Stream::WentBack => {
                    self.change(|known| known.stands_still = true);
                    self.world.borrow_mut().report.count("node", "stands still");
                    return Err(Failed::WentBack);
                }
                Stream::Rebuild => {
                    self.rebuild_under_lease(known, row).await?;
                }
            }
            pause(20).await;
        }
        Err(Failed::Unavailable)
    }

    /// Makes the sequencer anew under the lease, unless another node has just done so.
    async fn rebuild_under_lease(&self, known: Option<NodeCouponRow>, row: NodeCouponRow) -> Result<(), Failed> {
        let (before, who) = (row.generation, self.world.borrow_mut().rng.bits());
        let now = |shared: &mut Shared| shared.history.now;
        let seize = call(
            &self.world,
            |shared| &mut shared.redis,
            |shared| {
                let now = now(shared);
                shared.redis.1.seize(who, now)
            },
        );
        if !seize.await? {
            return Ok(());
        }
        let seen = at_redis(&self.world, |redis| redis.probe(row.position)).await?;
        if judge(known, seen, row) != Stream::Rebuild {
            return at_redis(&self.world, |redis| redis.unseize(who)).await;
        }
        let next = at_sql(&self.world, |shared| {
            let row = shared.sql.1.next_generation(before)?;
            Some((row, shared.sql.1.claims.keys().copied().collect::<Vec<_>>()))
        });
        let Some((row, users)) = next.await? else { return Ok(()) };
        self.acknowledge(row);
        // No matter what becomes of the sequencer, the database was so far.
        if !self.learn(known, row) {
            return Ok(());
        }
        let open = at_redis(&self.world, |redis| {
            redis.open(who, row, users.into_iter());
        });
        open.await?;
        self.world.borrow_mut().report.count("node", "sequencer rebuilt");
        Ok(())
    }

    /// Learns a row that was read after the node knew what it knows; false if the node has to look closer.
    fn learn(&self, before: Option<NodeCouponRow>, row: NodeCouponRow) -> bool {
        if before.is_some_and(|before| mark(&row).lacks(&mark(&before).at)) {
            self.change(|known| known.trusted = None);
            return false;
        }
        let order = |row: NodeCouponRow| (row.generation, row.position);
        self.change(|known| {
            if known.row.is_none_or(|known| order(known) <= order(row)) {
                known.row = Some(row);
            }
        });
        true
    }

    async fn is_ready(&self) -> Result<NodeCouponRow, Failed> {
        if self.known().stands_still || self.known().trusted != Some(self.runs()) {
            self.rebuild().await?;
        }
        self.known().row.ok_or(Failed::Unavailable)
    }

    /// Claims for a user, and notes what the caller is told.
    pub async fn claim(self, user: User, tag: u64, is_early: bool) {
        let told = self.claimed(user, tag, is_early).await;
        let shared = &mut *self.world.borrow_mut();
        let how = match told {
            ClusterReply::Issued(_) => "issued",
            ClusterReply::Placed => "placed",
            ClusterReply::SoldOut => "sold out",
            ClusterReply::Unavailable => "not done",
            ClusterReply::WentBack => "database went back",
            ClusterReply::Unknown => "unknown",
        };
        shared.report.count("node claim", how);
        let at = shared.history.now;
        shared.history.answers.push(Answer { user, tag, at, told });
    }

    async fn claimed(&self, user: User, tag: u64, is_early: bool) -> ClusterReply {
        let mut is_handed_over = false;
        for _ in 0..TRIES {
            match self.try_claim(user, tag, is_early, &mut is_handed_over).await {
                Ok(Some(told)) => return told,
                Ok(None) | Err(Failed::Unknown) => {}
                Err(_) if is_handed_over => return ClusterReply::Unknown,
                Err(Failed::WentBack) => return ClusterReply::WentBack,
                Err(Failed::Unavailable) => return ClusterReply::Unavailable,
            }
            pause(2).await;
        }
        if is_handed_over { ClusterReply::Unknown } else { ClusterReply::Unavailable }
    }

    async fn try_claim(
        &self,
        user: User,
        tag: u64,
        is_early: bool,
        is_handed_over: &mut bool,
    ) -> Result<Option<ClusterReply>, Failed> {
        let row = self.is_ready().await?;
        let (at, limit) = (self.world.borrow().history.now, self.world.borrow().sql.1.limit());
        let entry = Entry { ticket: 0, user, tag, at };
        *is_handed_over = true;
        let word = at_redis(&self.world, |redis| redis.claim((row.generation, row.position), limit, entry)).await?;
        let Some(word) = word.filter(|_| self.known().trusted == Some(self.runs())) else {
            self.change(|known| known.trusted = None);
            return Ok(None);
        };
        self.drain();
        if matches!(word, DrawReply::Drawn(_))
            && is_early
            && stream::may_acknowledge_early(self.known().keeps.unwrap_or(Keeps::NotAll))
        {
            return Ok(Some(ClusterReply::Placed));
        }
        let (DrawReply::Drawn(ticket) | DrawReply::Has(ticket) | DrawReply::SoldOut(ticket)) = word;
        let before = self.known().row;
        let (seen, claim) = self.read(Some(user)).await?;
        if !self.learn(before, seen) {
            return Ok(None);
        }
        if let Some(claim) = claim {
            return Ok(Some(ClusterReply::Issued(claim.serial)));
        }
        if matches!(word, DrawReply::SoldOut(_)) && limit <= seen.issued {
            return Ok(Some(ClusterReply::SoldOut));
        }
        if seen.generation == row.generation && ticket <= seen.position && !matches!(word, DrawReply::SoldOut(_)) {
            at_redis(&self.world, |redis| redis.forget(row.generation, user, ticket)).await?;
        }
        Ok(None)
    }

    /// Drains in a task of its own, if none does.
    fn drain(&self) {
        if !self.known().drains {
            self.change(|known| known.drains = true);
            self.spawn(Box::pin(self.clone().drained()));
        }
    }

    async fn drained(self) {
        while let Ok(true) = self.write_batch().await {}
        self.change(|known| known.drains = false);
    }

    /// Writes what is next; whether there may be more.
    async fn write_batch(&self) -> Result<bool, Failed> {
        let row = self.is_ready().await?;
        let next = at_redis(&self.world, |redis| {
            let entries = redis.settle(row, BATCH)?;
            Some((entries, redis.sequencer().map(|sequencer| (sequencer.generation, sequencer.position))))
        });
        let Some((entries, sequencer)) = next.await? else {
            self.change(|known| known.trusted = None);
            return Ok(true);
        };
        if entries.is_empty() {
            return Ok(false);
        }
        if entries.first().is_some_and(|entry| entry.ticket != row.position + 1) {
            self.change(|known| known.trusted = None);
            return Ok(true);
        }
        if self.known().row != Some(row) {
            // It has learnt more meanwhile: what is written by the older row could hide that the database went back.
            return Ok(true);
        }
        // What this node knows when it sends the write, and what the sequencer had heard when it gave the entries. An answer
        // from before the database went back may reach either while the write is under way, and no node can take a sent
        // write back. It learns of the loss by the answer to that write.
        let (node, acknowledged) = (self.at, self.known().acknowledged);
        let written = at_sql(&self.world, move |shared| {
            let before = shared.sql.1.row;
            let written = shared.sql.1.write(row, &entries);
            if written.is_ok_and(|after| before.issued < after.issued) {
                shared.history.writes.push(Write { node, before, acknowledged, sequencer });
            }
            written
        });
        let (Ok(row) | Err(row)) = written.await?;
        if self.learn(self.known().row, row) {
            self.acknowledge(row);
        }
        Ok(true)
    }

    /// Looks whether Redis keeps what it acknowledges, whether the database has what it had, and whether anything waits. One task
    /// of a node at a time.
    pub async fn check(self) {
        if self.known().checks {
            return;
        }
        self.change(|known| known.checks = true);
        self.checked().await;
        self.change(|known| known.checks = false);
    }

    async fn checked(&self) {
        if let Ok(is_fit) = at_redis(&self.world, |redis| redis.is_fit).await {
            let keeps = if is_fit { Keeps::Everything } else { Keeps::NotAll };
            self.change(|known| known.keeps = Some(keeps));
        }
        let before = self.known().row;
        if let Ok((row, _)) = self.read(None).await
            && (!self.learn(before, row) || self.known().stands_still)
        {
            // No matter what it finds, it has noted.
            let _ = self.rebuild().await;
        }
        if self.known().row.is_some() {
            self.drain();
        }
    }
}

/// How far the coupon is, as the rule of the core wants it.
const fn mark(row: &NodeCouponRow) -> stream::DatabaseMark {
    let NodeCouponRow { issued, generation, position, anchor, loss_accepted } = *row;
    stream::DatabaseMark { at: stream::Known { generation, position, issued, anchor }, loss_accepted }
}

/// What the rule of the core says. A node that knows nothing yet knows no more than the row says.
fn judge(known: Option<NodeCouponRow>, sequencer: Option<Probe>, row: NodeCouponRow) -> Stream {
    let goes_on = sequencer
        .filter(|sequencer| sequencer.follows && sequencer.anchor == Some(row.anchor))
        .map_or(GoesOn::No, |_| GoesOn::Yes);
    let sequencer = SequencerMark {
        generation: sequencer.map(|sequencer| sequencer.generation),
        ticket: sequencer.map(|sequencer| sequencer.ticket),
        position: sequencer.map(|sequencer| sequencer.position),
        goes_on,
    };
    stream::judge(&mark(&known.unwrap_or(row)).at, &sequencer, &mark(&row))
}
