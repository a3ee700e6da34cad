//! One batch in one transaction.
//!
//! Round trips: one that locks and reads all that the batch rests on, one that writes all that it changes, and the commit.
//! A batch of refusals has two: it writes nothing, but where what was read may not be durable it waits for a flush, which it
//! shares with others. Before them, one for names that this process has not seen, and one more
//! if members must be created; among them, one if requests are repeated.

use super::changes::{Changes, ListingChange};
use super::database::AuctionDatabase;
#[cfg(feature = "planted-bugs")]
use super::dialect::lock;
use super::dialect::{self, Opening, RequestScope, tag};
use super::judge::{Answer, Bench, Command, Known, KnownEffect};
use super::load;
use super::proof::{Pending, draw_writer};
use super::queues::{Scope, Waiting};
use crate::SqlError;
use crate::base::{ROLL_BACK, Session};
use crate::dialect::{list, number};
use crate::reader::Reader;
use firstcome_core::auction::{Listing, Phase, PlacedBid, Rejection};
use firstcome_core::id::{ListingName, MemberName};
#[cfg(feature = "planted-bugs")]
use firstcome_core::planted::{self, Bug};
use firstcome_core::revision::Revision;
use firstcome_core::time::Timestamp;
use firstcome_store::Put;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The answers to the first commands of a batch, or to all.
pub(super) type Judged = Vec<Result<Answer, Rejection>>;

/// Why a batch has no answers.
pub(super) enum Failed {
    /// No connection: nothing was sent, and another one would not be had either.
    NoConnection(SqlError),
    /// Nothing was done.
    NotDone(SqlError),
    /// It may have been done.
    Unknown(Box<Pending>),
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Self {
        Self::NotDone(error)
    }
}

/// A refusal of the last defence: a row was not as it had been read under its lock.
fn not_as_read(says: &str) -> Failed {
    Failed::NotDone(SqlError::Serialization { says: says.to_owned() })
}

impl AuctionDatabase {
    /// Runs the first commands of a batch, at least one, in one transaction.
    pub(super) async fn attempt(&self, scope: &Scope, batch: &[Waiting], until: Instant) -> Result<Judged, Failed> {
        let mut session = self.session(until).await.map_err(Failed::NoConnection)?;
        let ids;
        let request_scope = match scope {
            Scope::Listing(name) => {
                let Some(id) = self.listing_id(&mut session, name).await? else {
                    return self.create(session, name, batch).await;
                };
                let members = batch.iter().filter_map(|waiting| actor(scope, &waiting.command));
                ids = self.member_ids(&mut session, members.map(|(name, _)| name.clone()).collect()).await?;
                RequestScope::Listing(id)
            }
            Scope::Member(name) => {
                ids = self.member_ids(&mut session, vec![name.clone()]).await?;
                RequestScope::Member(ids.get(name).copied().unwrap_or_default())
            }
        };
        let mut bench = self.read_bench(&mut session, scope, request_scope, batch, &ids).await?;
        let judged: Judged = batch.iter().map(|waiting| bench.judge(&waiting.command)).collect();
        if bench.wallets.missing {
            self.forget_names();
            return Err(not_as_read("a member is not there"));
        }
        #[cfg(feature = "planted-bugs")]
        spoil(&mut session, request_scope).await?;
        self.store(session, bench.finish(), request_scope, judged).await
    }

    /// Locks and reads all that the commands rest on.
    async fn read_bench(
        &self,
        session: &mut Session,
        scope: &Scope,
        request_scope: RequestScope,
        batch: &[Waiting],
        ids: &BTreeMap<MemberName, i64>,
    ) -> Result<Bench, Failed> {
        let commands = || batch.iter().map(|waiting| &waiting.command);
        let with_owner = commands().any(|command| matches!(command, Command::Purchase(_)));
        // Of an owner who is only spoken of it is enough that the number is that one's; if something may be sold, it may be that one's.
        let locked = commands().filter_map(|command| actor(scope, command)).filter(|(_, owner)| with_owner || !*owner);
        let names: Vec<&MemberName> = locked.map(|(member, _)| member).collect();
        let mut members: Vec<i64> = names.iter().filter_map(|name| ids.get(*name).copied()).collect();
        if is_ordered() {
            members.sort_unstable();
            members.dedup();
        }
        let mut keys: Vec<u128> = commands().filter_map(|command| Some(command.request()?.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let listing = match request_scope {
            RequestScope::Listing(id) => Some(id),
            RequestScope::Member(_) => None,
        };
        let spoken_of = || commands().filter_map(|command| actor(scope, command)).filter(|(_, owner)| *owner);
        let owners: Vec<i64> = spoken_of().filter_map(|(name, _)| ids.get(name).copied()).collect();
        let (members, keys, owners, locks) = (&members, &keys, &owners, is_locked_first());
        let opening = Opening { listing, members, with_owner, owners, scope: request_scope, keys, locks };
        let rows = session.ask(dialect::open(self.dialect, &opening)).await?;
        let mut bench = Bench::new(Timestamp::MIN, request_scope);
        let mut requests = Vec::new();
        for row in &rows {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::LISTING => bench.stored = Some(load::listing(row, listing.unwrap_or_default())?),
                tag::WALLET => {
                    let (id, wallet) = load::wallet(row)?;
                    bench.wallets.add(id, wallet);
                }
                tag::REQUEST => requests.push(Request {
                    key: columns.key()?,
                    body: columns.integer()?.cast_unsigned(),
                    number: columns.integer()?,
                    at: columns.instant()?,
                }),
                tag::OWNER => {
                    let id = columns.integer()?;
                    bench.owners.insert(columns.member()?, id);
                }
                _ => bench.now = columns.instant()?,
            }
        }
        let named = bench.stored.as_ref().map(|stored| stored.listing.standing().name.as_str());
        let is_there = match scope {
            Scope::Listing(name) => named == Some(name.as_str()),
            Scope::Member(_) => true,
        };
        // A server that has taken another one's place may not have all members of that one, or others at their numbers.
        let has_owners = spoken_of().all(|(name, _)| bench.owners.contains_key(name));
        if !is_there || !has_owners || !names.iter().all(|name| bench.wallets.has(name)) {
            self.forget_names();
            return Err(not_as_read("a name has another number"));
        }
        self.recall(session, &mut bench, &requests).await?;
        Ok(bench)
    }

    /// Finds the effects of requests that come again.
    async fn recall(&self, session: &mut Session, bench: &mut Bench, requests: &[Request]) -> Result<(), Failed> {
        if requests.is_empty() {
            return Ok(());
        }
        let numbers = list(requests, |text, request| number(text, request.number));
        let text = match bench.scope {
            RequestScope::Listing(id) => format!(
                "SELECT {},b.number,m.name,b.price,b.at,b.ends_at,b.fence FROM firstcome_bid b \
                 JOIN firstcome_member m ON m.id=b.member WHERE b.listing={id} AND b.number IN ({numbers});",
                tag::BID
            ),
            RequestScope::Member(id) => format!(
                "SELECT {},number,total,held FROM firstcome_record WHERE member={id} AND number IN ({numbers});",
                tag::RECORD
            ),
        };
        let mut effects = BTreeMap::new();
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            if columns.integer()? == tag::BID {
                let bid = load::bid(&mut columns)?;
                let (number, ends_at, fence) = (i64::from(bid.number), columns.instant()?, columns.count()?);
                effects.insert(number, KnownEffect::Bid(PlacedBid { bid, effective_ends_at: ends_at, fence }));
            } else {
                effects.insert(columns.integer()?, KnownEffect::Moved(columns.balance()?));
            }
        }
        if let Some(stored) = &bench.stored
            && let Phase::Sold(sale) = &stored.listing.standing().phase
        {
            effects.insert(0, KnownEffect::Sale(sale.clone()));
        }
        for Request { key, body, number, at } in requests {
            let effect = effects.get(number).cloned();
            let effect = effect.ok_or_else(|| SqlError::broken("a request whose effect is not in the tables"))?;
            bench.known.insert(*key, Known { body: *body, at: *at, effect });
        }
        Ok(())
    }

    /// Answers commands about a listing that is not there, up to the first that makes it.
    async fn create(&self, mut session: Session, name: &ListingName, batch: &[Waiting]) -> Result<Judged, Failed> {
        let makes_it = |waiting: &Waiting| matches!(&waiting.command, Command::Put(put) if put.replaces.is_none());
        let before = batch.iter().take_while(|waiting| !makes_it(waiting));
        let mut judged: Judged = before.map(|_| Err(Rejection::UnknownListing)).collect();
        let Some(Waiting { command: Command::Put(Revision { settings, .. }), .. }) = batch.get(judged.len()) else {
            return Ok(judged);
        };
        let ids = self.member_ids(&mut session, vec![settings.owner.clone()]).await?;
        let scope = RequestScope::Listing(0);
        let owner = ids.get(&settings.owner).copied().unwrap_or_default();
        let owners = &[owner];
        let opening = Opening { listing: None, members: &[], with_owner: false, owners, scope, keys: &[], locks: true };
        let (mut now, mut has_owner) = (Timestamp::MIN, false);
        for row in &session.ask(dialect::open(self.dialect, &opening)).await? {
            let mut columns = Reader::at(row, 0);
            if columns.integer()? == tag::OWNER {
                has_owner = columns.integer()? == owner && columns.member()? == settings.owner;
            } else {
                now = columns.instant()?;
            }
        }
        if !has_owner {
            self.forget_names();
            return Err(not_as_read("a member has another number"));
        }
        let listing = match Listing::new(name.clone(), settings.clone(), now) {
            Ok(listing) => listing,
            Err(rejection) => {
                self.end(session, ROLL_BACK).await?;
                judged.push(Err(rejection));
                return Ok(judged);
            }
        };
        judged.push(Ok(Answer::Put(Put::Created)));
        let listing = Some(ListingChange { before: None, listing, owner, highest: None });
        let changes = Changes { listing, ..Changes::default() };
        self.store(session, changes, scope, judged).await
    }

    /// Writes and commits.
    async fn store(
        &self,
        mut session: Session,
        mut changes: Changes,
        scope: RequestScope,
        judged: Judged,
    ) -> Result<Judged, Failed> {
        if changes.is_empty() {
            self.end(session, ROLL_BACK).await?;
            return Ok(judged);
        }
        changes.writer = draw_writer()?;
        changes.unguarded = is_unguarded();
        let rows = changes.rows();
        let written = session.run(dialect::write(self.dialect, &changes)).await?;
        if written != rows && !changes.unguarded {
            return Err(not_as_read("a row was changed behind its lock"));
        }
        // Another connection may have shown meanwhile that the database went back.
        self.watch.allow()?;
        let looks = session.looks;
        match session.commit(self.options.connections.answer_timeout).await {
            Ok(()) => {
                if let Some(told) = changes.told() {
                    self.watch.note(told, looks);
                }
                Ok(judged)
            }
            Err(SqlError::Unknown { .. }) => {
                Err(Failed::Unknown(Box::new(Pending::new(judged, scope, changes, looks))))
            }
            Err(error) => Err(Failed::NotDone(error)),
        }
    }
}

/// A request as it is stored.
struct Request {
    key: u128,
    body: u64,
    number: i64,
    at: Timestamp,
}

/// The member whom a command is about, and whether it is only spoken of as an owner.
fn actor<'a>(scope: &'a Scope, command: &'a Command) -> Option<(&'a MemberName, bool)> {
    match (command, scope) {
        (Command::Put(revision), _) => Some((&revision.settings.owner, true)),
        (Command::Bid(bid), _) => Some((&bid.bidder, false)),
        (Command::Purchase(purchase), _) => Some((&purchase.buyer, false)),
        (Command::Move(_), Scope::Member(member)) => Some((member, false)),
        (Command::Move(_), Scope::Listing(_)) | (Command::Advance, _) => None,
    }
}

/// Whether wallets are locked in one order by all. Always, except for a planted bug.
fn is_ordered() -> bool {
    #[cfg(feature = "planted-bugs")]
    if planted::is(Bug::WalletsUnordered) {
        return false;
    }
    true
}

/// Whether rows are locked before they are judged by. Always, except for a planted bug.
fn is_locked_first() -> bool {
    #[cfg(feature = "planted-bugs")]
    if planted::is(Bug::JudgedBeforeLock) {
        return false;
    }
    true
}

/// Whether rows are written even if they are not as they were read. Never, except for a planted bug.
fn is_unguarded() -> bool {
    #[cfg(feature = "planted-bugs")]
    if planted::is(Bug::UnlockedBeforeCommit) {
        return true;
    }
    false
}

/// Does what planted bugs do between judging and writing.
#[cfg(feature = "planted-bugs")]
async fn spoil(session: &mut Session, scope: RequestScope) -> Result<(), SqlError> {
    if planted::is(Bug::JudgedBeforeLock) {
        session.ask(lock(session.dialect(), scope)).await?;
    }
    if planted::is(Bug::UnlockedBeforeCommit) {
        session.run("COMMIT;".to_owned()).await?;
        // A caller that waits for the lock gets it now.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        session.run("BEGIN;".to_owned()).await?;
    }
    Ok(())
}
