//! A loss, and visitors who come back: the model's side, and the steps that both take.

use super::*;

impl Model {
    /// Rebuilds the room from what would be known after a loss: of the tickets in line, only those with a user or a key. Another
    /// `more` numbers may have been drawn.
    pub(super) fn lose(&mut self, more: u32, grace_ms: Option<u64>) -> Room {
        let now = self.ms();
        (self.credit, self.earned_at) = (0, now);
        (self.owed, self.allowed) = (0, 0);
        let window_ms = self.settings.claim_window_ms as Ms;
        self.grace_until = grace_ms.map_or(Ms::MIN, |ms| now + ms as Ms);
        let mut known = Known {
            settings: self.settings.clone(),
            standing: if self.closed { RoomPhase::Closed } else { RoomPhase::Running },
            first: 1,
            ceiling: self.tickets.len() as u32 + more,
            draw: self.draw,
            reached: self.reached as u32 + 1,
            admissions: self.admissions,
            tickets: Vec::new(),
            slots: Vec::new(),
            gone: Vec::new(),
            renewals: Vec::new(),
            grace_until: grace_ms.map(|ms| self.now.steady.plus_ms(ms)),
        };
        self.first = 1;
        let turns: Vec<usize> = (0..self.tickets.len()).map(|at| self.turn(at)).collect();
        let mut row = GoneNumbers { first_number: 1, gone: [0; 64], left: [0; 64] };
        for (at, ticket) in self.tickets.iter_mut().enumerate() {
            let is_stranger = ticket.join.user.is_none() && ticket.join.request.is_none();
            let number = number(at as u32 + 1);
            (ticket.seen, ticket.polled_ms, ticket.ticked, ticket.position) = (now, 0, None, u32::MAX);
            let (admission, hold) = match &mut ticket.stand {
                ModelTicket::Gone(how) => {
                    row.gone[at / 64] |= 1 << (at % 64);
                    row.left[at / 64] |= u64::from(*how == Departure::Left) << (at % 64);
                    continue;
                }
                ModelTicket::Unknown => continue,
                ModelTicket::Waits => {
                    if is_stranger {
                        ticket.stand = ModelTicket::Unknown;
                    } else {
                        known.tickets.push((number, ticket.join.clone()));
                    }
                    ticket.back = !is_stranger && turns[at] < self.reached;
                    continue;
                }
                ModelTicket::Offered { admission, until, due } => {
                    *due = Some((*until - window_ms + 7_400).min(*until)).filter(|due| now < *due);
                    (*admission, Hold::Offered { until: Self::steady(*until) })
                }
                ModelTicket::Taken { admission, until, contact } => {
                    *contact = now;
                    (*admission, Hold::Taken { until: Self::steady(*until) })
                }
            };
            if !is_stranger {
                known.tickets.push((number, ticket.join.clone()));
            }
            known.slots.push((number, Slot { admission, admitted_at: self.now.wall, hold }));
        }
        known.gone.push(row);
        for _ in 0..more {
            self.tickets.push(Ticket {
                join: anonymous(),
                stand: if self.closed { ModelTicket::Gone(Departure::Expired) } else { ModelTicket::Unknown },
                seen: now,
                is_unpolled: false,
                polled_ms: 0,
                back: false,
                ticked: None,
                position: u32::MAX,
            });
        }
        if self.closed {
            self.reached = self.tickets.len();
            self.first = self.tickets.len() as u32 + 1;
        }
        self.await_polls_afresh();
        Room::rebuilt(&known, hasher(), self.now).expect("what is known is sound").with_draw_key(draw_key())
    }

    fn readmit(&mut self, at: usize, user: Option<&UserId>) -> bool {
        if self.tickets.get(at).is_none_or(|ticket| ticket.stand != ModelTicket::Unknown) {
            return false;
        }
        if let Some(other) = user.and_then(|user| self.find(|it| it.user.as_ref() == Some(user))) {
            self.settle(other);
            if self.lives(other) && other < at {
                self.go(at, Departure::Left);
                return false;
            }
            if self.lives(other) {
                self.go(other, Departure::Left);
            }
        }
        let (now, join) = (self.ms(), Join { user: user.cloned(), request: None });
        let ticket = &mut self.tickets[at];
        (ticket.stand, ticket.seen, ticket.ticked, ticket.join) = (ModelTicket::Waits, now, None, join.clone());
        self.changes.push(Change::Joined { number: number(at as u32 + 1), join, joined_at: self.now.wall });
        // Visitors behind saw a position that did not count this ticket.
        self.tickets.iter_mut().for_each(|behind| behind.position = u32::MAX);
        self.look(at);
        true
    }

    fn seen(&mut self, at: usize) -> bool {
        let (now, is_silent, is_over) = (self.ms(), self.is_silent(at), self.end(at) <= self.ms());
        let is_passed_over = self.turn(at) < self.reached;
        let ticket = &mut self.tickets[at];
        match &mut ticket.stand {
            ModelTicket::Waits if !is_silent => {
                (ticket.seen, ticket.is_unpolled, ticket.back) = (now, false, is_passed_over);
                true
            }
            ModelTicket::Taken { contact, .. } if !is_over => {
                *contact = now;
                false
            }
            _ => false,
        }
    }
}

impl Both {
    pub(super) fn is_unknown(&self, at: usize) -> bool {
        self.model.tickets.get(at).is_some_and(|ticket| ticket.stand == ModelTicket::Unknown)
    }

    pub(super) fn look_at_unknown(&mut self, at: usize) {
        let (ticket, play) = (number(at as u32 + 1), &mut self.play);
        assert!(play.room.is_unknown(ticket));
        assert_eq!(play.room.poll(ticket, play.now), Some(Poll::Decide));
        assert_eq!(play.room.decide(ticket, play.now, &mut play.changes), None);
        assert_eq!(play.room.user(ticket), None);
    }

    /// Chooses a ticket to readmit: mostly an unknown one, if there is any.
    pub(super) fn readmit(&mut self, pick: u32, user: Option<&UserId>) {
        let unknown: Vec<usize> = (0..self.model.tickets.len()).filter(|&at| self.is_unknown(at)).collect();
        let at = match unknown.len() {
            0 => self.at(pick),
            count => unknown[pick as usize % count],
        };
        let came = self.play.room.readmit(number(at as u32 + 1), user, self.play.now, &mut self.play.changes);
        assert_eq!(came, self.model.readmit(at, user), "{} comes back", at + 1);
        if came {
            self.take_over_told(at);
        }
    }

    pub(super) fn contact(&mut self, pick: u32) {
        let (at, play) = (self.at(pick), &mut self.play);
        let ticket = number(at as u32 + 1);
        let told = play.room.peek(ticket, play.now);
        play.room.contact(ticket, play.now);
        if at < self.model.tickets.len() && self.model.seen(at) {
            let Some(Poll::Answer(view)) = told else { panic!("who waits is told: {told:?}") };
            self.model.tickets[at].polled_ms = view.poll_after_ms.into();
        }
    }

    pub(super) fn alive(&mut self, bits: u64) {
        let mut row = [0; 64];
        row[0] = bits;
        self.play.room.alive(1, &row, self.play.now);
        for at in (0..self.model.tickets.len().min(64)).filter(|at| bits & (1 << at) != 0) {
            if self.model.tickets[at].stand == ModelTicket::Waits {
                self.model.seen(at);
            }
        }
    }
}
