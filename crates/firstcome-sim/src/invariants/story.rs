//! Histories written by hand, so that each invariant can be shown what it must reject.

use super::{CouponEvidence, Evidence, Violation, both};
use crate::coupon::history::{Command, CouponReply, History};
use crate::coupon::rows::{CouponRows, Stored};
use crate::history::{OperationId, Outcome};
use firstcome_core::coupon::{
    Claim, CouponLimit, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection, Serial,
};
use firstcome_core::id::{CouponName, RequestId, UserId};
use firstcome_core::time::Timestamp;
use firstcome_store::embedded::journal::CouponId;
use firstcome_store::{Put, RedeemRequest, VoucherKey};

const COUPON: CouponId = CouponId(1);

/// One coupon, told step by step.
pub(super) struct Story {
    history: History,
    stored: Stored,
    healed_at: Option<Timestamp>,
    now: Timestamp,
}

impl Story {
    pub(super) fn with_limit(limit: u32) -> Self {
        let now = Timestamp::clamped_us(0);
        let rows = CouponRows {
            name: CouponName::parse("c").unwrap(),
            settings: CouponSettings::with_limit(Self::limit(limit)),
            voucher_key: VoucherKey::new([7; 32]),
            deleted: false,
            claims: Vec::new(),
            redemptions: Vec::new(),
        };
        let mut story =
            Self { history: History::default(), stored: Stored::from([(COUPON, rows)]), healed_at: None, now };
        story.put(limit);
        story
    }

    pub(super) fn limit(limit: u32) -> CouponLimit {
        CouponLimit::new(limit).unwrap()
    }

    pub(super) fn rows_mut(&mut self) -> &mut CouponRows {
        self.stored.get_mut(&COUPON).unwrap()
    }

    fn invoke(&mut self, command: Command) -> OperationId {
        self.history.ask(CouponName::parse("c").unwrap(), command, both(self.now))
    }

    fn tell(&mut self, command: Command, told: CouponReply) -> &mut Self {
        let id = self.invoke(command);
        self.end(id, Outcome::Answered(told))
    }

    fn end(&mut self, id: OperationId, outcome: Outcome<CouponReply>) -> &mut Self {
        let durable = self.stored[&COUPON].claims.len() as u32;
        self.history.answer(id, outcome, durable, both(self.now));
        self
    }

    fn issued(&self, serial: u32) -> Issued {
        Issued { serial: Serial::new(serial).unwrap(), issued_at: self.now }
    }

    fn claim(user: &str) -> Claim {
        Claim { user: UserId::parse(user).unwrap(), attributes: None, request: None }
    }

    fn accepted(&mut self, serial: u32, user: &str) -> CouponReply {
        let issued = self.issued(serial);
        CouponReply::Claimed(Effect::New(issued), self.rows_mut().voucher_key.code(issued, user))
    }

    pub(super) fn put(&mut self, limit: u32) -> &mut Self {
        let settings = CouponSettings::with_limit(Self::limit(limit));
        self.rows_mut().settings = settings.clone();
        self.tell(Command::Put(settings), CouponReply::Put(Put::Replaced))
    }

    pub(super) fn row(&mut self, serial: u32, user: &str) -> &mut Self {
        let issued = self.issued(serial);
        self.rows_mut().claims.push((issued, Self::claim(user)));
        self
    }

    pub(super) fn ask(&mut self, user: &str) -> OperationId {
        self.invoke(Command::Claim(Self::claim(user)))
    }

    pub(super) fn accept(&mut self, id: OperationId, serial: u32) -> &mut Self {
        let Command::Claim(claim) = &self.history.operations()[id].command else { panic!("it claimed nothing") };
        let user = claim.user.as_str().to_owned();
        let told = self.accepted(serial, &user);
        self.end(id, Outcome::Answered(told))
    }

    pub(super) fn claimed(&mut self, user: &str, serial: u32) -> &mut Self {
        let id = self.ask(user);
        self.accept(id, serial)
    }

    pub(super) fn claimed_and_stored(&mut self, user: &str, serial: u32) -> &mut Self {
        self.row(serial, user).claimed(user, serial)
    }

    pub(super) fn claimed_with_key(&mut self, user: &str, serial: u32, key: u128) -> &mut Self {
        let claim = Claim { request: Some(RequestId { key, body: 0 }), ..Self::claim(user) };
        let told = self.accepted(serial, user);
        self.tell(Command::Claim(claim), told)
    }

    pub(super) fn already_issued(&mut self, user: &str, serial: u32) -> &mut Self {
        let told = CouponReply::Refused(Rejection::AlreadyIssued(self.issued(serial)), None);
        self.tell(Command::Claim(Self::claim(user)), told)
    }

    pub(super) fn refused(&mut self, user: &str, rejection: Rejection) -> &mut Self {
        self.tell(Command::Claim(Self::claim(user)), CouponReply::Refused(rejection, None))
    }

    pub(super) fn unknown(&mut self, user: &str) -> &mut Self {
        let id = self.ask(user);
        self.end(id, Outcome::Unknown)
    }

    pub(super) fn not_done(&mut self, user: &str) -> &mut Self {
        let id = self.ask(user);
        self.end(id, Outcome::NotDone)
    }

    pub(super) fn view(&mut self, issued: u32) -> &mut Self {
        let limit = self.rows_mut().settings.limit.get();
        self.tell(Command::View, CouponReply::View { limit, issued, state: CouponState::Open })
    }

    pub(super) fn claim_of(&mut self, user: &str, serial: Option<u32>) -> &mut Self {
        let shown = serial.map(|serial| (self.issued(serial), None));
        self.tell(Command::ClaimOf(UserId::parse(user).unwrap()), CouponReply::ClaimOf(shown))
    }

    /// Settings as [`Story::put`] makes them, with a window.
    pub(super) fn put_window(&mut self, limit: u32, opens_at: i64, expires_at: i64) -> &mut Self {
        let mut settings = CouponSettings::with_limit(Self::limit(limit));
        settings.opens_at = Timestamp::from_us(opens_at);
        settings.expires_at = Timestamp::from_us(expires_at);
        self.rows_mut().settings = settings.clone();
        self.tell(Command::Put(settings), CouponReply::Put(Put::Replaced))
    }

    /// Moves the clock.
    pub(super) fn at(&mut self, now_us: i64) -> &mut Self {
        self.now = Timestamp::clamped_us(now_us);
        self
    }

    pub(super) fn redeemed(&mut self, user: &str, serial: u32) -> &mut Self {
        let redeemed = Redeemed { serial: Serial::new(serial).unwrap(), redeemed_at: self.now };
        let issued = self.stored[&COUPON].claims.iter().find(|(issued, _)| issued.serial == redeemed.serial);
        let issued = issued.map_or_else(|| self.issued(serial), |(issued, _)| *issued);
        let code = self.rows_mut().voucher_key.code(issued, user).as_str().to_owned();
        let user = UserId::parse(user).unwrap();
        if self.rows_mut().redemptions.is_empty() {
            self.rows_mut().redemptions.push((redeemed, None));
        }
        let redeem = RedeemRequest { code, user: Some(user.clone()), request: None };
        let command = Command::Redeem(redeem, Some((redeemed.serial, user)));
        self.tell(command, CouponReply::Redeemed(Effect::New(redeemed)))
    }

    pub(super) fn heal(&mut self) -> &mut Self {
        self.healed_at = Some(self.now);
        self
    }

    fn judge(&self, check: fn(&CouponEvidence<'_>) -> Result<(), Violation>) -> Result<(), Violation> {
        let (history, stored) = (&self.history, &self.stored);
        check(&Evidence { seed: 0, history, stored, log: &[], healed_at: self.healed_at })
    }

    #[track_caller]
    pub(super) fn assert_found(&self, check: fn(&CouponEvidence<'_>) -> Result<(), Violation>, detail: &str) {
        super::assert_found(self.judge(check), detail);
    }

    #[track_caller]
    pub(super) fn assert_clean(&self, check: fn(&CouponEvidence<'_>) -> Result<(), Violation>) {
        assert_eq!(self.judge(check), Ok(()));
    }
}
