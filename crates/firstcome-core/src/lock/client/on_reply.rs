//! Handles the store's replies and pushes.

use super::{About, Answer, Ask, Base, Client, Entry, Failed, Leaving, LockAnswer, LockReply, State, spread};
use crate::id::LockName;
use crate::limits::CLAIM_WINDOW_MS;
use crate::lock::{Acquired, Copies, Grant, Push, Released, Taken, bucket_of};
use crate::time::Steady;

/// The pauses between two tries of a failed call: the first, and the longest. Each doubles the one before.
const RETRY_MS: (u64, u64) = (10, 1_000);

impl Entry {
    pub(super) fn new(ask: Ask, now: Steady) -> Self {
        Self {
            bucket: bucket_of(&ask.name),
            wait_until: now.plus_ms(u64::from(ask.wait_ms)),
            ask,
            state: State::Asking,
            number: None,
            ahead: None,
            life: 0,
            copies: Copies::One,
            asks: 0,
            tries: 0,
            retry_at: None,
            pushed: None,
            call: None,
            failed: Failed::Unavailable,
            timer: None,
        }
    }
}

impl Client {
    /// Takes over a hold that was obtained without this client, under a number that this client never draws. The hold was granted
    /// for its whole lease, and not before `asked`. Returns its deadline.
    pub fn adopt(&mut self, number: u64, ask: Ask, asked: Steady, now: Steady) -> Steady {
        let left_us = self.settings.less_drift_us(u64::from(ask.lease_ms) * 1_000);
        let deadline = Steady::from_us(asked.as_us().saturating_add_unsigned(left_us));
        self.entries.insert(number, Entry::new(ask, now));
        self.holds(number, Taken::Yes, deadline, now);
        deadline
    }

    /// Handles the answer to a call. An answer to a forgotten call changes nothing.
    pub fn answered(&mut self, call: u64, answer: Result<Answer, Failed>, now: Steady) {
        let Some((sent, about)) = self.under_way.remove(&call) else { return };
        if let Ok(answer) = &answer
            && self.base.is_none_or(|base| base.sent <= sent)
        {
            self.base = Some(Base { sent, server_us: answer.now_us });
        }
        match (about, answer) {
            (About::Request(number), Ok(answer)) => self.request_answered(number, call, answer, now),
            (About::Request(number), Err(failed)) => self.request_failed(number, call, failed, now),
            (About::Renewals(bucket, numbers), answer) => self.renewals_answered(bucket, &numbers, answer, now),
            (About::Beat(bucket, names), answer) => self.heartbeat_answered(bucket, &names, answer, now),
        }
    }

    /// Handles a push: another process released a lock, and a request of this process got it. A push may come twice, late, or
    /// not at all.
    pub fn pushed(&mut self, push: &Push, now: Steady) {
        if push.grant.request.client == self.id {
            self.granted(push.grant, Some(&push.name), now);
        }
    }

    fn request_answered(&mut self, number: u64, call: u64, answer: Answer, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.call != Some(call) {
            // The answer to an earlier call, of a request that is being given up or was granted in another way.
            return;
        }
        entry.call = None;
        entry.tries = 0;
        match answer.said {
            LockAnswer::Acquired(Acquired::Granted(grant)) => self.granted(grant, None, now),
            LockAnswer::Acquired(Acquired::Queued { number: place, ahead, life, seen }) => {
                if matches!(entry.state, State::Asking | State::Waiting) {
                    (entry.number, entry.ahead, entry.life) = (Some(place), Some(ahead), life);
                    self.waits(number, life, seen, answer.now_us, now);
                    self.pushed_before(number, now);
                }
            }
            LockAnswer::Acquired(Acquired::Contended { holder, waiters, expires_us }) => {
                let ttl_ms = expires_us.saturating_sub(answer.now_us).div_ceil(1_000);
                self.end(number, Some(LockReply::Contended { holder, waiters, ttl_ms }), now);
            }
            // The store knows a release of this request, so no caller waits for it.
            LockAnswer::Acquired(Acquired::Void) => self.end(number, Some(LockReply::NotHeld), now),
            LockAnswer::Released(released) => self.released(number, released, now),
            LockAnswer::Renewed(_) | LockAnswer::Beaten { .. } => {}
        }
    }

    /// Handles a grant that an answer, a heartbeat or a push reports, perhaps not for the first time.
    fn granted(&mut self, grant: Grant, name: Option<&LockName>, now: Steady) {
        let number = grant.request.number;
        let Some(entry) = self.entries.get_mut(&number) else {
            // No caller wants this grant: the client gave the request up, or forgot it. A confirmed grant without an entry was
            // handed out, and an unconfirmed one that is over has ended by itself. Neither needs a release.
            let handed_out = grant.taken == Taken::Yes || self.handed_out.iter().any(|(_, other)| *other == number);
            let deadline = self.deadline(grant.expires_us, CLAIM_WINDOW_MS, grant.taken, now);
            let is_over = self.base.is_some() && deadline <= now;
            if let Some(name) = name.filter(|_| !handed_out && !is_over) {
                self.undo(name, grant, now);
            }
            return;
        };
        if !matches!(entry.state, State::Asking | State::Waiting) {
            return;
        }
        let lease_ms = entry.ask.lease_ms;
        let deadline = self.deadline(grant.expires_us, lease_ms, grant.taken, now);
        if deadline <= now {
            self.granted_too_late(grant, now);
            return;
        }
        self.told.push_back((number, LockReply::Granted { fence: grant.fence, deadline, taken: grant.taken }));
        self.holds(number, grant.taken, deadline, now);
    }

    /// Releases a grant that no caller wants.
    fn undo(&mut self, name: &LockName, grant: Grant, now: Steady) {
        let step = super::Step::Release { name: name.clone(), request: grant.request, copies: Copies::One };
        self.send(step, About::Request(grant.request.number), now);
    }

    /// Handles a grant that is over, or whose deadline cannot be computed yet. A request that still waits asks again.
    fn granted_too_late(&mut self, grant: Grant, now: Steady) {
        let number = grant.request.number;
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if entry.call.is_some() {
            // A push may overtake the answer that the deadline is computed from.
            entry.pushed = Some(grant);
        } else if entry.ask.wait_ms == 0 {
            let until = entry.undone_until(now);
            self.told.push_back((number, LockReply::Failed(Failed::Unknown)));
            self.leave(number, Leaving::Dropped, until, now);
        } else if now < entry.wait_until {
            self.send_acquire(number, now);
        }
    }

    /// Handles a push that overtook the answer that this request is in line.
    fn pushed_before(&mut self, number: u64, now: Steady) {
        if let Some(grant) = self.entries.get_mut(&number).and_then(|entry| entry.pushed.take()) {
            self.granted(grant, None, now);
        }
    }

    /// Goes on giving up a request whose caller has its reply already.
    pub(super) fn undo_quietly(&mut self, number: u64, until: Steady) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.state = State::Leaving { of: Leaving::Dropped, until };
        self.schedule_request(number);
    }

    fn released(&mut self, number: u64, released: Released, now: Steady) {
        let Some(entry) = self.entries.get(&number) else { return };
        let State::Leaving { of, .. } = entry.state else { return };
        let told = match (of, released) {
            (Leaving::Dropped, _) => None,
            (Leaving::TimedOut, Released::Withdrawn { ahead }) => Some(LockReply::TimedOut { ahead: Some(ahead) }),
            (Leaving::TimedOut, _) => Some(LockReply::TimedOut { ahead: entry.ahead }),
            (Leaving::Released, Released::NotHeld) if entry.copies == Copies::Several => Some(LockReply::Released),
            (Leaving::Released, Released::NotHeld) => Some(LockReply::NotHeld),
            (Leaving::Released, _) => Some(LockReply::Released),
        };
        self.end(number, told, now);
    }

    fn request_failed(&mut self, number: u64, call: u64, failed: Failed, now: Steady) {
        let Some(entry) = self.entries.get_mut(&number).filter(|entry| entry.call == Some(call)) else { return };
        entry.call = None;
        entry.tries += 1;
        if entry.failed != Failed::Unknown {
            entry.failed = failed;
        }
        if failed == Failed::Unknown {
            entry.copies = Copies::Several;
        }
        let waits = 0 < entry.ask.wait_ms || matches!(entry.state, State::Leaving { .. });
        if waits {
            entry.retry_at = Some(now.plus_ms(retry_ms(entry.tries, number)));
            return self.schedule_request(number);
        }
        if entry.copies == Copies::One {
            // The store did nothing, and so there is nothing to undo.
            return self.end(number, Some(LockReply::Failed(failed)), now);
        }
        let until = entry.undone_until(now);
        self.told.push_back((number, LockReply::Failed(failed)));
        self.leave(number, Leaving::Dropped, until, now);
    }

    fn renewals_answered(&mut self, bucket: u8, numbers: &[u64], answer: Result<Answer, Failed>, now: Steady) {
        let ends = match answer {
            Ok(Answer { said: LockAnswer::Renewed(ends), .. }) => Some(ends),
            _ => None,
        };
        for (at, &number) in numbers.iter().enumerate() {
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            let State::Held { deadline, renew_at } = &mut entry.state else { continue };
            match ends.as_ref().map(|ends| ends.get(at).copied().flatten()) {
                // No answer: tries again soon, as long as the hold lasts.
                None => *renew_at = now.plus_ms((deadline.since_us(now) / 8_000).max(1)),
                Some(None) if entry.copies == Copies::One => self.end(number, Some(LockReply::Lost), now),
                Some(None) => {
                    // A copy of the acquire may still arrive, and must find its release.
                    let until = entry.undone_until(now);
                    self.told.push_back((number, LockReply::Lost));
                    self.leave(number, Leaving::Dropped, until, now);
                }
                Some(Some(expires_us)) => {
                    let lease_ms = entry.ask.lease_ms;
                    let deadline = self.deadline(expires_us, lease_ms, Taken::Yes, now);
                    self.told.push_back((number, LockReply::Renewed { deadline }));
                    self.holds(number, Taken::Yes, deadline, now);
                }
            }
        }
        self.schedule_bucket(bucket, now);
    }

    fn heartbeat_answered(&mut self, bucket: u8, names: &[LockName], answer: Result<Answer, Failed>, now: Steady) {
        let heard = answer.as_ref().map(|_| ()).map_err(|failed| *failed);
        if let Ok(Answer { now_us, said: LockAnswer::Beaten { life, looked } }) = answer {
            for (name, (grants, seen)) in names.iter().zip(looked) {
                for grant in grants.into_iter().filter(|_| !wake_up_lost()) {
                    self.granted(grant, Some(name), now);
                }
                if seen.is_none() {
                    // The lock is free, so the store forgot the requests of this process that wait for it.
                    self.ask_again(bucket, name, now);
                }
                self.looked(bucket, name, seen, now_us, now);
            }
            self.lives(bucket, life, now);
        }
        self.beaten(bucket, heard, now);
    }
}

impl super::Entry {
    /// Returns until when to try to give this request up when no caller waits for it. Every grant to it has ended by then.
    pub(super) fn undone_until(&self, now: Steady) -> Steady {
        now.plus_ms(super::WITHDRAWAL_MS.max(u64::from(self.ask.lease_ms)))
    }
}

/// Returns the pause before try number `tries`: doubled each time, and spread by the number of the request.
fn retry_ms(tries: u32, number: u64) -> u64 {
    let (first_ms, last_ms) = RETRY_MS;
    let base_ms = first_ms.saturating_mul(1 << (tries.max(1) - 1).min(10)).min(last_ms);
    base_ms + spread(number ^ u64::from(tries), base_ms / 2)
}

#[cfg(feature = "planted-bugs")]
fn wake_up_lost() -> bool {
    crate::planted::is(crate::planted::Bug::WakeUpLost)
}

#[cfg(not(feature = "planted-bugs"))]
const fn wake_up_lost() -> bool {
    false
}
