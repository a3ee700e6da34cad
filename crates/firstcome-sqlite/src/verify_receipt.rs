//! Checks the published heads from the rows alone.

use super::coupon::coupons;
use super::receipt::{for_each_head, removed_heads};
use super::room::{last_number, rooms};
use firstcome_core::receipt::{Figures, Object};
use firstcome_store::Fault;
use firstcome_store::check::Check;
use firstcome_store::receipt::{Standing, StoredHeads};
use rusqlite::Connection;
use std::collections::HashMap;

fn standings(snapshot: &Connection) -> Result<HashMap<Object, Standing>, Fault> {
    let (mut standings, removed) = (HashMap::new(), removed_heads(snapshot)?);
    let standing = |object: &Object, key, figures| {
        let removed_to = removed.get(object).copied().unwrap_or_default();
        Standing { key: Some(key), figures, removed_to }
    };
    for row in rooms(snapshot)? {
        let given = last_number(snapshot, &row)?;
        let figures = Figures::Room { first: row.first, given, front: row.reached };
        let (object, key) = (Object::Room(row.name), row.ticket_key.head_key().public());
        standings.insert(object.clone(), standing(&object, key, figures));
    }
    for row in coupons(snapshot)? {
        let query = "SELECT count(*) FROM claim WHERE id BETWEEN ?1 AND ?2";
        let rows = snapshot.query_row(query, super::coupon::range(row.id), |row| row.get(0));
        let rows = rows.map_err(|error| super::faults::fault(&error, "cannot count the claims"))?;
        let issued = row.purged.map_or(rows, |purged| purged.issued);
        let figures = Figures::Coupon { limit: row.settings.limit.get(), issued };
        let (object, key) = (Object::Coupon(row.name), row.voucher_key.head_key().public());
        standings.insert(object.clone(), standing(&object, key, figures));
    }
    Ok(standings)
}

/// Checks all heads.
pub(super) fn check(snapshot: &Connection) -> Result<[Check; 3], Fault> {
    let standings = standings(snapshot)?;
    let mut heads = StoredHeads::default();
    for_each_head(snapshot, |signed| {
        let standing = standings.get(&signed.head.object);
        heads.take(signed, standing);
        Ok(())
    })?;
    Ok(heads.checks())
}
