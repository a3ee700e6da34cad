//! Erases the user of a claim, and finds what names a user.

use super::{Database, coupon::gone, kind, tag};
use crate::database::CouponRow;
use firstcome_core::id::UserId;
use firstcome_sql::SqlError;
use firstcome_sql::base::ROLL_BACK;
use firstcome_sql::dialect::{Dialect, quoted};
use firstcome_sql::reader::Reader;
use std::fmt::Write as _;
use tokio::time::Instant;

impl Database {
    /// Gives the claim of a user of this coupon another user, without attributes and idempotency keys. Returns the coupon under
    /// its lock, and whether there was a claim. [`SqlError::Unknown`]: it may be done; the same again tells.
    pub(crate) async fn erase_claim(
        &self,
        coupon: i64,
        user: &UserId,
        pseudonym: &UserId,
    ) -> Result<(CouponRow, bool), SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_erase_claim(coupon, (user, pseudonym), attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_erase_claim(
        &self,
        coupon: i64,
        (user, pseudonym): (&UserId, &UserId),
        until: Instant,
    ) -> Result<(CouponRow, bool), SqlError> {
        let mut session = self.base.session(until).await?;
        // The lock of the coupon: no batch of claims is written meanwhile.
        let mut text = format!("{}{} FOR UPDATE;", self.dialect().words().begin, Self::by_id(coupon));
        let _ = write!(text, "SELECT {},serial FROM firstcome_claim WHERE coupon={coupon} AND name=", tag::CLAIM);
        quoted(&mut text, user.as_str());
        text.push_str(" FOR UPDATE;");
        let (mut row, mut serial) = (None, None);
        for found in &session.ask(text).await? {
            let mut columns = Reader::at(found, 0);
            match columns.integer()? {
                tag::COUPON => row = Some(self.coupon_of(found)?),
                _ => serial = Some(columns.small()?),
            }
        }
        let row = row.ok_or_else(gone)?;
        let Some(serial) = serial else {
            self.base.end(session, ROLL_BACK).await?;
            return Ok((row, false));
        };
        let mut text = "UPDATE firstcome_claim SET name=".to_owned();
        quoted(&mut text, pseudonym.as_str());
        let _ = write!(
            text,
            ",attributes=NULL WHERE coupon={coupon} AND serial={serial};\
             DELETE FROM firstcome_coupon_request WHERE coupon={coupon} AND kind IN ({},{}) AND serial={serial};",
            kind::CLAIM,
            kind::REDEMPTION
        );
        session.run(text).await?;
        self.commit(session).await?;
        Ok((row, true))
    }

    /// Whether a coupon has a claim of this user.
    pub(crate) async fn has_claim_of(&self, coupon: i64, user: &UserId) -> Result<bool, SqlError> {
        let mut text = format!("SELECT serial FROM firstcome_claim WHERE coupon={coupon} AND name=");
        quoted(&mut text, user.as_str());
        text.push(';');
        Ok(!self.base.read(text).await?.is_empty())
    }

    /// Whether a room has a ticket of this user, void ones included. A pass over the tickets of the room.
    pub(crate) async fn has_ticket_of(&self, room: i64, user: &UserId) -> Result<bool, SqlError> {
        let mut text = format!("SELECT number FROM firstcome_ticket WHERE room={room} AND name=");
        quoted(&mut text, user.as_str());
        text.push_str(" LIMIT 1;");
        Ok(!self.base.read(text).await?.is_empty())
    }

    /// Empties the dead letters of a coupon in which the name occurs: no program can read them, so the name may be that of the user.
    pub(crate) async fn erase_dead_letters(&self, coupon: i64, user: &UserId) -> Result<(), SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_erase_dead_letters(coupon, user, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_erase_dead_letters(&self, coupon: i64, user: &UserId, until: Instant) -> Result<(), SqlError> {
        let mut session = self.base.session(until).await?;
        let [mut name, mut nothing] = [const { String::new() }; 2];
        self.dialect().bytes(&mut name, user.as_str().as_bytes());
        self.dialect().bytes(&mut nothing, b"");
        let holds = match self.dialect() {
            Dialect::Postgres => format!("0<position({name} IN entry)"),
            Dialect::MySql => format!("0<LOCATE({name},entry)"),
        };
        let begin = self.dialect().words().begin;
        session
            .run(format!("{begin}UPDATE firstcome_dead_letter SET entry={nothing} WHERE coupon={coupon} AND {holds};"))
            .await?;
        self.commit(session).await
    }
}
