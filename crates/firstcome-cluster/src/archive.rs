//! Imports into a cluster and exports out of it: [`ClusterImporter`], [`ClusterArchive`].
//!
//! Only SQL is written. Redis then holds nothing of what came in, which is the same as after a loss: whichever node is asked
//! first makes the sequencer of a coupon or the log of a room anew.

mod auction;
mod out;
mod room;

pub use out::ClusterArchive;

use super::database::archive as rows;
use super::database::archive::CouponEnd;
use super::database::inserts::{NewClaim, NewRequest, write_claims, write_requests};
use super::database::renewal::{NewRenewal, write_renewals};
use super::database::{CouponRow, HeadKeys, kind};
use super::node::Node;
use super::outbox::Tag;
use super::{Cluster, ClusterError};
use auction::IncomingAuctions;
use firstcome_core::coupon::{Claim, CouponSettings, Issued};
use firstcome_core::id::{CouponName, RequestId};
use firstcome_core::receipt::Object;
use firstcome_core::room::appearance::Appearance;
use firstcome_core::room::{self as core_room, Departure, TicketNumber};
use firstcome_core::time::{Now, Steady, Timestamp};
use firstcome_sql::SqlError;
use firstcome_sql::base::Session;
use firstcome_sql::reader::{Reader, wrong};
use firstcome_sql::{auction_part, schema};
use firstcome_store::archive::{
    ArchivedPurge, ArchivedRoom, ArchivedSecret, Before, ImportError, Incoming, Intake, RoomsBefore,
};
use firstcome_store::embedded::journal::{Change, CouponPut};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Changes that are written together.
const CHANGES_MAX: usize = 4_096;
/// Rows of one statement.
const ROWS_MAX: usize = 1_024;
/// Statements of one row each that go out together.
const STATEMENTS_MAX: usize = 512;
/// How long an import or an export may take.
const LASTS_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How many times as long as to other calls a server may take to answer: 60 s by default. A page is large, and no caller waits for
/// it as for a claim.
const ANSWER_TIMES: u32 = 30;
/// The version of an appearance that came in. The room is new, so that no node has read another one.
const FIRST_VERSION: i64 = 1;
/// How long the commit of an import may take.
const COMMIT_MAX: Duration = Duration::from_secs(120);

/// Why data does not come in or go out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A rule stands against it.
    #[error(transparent)]
    Refused(#[from] ImportError),
    /// The database gave no answer, or another one. Nothing was done, but after [`SqlError::Unknown`].
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The deployment cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Takes data into a deployment in one transaction of its database: all of it, or nothing.
///
/// It may go in beside nodes that serve: names that are there are refused, and what comes in is seen at once when it is
/// committed. Memory: about 50 bytes a claim or ticket and 200 a record or bid.
pub struct ClusterImporter {
    import: Box<Import>,
}

firstcome_core::debug_by_name!(ClusterImporter);

impl Cluster {
    /// Begins an import. The tables of all parts must be there, and of this version.
    pub async fn import(&self) -> Result<ClusterImporter, TransferError> {
        Ok(ClusterImporter { import: Box::new(Import::begin(Arc::clone(&self.node)).await?) })
    }
}

impl ClusterImporter {
    /// Takes a row. What it names must have come before. After an error nothing comes in.
    pub async fn take(&mut self, row: Incoming) -> Result<(), TransferError> {
        self.import.take(row).await
    }

    /// Makes a coupon with a secret of its own, for claims that come without one.
    pub async fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> Result<(), TransferError> {
        self.import.new_coupon(name, settings).await
    }

    /// Checks what can be said only of all of it, and makes it durable. After [`SqlError::Unknown`] it may be there: the same
    /// import again is refused then.
    pub async fn finish(self) -> Result<(), TransferError> {
        self.import.finish().await
    }
}

impl Node {
    /// Refuses tables of members and listings that are not there, or not of this version.
    async fn auctions_are_ready(&self) -> Result<(), SqlError> {
        schema::prepare(&self.database.base, auction_part(self.database.dialect())).await
    }
}

/// A connection for all of an import or an export. A server that no longer answers ends it much sooner than the longest may
/// take.
async fn session(node: &Node) -> Result<Session, SqlError> {
    let (now, answer_max) = (Instant::now(), node.database.base.options.connections.answer_timeout * ANSWER_TIMES);
    let session = node.database.base.session(now + answer_max).await?;
    Ok(session.lasting(now + LASTS_MAX, answer_max))
}

/// One import on one kind of database.
struct Import {
    node: Arc<Node>,
    session: Session,
    intake: Intake,
    /// By the numbers of the import, those of the database.
    coupons: BTreeMap<u32, i64>,
    rooms: BTreeMap<u32, i64>,
    auctions: IncomingAuctions,
}

/// Rows that wait to be written.
#[derive(Default)]
struct Rows {
    claims: Vec<(i64, Issued, Claim)>,
    redemptions: Vec<rows::NewRedemption>,
    tickets: Vec<rows::NewTicket>,
    slots: Vec<(i64, TicketNumber, core_room::Slot)>,
    renewals: Vec<NewRenewal>,
    gone: Vec<(i64, TicketNumber, Departure)>,
    auctions: Vec<Change>,
}

impl Import {
    async fn begin(node: Arc<Node>) -> Result<Self, TransferError> {
        node.auctions_are_ready().await?;
        let mut session = session(&node).await?;
        let words = session.dialect().words();
        let text = format!("{}SELECT {};", words.begin, words.clock);
        let rows = session.ask(text).await?;
        let wall = rows.first().map(|row| Reader::at(row, 0).instant()).transpose()?;
        let wall = wall.ok_or_else(|| SqlError::broken("it has no clock"))?;
        let text = "SELECT id,secret,created_at FROM firstcome_pass_secret ORDER BY id;".to_owned();
        let pass_secrets = session.ask(text).await?;
        let pass_secrets =
            pass_secrets.iter().map(|row| node.database.old_pass_secret(row)).collect::<Result<_, _>>()?;
        let text = "SELECT id FROM firstcome_member LIMIT 1;SELECT id FROM firstcome_listing LIMIT 1;";
        let has_auctions = !session.ask(text.to_owned()).await?.is_empty();
        let has_rooms = !session.ask("SELECT id FROM firstcome_room LIMIT 1;".to_owned()).await?.is_empty();
        let rooms = RoomsBefore { pass_secrets, has_rooms, ..RoomsBefore::default() };
        // Ends by the steady clock of a room that comes in are those by the wall's.
        let now = Now { wall, steady: Steady::from_us(wall.as_us()) };
        let intake = Intake::new(Before { rooms, has_auctions, coupons: Vec::new() }, now);
        let auctions = IncomingAuctions::new()?;
        Ok(Self { node, session, intake, coupons: BTreeMap::new(), rooms: BTreeMap::new(), auctions })
    }

    async fn take(&mut self, row: Incoming) -> Result<(), TransferError> {
        match row {
            Incoming::Coupon(coupon) => {
                let (name, over) =
                    (coupon.name.clone(), CouponEnd { deleted_at: coupon.deleted_at, purged: coupon.purged });
                self.refuse_coupon(&name).await?;
                self.intake.take(Incoming::Coupon(coupon))?;
                self.flush_with(over).await
            }
            Incoming::Room(room) => {
                self.flush().await?;
                if self.id_of("firstcome_room", room.name.as_str()).await?.is_some() {
                    return Err(ImportError::RoomThere(room.name.clone()).into());
                }
                self.intake.take(Incoming::Room(room.clone()))?;
                self.room(&room).await
            }
            Incoming::Secret(secret) => {
                self.intake.take(Incoming::Secret(secret.clone()))?;
                self.secret(secret).await
            }
            row => {
                match self.intake.take(row) {
                    // A sequencer would not know of claims that come into a coupon that it serves.
                    Err(ImportError::UnknownCoupon(name))
                        if self.id_of("firstcome_coupon", name.as_str()).await?.is_some() =>
                    {
                        return Err(ImportError::CouponThere(name).into());
                    }
                    taken => taken?,
                }
                if CHANGES_MAX <= self.intake.pending() { self.flush().await } else { Ok(()) }
            }
        }
    }

    async fn new_coupon(&mut self, name: CouponName, settings: CouponSettings) -> Result<(), TransferError> {
        self.refuse_coupon(&name).await?;
        self.intake.new_coupon(name, settings)?;
        self.flush().await
    }

    async fn refuse_coupon(&mut self, name: &CouponName) -> Result<(), TransferError> {
        self.flush().await?;
        match self.id_of("firstcome_coupon", name.as_str()).await? {
            Some(_) => Err(ImportError::CouponThere(name.clone()).into()),
            None => Ok(()),
        }
    }

    async fn id_of(&mut self, table: &str, name: &str) -> Result<Option<i64>, SqlError> {
        let rows = self.session.ask(rows::id_of(table, name)).await?;
        rows.first().map(|row| Reader::at(row, 0).integer()).transpose()
    }

    /// Makes a coupon or a room, and gives its number.
    async fn make(
        &mut self,
        table: &str,
        name: &str,
        text: String,
        is_there: ImportError,
    ) -> Result<i64, TransferError> {
        match self.session.run(text).await {
            // A node has made one meanwhile. This transaction answers no more.
            Err(SqlError::Serialization { .. })
                if !self.node.database.base.read(rows::id_of(table, name)).await?.is_empty() =>
            {
                return Err(is_there.into());
            }
            made => made?,
        };
        Ok(self.id_of(table, name).await?.ok_or_else(|| wrong("a row that was just made is not there"))?)
    }

    /// Makes the room that was taken last. Its number here is the highest.
    async fn room(&mut self, room: &ArchivedRoom) -> Result<(), TransferError> {
        let changes = self.intake.changes();
        let put = changes.iter().find_map(|change| if let Change::RoomPut(put) = change { Some(put.id) } else { None });
        let text = self.node.database.make_archived_room(room, self.intake.now())?;
        let is_there = ImportError::RoomThere(room.name.clone());
        let id = self.make("firstcome_room", room.name.as_str(), text, is_there).await?;
        self.rooms.extend(put.map(|put| (put.0, id)));
        if *room.appearance != Appearance::default() {
            self.session.run(self.node.database.write_appearance(id, FIRST_VERSION, &room.appearance)).await?;
        }
        Ok(())
    }

    /// Keeps a secret of the service, if there is none of that name. Handles of locks are good for the locks that are there,
    /// which do not come along: the secret that is there stays.
    async fn secret(&mut self, secret: ArchivedSecret) -> Result<(), TransferError> {
        let ArchivedSecret { name, bytes } = secret;
        let text = "SELECT name,wrapped FROM firstcome_secret;".to_owned();
        let there = self.session.ask(text).await?;
        for row in &there {
            let (known, value) = self.node.database.secret_of(row)?;
            if known == name {
                let may_stay = value == bytes || name == super::HANDLES;
                return if may_stay { Ok(()) } else { Err(ImportError::SecretDiffers(name).into()) };
            }
        }
        let text = self.node.database.write_secret(&name, &bytes)?;
        self.session.run(text).await?;
        Ok(())
    }

    async fn coupon(&mut self, put: &CouponPut, over: CouponEnd) -> Result<(), TransferError> {
        let text = self.node.database.make_coupon(put, over)?;
        let is_there = ImportError::CouponThere(put.name.clone());
        let id = self.make("firstcome_coupon", put.name.as_str(), text, is_there).await?;
        self.coupons.insert(put.id.0, id);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), TransferError> {
        self.flush_with(CouponEnd::default()).await
    }

    /// Writes what has changed. A coupon among it is over in this way.
    async fn flush_with(&mut self, over: CouponEnd) -> Result<(), TransferError> {
        let mut waiting = Rows::default();
        for change in self.intake.changes() {
            match change {
                Change::CouponPut(put) => self.coupon(&put, over).await?,
                Change::CodesBound { id, from } => {
                    let id = self.coupons.get(&id.0).ok_or_else(|| wrong("codes of a coupon that was not made"))?;
                    self.session.run(rows::write_codes_bound(*id, from)).await?;
                }
                Change::PassSecret { fresh, .. } => {
                    let text = self.node.database.write_pass_secret(&fresh)?;
                    self.session.run(text).await?;
                }
                Change::Headed(signed) => {
                    let keys = self.head_keys(signed.head.object.clone()).await?;
                    self.session.run(self.node.database.insert_head(&keys, &signed)).await?;
                }
                Change::HeadsRemoved { object, to, .. } => {
                    let text = self.head_keys(object).await?.note_removed(self.node.database.dialect(), to);
                    self.session.run(text).await?;
                }
                change => self.wait(&mut waiting, change)?,
            }
        }
        self.write(waiting).await
    }

    /// Which rows are the heads of a room or a coupon that was made before.
    async fn head_keys(&mut self, object: Object) -> Result<HeadKeys, TransferError> {
        let id = match &object {
            Object::Room(name) => self.id_of("firstcome_room", name.as_str()).await?,
            Object::Coupon(name) => self.id_of("firstcome_coupon", name.as_str()).await?,
        };
        let id = id.ok_or_else(|| wrong("a head of what was not made"))?;
        Ok(HeadKeys { object, id })
    }

    /// Puts a change to those of its table.
    fn wait(&self, waiting: &mut Rows, change: Change) -> Result<(), TransferError> {
        let unknown = || wrong("a row of what was not made");
        let coupon = |id: u32| self.coupons.get(&id).copied().ok_or_else(unknown);
        match change {
            Change::Claimed { id, issued, claim } => waiting.claims.push((coupon(id.0)?, issued, claim)),
            Change::Redeemed { id, redeemed, request } => {
                waiting.redemptions.push((coupon(id.0)?, redeemed, request));
            }
            Change::Room { id, change, .. } => {
                let room = self.rooms.get(&id.0).copied().ok_or_else(unknown)?;
                match change {
                    core_room::Change::Joined { number, join, joined_at } => {
                        waiting.tickets.push((room, number, join, joined_at));
                    }
                    core_room::Change::Gone { number, how } => {
                        // It came just before that.
                        waiting.tickets.pop_if(|(_, last, ..)| *last == number);
                        waiting.gone.push((room, number, how));
                    }
                    core_room::Change::Admitted { number, slot } => waiting.slots.push((room, number, slot)),
                    core_room::Change::Renewed { number, renewal } => waiting.renewals.push((room, number, renewal)),
                    _ => {}
                }
            }
            Change::Listing { .. }
            | Change::Moved { .. }
            | Change::RecordsRemoved(_)
            | Change::Bid { .. }
            | Change::Member { .. } => {
                waiting.auctions.push(change);
            }
            // Rooms are made whole at once, and coupons deleted as they are made.
            _ => {}
        }
        Ok(())
    }

    async fn write(&mut self, waiting: Rows) -> Result<(), TransferError> {
        let Rows { claims, redemptions, tickets, slots, renewals, gone, auctions } = waiting;
        let request = |coupon: i64, kind, request: Option<RequestId>, serial| {
            Some(NewRequest { coupon, kind, request: request?, serial })
        };
        let of_claims = claims
            .iter()
            .filter_map(|(coupon, issued, claim)| request(*coupon, kind::CLAIM, claim.request, issued.serial));
        let of_redemptions = redemptions
            .iter()
            .filter_map(|(coupon, redeemed, of)| request(*coupon, kind::REDEMPTION, *of, redeemed.serial));
        let requests: Vec<_> = of_claims.chain(of_redemptions).collect();
        // No call waits for them: their tags are no caller's.
        let claims = claims.iter().map(|(coupon, issued, claim)| NewClaim {
            coupon: *coupon,
            issued: *issued,
            claim,
            tag: Tag(0),
        });
        let claims: Vec<_> = claims.collect();
        let dialect = self.session.dialect();
        self.run_all(claims.chunks(ROWS_MAX).map(|rows| write_claims(dialect, rows.iter().copied()))).await?;
        self.run_all(redemptions.chunks(ROWS_MAX).map(rows::write_redemptions)).await?;
        self.run_all(requests.chunks(ROWS_MAX).map(|rows| write_requests(dialect, rows.iter().copied()))).await?;
        self.run_all(tickets.chunks(ROWS_MAX).map(|rows| rows::write_tickets(dialect, rows))).await?;
        self.run_all(slots.chunks(ROWS_MAX).map(rows::write_slots)).await?;
        self.run_all(renewals.chunks(ROWS_MAX).map(|rows| write_renewals(dialect, rows))).await?;
        self.run_all(gone.chunks(ROWS_MAX).map(rows::write_gone)).await?;
        self.auctions(auctions).await
    }

    async fn run_all(&mut self, texts: impl Iterator<Item = String>) -> Result<(), SqlError> {
        for text in texts {
            self.session.run(text).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), TransferError> {
        self.flush().await?;
        self.intake.finish()?;
        self.flush().await?;
        self.finish_auctions().await?;
        let mut text = String::new();
        let issued: Vec<(u32, u32, Timestamp)> = self.intake.last_claims().collect();
        for (at, (id, issued, last_at)) in issued.into_iter().enumerate() {
            if let Some(id) = self.coupons.get(&id) {
                rows::write_issued(&mut text, *id, issued, last_at);
            }
            if (at + 1) % STATEMENTS_MAX == 0 {
                self.session.run(std::mem::take(&mut text)).await?;
            }
        }
        if !text.is_empty() {
            self.session.run(text).await?;
        }
        Ok(self.session.commit(COMMIT_MAX).await?)
    }
}

/// A coupon as it goes out.
fn archived(row: CouponRow) -> firstcome_store::archive::ArchivedCoupon {
    let CouponRow { name, settings, voucher_key, deleted_at, purged_at, issued, .. } = row;
    let purged = purged_at.map(|at| ArchivedPurge { at, issued });
    firstcome_store::archive::ArchivedCoupon { name, settings, voucher_key, deleted_at, purged }
}
