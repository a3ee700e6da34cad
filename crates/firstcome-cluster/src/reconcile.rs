//! Compares sequencer and outbox of each coupon, and the log of each room, with the database, and repairs what is safe.
//!
//! # What a repair never does
//! - It contradicts nothing that was told. What the database holds stays as it is: it is changed by draining, as nodes drain,
//!   and by the number of the generation.
//! - It takes nothing that nodes would not take themselves: sequencers and logs are rebuilt under the lease, as the next
//!   generation; outboxes are drained; users are brought in and forgotten by the scripts of nodes.
//! - Where a coupon tells claims before the database has them, what waits in a stream that cannot be written may have been
//!   told: that is left, and named. Nor is such a sequencer rebuilt for a wrong count or other settings.
//!
//! - A database that lacks what it acknowledged is left as it is. Only [`accept_loss`] goes on without what is gone, by a generation
//!   above all that the sequencer knows.
//!
//! Beside nodes at work nothing is broken: at most something is done that a node has just done.

mod repair;

use super::ClusterError;
use super::database::Time;
use super::database::whole;
use super::inspect::{self, Found, Inspection, Leftover, LogSnapshot, SequencerSnapshot, State, Users};
use super::options::ClusterOptions;
use super::verify::{is_ours, number};
use super::wrap::DeploymentSecret;
use firstcome_sql::dialect::Connection;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::Reading;
use firstcome_sql::{Address, SqlError, SqlOptions};
use repair::RepairNode;
use std::collections::BTreeMap;
use std::fmt;

/// What was compared.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Object {
    /// The sequencer of a coupon of this name, and its outbox.
    Coupon(String),
    /// The log of a room of this name.
    Room(String),
    /// Keys on Redis that begin so.
    Keys(String),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coupon(name) => write!(f, "coupon {name}"),
            Self::Room(name) => write!(f, "room {name}"),
            Self::Keys(tag) => write!(f, "keys {tag}"),
        }
    }
}

/// What became of something that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Repair {
    /// Nothing is left to do, or no request was made.
    None,
    /// This was done, and all agrees now.
    Done(String),
    /// It is not safe to do by itself. What to do.
    Advice(String),
    /// It was tried. What stood against it.
    Failed(String),
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Of what.
    pub object: Object,
    /// How it stands.
    pub state: State,
    /// Of how many users, entries or keys.
    pub count: u64,
    /// What was seen.
    pub says: String,
    /// What became of it.
    pub repair: Repair,
}

impl Finding {
    /// Whether something is still to be done about it.
    pub const fn needs_repair(&self) -> bool {
        self.state.needs_repair() && !matches!(self.repair, Repair::Done(_))
    }

    fn new(object: &Object, found: &Found, repair: Repair) -> Self {
        let Found { state, count, says } = found.clone();
        Self { object: object.clone(), state, count, says, repair }
    }
}

/// How a deployment stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reconciled {
    /// At least one of each coupon and room, and those of keys that belong to none.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub not_looked: Vec<String>,
}

/// Looks how everything stands. Writes nothing.
///
/// [`SqlError::Broken`]: no address, no tables of a deployment, or tables of another version.
/// [`ClusterError::OtherDeployment`]: the keys on that Redis belong to another database.
pub async fn reconcile(redis: &str, sql: &str) -> Result<Reconciled, ClusterError> {
    look(redis, sql, Work::Inspect).await
}

/// The same, and repairs what is safe, as a node of the deployment. Fails as [`super::Cluster::open`] does if there is something to
/// repair and a node could not open.
pub async fn repair(
    redis: &str,
    sql: &str,
    secret: DeploymentSecret,
    options: ClusterOptions,
) -> Result<Reconciled, ClusterError> {
    look(redis, sql, Work::Repair(secret, options)).await
}

/// Goes on without what a database that went back has lost: begins a new generation of each coupon and room of which the findings
/// say so ([`State::WentBack`]). Repairs nothing else. Fails as [`repair()`] does.
pub async fn accept_loss(
    redis: &str,
    sql: &str,
    secret: DeploymentSecret,
    options: ClusterOptions,
) -> Result<Reconciled, ClusterError> {
    look(redis, sql, Work::AcceptLoss(secret, options)).await
}

/// What is done beside looking.
enum Work {
    Inspect,
    Repair(DeploymentSecret, ClusterOptions),
    AcceptLoss(DeploymentSecret, ClusterOptions),
}

/// What is done with a finding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What is safe is repaired.
    Repair,
    /// What went back goes on without what is gone; nothing else is touched.
    AcceptLoss,
}

/// What an operator may do about a database that went back.
const WENT_BACK: &str = "bring the newer data back, or go on without what is gone: `firstcome reconcile --accept-loss`";

async fn look(redis: &str, sql: &str, work: Work) -> Result<Reconciled, ClusterError> {
    let (times, address) = (SqlOptions::default(), Address::parse(sql)?);
    let mut reading = Reading::new(Connection::open(&address, &times).await?);
    is_ours(&mut reading).await?;
    let deployment = number(&mut reading).await?;
    let sequencer = inspect::open(redis, deployment).await?.ok_or(ClusterError::OtherDeployment)?;
    let inspection = Inspection { reading, sequencer };
    let mut all =
        Comparison { inspection, hands: None, mode: Mode::Repair, findings: Vec::new(), not_looked: Vec::new() };
    let letters = letters(&mut all.inspection.reading).await?;
    let seen = all.look().await?;
    let with = match work {
        Work::Inspect => None,
        Work::Repair(secret, options) => seen.needs_repair().then_some((Mode::Repair, secret, options)),
        Work::AcceptLoss(secret, options) => seen.lacks_something().then_some((Mode::AcceptLoss, secret, options)),
    };
    if let Some((mode, secret, options)) = with {
        let (node, listener) = super::node::open_node(redis, address, secret, options, Time::Server).await?;
        all.hands = Some(RepairNode { node, _listener: listener });
        all.mode = mode;
    }
    all.coupons(seen.coupons, &letters).await?;
    all.rooms(seen.rooms).await?;
    match seen.leftovers {
        Some(leftovers) => all.leftovers(&leftovers).await?,
        None => all.not_looked.push("keys that belong to nothing: the user of Redis may not SCAN".to_owned()),
    }
    all.inspection.reading.close().await;
    Ok(Reconciled { findings: all.findings, not_looked: all.not_looked })
}

/// Throws away what is left of generations that are over, by the one that counts now: a repair may have begun another.
async fn scan_orphans(inspection: &mut Inspection, leftover: &Leftover) -> Result<Repair, ClusterError> {
    let gone = match inspection.generation(leftover).await? {
        Some(generation) => inspection.sequencer.scan_orphans(leftover, generation, "UNLINK").await?,
        None => 0,
    };
    Ok(if 0 < gone {
        Repair::Done(format!("{gone} keys were deleted"))
    } else if inspection.sequencer.there(leftover).await? == 0 {
        Repair::Done("a node has done it meanwhile".to_owned())
    } else {
        Repair::Failed("what they belong to is not open as the database names it: run it again".to_owned())
    })
}

/// Entries that were put aside, by the number of their coupon.
async fn letters(reading: &mut Reading) -> Result<BTreeMap<i64, u64>, SqlError> {
    let count = format!("CAST(COUNT(*) AS {})", whole(reading.dialect()));
    let rows = reading.ask(format!("SELECT coupon,{count} FROM firstcome_dead_letter GROUP BY coupon;")).await?;
    let letter = |row| {
        let mut columns = Reader::at(row, 0);
        Ok((columns.integer()?, columns.count()?))
    };
    rows.iter().map(letter).collect()
}

/// Everything as it was found.
struct Findings {
    coupons: Vec<SequencerSnapshot>,
    rooms: Vec<(i64, LogSnapshot)>,
    leftovers: Option<Vec<Leftover>>,
}

impl Findings {
    /// Whether the database lacks what it acknowledged.
    fn lacks_something(&self) -> bool {
        let sequencer = self.coupons.iter().flat_map(|seen| &seen.found);
        let logs = self.rooms.iter().flat_map(|(_, seen)| &seen.found);
        sequencer.chain(logs).any(|found| found.state == State::WentBack)
    }

    fn needs_repair(&self) -> bool {
        let sequencer = self.coupons.iter().flat_map(|seen| &seen.found);
        let logs = self.rooms.iter().flat_map(|(_, seen)| &seen.found);
        sequencer.chain(logs).any(|found| found.state.needs_repair())
            || self.leftovers.iter().flatten().any(|leftover| leftover.generation.is_some())
    }
}

struct Comparison {
    inspection: Inspection,
    /// What repairs, if it is wanted.
    hands: Option<RepairNode>,
    mode: Mode,
    findings: Vec<Finding>,
    not_looked: Vec<String>,
}

impl Comparison {
    async fn look(&mut self) -> Result<Findings, ClusterError> {
        let (mut coupons, mut rooms) = (Vec::new(), Vec::new());
        for (id, _) in inspect::names(&mut self.inspection.reading, "firstcome_coupon").await? {
            coupons.extend(self.inspection.sequencer(id, Users::OfBoth).await?);
        }
        for (id, _) in inspect::names(&mut self.inspection.reading, "firstcome_room").await? {
            rooms.extend(self.inspection.log(id).await?.map(|seen| (id, seen)));
        }
        Ok(Findings { coupons, rooms, leftovers: self.inspection.leftovers().await? })
    }

    async fn coupons(
        &mut self,
        coupons: Vec<SequencerSnapshot>,
        letters: &BTreeMap<i64, u64>,
    ) -> Result<(), ClusterError> {
        for seen in coupons {
            let object = Object::Coupon(seen.row.name.clone());
            if let Some(&count) = letters.get(&seen.row.id) {
                let says =
                    "entries that no node could read were put aside; their callers were told that nothing was done";
                let found = Found { state: State::DeadLetters, count, says: says.to_owned() };
                let advice = "something else writes to this Redis: GET /v1/coupons/{coupon}/dead-letters shows them";
                self.findings.push(Finding::new(&object, &found, Repair::Advice(advice.to_owned())));
            }
            let found = seen.found.clone();
            let went_back = seen.is(&[State::WentBack]);
            let repair = match &self.hands {
                Some(hands) if went_back && self.mode == Mode::AcceptLoss => hands.accept_loss(&seen).await,
                _ if went_back => Repair::Advice(WENT_BACK.to_owned()),
                Some(_) if self.mode == Mode::AcceptLoss => Repair::None,
                Some(hands) if found.iter().any(|found| found.state.needs_repair()) => {
                    hands.sequencer(&mut self.inspection, seen.row.id).await?
                }
                _ => Repair::None,
            };
            self.tell(&object, &found, &repair);
        }
        Ok(())
    }

    async fn rooms(&mut self, rooms: Vec<(i64, LogSnapshot)>) -> Result<(), ClusterError> {
        for (id, seen) in rooms {
            self.not_looked.extend(seen.not_compared.map(|why| format!("the room of the log of {}: {why}", seen.name)));
            let object = Object::Room(seen.name.clone());
            let found = seen.found.clone();
            let went_back = seen.is(&[State::WentBack]);
            let repair = match &self.hands {
                Some(hands) if went_back && self.mode == Mode::AcceptLoss => hands.accept_room_loss(id, &seen).await,
                _ if went_back => Repair::Advice(WENT_BACK.to_owned()),
                Some(_) if self.mode == Mode::AcceptLoss => Repair::None,
                Some(hands) if found.iter().any(|found| found.state.needs_repair()) => {
                    hands.log(&mut self.inspection, id).await?
                }
                _ => Repair::None,
            };
            self.tell(&object, &found, &repair);
        }
        Ok(())
    }

    fn tell(&mut self, object: &Object, found: &[Found], repair: &Repair) {
        for found in found {
            let repair = if found.state.needs_repair() { repair.clone() } else { Repair::None };
            self.findings.push(Finding::new(object, found, repair));
        }
        if found.is_empty() {
            self.findings.push(Finding::new(object, &Found::new(State::Fine, ""), Repair::None));
        }
    }

    async fn leftovers(&mut self, leftovers: &[Leftover]) -> Result<(), ClusterError> {
        for leftover in leftovers {
            let (object, count) = (Object::Keys(leftover.tag()), leftover.keys.len() as u64);
            let names = leftover.keys.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
            let (state, repair) = match (leftover.generation, &self.hands) {
                (None, _) => {
                    let advice = "if that database is the right one, and not one that was put back to an earlier state, delete \
                                  them";
                    (State::UnknownObject, Repair::Advice(advice.to_owned()))
                }
                (Some(_), Some(_)) if self.mode == Mode::Repair => {
                    (State::OldGeneration, scan_orphans(&mut self.inspection, leftover).await?)
                }
                (Some(_), _) => (State::OldGeneration, Repair::None),
            };
            self.findings.push(Finding::new(&object, &Found { state, count, says: names }, repair));
        }
        Ok(())
    }
}
