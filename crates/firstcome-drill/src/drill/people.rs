//! The people: the state of each, the next request, and the reaction to an answer.

use super::clock::RunClock;
use super::crowd::{Act, Agenda, Players, Step};
use super::messages::{Body, classify, hash, holder};
use super::plan::{Cheat, Role, role, role_at_counter};
use super::record::{Admission, Call, ClaimReceipt, History, Holder, Record, Reply, Restart};
use super::server::KeyPair;
use crate::rng::Rng;
use hdrhistogram::Histogram;

/// The most unexpected answers whose text is kept.
const STRANGE_MAX: usize = 20;
/// How many people's positions are shown.
pub(crate) const SAMPLES: u32 = 8;

/// The phase of a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Unborn,
    Waiting,
    Admitted,
    /// The slot has ended: released, left, or out of time.
    Over,
    Home,
}

/// The outcome of a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Fate {
    Underway,
    GotOne,
    SoldOut,
    CameTooLate,
    WalkedAway,
    LeftPolitely,
    NeverCame,
    DidNotBuy,
    LostSlot,
    TurnedAway,
    StillThere,
}

impl Fate {
    pub(crate) const ALL: [(Self, &'static str); 11] = [
        (Self::GotOne, "got one"),
        (Self::SoldOut, "sold out while in line or at the counter"),
        (Self::CameTooLate, "came when all was gone"),
        (Self::WalkedAway, "walked away without a word"),
        (Self::LeftPolitely, "left the line"),
        (Self::NeverCame, "not there at their turn"),
        (Self::DidNotBuy, "had a pass and did not buy"),
        (Self::LostSlot, "lost the slot by time"),
        (Self::TurnedAway, "turned away"),
        (Self::StillThere, "still there at the end"),
        (Self::Underway, "outcome unknown"),
    ];
}

/// The state of one person. Up to a million exist: keep it small.
pub(crate) struct Person {
    pub(crate) ticket: Option<Box<str>>,
    pub(crate) pass: Option<Box<str>>,
    pub(crate) expires_us: u64,
    pub(crate) number: u32,
    /// The index of the latest admission in the history.
    pub(crate) admission: u32,
    pub(crate) polls: u16,
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    pub(crate) fate: Fate,
    /// Whether the person has done the special action of its role.
    pub(crate) acted: bool,
    /// Whether the person has asked if any stock is left, and there was.
    pub(crate) looked: bool,
    /// The number of steps after the slot has ended.
    pub(crate) afterlife: u8,
}

/// What all people share.
pub(crate) struct Stage {
    pub(crate) clock: RunClock,
    pub(crate) seed: u64,
    /// Absent for a sale without a room.
    pub(crate) room: Option<String>,
    pub(crate) coupon: String,
    pub(crate) keys: KeyPair,
    /// Tickets and passes of another room.
    pub(crate) foreign: Vec<(String, String)>,
    pub(crate) rate_per_s: f64,
    pub(crate) claim_window_us: u64,
    /// How old the state may be from which a node answers.
    pub(crate) stale_us: u64,
}

impl Stage {
    /// Whether the shop's back end joins for this person, by name.
    pub(crate) fn by_shop(&self, person: u32) -> bool {
        self.room.is_none() || Rng::of(self.seed, person, 2).chance(100)
    }

    /// Whether this person's claims, and joins by the shop, carry an idempotency key.
    pub(crate) const fn keyed(person: u32) -> bool {
        person.is_multiple_of(2)
    }
}

/// One of the people whose positions are shown.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) person: u32,
    pub(crate) positions: Vec<(f64, u32)>,
}

/// All people, and the answers that they got.
pub(crate) struct People {
    pub(crate) stage: Stage,
    pub(crate) all: Vec<Person>,
    pub(crate) history: History,
    pub(crate) latencies: Vec<Histogram<u64>>,
    pub(crate) samples: Vec<Sample>,
    home: usize,
    /// Whether a person was told "sold out"; all others then know it too.
    pub(crate) sold_out: bool,
    pub(crate) answers: u64,
}

impl People {
    pub(crate) fn new(stage: Stage, count: u32, history: History) -> Self {
        let sort = if stage.room.is_some() { role } else { role_at_counter };
        let person = |at| Person {
            ticket: None,
            pass: None,
            expires_us: 0,
            number: 0,
            admission: u32::MAX,
            polls: 0,
            role: sort(stage.seed, at),
            phase: Phase::Unborn,
            fate: Fate::Underway,
            acted: false,
            looked: false,
            afterlife: 0,
        };
        let all = (0..count).map(person).collect();
        let every = (count / SAMPLES).max(1);
        let samples = (0..count.min(SAMPLES)).map(|at| Sample { person: at * every + every / 2, ..Sample::default() });
        // The bounds are constants that the library accepts.
        let latencies = || Histogram::new_with_bounds(1, 600_000_000, 3).unwrap_or_else(|_| unreachable!());
        let latencies = Call::ALL.map(|_| latencies()).into();
        Self { samples: samples.collect(), stage, all, history, latencies, home: 0, sold_out: false, answers: 0 }
    }

    /// Plans the first step of a person.
    pub(crate) fn arrive(&self, person: u32, at_us: u64, agenda: &mut Agenda) {
        let room = self.stage.room.is_some();
        let (once, twin, hang_up) = if room {
            (Act::Join, Act::JoinTwin, Act::JoinHangUp)
        } else {
            (Act::Claim, Act::ClaimTwin, Act::ClaimHangUp)
        };
        match self.all[person as usize].role {
            Role::DoubleClicks => {
                agenda.push(Step::new(person, once, at_us));
                agenda.push(Step::new(person, twin, at_us));
            }
            Role::HangsUp => agenda.push(Step::new(person, hang_up, at_us)),
            Role::Cheats(_) if !room => agenda.push(Step::new(person, Act::Cheat, at_us)),
            _ => agenda.push(Step::new(person, once, at_us)),
        }
    }

    pub(crate) fn go_home(&mut self, person: u32, fate: Fate) {
        let one = &mut self.all[person as usize];
        if one.phase != Phase::Home {
            one.phase = Phase::Home;
            self.home += 1;
            if one.fate == Fate::Underway {
                one.fate = fate;
            }
            one.ticket = None;
            one.pass = None;
        }
    }

    /// Returns what a step has become: once "sold out" is known, people first ask if any stock is left.
    fn really(&self, step: Step) -> Step {
        let one = &self.all[step.person as usize];
        let in_line = matches!(one.phase, Phase::Unborn | Phase::Waiting) && self.stage.room.is_some();
        if self.sold_out && !one.looked && in_line && matches!(step.act, Act::Join | Act::Poll) {
            Step { act: Act::View, ..step }
        } else {
            step
        }
    }

    const fn record(&self, call: Call, step: &Step, sent_us: u64, now_us: u64) -> Record {
        let took_us = now_us.saturating_sub(sent_us);
        Record {
            sent_us,
            took_us: if took_us < u32::MAX as u64 { took_us as u32 } else { u32::MAX },
            person: step.person,
            number: 0,
            value: 0,
            poll_after_ms: 0,
            age_ms: 0,
            call,
            reply: Reply::Lost,
        }
    }

    /// Handles a lost request: sends it again, unless the person does not wait for it.
    fn on_no_reply(&mut self, step: &Step, sent_us: u64, agenda: &mut Agenda) {
        let now_us = agenda.now_us;
        let call = step.act.call();
        let mut record = self.record(call, step, sent_us, now_us);
        record.number = self.all[step.person as usize].number;
        if let (Call::Cheat, Role::Cheats(cheat)) = (call, self.all[step.person as usize].role) {
            record.value = cheat as u32;
        }
        self.history.records.push(record);
        if !step.act.is_side() {
            self.again(step, Reply::Lost, None, agenda);
        }
    }

    /// Repeats a step. A person that hung up tries again a little later; a retry time in the answer is respected.
    pub(crate) fn again(&mut self, step: &Step, reply: Reply, retry_after_ms: Option<u64>, agenda: &mut Agenda) {
        let mut rng = Rng::of(self.stage.seed, step.person, agenda.now_us);
        let delay_us = retry_after_ms.unwrap_or(100) * 1_000 + rng.range(50_000, 400_000);
        let due_us = agenda.now_us + delay_us;
        let act = match step.act {
            Act::JoinHangUp => Act::Join,
            Act::ClaimHangUp => Act::Claim,
            act => act,
        };
        // An answer with a retry time is a measured answer; a lost request counts from its first instant.
        let intended_us = if reply == Reply::Lost && act == step.act { step.intended_us } else { due_us };
        agenda.push(Step { due_us, intended_us, person: step.person, act });
    }

    fn on_reply(&mut self, step: &Step, sent_us: u64, status: u16, bytes: &[u8], agenda: &mut Agenda) {
        let now_us = agenda.now_us;
        let call = step.act.call();
        let body = Body::parse(bytes);
        let reply = body.as_ref().map_or(Reply::Unexpected, |body| classify(call, status, body));
        let body = body.unwrap_or_default();
        let mut record = self.record(call, step, sent_us, now_us);
        record.reply = reply;
        self.answers += 1;
        self.latencies[call as usize].saturating_record(now_us.saturating_sub(step.intended_us));
        self.fill(&mut record, &body);
        self.history.records.push(record);
        if reply == Reply::Unexpected && self.history.strange.len() < STRANGE_MAX {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
            self.history.strange.push(format!("{}: {status} {text}", call.name()));
        }
        if !step.act.is_side() && self.all[step.person as usize].phase != Phase::Home {
            self.advance(step, call, reply, &body, agenda);
        }
    }

    /// Fills the record from the answer.
    fn fill(&mut self, record: &mut Record, body: &Body<'_>) {
        let clock = self.stage.clock;
        let one = &mut self.all[record.person as usize];
        if let (Call::Join, Reply::Joined | Reply::JoinedAgain, Some(number)) = (record.call, record.reply, body.number)
        {
            record.number = number;
        } else {
            record.number = one.number;
        }
        record.poll_after_ms = body.poll_after_ms.unwrap_or(0);
        if let Some(as_of_us) = body.as_of.and_then(|text| clock.of_text(text)) {
            let age_us = record.sent_us.saturating_sub(as_of_us) + self.stage.stale_us;
            record.age_ms = u16::try_from(age_us / 1_000).unwrap_or(u16::MAX);
        }
        match record.reply {
            Reply::Waiting | Reply::Joined | Reply::JoinedAgain => record.value = body.position.unwrap_or(0),
            Reply::Admitted if record.call == Call::Poll => record.value = self.keep_admission(record, body),
            Reply::Issued | Reply::AlreadyIssued => {
                if let Some(claim) = body.claimed() {
                    record.value = claim.serial;
                    let by_name = self.stage.by_shop(record.person);
                    self.history.told.push(ClaimReceipt {
                        received_us: record.received_us(),
                        serial: claim.serial,
                        code_hash: hash(claim.code),
                        holder: holder(claim.user),
                        expected: if by_name { Holder::User(record.person) } else { Holder::Pass(record.number) },
                    });
                }
            }
            _ => {}
        }
        if record.call == Call::Cheat
            && let Role::Cheats(cheat) = self.all[record.person as usize].role
        {
            record.value = cheat as u32;
            // The slot may have ended by its time meanwhile: then another refusal is correct.
            record.poll_after_ms =
                u32::from(self.all[record.person as usize].expires_us.saturating_sub(1_000_000) < record.received_us());
        }
        if matches!(record.reply, Reply::Waiting)
            && let Some(sample) = self.samples.iter_mut().find(|sample| sample.person == record.person)
        {
            sample.positions.push((record.received_us() as f64 / 1e6, record.value));
        }
    }

    /// Returns the index of the admission in the answer, and records a new one if it was not known.
    fn keep_admission(&mut self, record: &Record, body: &Body<'_>) -> u32 {
        let clock = self.stage.clock;
        let instant = |text: Option<&str>| text.and_then(|text| clock.of_text(text)).unwrap_or(0);
        let (admitted_us, expires_us) = (instant(body.admitted_at), instant(body.pass_expires_at));
        let one = &mut self.all[record.person as usize];
        let known = self.history.admissions.get(one.admission as usize);
        if known.is_none_or(|known| (known.admitted_us, known.expires_us) != (admitted_us, expires_us)) {
            one.admission = self.history.admissions.len() as u32;
            one.expires_us = expires_us;
            self.history.admissions.push(Admission {
                number: one.number,
                admitted_us,
                received_us: record.received_us(),
                expires_us,
            });
        }
        one.admission
    }

    /// Returns the person's cheat, if the role has one.
    pub(crate) fn cheat_of(&self, person: u32) -> Option<Cheat> {
        match self.all[person as usize].role {
            Role::Cheats(cheat) => Some(cheat),
            _ => None,
        }
    }
}

impl Players for People {
    type Act = Act;

    fn hangs_up(act: Act) -> bool {
        act.hangs_up()
    }

    fn all_home(&self) -> bool {
        self.home == self.all.len()
    }

    fn close(&mut self, steps: Vec<Step>) -> Vec<Step> {
        self.send_home(steps)
    }

    fn resolve(&self, step: Step) -> Step {
        self.really(step)
    }

    fn write_request(&mut self, step: &Step, now_us: u64, over: bool, out: &mut Vec<u8>) -> bool {
        self.ask(step, now_us, over, out)
    }

    fn lost(&mut self, step: &Step, sent_us: u64, agenda: &mut Agenda) {
        self.on_no_reply(step, sent_us, agenda);
    }

    fn answered(&mut self, step: &Step, sent_us: u64, status: u16, body: &[u8], agenda: &mut Agenda) {
        self.on_reply(step, sent_us, status, body, agenda);
    }

    fn restarted(&mut self, restart: Restart) {
        self.history.restarts.push(restart);
    }
}
