//! Random commands on the coupon and on a model that is too simple to be wrong. Both must always give the same answers.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The rules once more, with nothing but maps: user → claim, key → effect, serial → redemption.
struct Model {
    settings: CouponSettings,
    deleted: bool,
    claims: BTreeMap<String, (u32, i64)>,
    claim_keys: BTreeMap<u128, (u64, u32)>,
    redemptions: BTreeMap<u32, i64>,
    redemption_keys: BTreeMap<u128, (u64, u32)>,
}

impl Model {
    fn issued(&self) -> u32 {
        self.claims.len() as u32
    }

    fn holder(&self, serial: u32) -> (&str, i64) {
        let found = self.claims.iter().find(|(_, claim)| claim.0 == serial);
        found.map(|(user, claim)| (user.as_str(), claim.1)).expect("serials are gapless")
    }

    fn closed(&self, now: i64) -> Option<String> {
        let bound = |instant: Option<Timestamp>| instant.map(Timestamp::as_us);
        match (bound(self.settings.opens_at), bound(self.settings.expires_at)) {
            _ if self.deleted => Some("deleted".to_owned()),
            (Some(opens_at), _) if now < opens_at => Some(format!("not_open {opens_at}")),
            (_, Some(expires_at)) if expires_at <= now => Some(format!("expired {expires_at}")),
            _ => None,
        }
    }

    fn claim(&mut self, claim: &Claim, now: i64) -> String {
        if let Some(request) = claim.request
            && let Some(&(body, serial)) = self.claim_keys.get(&request.key)
        {
            let again = format!("again {serial}@{}", self.holder(serial).1);
            return if body == request.body { again } else { format!("idempotency_key_reused {serial}") };
        }
        if let Some((serial, instant)) = self.claims.get(claim.user.as_str()) {
            return format!("already_issued {serial}@{instant}");
        }
        if let Some(refusal) = self.closed(now) {
            return refusal;
        }
        if self.settings.limit.get() <= self.issued() {
            return "sold_out".to_owned();
        }
        let serial = self.issued() + 1;
        let instant = self.claims.values().map(|claim| claim.1).fold(now, i64::max);
        self.claims.insert(claim.user.as_str().to_owned(), (serial, instant));
        if let Some(request) = claim.request {
            self.claim_keys.insert(request.key, (request.body, serial));
        }
        format!("new {serial}@{instant}")
    }

    fn redeem(&mut self, redeem: &Redeem, now: i64) -> String {
        if let Some(request) = redeem.request
            && let Some(&(body, serial)) = self.redemption_keys.get(&request.key)
        {
            let again = format!("again {serial}@{}", self.redemptions[&serial]);
            return if body == request.body { again } else { format!("idempotency_key_reused {serial}") };
        }
        let serial = redeem.serial.map_or(0, Serial::get);
        if serial == 0 || self.issued() < serial {
            return "unknown_code".to_owned();
        }
        let (user, issued_at) = self.holder(serial);
        if redeem.user.as_ref().is_some_and(|redeemer| redeemer.as_str() != user) {
            return "wrong_user".to_owned();
        }
        if let Some(instant) = self.redemptions.get(&serial) {
            return format!("already_redeemed {serial}@{instant}");
        }
        match self.settings.redeem_until.map(Timestamp::as_us) {
            Some(until) if until <= now => return format!("expired {until}"),
            _ => {}
        }
        let instant = now.max(issued_at);
        self.redemptions.insert(serial, instant);
        if let Some(request) = redeem.request {
            self.redemption_keys.insert(request.key, (request.body, serial));
        }
        format!("new {serial}@{instant}")
    }

    fn put(&mut self, settings: &CouponSettings) -> String {
        if self.deleted {
            return "deleted".to_owned();
        }
        if settings.limit.get() < self.issued() {
            return format!("limit_below_issued {}", self.issued());
        }
        if self.issued() != 0 && settings.room != self.settings.room {
            return "room_fixed".to_owned();
        }
        self.settings = settings.clone();
        "put".to_owned()
    }

    fn state(&self, now: i64) -> String {
        let sold_out = self.settings.limit.get() <= self.issued();
        match self.closed(now) {
            Some(refusal) if refusal.starts_with("not_open") => "scheduled".to_owned(),
            Some(refusal) => refusal.split(' ').next().unwrap_or_default().to_owned(),
            None => if sold_out { "sold_out" } else { "open" }.to_owned(),
        }
    }

    fn apply(&mut self, step: &Step, now: i64) -> String {
        match step {
            Step::Claim(claim) => self.claim(claim, now),
            Step::Redeem(redeem) => self.redeem(redeem, now),
            Step::Put(settings) => self.put(settings),
            Step::State => self.state(now),
            Step::Delete => {
                self.deleted = true;
                "gone".to_owned()
            }
        }
    }
}

fn any_request() -> impl Strategy<Value = Option<RequestId>> {
    proptest::option::of((0..6_u128, 0..2_u64).prop_map(|(key, body)| RequestId { key: key << 62, body }))
}

fn any_user() -> impl Strategy<Value = UserId> {
    (0..8_u32).prop_map(|number| user_id(&format!("user{number}")))
}

fn any_settings() -> impl Strategy<Value = CouponSettings> {
    let instant = || proptest::option::weighted(0.3, (0..60_i64).prop_map(at));
    let room = proptest::option::weighted(0.1, Just(RoomName::parse("room").unwrap()));
    (1..7_u32, instant(), instant(), instant(), room).prop_map(|(limit, opens_at, expires_at, redeem_until, room)| {
        CouponSettings { opens_at, expires_at, redeem_until, room, ..limited(limit) }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let claim = (any_user(), any_request());
    let redeem = (0..8_u32, proptest::option::of(any_user()), any_request());
    prop_oneof![
        12 => claim.prop_map(|(user, request)| Step::Claim(Claim { user, attributes: None, request })),
        8 => redeem.prop_map(|(number, user, request)| Step::Redeem(Redeem { serial: Serial::new(number), user, request })),
        3 => any_settings().prop_map(Step::Put),
        3 => Just(Step::State),
        1 => Just(Step::Delete),
    ]
}

/// Restores the coupon from what a store would have kept, and compares the claims of both.
fn assert_restores(model: &Model, original: &Coupon) {
    let mut restored = coupon(model.settings.clone());
    let request = |keys: &BTreeMap<u128, (u64, u32)>, number: u32| {
        let found = keys.iter().find(|(_, effect)| effect.1 == number);
        found.map(|(&key, &(body, _))| RequestId { key, body })
    };
    for number in 1..=model.issued() {
        let (user, instant) = model.holder(number);
        let told = restored.restore_claim(issued(number, instant), &user_id(user), request(&model.claim_keys, number));
        assert_eq!(told, Ok(()), "what the rules wrote they take back");
    }
    for (&number, &instant) in &model.redemptions {
        let told = restored.restore_redemption(redeemed(number, instant), request(&model.redemption_keys, number));
        assert_eq!(told, Ok(()), "what the rules wrote they take back");
    }
    for number in 1..=model.issued() {
        assert_eq!(restored.claim_at(serial(number)), original.claim_at(serial(number)));
        assert_eq!(restored.redeemed(serial(number)), original.redeemed(serial(number)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_coupon_says_what_a_naive_model_says(
        settings in any_settings(),
        commands in proptest::collection::vec((-3..6_i64, any_step()), 1..60),
    ) {
        let mut coupon = coupon(settings.clone());
        let mut model = Model {
            settings,
            deleted: false,
            claims: BTreeMap::new(),
            claim_keys: BTreeMap::new(),
            redemptions: BTreeMap::new(),
            redemption_keys: BTreeMap::new(),
        };
        let mut now = 10;
        for (passed, step) in &commands {
            now += passed;
            let wanted = model.apply(step, now);
            prop_assert_eq!(apply(&mut coupon, step, at(now)), wanted, "{:?} at {}", step, now);
            assert_sound(&coupon);
        }
        assert_restores(&model, &coupon);
    }
}
