//! Redeems claims. SQL alone decides, under the lock of the claim.

use super::coupon::gone;
use super::{Database, kind, tag};
use firstcome_core::coupon::{Effect, Issued, Redeem, Redeemed, Rejection, Serial};
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::base::{ROLL_BACK, Session};
use firstcome_sql::dialect::{Dialect, list, number};
use firstcome_sql::reader::{Reader, wrong};
use firstcome_store::{ShownCode, VoucherKey};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tokio::time::Instant;

/// A claim that was redeemed, and by whom it is held.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Used {
    pub(crate) user: Box<str>,
    pub(crate) issued: Issued,
    pub(crate) redeemed: Redeemed,
}

/// What a redemption rests on beside the claim.
struct Before {
    redeem_until: Option<Timestamp>,
    voucher_key: Option<VoucherKey>,
    now: Timestamp,
    /// Body and serial of the same request, if it was here before.
    same: Option<(u64, u32)>,
    /// Why no claim of the coupon can be redeemed.
    over: Option<Rejection>,
}

/// A claim and its redemption, as they were read.
struct Holding {
    user: Box<str>,
    issued: Issued,
    redeemed_at: Option<Timestamp>,
}

impl Database {
    /// Redeems the claim whose serial the caller has read from the code, if the code is that claim's. Order of refusals: that
    /// of [`firstcome_core::coupon::Coupon::judge_redeem`].
    pub(crate) async fn redeem(
        &self,
        coupon: i64,
        redeem: &Redeem,
        shown: Option<ShownCode>,
    ) -> Result<Result<Effect<Used>, Rejection>, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_redeem(coupon, redeem, shown, attempts.until).await {
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_redeem(
        &self,
        coupon: i64,
        redeem: &Redeem,
        shown: Option<ShownCode>,
        until: Instant,
    ) -> Result<Result<Effect<Used>, Rejection>, SqlError> {
        let mut session = self.base.session(until).await?;
        let Before { redeem_until, voucher_key, now, same, over } = self.lock(&mut session, coupon, redeem).await?;
        if let Some(rejection) = over {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(Err(rejection));
        }
        let serials = redeem.serial.map(Serial::get).into_iter().chain(same.map(|(_, serial)| serial)).collect();
        let claims = self.holdings(&mut session, coupon, serials).await?;
        let used = |held: &Holding, redeemed_at| Used {
            user: held.user.clone(),
            issued: held.issued,
            redeemed: Redeemed { serial: held.issued.serial, redeemed_at },
        };
        let verdict = match (same, redeem.request) {
            (Some((body, serial)), Some(request)) => {
                let held = claims.get(&serial).ok_or_else(gone)?;
                match held.redeemed_at {
                    Some(at) if body == request.body => Ok(Effect::Again(used(held, at))),
                    _ => Err(Rejection::KeyReused(held.issued.serial)),
                }
            }
            _ => {
                // Only a code that is this claim's: the serial alone may be that of another one, which an older copy of these
                // tables held.
                let named = shown.and_then(|shown| {
                    let held = claims.get(&shown.serial().get())?;
                    voucher_key.as_ref()?.fits(&shown, held.issued, &held.user).then_some(held)
                });
                judge(redeem, named, redeem_until, now).map(|(held, at)| Effect::New(used(held, at)))
            }
        };
        let Ok(Effect::New(fresh)) = &verdict else {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(verdict);
        };
        session.run(writing(self.dialect(), coupon, redeem, fresh.redeemed)).await?;
        self.commit(session).await?;
        Ok(verdict)
    }

    /// Locks the claim, and reads what a redemption rests on. Claims never change, so their lock is no caller's but
    /// redemptions'.
    async fn lock(&self, session: &mut Session, coupon: i64, redeem: &Redeem) -> Result<Before, SqlError> {
        let mut text = format!("{}{};", self.dialect().words().begin, Self::by_id(coupon));
        if let Some(serial) = redeem.serial {
            let _ = write!(
                text,
                "SELECT 0,serial FROM firstcome_claim WHERE coupon={coupon} AND serial={} FOR UPDATE;",
                serial.get()
            );
        }
        if let Some(request) = redeem.request {
            let (tag, kind) = (tag::REQUEST, kind::REDEMPTION);
            let _ = write!(
                text,
                "SELECT {tag},body,serial FROM firstcome_coupon_request WHERE coupon={coupon} AND kind={kind} AND request="
            );
            self.dialect().bytes(&mut text, &request.key.to_be_bytes());
            text.push(';');
        }
        let _ = write!(text, "SELECT {},{};", tag::CLOCK, self.clock());
        let mut before = Before { redeem_until: None, voucher_key: None, now: Timestamp::MIN, same: None, over: None };
        let mut seen = None;
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 0);
            match columns.integer()? {
                tag::COUPON => {
                    let row = self.coupon_of(row)?;
                    before.redeem_until = row.settings.redeem_until;
                    before.voucher_key = Some(row.voucher_key.clone());
                    seen = Some(row);
                }
                tag::REQUEST => before.same = Some((columns.integer()?.cast_unsigned(), columns.small()?)),
                tag::CLOCK => before.now = columns.instant()?,
                _ => {}
            }
        }
        before.over = seen.and_then(|row| row.standing().judge_redemptions(before.now).err());
        Ok(before)
    }

    /// The claims of these serials.
    async fn holdings(
        &self,
        session: &mut Session,
        coupon: i64,
        serials: Vec<u32>,
    ) -> Result<BTreeMap<u32, Holding>, SqlError> {
        let mut claims = BTreeMap::new();
        if serials.is_empty() {
            return Ok(claims);
        }
        let serials = list(&serials, |text, serial| number(text, *serial));
        let text = format!(
            "SELECT {},c.serial,c.name,c.issued_at,r.redeemed_at FROM firstcome_claim c LEFT JOIN firstcome_redemption r \
             ON r.coupon=c.coupon AND r.serial=c.serial WHERE c.coupon={coupon} AND c.serial IN ({serials});",
            tag::CLAIM
        );
        for row in &session.ask(text).await? {
            let mut columns = Reader::at(row, 1);
            let serial = Serial::new(columns.small()?).ok_or_else(|| wrong("a serial out of its range"))?;
            let user = columns.maybe_text()?.unwrap_or_default().into();
            let issued = Issued { serial, issued_at: columns.instant()? };
            claims.insert(serial.get(), Holding { user, issued, redeemed_at: columns.maybe_instant()? });
        }
        Ok(claims)
    }
}

/// Judges a redemption whose request was not seen before. Order of checks: unknown code, wrong user, already redeemed, expired.
fn judge<'a>(
    redeem: &Redeem,
    held: Option<&'a Holding>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(&'a Holding, Timestamp), Rejection> {
    let held = held.ok_or(Rejection::UnknownCode)?;
    if redeem.user.as_ref().is_some_and(|user| user.as_str() != &*held.user) {
        return Err(Rejection::WrongUser);
    }
    if let Some(redeemed_at) = held.redeemed_at {
        return Err(Rejection::AlreadyRedeemed(Redeemed { serial: held.issued.serial, redeemed_at }));
    }
    if let Some(until) = until
        && until <= now
    {
        return Err(Rejection::Expired(until));
    }
    Ok((held, now.max(held.issued.issued_at)))
}

fn writing(dialect: Dialect, coupon: i64, redeem: &Redeem, redeemed: Redeemed) -> String {
    let (serial, at) = (redeemed.serial.get(), redeemed.redeemed_at.as_us());
    let mut text =
        format!("INSERT INTO firstcome_redemption (coupon,serial,redeemed_at) VALUES ({coupon},{serial},{at});");
    if let Some(request) = redeem.request {
        let kind = kind::REDEMPTION;
        let _ = write!(
            text,
            "INSERT INTO firstcome_coupon_request (coupon,kind,request,body,serial) VALUES ({coupon},{kind},"
        );
        dialect.bytes(&mut text, &request.key.to_be_bytes());
        let _ = write!(text, ",{},{serial});", request.body.cast_signed());
    }
    text
}
