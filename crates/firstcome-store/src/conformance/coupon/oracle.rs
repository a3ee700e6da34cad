//! Random commands: the store must reply exactly as the rules of `firstcome-core`.
//!
//! Many coupons run at once, with one command of each per round, so that batches mix coupons. The clock moves only
//! between rounds, so the replies about a coupon depend on its seed alone.

use super::*;
use crate::conformance::{Rng, all};
use crate::edge::draw_hasher;
use firstcome_core::coupon::{Coupon, Redeem, Redeemed, Title};
use firstcome_core::id::RoomName;

const SEQUENCES: u64 = 200;
const ROUNDS: i64 = 50;
const USERS: u64 = 9;

/// The rules, with the interface of a store.
pub(super) struct Oracle {
    coupon: Option<Coupon>,
    attributes: BTreeMap<Serial, String>,
}

impl Oracle {
    pub(super) const fn new() -> Self {
        Self { coupon: None, attributes: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, step: &Step, now: i64) -> String {
        let Some(coupon) = &mut self.coupon else {
            let Step::Put(settings) = step else { return "unknown_coupon".to_owned() };
            self.coupon = Some(Coupon::new(settings.clone(), draw_hasher()));
            return "created".to_owned();
        };
        match step {
            Step::Put(settings) => match coupon.judge_settings(&settings.clone().into()) {
                Ok(()) => {
                    coupon.replace_settings(settings.clone());
                    "replaced".to_owned()
                }
                Err(rejection) => describe_refused(&rejection),
            },
            Step::Delete => {
                coupon.delete();
                "gone".to_owned()
            }
            Step::View => {
                let (issued, limit) = (coupon.issued(), coupon.settings().limit.get());
                format!("{} {issued}/{limit}", coupon.state(issued, at(now)).as_str())
            }
            Step::Claim { user, request, attributes } => {
                let claim = Claim { user: user_id(user), attributes: None, request: *request };
                let answer = coupon.claim(&claim, at(now));
                if let (Ok(Effect::New(issued)), Some(attributes)) = (answer, attributes) {
                    self.attributes.insert(issued.serial, attributes.clone());
                }
                tell(answer.map_err(Into::into), describe_issued)
            }
            Step::Redeem { code, user, request } => {
                let serial = match code {
                    Code::Of(number) => Serial::new(*number),
                    Code::Text(_) => None,
                };
                let redeem = Redeem { serial, user: user.as_deref().map(user_id), request: *request };
                let answer = coupon.redeem(&redeem, at(now));
                tell(answer.map_err(Into::into), |Redeemed { serial, redeemed_at }| {
                    let user = coupon.claim_at(serial).map_or("", |(user, _)| user);
                    format!("{}@{} of {user}", serial.get(), redeemed_at.as_us())
                })
            }
            Step::ClaimOf(user) => {
                let serial = coupon.claim_of(user).map(|issued| issued.serial);
                serial.map_or("none".to_owned(), |serial| self.record(serial))
            }
            Step::Claims { after, count } => self.page(after.unwrap_or(0), *count),
        }
    }

    fn record(&self, serial: Serial) -> String {
        let coupon = self.coupon.as_ref().expect("only an existing coupon has claims");
        let (user, issued) = coupon.claim_at(serial).expect("only claims are shown");
        let with = self.attributes.get(&serial).map_or(String::new(), |text| format!(" with {text}"));
        let redeemed = coupon.redeemed(serial).map(|redeemed| redeemed.redeemed_at.as_us());
        let redeemed = redeemed.map_or(String::new(), |instant| format!(" redeemed@{instant}"));
        format!("{} of {user}{with}{redeemed}", describe_issued(issued))
    }

    fn page(&self, after: u32, count: usize) -> String {
        let issued = self.coupon.as_ref().map_or(0, Coupon::issued);
        let serials: Vec<Serial> = (after + 1..=issued).filter_map(Serial::new).collect();
        let mut items: Vec<String> = serials.iter().take(count).map(|&serial| self.record(serial)).collect();
        let more = count < serials.len();
        items.push(if more { format!("next after {}", after as usize + count) } else { "end".to_owned() });
        items.join(", ")
    }
}

fn any_instant(rng: &mut Rng, around: i64) -> Option<Timestamp> {
    rng.once_in(3).then(|| at(around + rng.below(40) as i64 - 15))
}

fn any_settings(rng: &mut Rng, now: i64) -> CouponSettings {
    CouponSettings {
        opens_at: any_instant(rng, now),
        expires_at: any_instant(rng, now + 20),
        redeem_until: any_instant(rng, now + 25),
        title: rng.once_in(2).then(|| format!("title {}", rng.below(9))).and_then(|text| Title::new(&text)),
        room: if rng.once_in(9) { RoomName::parse("room").ok() } else { None },
        ..limited(1 + rng.below(8) as u32)
    }
}

fn any_request(rng: &mut Rng) -> Option<RequestId> {
    // Use few keys and two bodies, so that repeats and reuses happen.
    if rng.once_in(2) { key(u128::from(rng.below(7)) << 60, rng.below(2)) } else { None }
}

fn any_user(rng: &mut Rng) -> String {
    format!("user{}", rng.below(USERS))
}

pub(super) fn any_step(rng: &mut Rng, now: i64) -> Step {
    match rng.below(40) {
        0..=15 => Step::Claim {
            user: any_user(rng),
            request: any_request(rng),
            attributes: rng.once_in(3).then(|| format!("{{\"n\":{}}}", rng.below(100))),
        },
        16..=25 => Step::Redeem {
            code: if rng.once_in(9) { Code::Text("2345".to_owned()) } else { Code::Of(1 + rng.below(8) as u32) },
            user: rng.once_in(3).then(|| any_user(rng)),
            request: any_request(rng),
        },
        26..=28 => Step::View,
        29..=31 => Step::ClaimOf(any_user(rng)),
        32..=35 => {
            Step::Claims { after: rng.once_in(2).then(|| 1 + rng.below(9) as u32), count: 1 + rng.below(5) as usize }
        }
        36..=38 => Step::Put(any_settings(rng, now)),
        _ if rng.once_in(4) => Step::Delete,
        _ => Step::View,
    }
}

/// One coupon, its oracle, and the commands so far.
pub(super) struct Sequence {
    seed: u64,
    coupon: CouponName,
    rng: Rng,
    oracle: Oracle,
    history: Vec<String>,
}

impl Sequence {
    pub(super) fn new(seed: u64) -> Self {
        let coupon = name(&format!("sequence{seed}"));
        Self { seed, coupon, rng: Rng::from_seed(seed), oracle: Oracle::new(), history: Vec::new() }
    }
}

/// Runs the rounds of the range, one microsecond each, on all sequences at once.
pub(super) async fn play<S: CouponStore + 'static>(
    bench: &Bench<S>,
    sequences: &mut [Sequence],
    rounds: std::ops::Range<i64>,
) {
    for now in rounds {
        bench.clock.set(at(now));
        let first = now == 0;
        let steps: Vec<Step> = sequences
            .iter_mut()
            .map(|it| if first { Step::Put(any_settings(&mut it.rng, 0)) } else { any_step(&mut it.rng, now) })
            .collect();
        let told = all(sequences.iter().zip(&steps).map(|(it, step)| {
            let (bench, coupon, step) = (bench.clone(), it.coupon.clone(), step.clone());
            async move { bench.apply(&coupon, &step).await }
        }))
        .await;
        for ((sequence, step), told) in sequences.iter_mut().zip(steps).zip(told) {
            let wanted = sequence.oracle.apply(&step, now);
            let before = sequence.history.join("\n");
            assert_eq!(told, wanted, "seed {}, at {now}: {step:?}, after\n{before}", sequence.seed);
            sequence.history.push(format!("at {now}: {step:?} -> {told}"));
        }
    }
}

pub(super) async fn random_commands_are_answered_as_by_the_rules<S: CouponStore + 'static>(bench: Bench<S>) {
    let mut sequences: Vec<Sequence> = (0..SEQUENCES).map(Sequence::new).collect();
    play(&bench, &mut sequences, 0..ROUNDS).await;
}
