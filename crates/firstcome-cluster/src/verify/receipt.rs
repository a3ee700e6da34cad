//! Published heads, from the rows alone. Signatures are not checked: their keys are wrapped.

use crate::database::HeadKeys;
use firstcome_core::id::{CouponName, RoomName};
use firstcome_core::receipt::{Digest, Head, Object};
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::Reading;
use firstcome_store::check::Check;
use std::collections::BTreeMap;

/// What has heads, and the last number that it can have given.
type Known = BTreeMap<i64, (Object, u32)>;

pub(super) async fn check(reading: &mut Reading) -> Result<Check, SqlError> {
    let mut check = Check::new("heads of a room or coupon are one chain, and publish no more than is stored");
    let rooms = known(reading, "SELECT id,name,ceiling FROM firstcome_room", |name| {
        RoomName::parse(name).ok().map(Object::Room)
    });
    let rooms = rooms.await?;
    chains(reading, 1, &rooms, &mut check).await?;
    // After a loss that an operator accepted, heads may publish claims that are gone.
    let what = "SELECT id,name,CASE WHEN loss_accepted=0 THEN issued ELSE 4294967295 END FROM firstcome_coupon";
    let coupons = known(reading, what, |name| CouponName::parse(name).ok().map(Object::Coupon));
    let coupons = coupons.await?;
    chains(reading, 2, &coupons, &mut check).await?;
    Ok(check)
}

async fn known(reading: &mut Reading, what: &str, object: impl Fn(&str) -> Option<Object>) -> Result<Known, SqlError> {
    let mut known = Known::new();
    reading
        .numbered(what, |id, row| {
            let mut columns = Reader::at(row, 1);
            let (name, last) = (columns.maybe_text()?.unwrap_or_default(), columns.small()?);
            // Another check tells invalid names.
            known.extend(object(&name).map(|object| (id, (object, last))));
            Ok(())
        })
        .await?;
    Ok(known)
}

/// Checks the chains of one kind.
async fn chains(reading: &mut Reading, kind: u8, known: &Known, check: &mut Check) -> Result<(), SqlError> {
    let what = format!("{} FROM (SELECT * FROM firstcome_head WHERE kind={kind}) h", HeadKeys::COLUMNS);
    let mut before: Option<Head> = None;
    reading
        .paired(&what, ["object", "sequence"], |id, columns| {
            let Some((object, last)) = known.get(&id) else {
                check.check(false, || format!("kind {kind}, number {id}: there is no such thing"));
                return Ok(());
            };
            let head = HeadKeys { object: object.clone(), id }.read(columns)?.head;
            let follows = match before.take().filter(|before| before.object == *object) {
                Some(before) => head.follows(&before).is_ok(),
                None => head.sequence == 1 && head.previous == Digest::NONE,
            };
            check.check(follows && head.figures.given() <= *last, || format!("{object}, head {}", head.sequence));
            before = Some(head);
            Ok(())
        })
        .await
}
