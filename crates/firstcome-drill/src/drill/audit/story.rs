//! Small histories for the tests of the audit. Times are in microseconds unless a test says otherwise.

use super::super::record::{
    Admission, Call, ClaimReceipt, History, Holder, ListedClaim, Record, Reply, Restart, Rules, Target,
};

pub(crate) struct Story {
    pub(crate) history: History,
}

impl Story {
    pub(crate) fn new() -> Self {
        let rules = Rules {
            stock: 3,
            people: 100,
            opens_us: 0,
            rate_per_s: 10.0,
            slice: 2.5,
            active_max: 2,
            claim_window_us: 5_000_000,
            active_ttl_us: 40_000_000,
            reading_us: 0,
            is_shared: false,
            stale_us: 0,
        };
        Self { history: History { rules, ..History::default() } }
    }

    pub(crate) fn says(
        &mut self,
        call: Call,
        reply: Reply,
        number: u32,
        sent_us: u64,
        received_us: u64,
    ) -> &mut Record {
        let person = number.saturating_sub(1);
        let took_us = (received_us - sent_us) as u32;
        self.history.records.push(Record {
            sent_us,
            took_us,
            person,
            number,
            value: 0,
            poll_after_ms: 1_000,
            age_ms: 0,
            call,
            reply,
        });
        self.history.records.last_mut().unwrap()
    }

    pub(crate) fn join(&mut self, person: u32, number: u32, sent_us: u64, received_us: u64) -> &mut Self {
        self.says(Call::Join, Reply::Joined, number, sent_us, received_us).person = person;
        self
    }

    pub(crate) fn lost_join(&mut self, person: u32, sent_us: u64) -> &mut Self {
        self.says(Call::Join, Reply::Lost, 0, sent_us, sent_us + 1).person = person;
        self
    }

    pub(crate) fn waits(&mut self, number: u32, sent_us: u64, received_us: u64, position: u32) -> &mut Self {
        self.says(Call::Poll, Reply::Waiting, number, sent_us, received_us).value = position;
        self
    }

    pub(crate) fn leaves(&mut self, number: u32, sent_us: u64, received_us: u64) -> &mut Self {
        self.says(Call::Leave, Reply::Done, number, sent_us, received_us);
        self
    }

    /// Adds a poll that is answered with a pass.
    pub(crate) fn admitted(
        &mut self,
        number: u32,
        sent_us: u64,
        received_us: u64,
        at_us: u64,
        expires_us: u64,
    ) -> &mut Self {
        let index = self.history.admissions.len() as u32;
        self.says(Call::Poll, Reply::Admitted, number, sent_us, received_us).value = index;
        self.history.admissions.push(Admission { number, admitted_us: at_us, received_us, expires_us });
        self
    }

    pub(crate) fn restart(&mut self, killed_us: u64, ready_us: u64) -> &mut Self {
        let (target, loses, forgets) = (Target::Server, false, true);
        self.history.restarts.push(Restart { target, loses, forgets, killed_us, ready_us, in_flight: 1 });
        self
    }

    /// Makes the room shared by nodes, which answer from copies that may be this old.
    pub(crate) fn shared(&mut self, stale_us: u64) -> &mut Self {
        (self.history.rules.is_shared, self.history.rules.stale_us) = (true, stale_us);
        self
    }

    /// Adds a restart of a node, or of one of the servers below the nodes.
    pub(crate) fn restart_of(&mut self, target: Target, loses: bool, killed_us: u64, ready_us: u64) -> &mut Self {
        self.history.restarts.push(Restart { target, loses, forgets: loses, killed_us, ready_us, in_flight: 1 });
        self
    }

    /// Adds an acknowledged claim, and its record.
    pub(crate) fn claims(&mut self, number: u32, sent_us: u64, received_us: u64, serial: u32) -> &mut Self {
        self.says(Call::Claim, Reply::Issued, number, sent_us, received_us).value = serial;
        let (holder, code_hash) = (Holder::Pass(number), u64::from(serial));
        self.history.told.push(ClaimReceipt { received_us, serial, code_hash, holder, expected: holder });
        self
    }

    pub(crate) fn listed(&mut self, number: u32, serial: u32) -> &mut Self {
        self.history.listed.push(ListedClaim { serial, code_hash: u64::from(serial), holder: Holder::Pass(number) });
        self
    }
}
