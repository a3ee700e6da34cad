//! Statements of imports and exports: coupons, claims, rooms and secrets, many rows at once.

use super::{CouponRow, DRAW_COLUMNS, Database, RoomRow, coupon, room, secrets};
use firstcome_core::coupon::{Attributes, Issued, Redeemed, Serial};
use firstcome_core::id::{RequestId, UserId};
use firstcome_core::room::{Departure, Draw, Join, Slot, TicketNumber};
use firstcome_core::time::{Now, Timestamp};
use firstcome_sql::SqlError;
use firstcome_sql::dialect::{Dialect, Row, list, maybe, quoted};
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::archive::{ArchivedPurge, ArchivedRoom};
use firstcome_store::embedded::journal::{CouponPut, PassSecret};
use std::fmt::Write as _;

/// A redemption, with the number of its coupon.
pub(crate) type NewRedemption = (i64, Redeemed, Option<RequestId>);
/// A ticket, with the number of its room.
pub(crate) type NewTicket = (i64, TicketNumber, Join, Timestamp);

/// Writes redemptions.
pub(crate) fn write_redemptions(redemptions: &[NewRedemption]) -> String {
    let rows = list(redemptions, |text, (coupon, redeemed, _)| {
        let _ = write!(text, "({coupon},{},{})", redeemed.serial.get(), redeemed.redeemed_at.as_us());
    });
    format!("INSERT INTO firstcome_redemption (coupon,serial,redeemed_at) VALUES {rows};")
}

/// Writes living tickets.
pub(crate) fn write_tickets(dialect: Dialect, tickets: &[NewTicket]) -> String {
    let rows = list(tickets, |text, (room, number, join, joined_at)| {
        room::ticket(dialect, text, *room, *number, join, *joined_at);
    });
    format!("{}{rows};", room::TICKETS)
}

/// Writes slots.
pub(crate) fn write_slots(slots: &[(i64, TicketNumber, Slot)]) -> String {
    let rows = list(slots, |text, (room, number, slot)| room::slot(text, *room, *number, slot));
    format!("{}{rows};", room::SLOTS)
}

/// Writes who is gone.
pub(crate) fn write_gone(gone: &[(i64, TicketNumber, Departure)]) -> String {
    let rows = list(gone, |text, (room, number, how)| room::gone(text, *room, *number, *how));
    format!("{}{rows};", room::GONE)
}

/// Writes how far a coupon is after all its claims. Its sequencer is rebuilt from this by the first node that is asked.
pub(crate) fn write_issued(text: &mut String, id: i64, issued: u32, last_at: Timestamp) {
    let last = last_at.as_us();
    let _ = write!(
        text,
        "UPDATE firstcome_coupon SET issued={issued},position={issued},last_at={last} WHERE id={id} AND issued=0;"
    );
}

/// Writes from which serial on the codes of a coupon are bound to their claims.
pub(crate) fn write_codes_bound(id: i64, from: u32) -> String {
    format!("UPDATE firstcome_coupon SET codes_bound_from={from} WHERE id={id};")
}

/// How a coupon that comes in is over, if it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct CouponEnd {
    /// When it was deleted.
    pub(crate) deleted_at: Option<Timestamp>,
    /// What is known of its claims if they were purged.
    pub(crate) purged: Option<ArchivedPurge>,
}

/// What reads the number of what has this name.
pub(crate) fn id_of(table: &str, name: &str) -> String {
    let mut text = format!("SELECT id FROM {table} WHERE name=");
    quoted(&mut text, name);
    text.push(';');
    text
}

/// A claim as it goes out.
pub(crate) struct OldClaim {
    pub(crate) issued: Issued,
    pub(crate) user: UserId,
    pub(crate) attributes: Option<Attributes>,
    pub(crate) redeemed_at: Option<Timestamp>,
}

/// What reads claims of a coupon after a serial, by their serials.
pub(crate) fn claims_after(coupon: i64, serial: u32, count: usize) -> String {
    format!(
        "SELECT c.serial,c.name,c.issued_at,c.attributes,r.redeemed_at FROM firstcome_claim c LEFT JOIN firstcome_redemption r \
         ON r.coupon=c.coupon AND r.serial=c.serial WHERE c.coupon={coupon} AND c.serial>{serial} ORDER BY c.serial LIMIT {count};"
    )
}

/// A claim of [`claims_after`].
pub(crate) fn claim_of(row: &Row) -> Result<OldClaim, SqlError> {
    let mut columns = Reader::at(row, 0);
    let serial = Serial::new(columns.small()?).ok_or_else(|| wrong("a serial out of its range"))?;
    let user = UserId::restore(&columns.maybe_text()?.unwrap_or_default()).map_err(|_| wrong("an invalid user"))?;
    let issued = Issued { serial, issued_at: columns.instant()? };
    let attributes =
        columns.maybe_blob()?.map(|blob| String::from_utf8(blob).ok().and_then(|text| Attributes::new(&text)));
    let attributes = attributes.map(|text| text.ok_or_else(|| wrong("attributes that are none"))).transpose()?;
    Ok(OldClaim { issued, user, attributes, redeemed_at: columns.maybe_instant()? })
}

/// What reads the requests of some claims of a coupon: kind, serial, key, body.
pub(crate) fn requests_of(coupon: i64, serials: [u32; 2]) -> String {
    let [first, last] = serials;
    format!(
        "SELECT kind,serial,request,body FROM firstcome_coupon_request WHERE coupon={coupon} AND serial BETWEEN {first} AND {last};"
    )
}

impl Database {
    fn wrapped(&self, secret: &[u8; 32], place: &str) -> Result<Vec<u8>, SqlError> {
        self.secret.wrap(secret, place).map_err(|fault| SqlError::broken(fault.to_string()))
    }

    /// Makes a coupon that came in, without its claims.
    pub(crate) fn make_coupon(&self, put: &CouponPut, over: CouponEnd) -> Result<String, SqlError> {
        let CouponEnd { deleted_at, purged } = over;
        let mut text = format!(
            "INSERT INTO firstcome_coupon ({},name,code_key,codes_bound_from,deleted_at,purged_at,issued,position,purged_to,version) \
             VALUES ({},",
            coupon::SETTINGS.join(","),
            coupon::values(self.dialect(), &put.settings).join(",")
        );
        quoted(&mut text, put.name.as_str());
        text.push(',');
        self.dialect().bytes(&mut text, &self.wrapped(put.voucher_key.as_bytes(), &coupon::place(&put.name))?);
        let _ = write!(text, ",{},", put.voucher_key.codes_bound_from());
        maybe(&mut text, deleted_at.map(Timestamp::as_us));
        text.push(',');
        maybe(&mut text, purged.map(|purged| purged.at.as_us()));
        let issued = purged.map_or(0, |purged| purged.issued);
        let _ = write!(text, ",{issued},{issued},{issued},1);");
        Ok(text)
    }

    /// Makes a room that came in, without its tickets. It is one that has lost its log: a caller that is asked first makes that anew.
    pub(crate) fn make_archived_room(&self, room: &ArchivedRoom, now: Now) -> Result<String, SqlError> {
        let ArchivedRoom { name, settings, ticket_key, is_closed, first, reached, drawn, admissions, draw, .. } = room;
        let mut text = format!(
            "INSERT INTO firstcome_room ({},closed,first_number,reached,ceiling,admissions,clock_wall,clock_steady,generation,{},name,\
             ticket_key) VALUES ({},{},{first},{reached},{drawn},{admissions},{},{},1,",
            room::SETTINGS.join(","),
            DRAW_COLUMNS,
            room::values(self.dialect(), settings).join(","),
            u8::from(*is_closed),
            now.wall.as_us(),
            now.steady.as_us(),
        );
        match draw {
            Some(Draw { seed, first, entrants, drawn_at }) => {
                self.dialect().bytes(&mut text, seed.as_bytes());
                let _ = write!(text, ",{first},{entrants},{},", drawn_at.as_us());
            }
            None => text.push_str("NULL,NULL,NULL,NULL,"),
        }
        quoted(&mut text, name.as_str());
        text.push(',');
        self.dialect().bytes(&mut text, &self.wrapped(ticket_key.as_bytes(), &room::place(name))?);
        text.push_str(");");
        Ok(text)
    }

    /// Keeps a secret that signs passes.
    pub(crate) fn write_pass_secret(&self, secret: &PassSecret) -> Result<String, SqlError> {
        let mut text = format!("INSERT INTO firstcome_pass_secret (id,secret,created_at) VALUES ({},", secret.id);
        self.dialect().bytes(&mut text, &self.wrapped(&secret.bytes, &format!("pass:{}", secret.id))?);
        let _ = write!(text, ",{});", secret.created_at.as_us());
        Ok(text)
    }

    /// Keeps a secret of the service.
    pub(crate) fn write_secret(&self, name: &str, bytes: &[u8; 32]) -> Result<String, SqlError> {
        let mut text = String::from("INSERT INTO firstcome_secret (name,wrapped) VALUES (");
        quoted(&mut text, name);
        text.push(',');
        self.dialect().bytes(&mut text, &self.wrapped(bytes, &secrets::place(name))?);
        text.push_str(");");
        Ok(text)
    }

    /// A secret of the service, from its name and how it is wrapped.
    pub(crate) fn secret_of(&self, row: &Row) -> Result<(String, [u8; 32]), SqlError> {
        let mut columns = Reader::at(row, 0);
        let name = columns.maybe_text()?.unwrap_or_default();
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        let bytes = self.secret.unwrap(&wrapped, &secrets::place(&name));
        Ok((name, bytes.ok_or_else(super::deployment::other_secret)?))
    }

    /// What reads coupons after a number, by their numbers.
    pub(crate) fn coupons_after(id: i64, count: usize) -> String {
        format!("{}id>{id} ORDER BY id LIMIT {count};", coupon::select())
    }

    /// A coupon of [`Self::coupons_after`].
    pub(crate) fn old_coupon(&self, row: &Row) -> Result<CouponRow, SqlError> {
        self.coupon_of(row)
    }

    /// What reads rooms after a number, by their numbers.
    pub(crate) fn rooms_after(id: i64, count: usize) -> String {
        format!("{}id>{id} ORDER BY id LIMIT {count};", Self::select_room())
    }

    /// A room of [`Self::rooms_after`].
    pub(crate) fn old_room(&self, row: &Row) -> Result<RoomRow, SqlError> {
        self.room_of(row)
    }

    /// A secret that signs passes: number, wrapped, since when.
    pub(crate) fn old_pass_secret(&self, row: &Row) -> Result<PassSecret, SqlError> {
        self.pass_secret_of(row)
    }
}
