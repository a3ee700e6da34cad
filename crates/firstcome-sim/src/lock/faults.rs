//! What goes wrong in a [`World`], and its end.

use super::history::Disturbance;
use super::network::Weather;
use super::table::{Logged, TableOperation};
use super::workload::Fault;
use super::world::{Event, HOUR_US, World};
use firstcome_core::lock::{Client, ClientId, Failed, Request, Settings};

impl World {
    pub(super) fn plan_fault(&mut self) {
        if let Some((after_us, fault)) = self.plan.fault(&mut self.rng) {
            let process = self.rng.index(self.plan.processes);
            self.later(after_us, process, Event::Fault(fault));
        }
    }

    pub(super) fn fault(&mut self, process: usize, fault: Fault) {
        if self.history.healed_at.is_some() {
            return;
        }
        self.plan_fault();
        let client = self.processes[process].client.id();
        let lasts_us = match self.rng.below(10) {
            0..5 => self.rng.range(10_000, 900_000) as i64,
            5..8 => self.rng.range(900_000, 4_000_000) as i64,
            _ => self.rng.range(4_000_000, 20_000_000) as i64,
        };
        match fault {
            Fault::Kill => self.kill(process),
            Fault::Pause => {
                if !self.processes[process].is_paused {
                    self.report.count("lock fault", "paused");
                    self.processes[process].is_paused = true;
                    self.trouble(client, lasts_us);
                    self.later(lasts_us, process, Event::Resume);
                }
            }
            Fault::Cut => self.cut(process, lasts_us),
            Fault::CutInbox => {
                self.report.count("lock fault", "inbox cut");
                self.processes[process].has_inbox = false;
                self.later(lasts_us, process, Event::ConnectInbox);
            }
            Fault::Flush => self.flush(),
            Fault::ClockBack => {
                self.report.count("lock fault", "clock set back");
                self.store_ahead_us -= if self.rng.chance(300) { HOUR_US } else { lasts_us };
                self.history.disturbances.push((self.now, Disturbance::ClockBack));
            }
            Fault::ClockForward => {
                self.report.count("lock fault", "clock set forward");
                self.store_ahead_us += if self.rng.chance(300) { HOUR_US } else { lasts_us };
                self.history.disturbances.push((self.now, Disturbance::ClockForward));
            }
        }
    }

    fn kill(&mut self, process: usize) {
        self.report.count("lock fault", "killed");
        let client = self.processes[process].client.id();
        self.history.killed.insert(client, self.now);
        let gone: Vec<Request> = self.believing.keys().copied().filter(|it| it.client == client).collect();
        for request in gone {
            self.believe_no_more(request, self.now);
        }
        // A client that wanted something new wants it after the restart.
        let missed = std::mem::take(&mut self.processes[process].missed);
        for event in missed.into_iter().filter(|event| matches!(event, Event::Ask)) {
            self.later(0, process, event);
        }
        let next = ClientId(self.rng.bits());
        let process = &mut self.processes[process];
        process.client = Client::new(next, Settings::default());
        process.is_paused = false;
        process.pending.clear();
        process.stopped.clear();
    }

    /// All calls under way fail; some of them have arrived all the same, or will.
    fn cut(&mut self, process: usize, lasts_us: i64) {
        self.report.count("lock fault", "cut");
        let client = self.processes[process].client.id();
        self.trouble(client, lasts_us);
        self.processes[process].is_connected = false;
        self.later(lasts_us, process, Event::Connect);
        let pending: Vec<(u64, bool)> = self.processes[process].pending.iter().map(|(call, at)| (*call, *at)).collect();
        for (call, arrived) in pending {
            let stopped = !arrived && self.rng.chance(500);
            if stopped {
                self.processes[process].stopped.insert(call);
            }
            let failed = if stopped && self.rng.chance(500) { Failed::Unavailable } else { Failed::Unknown };
            self.later(1, process, Event::Back { client, call, answer: Err(failed) });
        }
    }

    pub(super) fn connect_inbox(&mut self, process: usize) {
        self.processes[process].has_inbox = true;
        let now = self.steady(process);
        self.processes[process].client.check_everywhere(now);
        self.drain(process);
    }

    /// A process goes on: its timers and all that it missed come at once, in either order.
    pub(super) fn resume(&mut self, process: usize) {
        if !std::mem::take(&mut self.processes[process].is_paused) {
            return;
        }
        let now = self.steady(process);
        if self.rng.chance(500) {
            self.processes[process].client.tick(now);
            self.drain(process);
        }
        for event in std::mem::take(&mut self.processes[process].missed) {
            self.happen(process, event);
        }
    }

    fn flush(&mut self) {
        self.report.count("lock fault", "flushed");
        self.tables.clear();
        let (at, store_us) = (self.now, self.store_us());
        self.history.log.push(Logged { at, store_us, bucket: 0, what: TableOperation::Flush });
        self.history.disturbances.push((self.now, Disturbance::Flush));
    }

    /// Faults stop: everything that was interrupted goes on.
    pub(super) fn heal(&mut self) {
        self.history.healed_at = Some(self.now);
        self.plan.weather = Weather::FINE;
        for process in 0..self.processes.len() {
            self.resume(process);
            self.processes[process].is_connected = true;
            self.connect_inbox(process);
        }
    }

    /// All tasks give up what they have and what they want.
    pub(super) fn go_home(&mut self) {
        for process in 0..self.processes.len() {
            let client = self.processes[process].client.id();
            let wanted: Vec<Request> = self.history.asked.keys().copied().filter(|it| it.client == client).collect();
            for request in wanted {
                if self.history.is_wanted(request, self.now) {
                    self.act(process, request, super::tasks::Act::Drop);
                }
            }
        }
    }
}
