//! What the two kinds of databases say differently about auctions. The logic above it is the same.

use super::changes::Changes;
use super::{mysql, postgres};
use crate::dialect::{Dialect, list, number, quoted};
use crate::schema::{Part, keep_out};
use firstcome_core::id::{ListingName, MemberName};
use firstcome_core::points::{Anchor, Renaming};
use std::fmt::Write as _;

/// What a transaction needs to see, and to lock.
pub(super) struct Opening<'a> {
    /// The listing, locked first.
    pub(super) listing: Option<i64>,
    /// The wallets, in rising order.
    pub(super) members: &'a [i64],
    /// Whether the wallet of the listing's owner is needed too. That of its highest bidder always is.
    pub(super) with_owner: bool,
    /// Members of whom only the names are read, without a lock.
    pub(super) owners: &'a [i64],
    /// Whose requests are looked up.
    pub(super) scope: RequestScope,
    /// Their keys.
    pub(super) keys: &'a [u128],
    /// Whether rows are locked. Always, except for planted bugs.
    pub(super) locks: bool,
}

/// Within what an idempotency key counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestScope {
    /// Bids and the sale of a listing.
    Listing(i64),
    /// The points of a member.
    Member(i64),
}

impl RequestScope {
    /// Kind and number as they are stored.
    pub(super) const fn parts(self) -> (i64, i64) {
        match self {
            Self::Listing(id) => (1, id),
            Self::Member(id) => (2, id),
        }
    }
}

/// The first column of every row says which of the statements in a text it is from.
pub(super) mod tag {
    pub(in super::super) const LISTING: i64 = 1;
    pub(in super::super) const WALLET: i64 = 2;
    pub(in super::super) const REQUEST: i64 = 3;
    pub(in super::super) const CLOCK: i64 = 4;
    pub(in super::super) const BID: i64 = 5;
    pub(in super::super) const RECORD: i64 = 6;
    pub(in super::super) const OWNER: i64 = 7;
    pub(in super::super) const ANCHOR: i64 = 8;
}

/// The name of the tables of auctions.
const PART: &str = "market";
/// The first version whose programs know anchors. Others take purged records for damage, and erase a member without the anchor.
const ANCHORS_SINCE: i64 = 3;
/// The first version whose programs know that not all records of a renamed member are chained again.
const RENAMINGS_SINCE: i64 = 4;

/// The tables of auctions.
pub const fn auction_part(dialect: Dialect) -> Part {
    Part {
        name: PART,
        steps: match dialect {
            Dialect::Postgres => &[
                include_str!("postgres_0001.sql"),
                include_str!("postgres_0002.sql"),
                include_str!("postgres_0003.sql"),
                include_str!("postgres_0004.sql"),
            ],
            Dialect::MySql => &[
                include_str!("mysql_0001.sql"),
                include_str!("mysql_0002.sql"),
                include_str!("mysql_0003.sql"),
                include_str!("mysql_0004.sql"),
            ],
        },
        readable_from: 2,
        written: &[
            ("firstcome_member", "name"),
            ("firstcome_record", "number"),
            ("firstcome_anchor", "number"),
            ("firstcome_renaming", "done"),
            ("firstcome_listing", "name"),
            ("firstcome_bid", "number"),
            ("firstcome_request", "scope"),
            ("firstcome_market_state", "generation"),
            // Anchors and renamings raise it.
            ("firstcome_schema", "version"),
        ],
    }
}

/// The statements that begin a transaction: they lock the listing, then the wallets in the order of their numbers; then they
/// read requests, and at last the clock.
pub(super) fn open(dialect: Dialect, opening: &Opening<'_>) -> String {
    match dialect {
        Dialect::Postgres => postgres::open(opening),
        Dialect::MySql => mysql::open(opening),
    }
}

/// The statements that write changes. The numbers of rows that a change finds as they were read add up to [`Changes::rows`].
pub(super) fn write(dialect: Dialect, changes: &Changes) -> String {
    let mut text = String::new();
    for (scope, key) in &changes.forgotten {
        let (kind, scope) = scope.parts();
        let _ = write!(text, "DELETE FROM firstcome_request WHERE kind={kind} AND scope={scope} AND request=");
        dialect.bytes(&mut text, &key.to_be_bytes());
        text.push(';');
    }
    // The order of these statements is the same on both: it is the order in which rows are locked.
    match dialect {
        Dialect::Postgres => {
            postgres::insert_bids(&mut text, changes);
            postgres::insert_records(&mut text, changes);
            insert_requests(dialect, &mut text, changes);
            postgres::update_wallets(&mut text, changes);
        }
        Dialect::MySql => {
            mysql::insert_bids(&mut text, changes);
            mysql::insert_records(&mut text, changes);
            insert_requests(dialect, &mut text, changes);
            mysql::update_wallets(&mut text, changes);
        }
    }
    if let Some(listing) = &changes.listing {
        listing.write(&mut text, changes.writer, changes.unguarded);
    }
    text
}

fn insert_requests(dialect: Dialect, text: &mut String, changes: &Changes) {
    if changes.requests.is_empty() {
        return;
    }
    let rows = list(&changes.requests, |text, row| {
        let (kind, scope) = row.scope.parts();
        let _ = write!(text, "({kind},{scope},");
        dialect.bytes(text, &row.key.to_be_bytes());
        let _ = write!(text, ",{},{},{})", row.body.cast_signed(), row.number, row.at.as_us());
    });
    let _ = write!(text, "INSERT INTO firstcome_request (kind,scope,request,body,number,at) VALUES {rows};");
}

/// The columns of a listing, in the order in which they are read and written.
pub(super) const LISTING_COLUMNS: [&str; 24] = [
    "name",
    "owner_id",
    "owner",
    "price",
    "starts_at",
    "kind",
    "ends_at",
    "min_increment",
    "extend_window_ms",
    "extend_by_ms",
    "extend_max_count",
    "settle_within_ms",
    "effective_ends_at",
    "extensions",
    "bids",
    "highest_id",
    "highest",
    "highest_price",
    "highest_at",
    "phase",
    "phase_at",
    "buyer",
    "version",
    "last_at",
];

/// The columns of a listing, as a list for SQL.
pub(super) fn listing_columns() -> String {
    LISTING_COLUMNS.join(",")
}

/// Creates members that are not there yet.
pub(super) fn create_members(dialect: Dialect, names: &[&MemberName]) -> String {
    let names = list(names, |text, name| {
        text.push('(');
        quoted(text, name.as_str());
        text.push(')');
    });
    format!("INSERT INTO firstcome_member (name) VALUES {names} {};", dialect.words().unless_there)
}

/// Finds members by their names.
pub(super) fn find_members(names: &[&MemberName]) -> String {
    let names = list(names, |text, name| quoted(text, name.as_str()));
    format!("SELECT {},id,name FROM firstcome_member WHERE name IN ({names})", tag::WALLET)
}

/// Puts the anchor of a member in the place of the one before it. From then on no program that does not know anchors opens the tables.
pub(super) fn put_anchor(dialect: Dialect, text: &mut String, member: i64, anchor: &Anchor) {
    let Anchor { number, balance, at, charged, chain } = anchor;
    let (total, held, at) = (balance.total(), balance.held(), at.as_us());
    let _ = write!(
        text,
        "DELETE FROM firstcome_anchor WHERE member={member};\
         INSERT INTO firstcome_anchor (member,number,total,held,at,charged,chain) \
         VALUES ({member},{number},{total},{held},{at},{charged},"
    );
    dialect.bytes(text, &chain.0);
    text.push_str(");");
    keep_out(text, PART, ANCHORS_SINCE);
}

/// Puts what is left to chain again of a renamed member in the place of what was left before. If something is, no program that does not
/// know of it opens the tables from then on.
pub(super) fn put_renaming(dialect: Dialect, text: &mut String, member: i64, renaming: Option<&Renaming>) {
    let _ = write!(text, "DELETE FROM firstcome_renaming WHERE member={member};");
    let Some(Renaming { before, last, done, old, renewed }) = renaming else { return };
    let _ = write!(
        text,
        "INSERT INTO firstcome_renaming (member,done,last,name,chain,renewed) VALUES ({member},{done},{last},"
    );
    quoted(text, before.as_str());
    for chain in [old, renewed] {
        text.push(',');
        dialect.bytes(text, &chain.0);
    }
    text.push_str(");");
    keep_out(text, PART, RENAMINGS_SINCE);
}

/// Finds a listing by its name.
pub(super) fn find_listing(name: &ListingName) -> String {
    let mut text = format!("SELECT {},id FROM firstcome_listing WHERE name=", tag::LISTING);
    quoted(&mut text, name.as_str());
    text
}

/// Reads numbers and names of members, and keeps an erasure from changing a name before the transaction ends.
pub(super) fn owners(dialect: Dialect, text: &mut String, ids: &[i64]) {
    if !ids.is_empty() {
        let ids = list(ids, |text, id| number(text, *id));
        let lock = match dialect {
            Dialect::Postgres => "FOR KEY SHARE",
            Dialect::MySql => "LOCK IN SHARE MODE",
        };
        let _ =
            write!(text, "SELECT {},id,name FROM firstcome_member WHERE id IN ({ids}) ORDER BY id {lock};", tag::OWNER);
    }
}

/// Begins a transaction and locks a listing, of which version and writer are read, or a member.
pub(super) fn lock(dialect: Dialect, scope: RequestScope) -> String {
    let begin = dialect.words().begin;
    match scope {
        RequestScope::Listing(id) => {
            format!("{begin}SELECT 0,version,writer FROM firstcome_listing WHERE id={id} FOR UPDATE;")
        }
        RequestScope::Member(id) => format!("{begin}SELECT 0,records FROM firstcome_member WHERE id={id} FOR UPDATE;"),
    }
}
