//! The rules of a coupon as rows: an instant, a command, and the expected answer.
//!
//! Only [`check`] and [`apply`] call the rules. They write an answer as its stable code and its values: `new 1@10` is serial
//! 1 issued at 10, `already_issued 1@10` names that claim.

mod claims;
mod model;
#[cfg(feature = "planted-bugs")]
mod planted;
mod redemptions;
mod restoring;
mod settings;
mod size;
mod values;

use super::*;

/// One command, in the form of the rows.
#[derive(Clone, Debug)]
enum Step {
    Claim(Claim),
    Redeem(Redeem),
    Put(CouponSettings),
    Delete,
    State,
}

type Row<'a> = (i64, Step, &'a str);

fn claim(user: &str) -> Step {
    Step::Claim(Claim { user: user_id(user), attributes: None, request: None })
}

fn keyed(user: &str, key: u128, body: u64) -> Step {
    Step::Claim(Claim { user: user_id(user), attributes: None, request: Some(RequestId { key, body }) })
}

fn redeem(number: u32) -> Step {
    Step::Redeem(Redeem { serial: Some(serial(number)), user: None, request: None })
}

fn redeem_as(user: &str, number: u32) -> Step {
    Step::Redeem(Redeem { serial: Some(serial(number)), user: Some(user_id(user)), request: None })
}

fn redeem_foreign_code() -> Step {
    Step::Redeem(Redeem { serial: None, user: None, request: None })
}

/// The same redemption with an idempotency key.
fn with_key(step: Step, key: u128, body: u64) -> Step {
    match step {
        Step::Redeem(redeem) => Step::Redeem(Redeem { request: Some(RequestId { key, body }), ..redeem }),
        other => other,
    }
}

fn put_limit(count: u32) -> Step {
    Step::Put(limited(count))
}

fn limited(count: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(count).unwrap())
}

/// Settings that issue from `opens_at` to `expires_at`.
fn window(count: u32, opens_at: i64, expires_at: i64) -> CouponSettings {
    CouponSettings { opens_at: Some(at(opens_at)), expires_at: Some(at(expires_at)), ..limited(count) }
}

fn at(unix_us: i64) -> Timestamp {
    Timestamp::from_us(unix_us).unwrap()
}

fn user_id(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

fn serial(number: u32) -> Serial {
    Serial::new(number).unwrap()
}

fn issued(number: u32, issued_at: i64) -> Issued {
    Issued { serial: serial(number), issued_at: at(issued_at) }
}

fn redeemed(number: u32, redeemed_at: i64) -> Redeemed {
    Redeemed { serial: serial(number), redeemed_at: at(redeemed_at) }
}

#[expect(clippy::disallowed_methods, reason = "any seed will do: no answer may depend on it")]
fn coupon(settings: CouponSettings) -> Coupon {
    Coupon::new(settings, RandomState::new())
}

/// Plays the rows on a new coupon and returns it.
#[track_caller]
fn check(settings: CouponSettings, rows: &[Row<'_>]) -> Coupon {
    let mut coupon = coupon(settings);
    check_on(&mut coupon, rows);
    coupon
}

#[track_caller]
fn check_on(coupon: &mut Coupon, rows: &[Row<'_>]) {
    for (row, (now, step, wanted)) in rows.iter().enumerate() {
        let told = apply(coupon, step, at(*now));
        assert_eq!(told, *wanted, "row {row}: {step:?} at {now}");
        assert_sound(coupon);
    }
}

/// Runs one command on the coupon, and writes its answer down.
#[track_caller]
fn apply(coupon: &mut Coupon, step: &Step, now: Timestamp) -> String {
    match step {
        Step::Claim(claim) => {
            let judged = coupon.judge_claim(claim, now);
            assert_eq!(coupon.claim(claim, now), judged, "to judge tells what will happen, and changes nothing");
            told(judged, |issued| format!("{}@{}", issued.serial.get(), issued.issued_at.as_us()))
        }
        Step::Redeem(redeem) => {
            let judged = coupon.judge_redeem(redeem, now);
            assert_eq!(coupon.redeem(redeem, now), judged, "to judge tells what will happen, and changes nothing");
            told(judged, |redeemed| format!("{}@{}", redeemed.serial.get(), redeemed.redeemed_at.as_us()))
        }
        Step::Put(settings) => match coupon.judge_settings(&settings.clone().into()) {
            Ok(()) => {
                coupon.replace_settings(settings.clone());
                assert_eq!(coupon.settings(), settings);
                "put".to_owned()
            }
            Err(rejection) => refused(&rejection),
        },
        Step::Delete => {
            coupon.delete();
            "gone".to_owned()
        }
        Step::State => coupon.state(coupon.issued(), now).as_str().to_owned(),
    }
}

fn told<T>(answer: Result<Effect<T>, Rejection>, tell: impl FnOnce(T) -> String) -> String {
    match answer {
        Ok(Effect::New(value)) => format!("new {}", tell(value)),
        Ok(Effect::Again(value)) => format!("again {}", tell(value)),
        Err(rejection) => refused(&rejection),
    }
}

fn refused(rejection: &Rejection) -> String {
    let code = rejection.code();
    match rejection {
        Rejection::KeyReused(serial) => format!("{code} {}", serial.get()),
        Rejection::AlreadyIssued(issued) => format!("{code} {}@{}", issued.serial.get(), issued.issued_at.as_us()),
        Rejection::NotOpen(instant) | Rejection::Expired(instant) => format!("{code} {}", instant.as_us()),
        Rejection::LimitBelowIssued(count) => format!("{code} {count}"),
        Rejection::AlreadyRedeemed(redeemed) => {
            format!("{code} {}@{}", redeemed.serial.get(), redeemed.redeemed_at.as_us())
        }
        _ => code.to_owned(),
    }
}

/// Checks the invariants of the module: never more than the limit, one each, gapless, instants that never fall.
#[track_caller]
fn assert_sound(coupon: &Coupon) {
    assert!(coupon.issued() <= coupon.settings().limit.get(), "oversold");
    let mut last = Timestamp::MIN;
    for number in 1..=coupon.issued() {
        let (user, issued) = coupon.claim_at(serial(number)).expect("a serial up to issued has its claim");
        assert_eq!(issued.serial, serial(number), "the place of {user}");
        assert_eq!(coupon.claim_of(user), Some(issued), "{user} holds one claim, under that serial");
        assert!(last <= issued.issued_at, "the instant of serial {number} fell");
        last = issued.issued_at;
    }
    let next = serial(coupon.issued() + 1);
    assert_eq!(coupon.claim_at(next), None, "a serial after the last one is free");
    assert_eq!(coupon.redeemed(next), None, "and nobody has redeemed it");
}
