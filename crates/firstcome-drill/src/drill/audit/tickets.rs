//! Reconstructs the life of every ticket from the answers about it.

use super::super::record::{Call, History, Record, Reply};
use super::PRESENT_US;

/// Marks an instant that has not come, or never will.
pub(crate) const NEVER: u64 = u64::MAX;

/// The certain facts about one ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketHistory {
    pub(crate) person: u32,
    /// When its person first sent a join, answered or not: the number was not drawn earlier.
    pub(crate) first_sent_us: u64,
    /// When its number was first answered: it was drawn by then.
    pub(crate) told_us: u64,
    /// When a leave or release was first sent: the slot or place may be gone from then on.
    pub(crate) over_sent_us: u64,
    /// When a leave or release was acknowledged: the slot or place is gone.
    pub(crate) over_us: u64,
    /// When it was certainly not in line any more: it left, was seen with a pass, or was seen at its end.
    pub(crate) gone_us: u64,
    /// Until when it was certainly in line and present without a break since its join; 0 if unknown.
    pub(crate) steady_until_us: u64,
    /// The first admission that an answer told.
    pub(crate) admitted_us: u64,
    /// Whether that admission was certainly its first: no earlier slot can have been lost unnoticed.
    pub(crate) surely_first: bool,
    /// When it was first seen with a pass.
    pub(crate) pass_us: u64,
    pub(crate) expires_first_us: u64,
    pub(crate) expires_last_us: u64,
    pub(crate) ended_us: u64,
}

impl TicketHistory {
    const UNBORN: Self = Self {
        person: u32::MAX,
        first_sent_us: NEVER,
        told_us: NEVER,
        over_sent_us: NEVER,
        over_us: NEVER,
        gone_us: NEVER,
        steady_until_us: 0,
        admitted_us: NEVER,
        surely_first: false,
        pass_us: NEVER,
        expires_first_us: NEVER,
        expires_last_us: NEVER,
        ended_us: NEVER,
    };

    pub(crate) const fn is_told(&self) -> bool {
        self.told_us != NEVER
    }
}

/// All tickets by number, with their answers in the order in which the requests were sent.
pub(crate) struct Tickets<'a> {
    pub(crate) history: &'a History,
    starts: Vec<u32>,
    order: Vec<u32>,
    lives: Vec<TicketHistory>,
    /// When each person first sent a join.
    pub(crate) first_join_us: Vec<u64>,
}

impl<'a> Tickets<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        // Another check judges a number that no person can have; it must not cost memory here.
        let most = super::numbers::highest(history).saturating_mul(4).saturating_add(1_000);
        let known = |record: &&Record| 0 < record.number && record.number <= most;
        let highest = history.records.iter().filter(known).map(|record| record.number).max().unwrap_or(0);
        let mut starts = vec![0_u32; highest as usize + 2];
        for record in history.records.iter().filter(known) {
            starts[record.number as usize + 1] += 1;
        }
        for number in 1..starts.len() {
            starts[number] += starts[number - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0_u32; *starts.last().unwrap_or(&0) as usize];
        for (at, record) in history.records.iter().enumerate().filter(|(_, record)| known(record)) {
            let place = &mut next[record.number as usize];
            order[*place as usize] = at as u32;
            *place += 1;
        }
        for number in 1..=highest as usize {
            let slice = &mut order[starts[number] as usize..starts[number + 1] as usize];
            slice.sort_by_key(|&at| history.records[at as usize].sent_us);
        }
        let mut first_join_us = vec![NEVER; history.rules.people as usize];
        for record in history.records.iter().filter(|record| record.call == Call::Join) {
            if let Some(first) = first_join_us.get_mut(record.person as usize) {
                *first = record.sent_us.min(*first);
            }
        }
        // The people who are browsers come last.
        for (first, page) in first_join_us.iter_mut().rev().zip(&history.pages) {
            *first = page.opened_us.unwrap_or(NEVER);
        }
        let mut tickets = Self { history, starts, order, lives: Vec::new(), first_join_us };
        tickets.lives = (0..=highest).map(|number| tickets.life_of(number)).collect();
        tickets
    }

    /// Returns how many people asked for a ticket and learned no number: each may have one.
    pub(crate) fn untold(&self) -> u32 {
        let asked = self.first_join_us.iter().filter(|at_us| **at_us != NEVER).count() as u32;
        asked.saturating_sub(self.lives().count() as u32)
    }

    pub(crate) const fn highest(&self) -> u32 {
        self.lives.len() as u32 - 1
    }

    pub(crate) fn life(&self, number: u32) -> TicketHistory {
        self.lives.get(number as usize).copied().unwrap_or(TicketHistory::UNBORN)
    }

    /// Returns every ticket whose number was answered, by number.
    pub(crate) fn lives(&self) -> impl DoubleEndedIterator<Item = (u32, &TicketHistory)> {
        self.lives.iter().enumerate().skip(1).map(|(number, life)| (number as u32, life)).filter(|(_, l)| l.is_told())
    }

    /// Returns the answers about a ticket in the order in which the requests were sent.
    pub(crate) fn records(&self, number: u32) -> impl DoubleEndedIterator<Item = &'a Record> {
        let number = number as usize;
        let range = if number == 0 { 0..0 } else { self.starts[number] as usize..self.starts[number + 1] as usize };
        let history = self.history;
        self.order[range].iter().map(move |&at| &history.records[at as usize])
    }

    fn life_of(&self, number: u32) -> TicketHistory {
        let mut life = TicketHistory::UNBORN;
        for record in self.records(number) {
            let received_us = record.received_us();
            let at = match (record.call, record.reply) {
                (Call::Join, Reply::Joined | Reply::JoinedAgain) => {
                    life.person = record.person;
                    let first_us = self.first_join_us.get(record.person as usize).copied().unwrap_or(record.sent_us);
                    life.first_sent_us = first_us.min(life.first_sent_us);
                    &mut life.told_us
                }
                (Call::Leave | Call::Release, reply) => {
                    life.over_sent_us = record.sent_us.min(life.over_sent_us);
                    if reply != Reply::Done {
                        continue;
                    }
                    life.gone_us = received_us.min(life.gone_us);
                    &mut life.over_us
                }
                (Call::Poll, Reply::Admitted) => {
                    self.admit(&mut life, record);
                    &mut life.gone_us
                }
                (Call::Poll, Reply::Expired | Reply::Left) => {
                    life.ended_us = received_us.min(life.ended_us);
                    &mut life.gone_us
                }
                _ => continue,
            };
            *at = received_us.min(*at);
        }
        self.follow(number, &mut life);
        life
    }

    fn admit(&self, life: &mut TicketHistory, record: &Record) {
        let Some(seen) = self.history.admissions.get(record.value as usize) else { return };
        life.admitted_us = seen.admitted_us.min(life.admitted_us);
        life.pass_us = record.received_us().min(life.pass_us);
        life.expires_first_us = seen.expires_us.min(life.expires_first_us);
        life.expires_last_us =
            if life.expires_last_us == NEVER { seen.expires_us } else { seen.expires_us.max(life.expires_last_us) };
    }

    /// Follows the ticket as long as it was in line without a break. A slot that came and was lost between two polls
    /// would show as position 0 after a pause of at least the claim window. In a shared room, Redis may have lost a
    /// slot that was not durable yet. Positions of other tickets count such a slot, and only its holder's answer waits
    /// until it is durable.
    fn follow(&self, number: u32, life: &mut TicketHistory) {
        let (history, window_us) = (self.history, self.history.rules.claim_window_us);
        let mut before: Option<&Record> = None;
        let is_heard = |record: &&Record| !history.may_be_unheard(record.sent_us, record.received_us());
        for record in self.records(number).filter(|record| record.is_contact()).filter(is_heard) {
            let gap_us = before.map_or(0, |before| record.received_us().saturating_sub(before.sent_us));
            let is_undone = |before: &Record| {
                history.rules.is_shared && history.forgotten_within(before.about_us(), record.received_us())
            };
            if PRESENT_US <= gap_us || before.is_some_and(is_undone) {
                return;
            }
            match record.reply {
                Reply::Waiting if 0 < record.value || gap_us < window_us => life.steady_until_us = record.about_us(),
                Reply::Waiting => return,
                Reply::Admitted => {
                    life.surely_first = gap_us < window_us;
                    return;
                }
                _ => {}
            }
            before = Some(record);
        }
    }
}
