//! Rooms in their world: how the store is asked and started, and which clients it must admit after the heal.
//!
//! Every action takes at least a microsecond, so that each has an instant of its own.

use super::history::{Command, History, Operation, RoomStepReply, WallStep};
use super::recovery;
use super::rows::Stored;
use super::workload::{RoomAction, Rooms, healed, healed_draw};
use crate::history::Request;
use crate::invariants::{self, Evidence, Violation};
use crate::journal::Call;
use crate::primitive::{Breach, Primitive};
use crate::report::Report;
use crate::world::World;
use firstcome_core::id::RoomName;
use firstcome_core::room::{TicketNumber, TicketState};
use firstcome_core::time::Now;
use firstcome_store::RoomStore;
use firstcome_store::edge::{Clock, ManualClock, draw_hasher};
use firstcome_store::embedded::{Backing, Embedded, Timeline};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Rounds of half a second in which the store must admit every client that stays.
const HEAL_ROUNDS_MAX: usize = 60;

impl Primitive for Rooms {
    type Stored = Stored;

    const FAULT: &'static str = "room fault";
    const COMMIT: &'static str = "room commit";
    const VISITORS_MAX: u64 = 4;
    const ACTION_US: i64 = 1;

    fn call(store: &Embedded, _: &Arc<Runtime>, (room, command): Request<Self>) -> Call<Self> {
        let store = store.clone();
        Box::pin(async move {
            let told = match command {
                Command::Put(settings) => store.put_room(&room, settings).await?.map(RoomStepReply::Put),
                Command::Close => store.close_room(&room).await?.map(|()| RoomStepReply::Closed),
                Command::View => store.room(&room).await?.map(|summary| RoomStepReply::View(Box::new(summary))),
                Command::Join(join) => {
                    store.join(&room, join).await?.map(|(joining, answer)| RoomStepReply::Joined(joining, answer))
                }
                Command::Poll(ticket, _) => store.poll(&room, &ticket).await?.map(RoomStepReply::Ticket),
                Command::Renew(ticket, _, key) => store.renew(&room, &ticket, key).await?.map(RoomStepReply::Renewed),
                Command::Leave(ticket, _) => store.leave(&room, &ticket).await?.map(|()| RoomStepReply::Left),
                Command::Release(number, admission) => {
                    store.release(&room, number, admission).await?.map(|()| RoomStepReply::Released)
                }
                Command::Check(number, admission) => {
                    store.check_pass(&room, number, admission).await?.map(RoomStepReply::Pass)
                }
                Command::Tick => Ok(store.tick().await.map(|()| RoomStepReply::Ticked)?),
                Command::Rotate => Ok(RoomStepReply::Rotated(store.rotate_pass_secret().await?)),
                Command::Secrets => Ok(RoomStepReply::Secrets(store.pass_secrets())),
            };
            Ok(told.unwrap_or_else(RoomStepReply::Refused))
        })
    }

    /// Recovers twice: one copy answers whether it is what was stored, which is a contact, and the other goes on.
    fn recover(stored: &Stored, clock: &ManualClock) -> Result<Backing, Breach> {
        let timeline = Timeline::after(stored.clock, clock);
        let now = timeline.now(clock);
        let hasher = draw_hasher();
        let recover = || recovery::recover(stored, &hasher, now).map_err(|damage| ("recovery", damage));
        for mut found in recover()? {
            if let Some(difference) = recovery::difference(&mut found.room, &stored.rooms[&found.id], now) {
                return Err(difference);
            }
        }
        let (rooms, pass_secrets) = (recover()?, stored.secrets.clone());
        Ok(Backing { rooms, pass_secrets, timeline, hasher, ..Backing::memory() })
    }

    fn check(evidence: &Evidence<'_, Self>) -> Result<(), Violation> {
        invariants::check_rooms(evidence)
    }

    fn trace(operation: &Operation, now: Now, report: &mut Report) {
        report.trace(now.steady.as_us() as u64);
        if let Some(answer) = operation.ticket() {
            report.trace(u64::from(answer.number.get()));
            report.trace(u64::from(answer.poll_after_ms));
        }
    }

    fn act(world: &mut World<Self>, action: RoomAction) -> Result<(), Violation> {
        match action {
            RoomAction::PollAll => poll_all(world, 700),
            RoomAction::SetWall => set_wall(world),
        }
        Ok(())
    }

    /// The clockwork ticks.
    fn waited(world: &mut World<Self>) -> Result<(), Violation> {
        if world.rng.chance(800) {
            tick(world);
            world.step()?;
        }
        Ok(())
    }

    /// Rooms are as after a restart: people count as just seen, and places and paces may be those of before. The store
    /// refuses what was asked and not answered.
    fn read_again(world: &mut World<Self>, rooms: BTreeSet<RoomName>) {
        world.report.count(Self::FAULT, "rooms read again");
        world.deliver(1_000);
        world.history.end_life(world.clock.both());
        world.history.go_on(rooms, world.clock.both());
        world.pass_us(1);
    }

    /// The operator opens every room, and the store must admit every client that stays.
    fn heal(world: &mut World<Self>) -> Result<(), Violation> {
        for room in world.clients.rooms.clone() {
            // One of the two is refused if a ticket lives.
            world.ask(room.clone(), Command::Put(healed()));
            world.settle()?;
            world.ask(room, Command::Put(healed_draw()));
        }
        world.settle()?;
        for round in 0..HEAL_ROUNDS_MAX {
            world.pass_us(500_000);
            tick(world);
            world.settle()?;
            let asked = world.history.operations().len();
            let over = ended(&world.history);
            let mut staying = world.clients.tickets.clone();
            staying.retain(|known| !over.contains(&(known.room.clone(), known.number)));
            if staying.is_empty() {
                let how = if round == 0 { "no client was left" } else { "everybody was admitted" };
                world.report.count("room heal", how);
                return world.restart();
            }
            for known in staying {
                world.ask(known.room.clone(), known.asks());
            }
            world.settle()?;
            for (room, number, admission) in admitted(&world.history.operations()[asked..]) {
                world.ask(room, Command::Release(number, admission));
            }
            world.settle()?;
        }
        world.judge(None)?;
        Err(world.liveness("a visitor who stayed was not admitted on a healthy disk"))
    }
}

/// An operator sets the wall clock an hour forward, or back, so that it stands still for an hour.
fn set_wall(world: &mut World<Rooms>) {
    let at = world.clock.steady().as_us();
    let (by_us, how) = if world.rng.chance(500) {
        world.clock.step_forward_ms(3_600_000);
        (3_600_000_000, "wall clock set forward")
    } else {
        world.clock.stand_ms(3_600_000);
        (-3_600_000_000, "wall clock set back")
    };
    world.history.marks.steps.push(WallStep { at, by_us });
    world.report.count(Rooms::FAULT, how);
    world.pass_us(1);
}

fn tick(world: &mut World<Rooms>) {
    let room = world.clients.rooms[0].clone();
    world.ask(room, Command::Tick);
}

fn poll_all(world: &mut World<Rooms>, per_mille: u64) {
    for known in world.clients.tickets.clone() {
        if world.rng.chance(per_mille) {
            world.ask(known.room.clone(), known.asks());
        }
    }
}

/// The tickets that were told to be gone.
fn ended(history: &History) -> BTreeSet<(RoomName, TicketNumber)> {
    let gone = history.operations().iter().filter_map(|operation| {
        let answer = operation.ticket()?;
        matches!(answer.state, TicketState::Gone(_)).then(|| (operation.name.clone(), answer.number))
    });
    gone.collect()
}

/// The slots that these operations show.
fn admitted(operations: &[Operation]) -> Vec<(RoomName, TicketNumber, u64)> {
    let slots = operations.iter().filter_map(|operation| match operation.ticket()?.state {
        TicketState::Admitted { slot, .. } => {
            Some((operation.name.clone(), operation.ticket()?.number, slot.admission))
        }
        _ => None,
    });
    slots.collect()
}
