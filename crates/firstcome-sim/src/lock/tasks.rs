//! What tasks do with their requests: write under them, renew them, give them up, hand them out.

use super::history::LockMessage;
use super::world::{Event, World};
use firstcome_core::lock::{Copies, LockReply, Request, Step, Taken};

#[derive(Clone, Copy)]
pub(super) enum Act {
    Write,
    Release,
    Drop,
    Renew(u32),
    HandOut,
}

impl World {
    pub(super) fn act(&mut self, process: usize, request: Request, act: Act) {
        if request.client != self.processes[process].client.id() {
            return;
        }
        let now = self.steady(process);
        let client = &mut self.processes[process].client;
        match act {
            Act::Write => return self.send_write(process, request),
            Act::Release | Act::Drop if self.handed_out.remove(&request) => return self.give_back(request),
            Act::HandOut => self.hand_out(process, request),
            Act::Renew(lease_ms) => {
                client.renew(request.number, lease_ms, now);
                self.report.count("lock task", "renewed by hand");
            }
            Act::Release => {
                let is_believed = self.believing.contains_key(&request);
                client.release(request.number, now);
                self.give_up(request, !is_believed);
            }
            Act::Drop => {
                client.drop_request(request.number, now);
                self.give_up(request, true);
            }
        }
        self.drain(process);
    }

    /// A client outside has the hold from now on. Only one that lasts its whole lease is handed out.
    fn hand_out(&mut self, process: usize, request: Request) {
        let is_taken = |word: &LockMessage| {
            matches!(word.told, LockReply::Renewed { .. } | LockReply::Granted { taken: Taken::Yes, .. })
        };
        let (now, is_taken) = (self.steady(process), self.history.messages_of(request).any(is_taken));
        if is_taken && self.processes[process].client.hand_out(request.number, now).is_some() {
            self.handed_out.insert(request);
            self.report.count("lock task", "handed out");
            if let Some(asked) = self.history.asked.get_mut(&request) {
                asked.dropped = true;
            }
        }
    }

    /// A client that has a hold that was handed out gives it back, on its own.
    fn give_back(&mut self, request: Request) {
        let name = self.history.asked[&request].ask.name.clone();
        self.give_up(request, false);
        let (answer, pushes) = self.take(&Step::Release { name, request, copies: Copies::One });
        self.count(&answer);
        for push in pushes {
            self.push(push);
        }
    }

    fn give_up(&mut self, request: Request, dropped: bool) {
        let was_believed = self.believing.contains_key(&request);
        self.believe_no_more(request, self.now);
        let Some(asked) = self.history.asked.get_mut(&request) else { return };
        let again = asked.given_up.is_some();
        asked.given_up.get_or_insert(self.now);
        asked.dropped |= dropped;
        let how = match (again, was_believed) {
            (true, _) => "given up twice",
            (_, true) => "gave up a hold",
            (_, false) => "gave up without a hold",
        };
        self.report.count("lock task", how);
    }

    fn send_write(&mut self, process: usize, request: Request) {
        let Some(belief) = self.history.belief_of(request) else { return };
        let passes = self.history.asked[&request].ask.mode.passes();
        let (name, first) = (belief.name.clone(), belief.fence);
        let fence = first.after(self.rng.below(u64::from(passes)) as u32).get();
        let late_us = if self.rng.chance(60) { self.rng.below(10_000_000) as i64 } else { 0 };
        let delay_us = self.plan.weather.delay_us(&mut self.rng) + late_us;
        self.later(delay_us, process, Event::Write { name, request, fence });
    }

    /// What a task does with its lock.
    pub(super) fn plan_task(&mut self, process: usize, request: Request) {
        let lasts_us = match self.rng.below(20) {
            0 => 0,
            1..12 => self.rng.range(100, 50_000) as i64,
            12..18 => self.rng.range(50_000, 1_500_000) as i64,
            _ => self.rng.range(1_500_000, 12_000_000) as i64,
        };
        for _ in 0..self.rng.below(4) {
            let at_us = self.rng.below(lasts_us as u64 + 1) as i64;
            self.later(at_us, process, Event::Task { request, act: Act::Write });
        }
        if self.rng.chance(150) {
            let act = Act::Renew(self.plan.lease_ms(&mut self.rng));
            let at_us = self.rng.below(lasts_us as u64 + 1) as i64;
            self.later(at_us, process, Event::Task { request, act });
        }
        if self.rng.chance(100) {
            let at_us = self.rng.below(lasts_us as u64 + 1) as i64;
            self.later(at_us, process, Event::Task { request, act: Act::HandOut });
        }
        // Some forget to give up, and some go on writing after that.
        if self.rng.chance(50) {
            return self.later(lasts_us + 20_000_000, process, Event::Task { request, act: Act::Write });
        }
        let act = if self.rng.chance(250) { Act::Drop } else { Act::Release };
        self.later(lasts_us, process, Event::Task { request, act });
        if self.rng.chance(80) {
            let again_us = *self.rng.pick(&[0, 500, 30_000]);
            self.later(lasts_us + again_us, process, Event::Task { request, act: Act::Release });
        }
    }
}
