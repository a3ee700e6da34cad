//! MySQL and MariaDB.

use super::changes::Changes;
use super::dialect::{Opening, listing_columns, owners, tag};
use crate::dialect::{Dialect, hex, list, maybe, number};
use std::fmt::Write as _;

const DIALECT: Dialect = Dialect::MySql;

/// See [`super::dialect::open`].
pub(super) fn open(opening: &Opening<'_>) -> String {
    let lock = if opening.locks { "FOR UPDATE" } else { "" };
    let mut text = DIALECT.words().begin.to_owned();
    let mut members = list(opening.members, |text, id| number(text, *id));
    if let Some(id) = opening.listing {
        let (listing, columns) = (tag::LISTING, listing_columns());
        let _ = write!(text, "SELECT {listing},{columns} FROM firstcome_listing WHERE id={id} {lock};");
        // Of a subquery the server would not know that it is one number, and read all members.
        let _ = write!(
            text,
            "SELECT COALESCE(highest_id,0),owner_id INTO @firstcome_highest,@firstcome_owner \
             FROM firstcome_listing WHERE id={id};"
        );
        members.push_str(if members.is_empty() { "@firstcome_highest" } else { ",@firstcome_highest" });
        members.push_str(if opening.with_owner { ",@firstcome_owner" } else { "" });
    }
    // Read, and so locked, along the primary key.
    let wallet = tag::WALLET;
    let columns = "m.id,m.name,m.total,m.held,m.records,m.last_at,m.chain";
    #[cfg(feature = "planted-bugs")]
    if firstcome_core::planted::is(firstcome_core::planted::Bug::WalletsUnordered) {
        let ids = list(opening.members, |text, id| number(text, *id));
        let ids = if ids.is_empty() { String::new() } else { format!("'{ids}',") };
        let highest = if opening.listing.is_some() { "@firstcome_highest" } else { "0" };
        let owner = if opening.with_owner { ",@firstcome_owner" } else { "" };
        let _ = write!(
            text,
            "SELECT {wallet},{columns} FROM JSON_TABLE(CONCAT('[',CONCAT_WS(',',{ids}{highest}{owner}),']'),'$[*]' \
             COLUMNS (id bigint PATH '$')) v STRAIGHT_JOIN firstcome_member m FORCE INDEX (PRIMARY) ON m.id=v.id {lock};"
        );
        members.clear();
    }
    if !members.is_empty() {
        let _ = write!(
            text,
            "SELECT {wallet},{columns} FROM firstcome_member m FORCE INDEX (PRIMARY) \
             WHERE m.id IN ({members}) ORDER BY m.id {lock};"
        );
    }
    owners(DIALECT, &mut text, opening.owners);
    if !opening.keys.is_empty() {
        let (request, (kind, scope)) = (tag::REQUEST, opening.scope.parts());
        let keys = list(opening.keys, |text, key| DIALECT.bytes(text, &key.to_be_bytes()));
        let _ = write!(
            text,
            "SELECT {request},request,body,number,at FROM firstcome_request \
             WHERE kind={kind} AND scope={scope} AND request IN ({keys});"
        );
    }
    let _ = write!(text, "SELECT {},{};", tag::CLOCK, DIALECT.words().clock);
    text
}

pub(super) fn insert_bids(text: &mut String, changes: &Changes) {
    if changes.bids.is_empty() {
        return;
    }
    let rows = list(&changes.bids, |text, row| {
        let (placed, bid) = (&row.placed, &row.placed.bid);
        let _ = write!(text, "({},{},{},{},", row.listing, bid.number, row.member, bid.price.get());
        let _ = write!(text, "{},{},{})", bid.at.as_us(), placed.effective_ends_at.as_us(), placed.fence);
    });
    let _ = write!(text, "INSERT INTO firstcome_bid (listing,number,member,price,at,ends_at,fence) VALUES {rows};");
}

pub(super) fn insert_records(text: &mut String, changes: &Changes) {
    if changes.records.is_empty() {
        return;
    }
    let rows = list(&changes.records, |text, row| {
        let record = &row.record;
        let _ = write!(text, "({},{},{},", row.member, record.number, record.kind.number());
        let _ = write!(text, "{},", record.amount.get());
        maybe(text, row.listing);
        text.push(',');
        maybe(text, record.about.as_ref().and_then(|about| about.bid).map(i64::from));
        let (at, balance) = (record.at.as_us(), record.balance);
        let _ = write!(text, ",{at},{},{},{},", balance.total(), balance.held(), changes.writer);
        DIALECT.bytes(text, &record.chain.0);
        text.push(')');
    });
    let columns = "member,number,kind,amount,listing,bid,at,total,held,writer,chain";
    let _ = write!(text, "INSERT INTO firstcome_record ({columns}) VALUES {rows};");
}

pub(super) fn update_wallets(text: &mut String, changes: &Changes) {
    if changes.wallets.is_empty() {
        return;
    }
    let rows = list(&changes.wallets, |text, row| {
        let (wallet, balance) = (&row.wallet, row.wallet.balance);
        let _ = write!(text, "[{},{},{},{},", row.id, row.before, balance.total(), balance.held());
        let _ = write!(text, "{},{},\"", wallet.records, wallet.last_at.as_us());
        hex(text, &wallet.chain.0);
        text.push_str("\"]");
    });
    // The table of values leads, so that members are found by their numbers and not searched: a search locks all of them.
    let guard = if changes.unguarded { "" } else { " AND m.records=v.was" };
    let _ = write!(
        text,
        "UPDATE JSON_TABLE('[{rows}]','$[*]' COLUMNS (id bigint PATH '$[0]',was bigint PATH '$[1]',\
         total bigint PATH '$[2]',held bigint PATH '$[3]',records bigint PATH '$[4]',last_at bigint PATH '$[5]',\
         chain char(64) PATH '$[6]')) v STRAIGHT_JOIN firstcome_member m FORCE INDEX (PRIMARY) ON m.id=v.id{guard} \
         SET m.total=v.total,m.held=v.held,m.records=v.records,m.last_at=v.last_at,m.chain=UNHEX(v.chain);"
    );
}
