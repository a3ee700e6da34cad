//! Compares the sequencer of one coupon with the database.

use super::{Found, Inspection, State, Tried, is_held, text_of};
use crate::ClusterError;
use crate::outbox::Entry;
use crate::sequencer::{Keys, Sequencer, Stray, number, parts_of, unreadable};
use firstcome_redis::{LinkError, Script};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::Row;
use firstcome_sql::reader::Reader;
use redis::Value;

static LOOK: Script = Script::new(include_str!("../lua/look.lua"));

/// Entries in one look.
const ENTRIES_MAX: usize = 64;

/// How users are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Users {
    /// Those of the database are looked for in the sequencer.
    OfSql,
    /// And those of the sequencer in the database.
    OfBoth,
}

/// A coupon as it stands in its table, without its secret.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CouponState {
    pub(crate) id: i64,
    pub(crate) name: String,
    limit: i64,
    opens_at: Option<i64>,
    expires_at: Option<i64>,
    /// Whether claims are told before the database has them.
    pub(crate) is_early: bool,
    is_over: bool,
    version: i64,
    issued: u64,
    pub(crate) generation: i64,
    position: u64,
    anchor: i64,
}

impl CouponState {
    fn read(row: &Row) -> Result<Self, SqlError> {
        let mut columns = Reader::at(row, 0);
        Ok(Self {
            id: columns.integer()?,
            name: columns.maybe_text()?.unwrap_or_default(),
            limit: columns.integer()?,
            opens_at: columns.maybe_integer()?,
            expires_at: columns.maybe_integer()?,
            is_early: columns.integer()? == 1,
            is_over: columns.maybe_integer()?.is_some(),
            version: columns.integer()?,
            issued: columns.count()?,
            generation: columns.integer()?,
            position: columns.count()?,
            anchor: columns.integer()?,
        })
    }

    /// As they stand in the sequencer.
    fn settings(&self) -> [String; 4] {
        let instant = |instant: Option<i64>| instant.map_or_else(String::new, |instant| instant.to_string());
        [self.limit.to_string(), instant(self.opens_at), instant(self.expires_at), u8::from(self.is_over).to_string()]
    }
}

/// How a sequencer stands.
pub(crate) struct SequencerSnapshot {
    pub(crate) row: CouponState,
    /// Nothing if all agrees.
    pub(crate) found: Vec<Found>,
    /// Users and keys of the database that were looked for in the sequencer.
    pub(crate) looked_for: u64,
    /// Whether something stands in its outbox after what the database has written, everything else that is wrong with it.
    pub(crate) has_entries: bool,
    /// Whether its settings are earlier ones of the database: those in force now need only be put in.
    pub(crate) has_older_settings: bool,
    /// Some of the users without a claim.
    pub(crate) strays: Vec<Stray>,
    /// The generation of the sequencer that there is.
    pub(crate) sequencer_generation: Option<i64>,
    /// Whether it has moved on at every look: all else is unknown.
    pub(crate) is_moving: bool,
}

impl SequencerSnapshot {
    fn new(row: CouponState) -> Self {
        Self {
            row,
            found: Vec::new(),
            looked_for: 0,
            has_entries: false,
            has_older_settings: false,
            strays: Vec::new(),
            sequencer_generation: None,
            is_moving: false,
        }
    }

    pub(super) fn moving(row: CouponState, found: Found) -> Self {
        let is_moving = found.state == State::UnderWay;
        // Only these are looked at again: a caller may just be putting the others in force.
        let has_older_settings = found.state == State::OtherSettings;
        Self { found: vec![found], is_moving, has_older_settings, ..Self::new(row) }
    }

    pub(crate) fn is(&self, states: &[State]) -> bool {
        self.found.iter().any(|found| states.contains(&found.state))
    }
}

/// What a sequencer is in one moment, and entries of its outbox after some ticket.
struct SequencerReading {
    generation: Option<i64>,
    /// Ticket, void, position of SQL, version.
    counts: Option<[u64; 4]>,
    settings: Option<[String; 4]>,
    is_drained_by_somebody: bool,
    is_rebuilt: bool,
    anchor: Option<Entry>,
    /// `None` for what is not even an entry.
    entries: Vec<Option<Entry>>,
}

/// What stands in an outbox after the position of the database.
struct Outbox {
    ticket: u64,
    unreadable: u64,
    example: String,
}

pub(super) fn moved(says: &str) -> Found {
    Found::new(State::UnderWay, says)
}

/// Why a sequencer does not go on where the database is, or has moved on while it was looked at.
fn out_of_step(
    before: &CouponState,
    after: &CouponState,
    look: &SequencerReading,
    ticket: u64,
    position: u64,
) -> Option<Found> {
    if ticket < before.position {
        let says = format!("it has drawn {ticket} tickets, and the database has written {}", before.position);
        return Some(Found::new(State::Behind, says));
    }
    if after.position < position {
        let says = format!("it has heard of position {position}, and the database is at {}", after.position);
        return Some(Found::new(State::WentBack, says));
    }
    if before.position < position {
        // What the database had written last before is gone by right.
        return Some(moved("it is drained without a pause"));
    }
    let is_anchored = look.anchor.as_ref().is_some_and(|anchor| anchor.anchor == before.anchor);
    let says = || format!("its entry {} is not the one that the database has written", before.position);
    (!is_anchored).then(|| Found::new(State::Torn, says()))
}

impl Sequencer {
    async fn look(&self, keys: Keys, row: &CouponState, after: u64) -> Result<SequencerReading, LinkError> {
        let mut run = LOOK.with_keys(3);
        run.add(keys.key("gate")).add(keys.of("outbox", row.generation)).add(keys.key("lease"));
        let parts = parts_of(self.link.invoke(run.add(row.position).add(after).add(ENTRIES_MAX)).await?);
        let [sequencer, lease, now, anchor, entries] =
            parts.and_then(|parts| <[Value; 5]>::try_from(parts).ok()).ok_or_else(unreadable)?;
        let now = number(now).ok_or_else(unreadable)?;
        let fields: Vec<Option<String>> =
            parts_of(sequencer).ok_or_else(unreadable)?.into_iter().map(text_of).collect();
        let [generation, counts @ .., until] = <[Option<String>; 10]>::try_from(fields).map_err(|_| unreadable())?;
        let [ticket, void, position, version, settings @ ..] = counts;
        let figure = |text: Option<String>| text?.parse::<u64>().ok();
        let counts = match [ticket, void, position, version].map(figure) {
            [Some(ticket), Some(void), Some(position), Some(version)] => Some([ticket, void, position, version]),
            _ => None,
        };
        let settings: Option<Vec<String>> = settings.into_iter().collect();
        let entries = parts_of(entries).ok_or_else(unreadable)?;
        Ok(SequencerReading {
            generation: generation.and_then(|generation| generation.parse().ok()),
            counts,
            settings: settings.and_then(|settings| settings.try_into().ok()),
            is_drained_by_somebody: is_held(until.and_then(|until| until.parse().ok()), now),
            is_rebuilt: is_held(number(lease), now),
            anchor: parts_of(anchor).and_then(|anchor| anchor.into_iter().next()).and_then(Entry::read),
            entries: entries.into_iter().map(Entry::read).collect(),
        })
    }
}

impl Inspection {
    /// A coupon as it is now.
    pub(super) async fn coupon(&mut self, id: i64) -> Result<Option<CouponState>, SqlError> {
        let text = format!(
            "SELECT id,name,limit_count,opens_at,expires_at,acknowledge,COALESCE(deleted_at,purged_at),version,issued,generation,position,anchor \
             FROM firstcome_coupon WHERE id={id};"
        );
        self.reading.ask(text).await?.first().map(CouponState::read).transpose()
    }

    /// Compares once. `before` was read just now.
    pub(super) async fn try_sequencer(
        &mut self,
        before: &CouponState,
        users: Users,
    ) -> Result<Tried<SequencerSnapshot>, ClusterError> {
        let keys = Keys { coupon: before.id };
        let look = self.sequencer.look(keys, before, before.position).await?;
        let Some(after) = self.coupon(before.id).await?.filter(|after| after.generation == before.generation) else {
            return Ok(Tried::Moved(moved("it is rebuilt again and again")));
        };
        let mut seen = SequencerSnapshot::new(after);
        seen.has_entries = !look.entries.is_empty();
        seen.sequencer_generation = look.generation;
        let closed = match look.generation {
            Some(generation) if generation == before.generation => None,
            // A generation begins in the database before its sequencer opens, and this state of the database was read after the sequencer.
            Some(generation) if before.generation < generation => {
                let says = format!(
                    "the sequencer is of generation {generation}, and the database is at {}",
                    before.generation
                );
                seen.found.push(Found::new(State::WentBack, says));
                return self.lost(keys, generation, seen).await;
            }
            _ if look.is_rebuilt => return Ok(Tried::Moved(moved("a node is rebuilding it"))),
            Some(generation) => {
                let says = format!("it is of generation {generation}, and the database is at {}", before.generation);
                Some(Found::new(State::OtherGeneration, says))
            }
            None if before.is_over => return Ok(Tried::Read(seen)),
            None if before.generation == 0 => Some(Found::new(State::Missing, "it was never opened")),
            None => Some(Found::new(State::Missing, "it is not there, or closed")),
        };
        if let Some(found) = closed {
            seen.found.push(found);
            return Ok(Tried::Read(seen));
        }
        if let Some(found) = self.compare(keys, before, &mut seen, look).await? {
            return Ok(Tried::Moved(found));
        }
        if seen.is(&[State::WentBack]) {
            return self.lost(keys, before.generation, seen).await;
        }
        if seen.is(&[State::Behind, State::Torn]) {
            return Ok(Tried::Read(seen));
        }
        if !self.read_users(keys, &mut seen).await?
            || (users == Users::OfBoth && !self.read_strays(keys, &mut seen).await?)
        {
            return Ok(Tried::Moved(moved("it is rebuilt again and again")));
        }
        // A node is about to throw it away.
        let is_left = seen.row.is_over && seen.found.is_empty();
        Ok(if is_left {
            Tried::Moved(Found::new(State::OldGeneration, "the coupon is over"))
        } else {
            Tried::Read(seen)
        })
    }

    /// Compares counts, outbox and settings of a sequencer of the right generation. Something if it has moved on meanwhile.
    async fn compare(
        &self,
        keys: Keys,
        before: &CouponState,
        seen: &mut SequencerSnapshot,
        look: SequencerReading,
    ) -> Result<Option<Found>, ClusterError> {
        let Some([ticket, void, position, version]) = look.counts else {
            seen.found.push(Found::new(State::Torn, "its counts cannot be read"));
            return Ok(None);
        };
        let (settings, is_drained) = (look.settings.clone(), look.is_drained_by_somebody);
        match out_of_step(before, &seen.row, &look, ticket, position) {
            Some(found) if found.state == State::UnderWay => return Ok(Some(found)),
            Some(found) => {
                seen.found.push(found);
                return Ok(None);
            }
            None => {}
        }
        let outbox = match self.walk(keys, before, look, ticket).await? {
            Tried::Read(Ok(outbox)) => outbox,
            Tried::Read(Err(says)) => {
                seen.has_entries = true;
                seen.found.push(Found::new(State::Torn, says));
                return Ok(None);
            }
            Tried::Moved(found) => return Ok(Some(found)),
        };
        // What the database has refused of what it has written, less what the sequencer has not heard of yet.
        let refused = seen.row.position - seen.row.issued.min(seen.row.position);
        if refused < void || void + (seen.row.position - position) < refused {
            let says = format!("of {position} tickets it counts {void} as given back, and {refused} are");
            seen.found.push(Found::new(State::Miscounted, says));
        }
        let of_gate = i64::try_from(version).unwrap_or(i64::MAX);
        if of_gate != seen.row.version || settings.as_ref() != Some(&seen.row.settings()) {
            let says =
                format!("it judges by version {version} of the settings, and the database has {}", seen.row.version);
            let found = Found::new(State::OtherSettings, says);
            if of_gate < seen.row.version {
                // A caller that has changed them puts them in force.
                return Ok(Some(found));
            }
            seen.found.push(found);
        }
        if position < before.position && before.position == seen.row.position && !is_drained {
            let says = format!("it has not heard that the database is at {}", seen.row.position);
            seen.found.push(Found::new(State::Undrained, says));
        }
        if seen.row.position < outbox.ticket {
            let says = format!("tickets {}..{} wait for the database", seen.row.position + 1, outbox.ticket);
            let state =
                if is_drained || before.position < seen.row.position { State::UnderWay } else { State::Undrained };
            seen.found.push(Found { state, count: outbox.ticket - seen.row.position, says });
        }
        if 0 < outbox.unreadable {
            let says = format!("entries that no node can read: {}", outbox.example);
            seen.found.push(Found { state: State::UnreadableEntry, count: outbox.unreadable, says });
        }
        Ok(None)
    }

    /// Reads the outbox from the position of the database to its end; an error says what is torn.
    async fn walk(
        &self,
        keys: Keys,
        row: &CouponState,
        first: SequencerReading,
        ticket: u64,
    ) -> Result<Tried<Result<Outbox, String>>, ClusterError> {
        let (mut last, mut look) = (row.position, first);
        let mut outbox = Outbox { ticket, unreadable: 0, example: String::new() };
        loop {
            let Some([ticket, _, position, _]) = look.counts.filter(|_| look.generation == Some(row.generation)) else {
                return Ok(Tried::Moved(moved("it is rebuilt again and again")));
            };
            if last < position {
                return Ok(Tried::Moved(moved("it is drained without a pause")));
            }
            outbox.ticket = ticket;
            let count = look.entries.len();
            for entry in look.entries {
                let Some(entry) = entry else {
                    return Ok(Tried::Read(Err("what is no entry is in its outbox".into())));
                };
                if ticket < entry.last {
                    return Ok(Tried::Read(Err(format!("no ticket was drawn for its entry {}", entry.last))));
                }
                match entry.claims {
                    Ok(claims) if claims.first != last + 1 => {
                        return Ok(Tried::Read(Err(format!(
                            "between its entries {last} and {} one is gone",
                            entry.last
                        ))));
                    }
                    Ok(_) => {}
                    Err(why) => {
                        outbox.unreadable += 1;
                        if outbox.example.is_empty() {
                            outbox.example = format!("{}, since {why}", entry.last);
                        }
                    }
                }
                last = entry.last;
            }
            if count < ENTRIES_MAX {
                let is_all = last == ticket;
                return Ok(Tried::Read(if is_all {
                    Ok(outbox)
                } else {
                    Err(format!("its tickets {}..{ticket} are in no entry", last + 1))
                }));
            }
            look = self.sequencer.look(keys, row, last).await?;
        }
    }
}
