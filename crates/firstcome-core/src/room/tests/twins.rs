//! One step of a random history on a single room, with all answers and changes as text.

use super::model_steps::Step;
use super::*;

/// A room and the time in it.
pub(super) struct Twin {
    pub(super) room: Room,
    pub(super) now: Now,
}

/// Makes a new room, or one in which all numbers up to a ceiling are unknown.
pub(super) fn room(settings: &RoomSettings, lost: Option<u32>) -> Room {
    let Some(ceiling) = lost else {
        return Room::new(settings.clone(), hasher(), start()).with_draw_key(draw_key());
    };
    let known =
        Known { grace_until: Some(start().steady.plus_ms(u64::from(ceiling) * 1_000)), ..nothing(settings, ceiling) };
    Room::rebuilt(&known, hasher(), start()).expect("nothing is known").with_draw_key(draw_key())
}

/// The known state of a room in which all numbers up to a ceiling are unknown.
pub(super) fn nothing(settings: &RoomSettings, ceiling: u32) -> Known {
    Known {
        settings: settings.clone(),
        standing: RoomPhase::Running,
        first: 1,
        ceiling,
        draw: None,
        reached: 1,
        admissions: 0,
        tickets: Vec::new(),
        slots: Vec::new(),
        gone: Vec::new(),
        renewals: Vec::new(),
        grace_until: None,
    }
}

impl Twin {
    /// Chooses a ticket: mostly a later one, where something happens.
    pub(super) fn ticket(room: &Room, pick: u32) -> TicketNumber {
        let count = room.drawn() + 1;
        number(count - pick % count.min(15))
    }

    pub(super) fn admission(room: &Room, ticket: TicketNumber, pick: u64) -> u64 {
        let slot = room.slots.get(ticket.get()).filter(|_| pick != 2);
        slot.map_or(pick, |(slot, _)| slot.admission)
    }

    pub(super) fn pass(now: &mut Now, step: &Step) {
        match step {
            Step::Pass(ms) => {
                now.steady = now.steady.plus_ms(*ms);
                now.wall = now.wall.plus_ms(*ms);
            }
            Step::SetWall(by_ms) => now.wall = Timestamp::clamped_us(now.wall.as_us() + by_ms * 1_000),
            _ => {}
        }
    }

    /// Takes a step; leaves out steps that only a model needs.
    pub(super) fn step(&mut self, step: &Step) -> String {
        Self::pass(&mut self.now, step);
        let (room, now, mut changes) = (&mut self.room, self.now, Vec::new());
        let answer = match step {
            Step::Join(join) => format!("{:?}", room.join(join, now, &mut changes)),
            Step::Poll(pick) => {
                let ticket = Self::ticket(room, *pick);
                format!("{:?} {:?}", room.poll(ticket, now), room.decide(ticket, now, &mut changes))
            }
            Step::Renew(pick, generation, key) => {
                let ticket = TicketId { number: Self::ticket(room, *pick), generation: *generation };
                let renewed = room.renew(ticket, RenewalKey::new(*key), now, &mut changes);
                format!("{renewed:?} {:?} {:?}", room.ticket_of(ticket.number), room.judge_ticket(ticket))
            }
            Step::Leave(pick) => format!("{:?}", room.leave(Self::ticket(room, *pick), now, &mut changes)),
            Step::Check(pick, admission) => {
                let ticket = Self::ticket(room, *pick);
                let admission = Self::admission(room, ticket, *admission);
                room.end_over(ticket, now, &mut changes);
                format!("{:?} {:?}", room.peek_pass(ticket, admission, now), room.check_pass(ticket, admission, now))
            }
            Step::Release(pick, admission) => {
                let ticket = Self::ticket(room, *pick);
                let admission = Self::admission(room, ticket, *admission);
                room.release(ticket, admission, now, &mut changes);
                String::new()
            }
            Step::Tick => {
                room.tick(now, &mut changes);
                format!("{:?}", room.next_tick_us())
            }
            Step::Run(ticks) => {
                for _ in 0..*ticks {
                    Self::pass(&mut self.now, &Step::Pass(50));
                    room.tick(self.now, &mut changes);
                }
                String::new()
            }
            Step::Put(settings) => {
                room.replace_settings(settings.clone(), now);
                String::new()
            }
            Step::Close => {
                room.close();
                String::new()
            }
            Step::Readmit(pick, user) => {
                format!("{:?}", room.readmit(Self::ticket(room, *pick), user.as_ref(), now, &mut changes))
            }
            Step::Contact(pick) => {
                room.contact(Self::ticket(room, *pick), now);
                String::new()
            }
            Step::Alive(bits) => {
                let mut row = [0; 64];
                row[0] = *bits;
                room.alive(1, &row, now);
                String::new()
            }
            _ => String::new(),
        };
        format!("{answer} {changes:?} {:?}", room.view(self.now))
    }
}
