//! Compares the sequencer of one coupon with the database.

use super::{Found, Inspection, PAGE, State, Tried, is_held, text_of};
use crate::ClusterError;
use crate::outbox::{Entry, bytes_of};
use crate::sequencer::{FILL_PAIRS_MAX, Keys, Sequencer, Stray, number, parts_of, unreadable};
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::UserId;
use firstcome_redis::{LinkError, Script};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Row, list, quoted};
use firstcome_sql::reader::Reader;
use redis::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

static LOOK: Script = Script::new(include_str!("../lua/look.lua"));
static KNOWN: Script = Script::new(include_str!("../lua/known.lua"));
static USERS: Script = Script::new(include_str!("../lua/users.lua"));

/// Entries in one look.
const ENTRIES_MAX: usize = 64;
/// Users that are scanned at once.
const SCAN_COUNT: usize = 1_000;
/// Users without a claim that are named for a repair. More come after it.
const STRAYS_MAX: usize = 4_096;
/// Users who are named in what is said.
const NAMED_MAX: usize = 5;
/// Users who are named of those whose claims are gone.
const LOST_NAMED_MAX: usize = 1_000;

/// Which tickets are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tickets {
    /// Those whose outcome the sequencer knows, or that it never drew.
    Decided,
    All,
}

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

fn moved(says: &str) -> Found {
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

    /// Which of these names a sequencer does not know; `None` if it is of another generation by now.
    async fn unknown<'a>(
        &self,
        keys: Keys,
        what: &'static str,
        generation: i64,
        names: &'a [String],
    ) -> Result<Option<Vec<&'a str>>, LinkError> {
        let mut run = KNOWN.with_keys(2);
        run.add(keys.key("gate")).add(keys.of(what, generation)).add(generation);
        for name in names {
            run.add(name);
        }
        let told = parts_of(self.link.invoke(&run).await?).ok_or_else(unreadable)?;
        if told.len() != names.len() {
            return Ok(None);
        }
        let unknown = names.iter().zip(told).filter(|(_, told)| matches!(told, Value::Nil));
        Ok(Some(unknown.map(|(name, _)| name.as_str()).collect()))
    }

    /// Some users with their tickets, those that are asked for; and where to go on, 0 at the end.
    async fn tickets(
        &self,
        keys: Keys,
        generation: i64,
        cursor: u64,
        which: Tickets,
    ) -> Result<Option<(u64, Vec<(Vec<u8>, u64)>)>, LinkError> {
        let mut run = USERS.with_keys(2);
        run.add(keys.key("gate")).add(keys.of("users", generation));
        let told = self.link.invoke(run.add(generation).add(cursor).add(SCAN_COUNT)).await?;
        let parts = parts_of(told).ok_or_else(unreadable)?;
        let Ok([position, ticket, cursor, pairs]) = <[Value; 4]>::try_from(parts) else { return Ok(None) };
        let figure = |value| text_of(value)?.parse::<u64>().ok();
        let (Some(position), Some(last), Some(cursor)) = (figure(position), figure(ticket), figure(cursor)) else {
            return Ok(None);
        };
        let mut pairs = parts_of(pairs).ok_or_else(unreadable)?.into_iter();
        let mut decided = Vec::new();
        while let (Some(user), Some(ticket)) = (pairs.next().and_then(bytes_of), pairs.next()) {
            let ticket = figure(ticket).unwrap_or(0);
            // The name that no caller can have keeps the key.
            if !user.is_empty() && (which == Tickets::All || ticket <= position || last < ticket) {
                decided.push((user, ticket));
            }
        }
        Ok(Some((cursor, decided)))
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

    /// Looks for all users and keys with a claim. False if the sequencer is another one by now.
    async fn read_users(&mut self, keys: Keys, seen: &mut SequencerSnapshot) -> Result<bool, ClusterError> {
        let (id, generation) = (seen.row.id, seen.row.generation);
        let (mut count, mut named) = (0, Vec::new());
        for what in ["users", "keys"] {
            let (mut serial, mut request) = (0, String::new());
            loop {
                let text = if what == "users" {
                    format!(
                        "SELECT serial,name FROM firstcome_claim WHERE coupon={id} AND serial>{serial} \
                         ORDER BY serial LIMIT {FILL_PAIRS_MAX};"
                    )
                } else {
                    format!(
                        "SELECT serial,request FROM firstcome_coupon_request WHERE coupon={id} AND kind=1{request} \
                         ORDER BY request LIMIT {FILL_PAIRS_MAX};"
                    )
                };
                let rows = self.reading.ask(text).await?;
                let mut names = Vec::with_capacity(rows.len());
                for row in &rows {
                    let mut columns = Reader::at(row, 0);
                    serial = columns.integer()?;
                    if what == "users" {
                        let name = columns.maybe_text()?.unwrap_or_default();
                        // No caller can claim under the name of an erased user: a sequencer need not know it.
                        names.extend(Some(name).filter(|name| !is_pseudonym(name)));
                        continue;
                    }
                    let key = columns.key()?;
                    request = String::from(" AND request>");
                    self.reading.dialect().bytes(&mut request, &key.to_be_bytes());
                    names.push(format!("{key:032x}"));
                }
                if rows.is_empty() {
                    break;
                }
                if names.is_empty() {
                    continue;
                }
                let Some(unknown) = self.sequencer.unknown(keys, what, generation, &names).await? else {
                    return Ok(false);
                };
                count += unknown.len() as u64;
                named.extend(unknown.iter().take(NAMED_MAX.saturating_sub(named.len())).map(ToString::to_string));
                seen.looked_for += names.len() as u64;
            }
        }
        if 0 < count {
            let says = format!("with a claim in the database, unknown to the sequencer: {}", named.join(", "));
            seen.found.push(Found { state: State::UserNotInGate, count, says });
        }
        Ok(true)
    }

    /// Looks for users of the sequencer without a claim. False if it is another one by now.
    async fn read_strays(&mut self, keys: Keys, seen: &mut SequencerSnapshot) -> Result<bool, ClusterError> {
        let (mut cursor, mut count, mut named) = (0, 0, Vec::new());
        loop {
            let Some((next, decided)) =
                self.sequencer.tickets(keys, seen.row.generation, cursor, Tickets::Decided).await?
            else {
                return Ok(false);
            };
            for page in decided.chunks(PAGE) {
                let there = self.with_claims(keys.coupon, page).await?;
                for (user, ticket) in page {
                    let user = String::from_utf8_lossy(user);
                    if there.contains(&*user) {
                        continue;
                    }
                    count += 1;
                    if named.len() < NAMED_MAX {
                        named.push(format!("{} (ticket {ticket})", user.escape_debug()));
                    }
                    if seen.strays.len() < STRAYS_MAX {
                        seen.strays.push(Stray { ticket: *ticket, user: user.into(), request: None });
                    }
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        if 0 < count {
            let says = format!("with a ticket, and without a claim in the database: {}", named.join(", "));
            seen.found.push(Found { state: State::UserNotInSql, count, says });
        }
        Ok(true)
    }

    /// Adds to what says that the database went back who has lost a claim: all users of the sequencer of whom the database has none, those
    /// first who were told.
    async fn lost(
        &mut self,
        keys: Keys,
        generation: i64,
        mut seen: SequencerSnapshot,
    ) -> Result<Tried<SequencerSnapshot>, ClusterError> {
        let (mut cursor, mut lost) = (0, Vec::new());
        loop {
            let Some((next, page)) = self.sequencer.tickets(keys, generation, cursor, Tickets::All).await? else {
                return Ok(Tried::Moved(moved("it is rebuilt again and again")));
            };
            for page in page.chunks(PAGE) {
                let there = self.with_claims(keys.coupon, page).await?;
                let gone = page.iter().map(|(user, ticket)| (*ticket, String::from_utf8_lossy(user).into_owned()));
                lost.extend(gone.filter(|(_, user)| !there.contains(user)));
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        lost.sort();
        lost.dedup();
        let named = lost.iter().take(LOST_NAMED_MAX);
        let named: Vec<String> =
            named.map(|(ticket, user)| format!("{} (ticket {ticket})", user.escape_debug())).collect();
        let count = lost.len() as u64;
        if let Some(found) = seen.found.iter_mut().find(|found| found.state == State::WentBack) {
            found.count = count;
            if 0 < count {
                found.says.push_str(&format!("; gone are the claims of {count} users: {}", named.join(", ")));
            }
        }
        Ok(Tried::Read(seen))
    }

    /// Who of these has a claim.
    async fn with_claims(&mut self, coupon: i64, users: &[(Vec<u8>, u64)]) -> Result<BTreeSet<String>, SqlError> {
        let users = users.iter().filter_map(|(user, _)| std::str::from_utf8(user).ok());
        // No caller has a claim whose name is none, and it does not belong in a statement.
        let names: Vec<&str> = users.filter(|user| UserId::restore(user).is_ok()).collect();
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut text = format!("SELECT name FROM firstcome_claim WHERE coupon={coupon} AND name IN (");
        let _ = write!(text, "{});", list(names, quoted));
        let rows = self.reading.ask(text).await?;
        rows.iter().map(|row| Ok(Reader::at(row, 0).maybe_text()?.unwrap_or_default())).collect()
    }
}
