//! The draw: what a store tells before and after it, and that it survives.

use super::*;
use firstcome_core::room::{Draw, DrawView, RoomOrder};

const ENTRANTS: u32 = 20;
const OPENS_MS: i64 = 10_000;

/// A room with one slot, which opens with a draw.
fn drawing() -> RoomSettings {
    RoomSettings { opens_at: Some(at(OPENS_MS)), order: RoomOrder::Draw, ..slots(1) }
}

async fn draw_of<S: RoomStore + 'static>(bench: &Bench<S>, room: &RoomName) -> DrawView {
    answered(bench.store.room(room).await).expect("the room exists").draw.expect("the room has a draw")
}

/// Lets visitors join before the opening. Every second one has a name, and 7 leaves.
async fn gather<S: RoomStore + 'static>(bench: &Bench<S>, room: &RoomName) -> DrawView {
    bench.put(room, drawing()).await;
    let committed = draw_of(bench, room).await;
    assert_eq!(committed.draw, None);
    for number in 1..=ENTRANTS {
        let name = (number % 2 == 0).then(|| format!("user{number}"));
        let told = describe_join(bench.join(room, join(name.as_deref(), None)).await);
        assert_eq!(told.words, format!("new {number} in the draw of {number}"));
    }
    assert_eq!(bench.apply(room, &Step::Leave(7)).await.words, "left");
    committed
}

/// Checks that each entrant has the place that the published draw gives, with the first one in the slot.
async fn check_places<S: RoomStore + 'static>(bench: &Bench<S>, room: &RoomName, draw: &Draw) {
    let turns = draw.turns();
    let mut order: Vec<u32> = (draw.first..draw.end()).filter(|number| *number != 7).collect();
    order.sort_by_key(|number| turns.turn(*number));
    for (place, number) in order.iter().enumerate() {
        let told = bench.apply(room, &Step::Poll(*number)).await;
        match place {
            0 => assert!(told.words.starts_with(&format!("{number} admitted 1@")), "{told:?}"),
            place => assert_eq!(told.words, format!("{number} waiting {}", place - 1)),
        }
    }
}

pub(super) async fn a_draw_gives_each_entrant_a_place_and_latecomers_come_behind<S: RoomStore + 'static>(
    bench: Bench<S>,
) {
    let room = name("drawn");
    let committed = gather(&bench, &room).await;
    let told = bench.apply(&room, &Step::Poll(1)).await;
    assert_eq!(told.words, format!("1 in the draw of {}", ENTRANTS - 1));
    assert_eq!(bench.apply(&room, &Step::Put(slots(1))).await.words, "draw_fixed");
    // The first call after the opening draws, whichever it is.
    bench.clock.set(at(OPENS_MS));
    let late = bench.apply(&room, &anybody()).await;
    assert!(late.words.starts_with(&format!("new {} waiting ", ENTRANTS + 1)), "{late:?}");
    bench.tick().await;
    let shown = draw_of(&bench, &room).await;
    let draw = shown.draw.expect("it took place");
    assert_eq!(shown.commitment, committed.commitment);
    assert_eq!((draw.first, draw.entrants, draw.seed.commitment()), (1, ENTRANTS, committed.commitment));
    check_places(&bench, &room, &draw).await;
    let told = bench.apply(&room, &Step::Poll(ENTRANTS + 1)).await;
    assert_eq!(told.words, format!("{} waiting {}", ENTRANTS + 1, ENTRANTS - 2));
    assert_eq!(bench.apply(&room, &Step::Put(slots(1))).await.words, "draw_fixed");
    let again = RoomSettings { opens_at: Some(at(99_000)), ..drawing() };
    assert_eq!(bench.apply(&room, &Step::Put(again.clone())).await.words, "draw_fixed", "a room draws once");
    // Closed, the room may draw again, with another seed.
    assert_eq!(bench.apply(&room, &Step::Close).await.words, "closed");
    bench.put(&room, again).await;
    let shown = draw_of(&bench, &room).await;
    assert!(shown.draw.is_none() && shown.commitment != committed.commitment, "{shown:?}");
}

pub(super) async fn a_draw_outlives_the_store<S, F, Fut>(open: &F)
where
    S: RoomStore + 'static,
    F: Fn(Arc<ManualClock>) -> Fut,
    Fut: Future<Output = S>,
{
    let room = name("draw-reopened");
    let bench = Bench::new(open, 0).await;
    let committed = gather(&bench, &room).await;
    let bench = bench.reopen(open, 1_000).await;
    assert_eq!(draw_of(&bench, &room).await, committed, "before the draw");
    bench.set(OPENS_MS).await;
    let drawn = draw_of(&bench, &room).await;
    let draw = drawn.draw.expect("it took place");
    assert_eq!((draw.first, drawn.commitment), (1, committed.commitment));
    check_places(&bench, &room, &draw).await;
    let bench = bench.reopen(open, OPENS_MS + 1_000).await;
    assert_eq!(draw_of(&bench, &room).await, drawn, "after the draw");
    check_places(&bench, &room, &draw).await;
}
