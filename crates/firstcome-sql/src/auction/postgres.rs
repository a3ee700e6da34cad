//! PostgreSQL.

use super::changes::{Changes, stored};
use super::dialect::{Opening, listing_columns, owners, tag};
use crate::dialect::{Dialect, hex, list, maybe, number};
use std::fmt::Write as _;

const DIALECT: Dialect = Dialect::Postgres;

/// See [`super::dialect::open`].
pub(super) fn open(opening: &Opening<'_>) -> String {
    let lock = if opening.locks { "FOR UPDATE" } else { "" };
    let mut text = DIALECT.words().begin.to_owned();
    let mut members = list(opening.members, |text, id| number(text, *id));
    if let Some(id) = opening.listing {
        let (listing, columns) = (tag::LISTING, listing_columns());
        let _ = write!(text, "SELECT {listing},{columns} FROM firstcome_listing WHERE id={id} {lock};");
        // Each statement sees what was committed before it: this one reads what the one before has locked.
        for column in ["highest_id", "owner_id"].iter().take(1 + usize::from(opening.with_owner)) {
            let comma = if members.is_empty() { "" } else { "," };
            let _ = write!(members, "{comma}(SELECT {column} FROM firstcome_listing WHERE id={id})");
        }
    }
    // Rows are sorted first, and locked in that order.
    let wallet = tag::WALLET;
    let columns = "m.id,m.name,m.total,m.held,m.records,m.last_at,m.chain";
    #[cfg(feature = "planted-bugs")]
    if firstcome_core::planted::is(firstcome_core::planted::Bug::WalletsUnordered) {
        let _ = write!(
            text,
            "SELECT {wallet},{columns} FROM firstcome_member m \
             JOIN unnest(ARRAY[{members}]::bigint[]) WITH ORDINALITY v(id,at) ON m.id=v.id ORDER BY v.at {lock} OF m;"
        );
        members.clear();
    }
    if !members.is_empty() {
        let _ = write!(
            text,
            "SELECT {wallet},{columns} FROM firstcome_member m \
             WHERE m.id=ANY(ARRAY[{members}]::bigint[]) ORDER BY m.id {lock};"
        );
    }
    owners(DIALECT, &mut text, opening.owners);
    if !opening.keys.is_empty() {
        let (request, (kind, scope)) = (tag::REQUEST, opening.scope.parts());
        let keys = list(opening.keys, |text, key| DIALECT.bytes(text, &key.to_be_bytes()));
        let _ = write!(
            text,
            "SELECT {request},request,body,number,at FROM firstcome_request \
             WHERE kind={kind} AND scope={scope} AND request=ANY(ARRAY[{keys}]::bytea[]);"
        );
    }
    let _ = write!(text, "SELECT {},{};", tag::CLOCK, DIALECT.words().clock);
    text
}

/// One column of several rows: read far faster than rows of values.
fn integers(text: &mut String, column: impl IntoIterator<Item = Option<i64>>) {
    let _ = write!(text, "'{{{}}}'::bigint[]", list(column, maybe));
}

fn digests<'a>(text: &mut String, column: impl IntoIterator<Item = &'a [u8]>) {
    let column = list(column, |text, digest| {
        text.push_str("\\\\x");
        hex(text, digest);
    });
    // Within an array a backslash stands for itself only twice.
    let _ = write!(text, "'{{{column}}}'::bytea[]");
}

pub(super) fn insert_bids(text: &mut String, changes: &Changes) {
    let bids = &changes.bids;
    if bids.is_empty() {
        return;
    }
    text.push_str("INSERT INTO firstcome_bid (listing,number,member,price,at,ends_at,fence) SELECT * FROM unnest(");
    integers(text, bids.iter().map(|row| Some(row.listing)));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.bid.number.into())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.member)));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(stored(row.placed.bid.price.get()))));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.bid.at.as_us())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(row.placed.effective_ends_at.as_us())));
    text.push(',');
    integers(text, bids.iter().map(|row| Some(stored(row.placed.fence))));
    text.push_str(");");
}

pub(super) fn insert_records(text: &mut String, changes: &Changes) {
    let rows = &changes.records;
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "INSERT INTO firstcome_record (member,number,kind,amount,listing,bid,at,total,held,writer,chain) SELECT * FROM unnest(",
    );
    integers(text, rows.iter().map(|row| Some(row.member)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.number))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.record.kind.number().into())));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.amount.get()))));
    text.push(',');
    integers(text, rows.iter().map(|row| row.listing));
    text.push(',');
    integers(text, rows.iter().map(|row| row.record.about.as_ref()?.bid.map(i64::from)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.record.at.as_us())));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.balance.total()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.record.balance.held()))));
    text.push(',');
    integers(text, rows.iter().map(|_| Some(changes.writer)));
    text.push(',');
    digests(text, rows.iter().map(|row| row.record.chain.0.as_slice()));
    text.push_str(");");
}

pub(super) fn update_wallets(text: &mut String, changes: &Changes) {
    let rows = &changes.wallets;
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "UPDATE firstcome_member m SET total=v.total,held=v.held,records=v.records,last_at=v.last_at,chain=v.chain FROM unnest(",
    );
    integers(text, rows.iter().map(|row| Some(row.id)));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.before))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.balance.total()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.balance.held()))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(stored(row.wallet.records))));
    text.push(',');
    integers(text, rows.iter().map(|row| Some(row.wallet.last_at.as_us())));
    text.push(',');
    digests(text, rows.iter().map(|row| row.wallet.chain.0.as_slice()));
    text.push_str(") v(id,before,total,held,records,last_at,chain) WHERE m.id=v.id");
    text.push_str(if changes.unguarded { ";" } else { " AND m.records=v.before;" });
}
