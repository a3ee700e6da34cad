//! What clients do: a crowd of users, a few coupons, an operator who changes her mind, and repeats by all of them.

use super::history::{Command, CouponReply, Operation};
use crate::rng::{Rng, mix};
use crate::workload::{Action, Plan, START_US, Workload, digest, draw_key, valid};
use firstcome_core::coupon::{Attributes, Claim, CouponLimit, CouponSettings, Issued, Serial, Title};
use firstcome_core::id::{CouponName, RequestId, RoomName, UserId};
use firstcome_core::time::Timestamp;
use firstcome_store::{RedeemRequest, VoucherCode};
use std::convert::Infallible;

/// Windows open and close within this time of the start.
const WINDOW_US: u64 = 20_000_000;

/// How often clients do what, per thousand.
struct Rates {
    operator_per_mille: u64,
    redeem_per_mille: u64,
    repeat_per_mille: u64,
}

/// A code that a client was told, and what it knows of it.
struct KnownCode {
    coupon: CouponName,
    serial: Serial,
    user: UserId,
    code: VoucherCode,
}

/// The clients of coupons and what they remember.
pub struct Coupons {
    rates: Rates,
    /// The coupons that the operator knows.
    pub(super) coupons: Vec<CouponName>,
    users: Vec<UserId>,
    /// Claims that were made before, to be repeated or imitated.
    claims: Vec<(CouponName, Claim)>,
    redeems: Vec<(CouponName, Command)>,
    /// Requests without a clear answer.
    unclear: Vec<(CouponName, Command)>,
    codes: Vec<KnownCode>,
}

impl Workload for Coupons {
    type Action = Infallible;

    /// Draws a plan, 1 to 4 coupons and 1 to 24 users.
    fn draw(rng: &mut Rng) -> (Plan<Infallible>, Self) {
        let plan = Plan {
            actions: rng.range(40, 200),
            commit_fault_per_mille: *rng.pick(&[0, 20, 60, 150, 300]),
            lost_answer_per_mille: *rng.pick(&[0, 50, 200]),
            batch_max: *rng.pick(&[1, 2, 8, 64]),
            weights: vec![
                (Action::Ask, rng.range(30, 80)),
                (Action::Step, rng.range(5, 40)),
                (Action::Deliver, rng.range(5, 30)),
                (Action::GoAway, rng.range(0, 4)),
                (Action::Wait, rng.range(1, 15)),
                (Action::Crash, rng.range(0, 3)),
                (Action::Restart, rng.range(0, 2)),
            ],
        };
        let rates = Rates {
            operator_per_mille: *rng.pick(&[0, 20, 80]),
            redeem_per_mille: *rng.pick(&[0, 80, 200]),
            repeat_per_mille: *rng.pick(&[50, 150, 300]),
        };
        let coupons = (1..=rng.range(1, 4)).map(|number| name(&format!("coupon-{number}"))).collect();
        let users = (1..=rng.range(1, 24)).map(|number| valid(UserId::parse(&format!("user-{number}")))).collect();
        let (claims, redeems, unclear, codes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (plan, Self { rates, coupons, users, claims, redeems, unclear, codes })
    }

    fn opening(&mut self, rng: &mut Rng, _: Timestamp) -> Vec<(CouponName, Command)> {
        self.coupons.iter().map(|coupon| (coupon.clone(), Command::Put(settings(rng)))).collect()
    }

    fn ask(&mut self, rng: &mut Rng, _: Timestamp) -> (CouponName, Command) {
        if !self.unclear.is_empty() && rng.chance(self.rates.repeat_per_mille) {
            return self.unclear.swap_remove(rng.index(self.unclear.len()));
        }
        if rng.chance(self.rates.operator_per_mille) {
            if rng.chance(100) {
                return (self.coupon(rng), Command::Delete);
            }
            return (rng.pick(&self.coupons).clone(), Command::Put(settings(rng)));
        }
        if rng.chance(self.rates.redeem_per_mille) {
            return self.redeem(rng);
        }
        if rng.chance(60) {
            return (self.coupon(rng), Command::View);
        }
        if rng.chance(20) {
            return self.look_up(rng);
        }
        let (coupon, claim) = self.claim(rng);
        self.claims.push((coupon.clone(), claim.clone()));
        (coupon, Command::Claim(claim))
    }

    fn visit(&mut self, rng: &mut Rng, now: Timestamp) -> (CouponName, Command) {
        match rng.below(10) {
            0..2 => self.look_up(rng),
            2 => (self.coupon(rng), Command::View),
            _ => self.ask(rng, now),
        }
    }

    /// Mostly a moment, sometimes past a window.
    fn pause_us(rng: &mut Rng) -> u64 {
        if rng.chance(200) { rng.below(WINDOW_US / 4) } else { rng.below(50_000) }
    }

    fn learn(&mut self, operation: &Operation) {
        let coupon = &operation.name;
        let Some(told) = operation.told() else {
            let worth_repeating = !matches!(operation.command, Command::View | Command::ClaimOf(_));
            if worth_repeating {
                self.unclear.push((coupon.clone(), operation.command.clone()));
            }
            return;
        };
        let Command::Claim(claim) = &operation.command else { return };
        let (CouponReply::Claimed(_, code) | CouponReply::Refused(_, Some(code))) = told else { return };
        let Some(Issued { serial, .. }) = operation.claim_told() else { return };
        self.codes.push(KnownCode { coupon: coupon.clone(), serial, user: claim.user.clone(), code: *code });
    }
}

impl Coupons {
    fn look_up(&self, rng: &mut Rng) -> (CouponName, Command) {
        if !self.codes.is_empty() && rng.chance(700) {
            let known = rng.pick(&self.codes);
            return (known.coupon.clone(), Command::ClaimOf(known.user.clone()));
        }
        (self.coupon(rng), Command::ClaimOf(rng.pick(&self.users).clone()))
    }

    fn coupon(&self, rng: &mut Rng) -> CouponName {
        // Now and then a name that no client has put.
        if rng.chance(15) { name("no-such-coupon") } else { rng.pick(&self.coupons).clone() }
    }

    fn claim(&self, rng: &mut Rng) -> (CouponName, Claim) {
        if !self.claims.is_empty() && rng.chance(self.rates.repeat_per_mille) {
            let (coupon, mut claim) = rng.pick(&self.claims).clone();
            if let Some(RequestId { key, .. }) = claim.request
                && rng.chance(300)
            {
                // The same key for something else, in the user or in what comes along.
                if rng.chance(500) {
                    claim.user = rng.pick(&self.users).clone();
                }
                claim.attributes = attributes(rng);
                claim.request = Some(RequestId { key, body: digest_claim(&claim) });
            }
            return (coupon, claim);
        }
        let user = rng.pick(&self.users).clone();
        let mut claim = Claim { user, attributes: attributes(rng), request: None };
        if rng.chance(500) {
            claim.request = Some(RequestId { key: draw_key(rng), body: digest_claim(&claim) });
        }
        (self.coupon(rng), claim)
    }

    fn redeem(&mut self, rng: &mut Rng) -> (CouponName, Command) {
        if !self.redeems.is_empty() && rng.chance(200) {
            let (coupon, mut command) = rng.pick(&self.redeems).clone();
            if let Command::Redeem(RedeemRequest { request: Some(request), .. }, _) = &mut command
                && rng.chance(300)
            {
                request.body = mix(request.body);
            }
            return (coupon, command);
        }
        let request = rng.chance(500).then(|| RequestId { key: draw_key(rng), body: rng.bits() });
        if self.codes.is_empty() {
            let redeem = RedeemRequest { code: "22222-22222-22222-22222".into(), user: None, request };
            return (self.coupon(rng), Command::Redeem(redeem, None));
        }
        let known = rng.pick(&self.codes);
        let (coupon, replied_for) = if rng.chance(100) {
            (self.coupon(rng), None)
        } else {
            (known.coupon.clone(), Some((known.serial, known.user.clone())))
        };
        // The code of one coupon shown at another is unknown there; at its own it is still the code it was.
        let replied_for = replied_for.or_else(|| (coupon == known.coupon).then(|| (known.serial, known.user.clone())));
        let user = match rng.below(4) {
            0 => None,
            1 => Some(rng.pick(&self.users).clone()),
            _ => Some(known.user.clone()),
        };
        let redeem = RedeemRequest { code: known.code.as_str().into(), user, request };
        let command = Command::Redeem(redeem, replied_for);
        self.redeems.push((coupon.clone(), command.clone()));
        (coupon, command)
    }
}

/// Draws settings: small limits, and windows that a run can see open and close.
pub fn settings(rng: &mut Rng) -> CouponSettings {
    let count = rng.range(1, 12) as u32;
    let Some(limit) = CouponLimit::new(count) else { panic!("{count} is a limit") };
    let mut settings = CouponSettings::with_limit(limit);
    settings.opens_at = rng.chance(250).then(|| instant(rng, WINDOW_US / 4));
    settings.expires_at = rng.chance(300).then(|| instant(rng, WINDOW_US));
    settings.redeem_until = rng.chance(250).then(|| instant(rng, WINDOW_US));
    settings.title = if rng.chance(200) { Title::new("a title") } else { None };
    settings.room = if rng.chance(50) { RoomName::parse("lobby").ok() } else { None };
    settings
}

fn instant(rng: &mut Rng, within_us: u64) -> Timestamp {
    Timestamp::clamped_us(START_US + rng.below(within_us) as i64)
}

fn attributes(rng: &mut Rng) -> Option<Attributes> {
    if rng.chance(300) { Attributes::new(&format!("{{\"n\":{}}}", rng.below(4))) } else { None }
}

/// What a claim asks for, in 64 bits.
fn digest_claim(claim: &Claim) -> u64 {
    let attributes = claim.attributes.as_ref().map_or("", Attributes::as_str);
    digest(claim.user.as_str().bytes().chain([0]).chain(attributes.bytes()))
}

fn name(text: &str) -> CouponName {
    valid(CouponName::parse(text))
}
