//! Published heads, from the rows. The public key of a chain is made from a secret that lies wrapped beside it.

use crate::database::{HeadKeys, coupon, room};
use crate::wrap::DeploymentSecret;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::receipt::{Figures, Object};
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::Reading;
use firstcome_store::check::Check;
use firstcome_store::receipt::{Standing, StoredHeads};
use firstcome_store::{TicketKey, VoucherKey};
use std::collections::BTreeMap;

/// What has heads.
type Known = BTreeMap<i64, (Object, Standing)>;

/// Checks all heads. Without the secret of the deployment no signature is checked.
pub(super) async fn check(reading: &mut Reading, secret: Option<&DeploymentSecret>) -> Result<[Check; 3], SqlError> {
    let mut heads = StoredHeads::default();
    let rooms = rooms(reading, secret).await?;
    chains(reading, 1, &rooms, &mut heads).await?;
    let coupons = coupons(reading, secret).await?;
    chains(reading, 2, &coupons, &mut heads).await?;
    Ok(heads.checks())
}

/// Up to which sequences purges removed heads of one kind.
async fn removed(reading: &mut Reading, kind: u8) -> Result<BTreeMap<i64, u64>, SqlError> {
    let mut removed = BTreeMap::new();
    let rows = format!("(SELECT object AS id,sequence FROM firstcome_head_removed WHERE kind={kind}) h");
    reading
        .numbered(&format!("SELECT id,sequence FROM {rows}"), |id, row| {
            removed.insert(id, Reader::at(row, 1).count()?);
            Ok(())
        })
        .await?;
    Ok(removed)
}

async fn rooms(reading: &mut Reading, secret: Option<&DeploymentSecret>) -> Result<Known, SqlError> {
    let (mut known, removed) = (Known::new(), removed(reading, 1).await?);
    reading
        .numbered("SELECT id,name,ceiling,ticket_key FROM firstcome_room", |id, row| {
            let mut columns = Reader::at(row, 1);
            let (name, given) = (columns.maybe_text()?.unwrap_or_default(), columns.small()?);
            let key = opened(&mut columns, secret, &room::place(&name))?.map(|key| TicketKey::new(key).head_key());
            // The log may be ahead of the row, except of the ceiling.
            let figures = Figures::Room { first: u32::MAX, given, front: u32::MAX };
            let removed_to = removed.get(&id).copied().unwrap_or_default();
            let standing = Standing { key: key.map(|key| key.public()), figures, removed_to };
            // Another check tells invalid names.
            known.extend(RoomName::parse(&name).ok().map(|name| (id, (Object::Room(name), standing))));
            Ok(())
        })
        .await?;
    Ok(known)
}

async fn coupons(reading: &mut Reading, secret: Option<&DeploymentSecret>) -> Result<Known, SqlError> {
    let (mut known, removed) = (Known::new(), removed(reading, 2).await?);
    // After a loss that an operator accepted, heads may publish claims that are gone.
    let what =
        "SELECT id,name,CASE WHEN loss_accepted=0 THEN issued ELSE 4294967295 END,code_key FROM firstcome_coupon";
    reading
        .numbered(what, |id, row| {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.unwrap_or_default();
            let issued = columns.small()?;
            let key = opened(&mut columns, secret, &coupon::place(&name))?.map(|key| VoucherKey::new(key).head_key());
            let figures = Figures::Coupon { limit: u32::MAX, issued };
            let removed_to = removed.get(&id).copied().unwrap_or_default();
            let standing = Standing { key: key.map(|key| key.public()), figures, removed_to };
            known.extend(CouponName::parse(&name).ok().map(|name| (id, (Object::Coupon(name), standing))));
            Ok(())
        })
        .await?;
    Ok(known)
}

/// Reads a wrapped secret, and opens it. Another check tells those that do not open.
fn opened(
    columns: &mut Reader<'_>,
    secret: Option<&DeploymentSecret>,
    place: &str,
) -> Result<Option<[u8; 32]>, SqlError> {
    let wrapped = columns.maybe_blob()?.unwrap_or_default();
    Ok(secret.and_then(|secret| secret.unwrap(&wrapped, place)))
}

/// Checks the chains of one kind.
async fn chains(reading: &mut Reading, kind: u8, known: &Known, heads: &mut StoredHeads) -> Result<(), SqlError> {
    let what = format!("{} FROM (SELECT * FROM firstcome_head WHERE kind={kind}) h", HeadKeys::COLUMNS);
    reading
        .paired(&what, ["object", "sequence"], |id, columns| {
            match known.get(&id) {
                Some((object, standing)) => {
                    heads.take(HeadKeys { object: object.clone(), id }.read(columns)?, Some(standing));
                }
                None => heads.stray(&format!("kind {kind}, number {id}")),
            }
            Ok(())
        })
        .await
}
