//! Random commands over HTTP, compared answer by answer with the rules themselves.

use crate::service::{ADMIN, Ask, START_S, Service, at, claim, redeem};
use crate::stores::on_each;
use firstcome::core::coupon::{Attributes, Claim, Coupon, CouponLimit, CouponSettings, Redeem, Rejection};
use firstcome::core::id::{RequestId, UserId};
use firstcome::core::time::Timestamp;
use firstcome::edge::draw_hasher;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A small generator of pseudo-random numbers (splitmix64): the same seed gives the same run on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn maybe<T>(&mut self, percent: u64, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(100) < percent).then(|| make(self))
    }
}

/// What the rules say, and what the test learned of codes on the way.
struct Oracle {
    name: &'static str,
    coupon: Option<Coupon>,
    codes: BTreeMap<u32, String>,
}

fn instant(at: Timestamp) -> String {
    let seconds = at.as_us() / 1_000_000 - START_S;
    assert!((0..3_600).contains(&seconds), "a run takes less than an hour");
    format!("2030-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

fn code_of(rejection: &Rejection) -> String {
    let status = match rejection {
        Rejection::UnknownCoupon | Rejection::UnknownCode => 404,
        Rejection::Deleted | Rejection::Expired(_) => 410,
        Rejection::KeyReused(_) => 422,
        Rejection::NotOpen(_) => 425,
        _ => 409,
    };
    format!("{status} {}", rejection.code())
}

/// A request id that stands for key and body as well as the service's own does.
fn request_id(key: u64, body: &str) -> RequestId {
    let body = body.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    RequestId { key: u128::from(key), body }
}

impl Oracle {
    fn new(name: &'static str) -> Self {
        Self { name, coupon: None, codes: BTreeMap::new() }
    }

    async fn put(&mut self, service: &Service, random: &mut Random, now_s: i64) {
        let limit = 1 + random.below(8);
        let window = |random: &mut Random| now_s - 5 + random.below(20) as i64;
        let opens_s = random.maybe(30, window).map(|seconds| seconds.max(0));
        let expires_s = random.maybe(30, window).map(|seconds| seconds.max(0) + 1);
        let expires_s = expires_s.map(|end| opens_s.map_or(end, |start| end.max(start + 1)));
        let until_s = random.maybe(20, window).map(|seconds| seconds.max(0));
        let room = random.maybe(10, |_| "lobby");
        let settings = CouponSettings {
            opens_at: opens_s.map(at),
            expires_at: expires_s.map(at),
            redeem_until: until_s.map(at),
            room: room.map(|room| firstcome::core::id::RoomName::parse(room).expect("a name")),
            ..CouponSettings::with_limit(CouponLimit::new(limit as u32).expect("a limit"))
        };
        let text = |seconds: Option<i64>| seconds.map(|seconds| instant(at(seconds)));
        let body = json!({"limit": limit, "opens_at": text(opens_s), "expires_at": text(expires_s),
            "redeem_until": text(until_s), "room": room});
        let wanted = match &mut self.coupon {
            None => {
                self.coupon = Some(Coupon::new(settings, draw_hasher()));
                "201".to_owned()
            }
            Some(coupon) => match coupon.judge_settings(&settings.clone().into()) {
                Ok(()) => {
                    coupon.replace_settings(settings);
                    "200".to_owned()
                }
                Err(rejection) => code_of(&rejection),
            },
        };
        assert_eq!(service.put(self.name, body.clone()).await.outcome(), wanted, "PUT {} {body}", self.name);
    }

    async fn claim(&mut self, service: &Service, random: &mut Random, now: Timestamp) {
        let user = format!("user{}", random.below(10));
        let attributes = random.maybe(30, |random| format!("{{\"a\":{}}}", random.below(2)));
        let key = random.maybe(50, |random| random.below(12));
        let mut body = json!({"user": user});
        if let Some(attributes) = &attributes {
            body["attributes"] = serde_json::from_str(attributes).expect("JSON");
        }
        let ask = claim(self.name, "").json(&body);
        let ask = if let Some(key) = key { ask.once(&format!("key{key}")) } else { ask };
        let answer = service.send(ask).await;
        let command = Claim {
            user: UserId::parse(&user).expect("a name"),
            attributes: attributes.as_deref().map(|text| Attributes::new(text).expect("short")),
            request: key.map(|key| request_id(key, &body.to_string())),
        };
        let Some(coupon) = &mut self.coupon else { return assert_eq!(answer.outcome(), "404 unknown_coupon") };
        match coupon.claim(&command, now) {
            Ok(effect) => {
                let issued = effect.into_inner();
                assert_eq!(answer.outcome(), "201", "claim {body} {key:?}");
                self.learn(&answer.json(), &user, issued.serial.get(), &instant(issued.issued_at));
            }
            Err(rejection) => {
                assert_eq!(answer.outcome(), code_of(&rejection), "claim {body} {key:?}");
                if let Rejection::AlreadyIssued(issued) = rejection {
                    let claim = answer.json()["claim"].clone();
                    self.learn(&claim, &user, issued.serial.get(), &instant(issued.issued_at));
                }
            }
        }
    }

    /// A claim is told as the rules have it, and its code never changes.
    fn learn(&mut self, claim: &Value, user: &str, serial: u32, issued_at: &str) {
        let told = (claim["user"].as_str(), claim["serial"].as_u64(), claim["issued_at"].as_str());
        assert_eq!(told, (Some(user), Some(u64::from(serial)), Some(issued_at)), "{claim}");
        let code = claim["code"].as_str().expect("a code").to_owned();
        assert_eq!(self.codes.entry(serial).or_insert_with(|| code.clone()), &code);
    }

    async fn redeem(&mut self, service: &Service, random: &mut Random, now: Timestamp) {
        let serial = 1 + random.below(8) as u32;
        let code = self.codes.get(&serial).cloned();
        let user = random.maybe(40, |random| format!("user{}", random.below(10)));
        let key = random.maybe(50, |random| random.below(6));
        let text = code.clone().unwrap_or_else(|| "22222-22222-22222-22222".to_owned());
        let body = json!({"code": text, "user": user});
        let ask = redeem(self.name, &body);
        let ask = if let Some(key) = key { ask.once(&format!("key{key}")) } else { ask };
        let answer = service.send(ask).await;
        let command = Redeem {
            serial: code.and_then(|_| firstcome::core::coupon::Serial::new(serial)),
            user: user.map(|user| UserId::parse(&user).expect("a name")),
            request: key.map(|key| request_id(key, &body.to_string())),
        };
        let Some(coupon) = &mut self.coupon else { return assert_eq!(answer.outcome(), "404 unknown_coupon") };
        match coupon.redeem(&command, now) {
            Ok(effect) => {
                let redeemed = effect.into_inner();
                assert_eq!(answer.outcome(), "201", "redeem {body} {key:?}");
                assert_eq!(answer.json()["serial"], redeemed.serial.get());
                assert_eq!(answer.text("redeemed_at"), instant(redeemed.redeemed_at));
            }
            Err(rejection) => assert_eq!(answer.outcome(), code_of(&rejection), "redeem {body} {key:?}"),
        }
    }

    async fn delete(&mut self, service: &Service) {
        let answer = service.send(Ask::delete(&format!("/v1/coupons/{}", self.name)).by(ADMIN)).await;
        match &mut self.coupon {
            None => assert_eq!(answer.outcome(), "404 unknown_coupon"),
            Some(coupon) => {
                coupon.delete();
                assert_eq!(answer.outcome(), "204");
            }
        }
    }

    /// All that can be read agrees with the rules.
    async fn compare(&self, service: &Service, now: Timestamp) {
        let answer = service.show(self.name).await;
        let Some(coupon) = &self.coupon else { return assert_eq!(answer.outcome(), "404 unknown_coupon") };
        let view = answer.is(200).json();
        let (limit, issued) = (coupon.settings().limit.get(), coupon.issued());
        assert_eq!((&view["limit"], &view["issued"]), (&json!(limit), &json!(issued)));
        assert_eq!(view["remaining"], limit - issued);
        assert_eq!(view["state"], coupon.state(issued, now).as_str());
        let page = service.claims(self.name, "").await.is(200).json();
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), issued as usize);
        for (number, item) in (1..).zip(items) {
            let serial = firstcome::core::coupon::Serial::new(number).expect("a serial");
            let (user, issued) = coupon.claim_at(serial).expect("it is issued");
            assert_eq!((&item["user"], &item["serial"]), (&json!(user), &json!(number)));
            assert_eq!(item["issued_at"], instant(issued.issued_at));
            assert_eq!(item["code"].as_str(), self.codes.get(&number).map(String::as_str));
            let redeemed = coupon.redeemed(serial).map(|redeemed| instant(redeemed.redeemed_at));
            assert_eq!(item.get("redeemed_at").and_then(Value::as_str), redeemed.as_deref());
            assert_eq!(&service.claim_of(self.name, user).await.is(200).json(), item);
        }
    }
}

/// Says which run failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the run with seed {} failed", self.0);
        }
    }
}

async fn play(service: &Service, seed: u64, steps: u32, names: [&'static str; 2]) {
    let shown = Seed(seed);
    let mut random = Random(shown.0);
    let mut oracles = names.map(Oracle::new);
    for _ in 0..steps {
        let now = firstcome::edge::Clock::now(&service.clock);
        let oracle = &mut oracles[usize::from(random.below(4) == 0)];
        match random.below(100) {
            0..14 => oracle.put(service, &mut random, now.as_us() / 1_000_000 - START_S).await,
            14..64 => oracle.claim(service, &mut random, now).await,
            64..84 => oracle.redeem(service, &mut random, now).await,
            84 => oracle.delete(service).await,
            85..93 => oracle.compare(service, now).await,
            _ => service.set_clock(now.as_us() / 1_000_000 - START_S + random.below(6) as i64),
        }
    }
    let now = firstcome::edge::Clock::now(&service.clock);
    for oracle in &oracles {
        oracle.compare(service, now).await;
    }
}

#[tokio::test]
async fn random_commands_are_answered_as_the_rules_answer_them() {
    for seed in 0..150 {
        play(&Service::memory(), seed, 120, ["first", "second"]).await;
    }
    for seed in 1_000..1_006 {
        crate::in_time(on_each(async |service| play(service, seed, 200, ["first", "second"]).await)).await;
    }
}
