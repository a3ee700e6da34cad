//! How people react to an answer: the next step of each.

use super::crowd::{Act, Agenda, Step};
use super::messages::Body;
use super::people::{Fate, People, Phase};
use super::plan::{Cheat, Role};
use super::record::{Call, Reply};
use crate::rng::Rng;

/// The shortest absence: no visitor counts as present for that long without contact.
const ABSENT_US: u64 = 30_000_000;

/// How a person plans an absence that is longer than a present visitor may be silent.
enum Absence {
    Not,
    /// Goes away after so many microseconds.
    In(u64),
    /// Goes away now, for so many microseconds.
    Now(u64),
}

/// Plans an absence. Most people go so early that their turn comes while they no longer count as present, and are back
/// just after that. The others go at their `turn`.
fn absence(rng: &mut Rng, absent_us: u64, ahead_us: u64, turn: bool) -> Absence {
    const SOON_US: u64 = 2_500_000;
    const LATE_US: u64 = 9_000_000;
    let (aims, back_us) = (rng.chance(750), rng.range(500_000, 2_500_000));
    match ahead_us.checked_sub(absent_us + SOON_US) {
        Some(spare_us) if aims && spare_us < LATE_US => Absence::Now(ahead_us + back_us),
        Some(spare_us) if aims => Absence::In(spare_us - LATE_US / 2),
        _ if turn => Absence::Now(absent_us + 2_000_000 + 2 * back_us),
        _ => Absence::Not,
    }
}

impl People {
    pub(crate) fn advance(&mut self, step: &Step, call: Call, reply: Reply, body: &Body<'_>, agenda: &mut Agenda) {
        if reply.is_undecided() || matches!(reply, Reply::NotOpen | Reply::RoomFull) {
            return self.again(step, reply, body.retry_after_ms, agenda);
        }
        let person = step.person;
        match (call, reply) {
            (Call::Join, Reply::Joined | Reply::JoinedAgain) => self.joined(person, body, agenda),
            (Call::Poll, Reply::Waiting) => self.waits(person, body, agenda),
            (Call::Poll, Reply::Admitted) => self.admitted(person, body, agenda),
            (Call::Poll, Reply::Expired | Reply::Left) if self.all[person as usize].phase == Phase::Over => {
                self.over(person, agenda);
            }
            (Call::Poll, Reply::Expired) => self.go_home(person, Fate::LostSlot),
            (Call::Claim, Reply::Issued | Reply::AlreadyIssued | Reply::SoldOut | Reply::InvalidPass) => {
                self.claimed(person, reply, agenda);
            }
            (Call::Release | Call::Leave, Reply::Done) => self.over(person, agenda),
            (Call::Verify, Reply::Valid | Reply::Invalid) => match self.all[person as usize].phase {
                Phase::Admitted => agenda.after(person, Act::Claim, 100_000),
                _ => self.over(person, agenda),
            },
            (Call::View, Reply::CouponSoldOut) => self.hears_sold_out(person, agenda),
            (Call::View, Reply::CouponOpen) => {
                let one = &mut self.all[person as usize];
                one.looked = true;
                let act = if one.phase == Phase::Unborn { Act::Join } else { Act::Poll };
                agenda.after(person, act, 0);
            }
            (Call::Cheat, _) => self.cheated(person, agenda),
            _ => self.go_home(person, Fate::TurnedAway),
        }
    }

    /// Draws a pause, different for each person and each time.
    fn pause_us(&self, person: u32, first_ms: u64, last_ms: u64) -> u64 {
        let polls = u64::from(self.all[person as usize].polls);
        Rng::of(self.stage.seed, person, 100 + polls).range(first_ms * 1_000, last_ms * 1_000)
    }

    /// Draws the pause before a poll: the told time, give or take a tenth.
    fn poll_pause_us(&self, person: u32, poll_after_ms: u32) -> u64 {
        let told_ms = u64::from(poll_after_ms);
        self.pause_us(person, told_ms - told_ms / 10, told_ms + told_ms / 10)
    }

    fn joined(&mut self, person: u32, body: &Body<'_>, agenda: &mut Agenda) {
        let one = &mut self.all[person as usize];
        one.ticket = body.ticket.map(Into::into);
        one.number = body.number.unwrap_or(0);
        one.phase = Phase::Waiting;
        match one.role {
            Role::Cheats(cheat) if cheat.is_early() => {
                let pause_us = self.pause_us(person, 200, 2_000);
                agenda.after(person, Act::Cheat, pause_us);
            }
            _ => agenda.after(person, Act::Poll, self.poll_pause_us(person, body.poll_after_ms.unwrap_or(1_000))),
        }
    }

    fn waits(&mut self, person: u32, body: &Body<'_>, agenda: &mut Agenda) {
        let seed = self.stage.seed;
        let one = &mut self.all[person as usize];
        one.polls = one.polls.saturating_add(1);
        let (role, acted, polls) = (one.role, one.acted, one.polls);
        let poll_after_ms = body.poll_after_ms.unwrap_or(1_000);
        let mut poll_us = self.poll_pause_us(person, poll_after_ms);
        let turn = polls == 1 + Rng::of(seed, person, 4).below(3) as u16;
        // Less than two seconds ahead: their turn comes while they still count as present.
        let near = f64::from(body.position.unwrap_or(0)) < self.stage.rate_per_s * 2.0;
        match role {
            Role::WalksAway if turn => return self.go_home(person, Fate::WalkedAway),
            Role::Leaves if turn => return agenda.after(person, Act::Leave, self.pause_us(person, 100, 2_000)),
            Role::NeverComes if near => return self.go_home(person, Fate::NeverCame),
            Role::ComesBack if !acted => {
                let absent_us = ABSENT_US.max(3_000 * u64::from(poll_after_ms));
                let line_us = f64::from(body.position.unwrap_or(0)) / self.stage.rate_per_s * 1e6;
                let ahead_us = self.history.rules.opens_us.saturating_sub(agenda.now_us) + line_us as u64;
                match absence(&mut Rng::of(seed, person, 9), absent_us, ahead_us, turn) {
                    Absence::Not => {}
                    Absence::In(moment_us) => poll_us = poll_us.min(moment_us),
                    Absence::Now(away_us) => {
                        self.all[person as usize].acted = true;
                        poll_us = away_us;
                    }
                }
            }
            Role::ComesTooLate if near && !acted => {
                self.all[person as usize].acted = true;
                poll_us = self.stage.claim_window_us + self.pause_us(person, 3_000, 6_000);
            }
            _ => {}
        }
        agenda.after(person, Act::Poll, poll_us);
    }

    fn admitted(&mut self, person: u32, body: &Body<'_>, agenda: &mut Agenda) {
        let think_us = self.pause_us(person, 200, 3_000);
        let verifies = Rng::of(self.stage.seed, person, 5).chance(60);
        let by_shop = self.stage.by_shop(person);
        let one = &mut self.all[person as usize];
        if one.phase == Phase::Over {
            // The slot should be over; the audit judges this answer.
            return self.go_home(person, Fate::LostSlot);
        }
        one.pass = body.pass.map(Into::into);
        one.phase = Phase::Admitted;
        one.polls = one.polls.saturating_add(1);
        match one.role {
            Role::ReleasesUnused => {
                one.fate = Fate::DidNotBuy;
                agenda.after(person, Act::Release, think_us);
            }
            Role::LeavesAdmitted => {
                one.fate = Fate::DidNotBuy;
                agenda.after(person, Act::Leave, think_us);
            }
            Role::BrowsesAway => {
                one.phase = Phase::Over;
                one.fate = Fate::LostSlot;
                let until_us = one.expires_us.saturating_sub(agenda.now_us);
                agenda.after(person, Act::Poll, until_us + 1_500_000 + think_us);
            }
            Role::Cheats(Cheat::FlippedPass) => agenda.after(person, Act::Cheat, think_us),
            Role::Cheats(Cheat::OtherUser) if by_shop => agenda.after(person, Act::Cheat, think_us),
            _ if verifies => agenda.after(person, Act::Verify, think_us),
            _ => agenda.after(person, Act::Claim, think_us),
        }
    }

    fn claimed(&mut self, person: u32, reply: Reply, agenda: &mut Agenda) {
        let mut rng = Rng::of(self.stage.seed, person, 6);
        let at_counter = self.stage.room.is_none();
        let one = &mut self.all[person as usize];
        if one.phase == Phase::Over {
            return self.over(person, agenda);
        }
        let cheat = match one.role {
            Role::Cheats(cheat) => Some(cheat),
            _ => None,
        };
        one.fate = match reply {
            Reply::SoldOut => Fate::SoldOut,
            Reply::InvalidPass => Fate::LostSlot,
            _ => Fate::GotOne,
        };
        self.sold_out |= reply == Reply::SoldOut;
        if at_counter || reply == Reply::InvalidPass {
            return self.go_home(person, Fate::SoldOut);
        }
        let pause_us = rng.range(50_000, 500_000);
        match (cheat, rng.below(100)) {
            (Some(Cheat::SharedPass), _) if reply != Reply::SoldOut => agenda.after(person, Act::Cheat, pause_us),
            (Some(Cheat::LeftPass), _) => agenda.after(person, Act::Leave, pause_us),
            (Some(Cheat::ReleasedPass), _) | (_, 0..70) => agenda.after(person, Act::Release, pause_us),
            (_, 70..85) => agenda.after(person, Act::Leave, pause_us),
            // The slot ends by its time.
            _ => self.go_home(person, Fate::GotOne),
        }
    }

    /// Handles the end of a slot, or a departure from the line. Some people then check that the pass is invalid.
    fn over(&mut self, person: u32, agenda: &mut Agenda) {
        let kind = Rng::of(self.stage.seed, person, 7).below(8) as u8;
        let one = &mut self.all[person as usize];
        let had_pass = one.pass.is_some();
        one.phase = Phase::Over;
        one.afterlife += 1;
        let act = match (one.role, one.afterlife, kind) {
            (Role::Cheats(Cheat::ReleasedPass | Cheat::LeftPass), 1, _) if had_pass => Act::Cheat,
            (Role::BrowsesAway, 1, _) if had_pass => Act::Verify,
            (Role::BrowsesAway, 2, _) if had_pass => Act::Claim,
            (_, 1, 0) if had_pass => Act::Verify,
            (_, 1, 1) => Act::Poll,
            (_, 1, 2) if had_pass => Act::Claim,
            _ => return self.go_home(person, Fate::LeftPolitely),
        };
        // A node may still judge by an older copy.
        agenda.after(person, act, 200_000 + self.stage.stale_us);
    }

    fn hears_sold_out(&mut self, person: u32, agenda: &mut Agenda) {
        let leaves = Rng::of(self.stage.seed, person, 8).chance(400);
        let one = &mut self.all[person as usize];
        if one.phase == Phase::Unborn {
            return self.go_home(person, Fate::CameTooLate);
        }
        one.fate = Fate::SoldOut;
        if leaves {
            agenda.after(person, Act::Leave, 100_000);
        } else {
            self.go_home(person, Fate::SoldOut);
        }
    }

    /// Handles a refused cheat. Most cheats then behave like the other people.
    fn cheated(&mut self, person: u32, agenda: &mut Agenda) {
        let Some(cheat) = self.cheat_of(person) else { return };
        let one = &mut self.all[person as usize];
        match (cheat, one.phase) {
            (Cheat::NoKey | Cheat::WrongKey, _) => self.go_home(person, Fate::TurnedAway),
            (Cheat::SharedPass, _) => agenda.after(person, Act::Release, 100_000),
            (_, Phase::Waiting) => agenda.after(person, Act::Poll, 500_000),
            (_, Phase::Admitted) => agenda.after(person, Act::Claim, 100_000),
            _ => self.go_home(person, Fate::LeftPolitely),
        }
    }
}
