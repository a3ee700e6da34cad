//! Random commands: the store must reply exactly as the rules of `firstcome-core`.
//!
//! Many rooms run at once, with one command of each per round. Between two rounds the clock moves, and the store does
//! what is due. A tick of the store finds nothing more to do.

use super::*;
use crate::conformance::{Rng, all};
use crate::edge::draw_hasher;
use firstcome_core::room::{Admit, Joined, Poll, Room, TicketView};
use firstcome_core::time::Now;

const SEQUENCES: u64 = 120;
const ROUNDS: u64 = 60;

/// The rules, with the interface of a store.
struct Oracle {
    room: Option<Room>,
}

impl Oracle {
    fn tick(&mut self, now: Now) {
        if let Some(room) = &mut self.room {
            room.tick(now, &mut Vec::new());
        }
    }

    fn apply(&mut self, step: &Step, now: Now) -> RoomReply {
        let changes = &mut Vec::new();
        let Some(room) = &mut self.room else {
            let Step::Put(settings) = step else { return describe_refused(Rejection::UnknownRoom) };
            self.room = Some(Room::new(settings.clone(), draw_hasher(), now));
            return describe_put(Ok(Put::Created));
        };
        match step {
            Step::Put(settings) => {
                room.replace_settings(settings.clone(), now);
                describe_put(Ok(Put::Replaced))
            }
            Step::Close => {
                room.close();
                words("closed")
            }
            Step::View => describe_view(Ok(room.view(now))),
            Step::Join { user, request } => {
                let joined = room.join(&join(user.as_deref(), *request), now, changes);
                describe_join(joined.map(|joined| match joined {
                    Joined::New(view) => (Joining::New, shown(room, view, now)),
                    Joined::SameRequest(view) => (Joining::SameRequest, shown(room, view, now)),
                    Joined::SameUser(view) => (Joining::SameUser, shown(room, view, now)),
                }))
            }
            Step::Poll(number) => {
                let view = match room.poll(of(*number), now) {
                    Some(Poll::Decide) => room.decide(of(*number), now, changes),
                    Some(Poll::Answer(view)) => Some(view),
                    None => None,
                };
                describe_ticket(view.map(|view| shown(room, view, now)).ok_or(Rejection::UnknownTicket))
            }
            Step::Renew(number, key) => {
                let view = room.renew(room.ticket_of(of(*number)), RenewalKey::new(*key), now, changes);
                describe_ticket(view.map(|view| shown(room, view, now)))
            }
            Step::Leave(number) => describe_done(room.leave(of(*number), now, changes), "left"),
            Step::Release(number, admission) => {
                room.release(of(*number), *admission, now, changes);
                words("released")
            }
            Step::Report(report) => {
                room.report_origin(*report, now);
                describe_pace(Ok(room.pace(now)))
            }
            Step::Check(number, admission) => {
                room.end_over(of(*number), now, changes);
                let until = room.check_pass(of(*number), *admission, now);
                describe_check(Ok(until.map(|until| now.wall_at(until))))
            }
            Step::Admissions => describe_admissions(Ok(room.live_admissions(now))),
        }
    }
}

/// Returns the reply that a store makes from a view.
fn shown(room: &Room, view: TicketView, now: Now) -> TicketAnswer {
    let until = match view.state {
        TicketState::Admitted { until, .. } => Some(now.wall_at(until)),
        _ => None,
    };
    TicketAnswer {
        ticket: "".into(),
        number: view.number,
        user: room.user(view.number).map(Into::into),
        state: view.state,
        until,
        poll_after_ms: view.poll_after_ms,
        as_of: now.wall,
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn any_settings(rng: &mut Rng, now: Now) -> RoomSettings {
    let admit = (!rng.once_in(3)).then(|| Admit { count: 1 + rng.below(20) as u32, every_ms: 1_000 });
    let cap = (admit.is_none() || rng.once_in(2)).then(|| 1 + rng.below(4) as u32);
    RoomSettings {
        admit,
        max_active: cap,
        max_waiting: pick(rng, &[3, 1_000, 1_000]),
        waiting_ttl_ms: pick(rng, &[2_000, 60_000, 3_600_000]),
        first_poll_ms: rng.once_in(4).then(|| pick(rng, &[900, 31_000])),
        active_ttl_ms: pick(rng, &[500, 20_000]),
        claim_window_ms: pick(rng, &[200, 10_000]),
        idle_ttl_ms: rng.once_in(3).then_some(700),
        opens_at: rng.once_in(6).then(|| Timestamp::clamped_us(now.wall.as_us() + 1_000_000)),
        paused: rng.once_in(9),
        ..RoomSettings::defaults()
    }
}

fn any_request(rng: &mut Rng) -> Option<RequestId> {
    // Use few keys and two bodies, so that repeats and reuses happen.
    if rng.once_in(3) { key(u128::from(rng.below(6)) << 60, rng.below(2)) } else { None }
}

fn any_step(rng: &mut Rng, drawn: u32, now: Now) -> Step {
    let number = 1 + rng.below(u64::from(drawn.max(1))) as u32;
    match rng.below(65) {
        0..=19 => {
            Step::Join { user: rng.once_in(2).then(|| format!("user{}", rng.below(6))), request: any_request(rng) }
        }
        20..=39 if drawn != 0 => Step::Poll(number),
        40..=44 if drawn != 0 => Step::Leave(number),
        62..=64 if drawn != 0 => Step::Renew(number, u128::from(rng.bits()) << 64),
        45..=47 => Step::Release(number, 1 + rng.below(12)),
        48..=52 => Step::Check(number, 1 + rng.below(12)),
        53..=54 => Step::Admissions,
        60 | 61 => Step::Report(pick(rng, &[OriginReport::Fine, OriginReport::Slow, OriginReport::Failing])),
        56..=58 => Step::Put(any_settings(rng, now)),
        59 if rng.once_in(3) => Step::Close,
        _ => Step::View,
    }
}

/// One room, its oracle, and the commands so far.
struct Sequence {
    seed: u64,
    room: RoomName,
    rng: Rng,
    oracle: Oracle,
    drawn: u32,
    history: Vec<String>,
}

pub(super) async fn random_commands_are_answered_as_by_the_rules<S: RoomStore + 'static>(bench: Bench<S>) {
    let sequence = |seed| Sequence {
        seed,
        room: name(&format!("sequence{seed}")),
        rng: Rng::from_seed(seed),
        oracle: Oracle { room: None },
        drawn: 0,
        history: Vec::new(),
    };
    let mut sequences: Vec<Sequence> = (0..SEQUENCES).map(sequence).collect();
    let mut rng = Rng::from_seed(SEQUENCES);
    for round in 0..ROUNDS {
        bench.clock.pass_ms(pick(&mut rng, &[1, 60, 60, 250, 900, 31_000]));
        let now = bench.clock.both();
        bench.tick().await;
        sequences.iter_mut().for_each(|it| it.oracle.tick(now));
        let step = |it: &mut Sequence| match round {
            0 => Step::Put(any_settings(&mut it.rng, now)),
            _ => any_step(&mut it.rng, it.drawn, now),
        };
        let steps: Vec<Step> = sequences.iter_mut().map(step).collect();
        let told = all(sequences.iter().zip(&steps).map(|(it, step)| {
            let (bench, room, step) = (bench.clone(), it.room.clone(), step.clone());
            async move { bench.apply(&room, &step).await }
        }))
        .await;
        bench.tick().await;
        for ((sequence, step), told) in sequences.iter_mut().zip(steps).zip(told) {
            let wanted = sequence.oracle.apply(&step, now);
            sequence.oracle.tick(now);
            sequence.drawn = sequence.oracle.room.as_ref().map_or(0, Room::drawn);
            let before = sequence.history.join("\n");
            assert_eq!(told, wanted, "seed {}, round {round}: {step:?}, after\n{before}", sequence.seed);
            sequence.history.push(format!("{}: {step:?} -> {}", ms(now.wall), told.words));
        }
    }
}
