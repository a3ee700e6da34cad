//! The users of a sequencer, held against the claims of the database, some thousands at once.

use super::sequencer::{SequencerSnapshot, moved};
use super::{Found, Inspection, PAGE, State, Tried, text_of};
use crate::ClusterError;
use crate::outbox::bytes_of;
use crate::sequencer::{FILL_PAIRS_MAX, Keys, Sequencer, Stray, parts_of, unreadable};
use firstcome_core::erase::is_pseudonym;
use firstcome_core::id::UserId;
use firstcome_redis::{LinkError, Script};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{list, quoted};
use firstcome_sql::reader::Reader;
use redis::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

static KNOWN: Script = Script::new(include_str!("../lua/known.lua"));
static USERS: Script = Script::new(include_str!("../lua/users.lua"));

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

impl Sequencer {
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
    /// Looks for all users and keys with a claim. False if the sequencer is another one by now.
    pub(super) async fn read_users(&mut self, keys: Keys, seen: &mut SequencerSnapshot) -> Result<bool, ClusterError> {
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
    pub(super) async fn read_strays(&mut self, keys: Keys, seen: &mut SequencerSnapshot) -> Result<bool, ClusterError> {
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
    pub(super) async fn lost(
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
