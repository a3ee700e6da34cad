//! Replicas that follow one log: the effects of entries, when outcomes may be reported, and what must become durable.

mod audit;
mod entries;
mod logs;
mod witness;

use super::*;
use crate::room::replica::{Applied, Drawn, Entry, Gap, Outcome, Record, Replica, TAGS_MAX};

/// A replica that gets one entry after the other.
struct Follower {
    replica: Replica,
    now: Now,
    tag: u64,
    changes: Vec<Change>,
}

fn join(join: Join, tag: u64) -> Entry {
    Entry::Join { join, tag }
}

impl Follower {
    fn new(settings: RoomSettings) -> Self {
        let room = Room::new(settings, hasher(), start()).with_draw_key(draw_key());
        Self::of(Replica::new(room, 40, 1_000_000, hasher(), start()))
    }

    fn of(replica: Replica) -> Self {
        Self { now: replica.now(), replica, tag: 1_000_000, changes: Vec::new() }
    }

    fn say(&mut self, entry: &Entry) -> Applied {
        let position = self.replica.position() + 1;
        let applied = self.replica.apply(position, self.now, entry, &mut self.changes).expect("the next position");
        assert_sound(self.replica.room());
        applied
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Joins, and returns the number and the position that it rests on.
    fn joins(&mut self, who: Join) -> (u32, u64) {
        let tag = self.next_tag();
        let applied = self.say(&join(who, tag));
        match applied.outcome {
            Outcome::Joined(Ok(Joined::New(view))) => (view.number.get(), applied.rests_on),
            other => panic!("a new place: {other:?}"),
        }
    }

    fn look(&mut self, ticket: u32) -> (String, u64) {
        let tag = self.next_tag();
        let applied = self.say(&Entry::Poll { ticket: TicketId::first(number(ticket)), tag });
        let Outcome::Ticket(view) = applied.outcome else { panic!("a ticket") };
        (view.map_or("unknown".to_owned(), |view| describe_state(view.state)), applied.rests_on)
    }

    fn close(&mut self) -> Applied {
        let tag = self.next_tag();
        self.say(&Entry::Close { tag })
    }

    fn put(&mut self, settings: &RoomSettings) -> Applied {
        let tag = self.next_tag();
        self.say(&Entry::Put { revision: Box::new(settings.clone().into()), tag })
    }

    /// Marks everything as durable.
    fn durable(&mut self) {
        let (position, digest) = self.replica.mark_up_to(u64::MAX).expect("something is to be");
        assert_eq!(self.say(&Entry::Durable { position, digest }).outcome, Outcome::Done);
        assert_eq!(self.replica.durable(), position);
    }

    fn pending(&self) -> String {
        let tell = |(position, record): (u64, &Record)| match record {
            Record::Change(change) => format!("{position} {}", describe_change(change)),
            Record::Settings(_) => format!("{position} settings"),
            Record::Closed { first } => format!("{position} closed {first}"),
        };
        self.replica.pending_changes_after(0).map(tell).collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn an_entry_that_is_not_the_next_one_changes_nothing() {
    let mut it = Follower::new(ten_per_second());
    let before = it.replica.image();
    for position in [0, 39, 40, 42] {
        let refused = it.replica.apply(position, it.now, &join(anonymous(), 1), &mut it.changes);
        assert_eq!(refused, Err(Gap { wanted: 41 }), "{position}");
    }
    assert!(it.replica.image() == before && it.changes.is_empty());
    it.joins(anonymous());
    assert_eq!(it.replica.position(), 41);
}

#[test]
fn a_stranger_is_told_the_number_at_once_and_a_visitor_that_has_a_name_or_a_key_once_it_is_durable() {
    let mut it = Follower::new(ten_per_second());
    assert_eq!(it.joins(anonymous()), (1, 0));
    assert_eq!(it.joins(named("ann")), (2, 42));
    assert_eq!(it.joins(keyed(anonymous(), 3, 1)), (3, 43));
    let unsettled = |it: &Follower| [1, 2, 3].map(|ticket| it.replica.unsettled(number(ticket)));
    assert_eq!(unsettled(&it), [false, true, true]);
    let again = it.say(&join(named("ann"), 7));
    assert!(matches!(again.outcome, Outcome::Joined(Ok(Joined::SameUser(_)))));
    assert_eq!(again.rests_on, 42, "who asks again waits for the same");
    let reused = it.say(&join(keyed(named("bob"), 3, 2), 8));
    assert_eq!(reused, Applied { outcome: Outcome::Joined(Err(Rejection::KeyReused(number(3)))), rests_on: 43 });
    assert_eq!(it.pending(), "42 joined 2, 43 joined 3");
    it.durable();
    assert_eq!((unsettled(&it), it.pending().as_str()), ([false; 3], ""));
    assert_eq!(it.say(&join(named("ann"), 9)).rests_on, 0);
}

#[test]
fn an_admission_and_its_end_are_unsettled_until_they_are_durable() {
    let mut it = Follower::new(RoomSettings { claim_window_ms: 1_000, ..RoomSettings::with_slots(1) });
    it.joins(anonymous());
    it.joins(anonymous());
    assert_eq!(it.say(&Entry::Tick), Applied { outcome: Outcome::Done, rests_on: 0 });
    assert!(it.replica.unsettled(number(1)) && !it.replica.unsettled(number(2)));
    assert_eq!(it.pending(), "43 admitted 1, 43 reached 2");
    assert_eq!(it.replica.pending_changes_after(43).count(), 0);
    it.durable();
    assert!(!it.replica.unsettled(number(1)));
    assert_eq!(it.look(1), ("admitted".to_owned(), 45));
    let release = Entry::Release { number: number(1), admission: 1, tag: 1 };
    assert_eq!(it.say(&release).rests_on, 46);
    assert_eq!(it.say(&release).rests_on, 46, "a second one has no effect, and rests on the first");
    assert_eq!(it.look(1), ("left".to_owned(), 46));
    assert_eq!(it.pending(), "45 taken 1, 46 left 1");
    it.durable();
    assert_eq!(it.look(1), ("left".to_owned(), 0));
    it.say(&Entry::Tick);
    it.now.steady = it.now.steady.plus_ms(1_000);
    let over = Entry::EndOver { number: number(2), tag: 2 };
    assert_eq!(it.say(&over).rests_on, 52);
    assert_eq!(it.say(&over).rests_on, 52);
    assert_eq!(it.look(2), ("waiting 0".to_owned(), 52));
    let leave = Entry::Leave { ticket: TicketId::first(number(2)), tag: 3 };
    assert_eq!(it.say(&leave), Applied { outcome: Outcome::Left(Ok(())), rests_on: 55 });
    assert_eq!(it.say(&leave), Applied { outcome: Outcome::Left(Ok(())), rests_on: 55 });
    let leave = Entry::Leave { ticket: TicketId::first(number(3)), tag: 3 };
    assert_eq!(it.say(&leave).outcome, Outcome::Left(Err(Rejection::UnknownTicket)));
}

#[test]
fn what_is_durable_up_to_a_position_leaves_what_came_later() {
    let mut it = Follower::new(RoomSettings::with_slots(1));
    it.joins(named("ann"));
    it.joins(named("bob"));
    let digest = it.replica.digest();
    it.say(&Entry::Leave { ticket: TicketId::first(number(1)), tag: 1 });
    it.say(&Entry::Durable { position: 42, digest });
    assert_eq!((it.replica.durable(), it.pending().as_str()), (42, "43 left 1"));
    assert!(it.replica.unsettled(number(1)) && !it.replica.unsettled(number(2)));
    // A repeat, and an earlier position: nothing new.
    assert_eq!(it.say(&Entry::Durable { position: 42, digest }).outcome, Outcome::Done);
    assert_eq!(it.say(&Entry::Durable { position: 3, digest: 0 }).outcome, Outcome::Done);
    assert_eq!((it.replica.durable(), it.pending().as_str()), (42, "43 left 1"));
}

#[test]
fn another_room_at_the_same_position_is_noticed_and_nothing_more_is_durable() {
    let mut it = Follower::new(RoomSettings::with_slots(1));
    it.joins(named("ann"));
    let digest = it.replica.digest();
    it.joins(named("bob"));
    let rows = [(41, digest ^ 1), (42, digest), (43, digest), (44, digest), (u64::MAX, digest)];
    for (position, digest) in rows {
        let applied = it.say(&Entry::Durable { position, digest });
        assert_eq!(applied, Applied { outcome: Outcome::Diverged, rests_on: 0 }, "{position}");
        assert_eq!(it.replica.durable(), 40);
        assert!(it.replica.unsettled(number(1)));
    }
    assert_eq!(it.say(&Entry::Durable { position: 41, digest }).outcome, Outcome::Done);
}

#[test]
fn who_was_admitted_makes_a_difference_for_ever() {
    let play = |left: u32| {
        let mut it = Follower::new(RoomSettings::with_slots(1));
        it.joins(anonymous());
        it.joins(anonymous());
        it.say(&Entry::Leave { ticket: TicketId::first(number(left)), tag: 1 });
        it.say(&Entry::Leave { ticket: TicketId::first(number(3 - left)), tag: 1 });
        it.replica
    };
    let (one, other) = (play(1), play(2));
    assert_eq!(one.room().digest(), other.room().digest(), "what is counted is the same");
    assert_ne!(one.digest(), other.digest());
}

#[test]
fn a_digest_is_compared_however_much_came_since() {
    let mut it = Follower::new(RoomSettings { paused: true, ..RoomSettings::with_slots(1) });
    it.joins(named("ann"));
    let digest = it.replica.digest();
    (0..40_000).for_each(|_| drop(it.replica.apply(it.replica.position() + 1, it.now, &Entry::Tick, &mut it.changes)));
    assert!(it.replica.image().len() < 1_000, "ticks leave no trace");
    let wrong = Entry::Durable { position: 41, digest: digest ^ 1 };
    assert_eq!(it.say(&wrong).outcome, Outcome::Diverged);
    let mut again = Follower::of(Replica::from_image(&it.replica.image(), hasher()).unwrap());
    assert_eq!(again.say(&wrong).outcome, Outcome::Diverged);
    for copy in [&mut it, &mut again] {
        assert_eq!(copy.say(&Entry::Durable { position: 41, digest }).outcome, Outcome::Done);
        assert_eq!(copy.replica.durable(), 41);
    }
}

#[test]
fn no_number_above_the_ceiling_is_drawn_and_the_same_tag_asks_again() {
    let room = Room::new(ten_per_second(), hasher(), start());
    let mut it = Follower::of(Replica::new(room, 0, 2, hasher(), start()));
    it.joins(anonymous());
    it.joins(named("ann"));
    for tag in [1, 2] {
        assert_eq!(it.say(&join(anonymous(), tag)), Applied { outcome: Outcome::NoNumber, rests_on: 0 });
    }
    let same = it.say(&join(named("ann"), 3)).outcome;
    assert!(matches!(same, Outcome::Joined(Ok(Joined::SameUser(_)))), "who has a place needs no number");
    it.say(&Entry::Ceiling(3));
    it.say(&Entry::Ceiling(1));
    assert_eq!((it.replica.ceiling(), it.replica.room().drawn()), (3, 2));
    assert!(matches!(it.say(&join(anonymous(), 2)).outcome, Outcome::Joined(Ok(Joined::New(_)))));
    assert_eq!(it.say(&join(anonymous(), 1)).outcome, Outcome::NoNumber);
    let room = Room::from_image(&it.replica.room().image(), hasher()).unwrap();
    let restored = Replica::new(room, 0, 1, hasher(), start());
    assert_eq!(restored.ceiling(), 3, "what was drawn was below it");
}

#[test]
fn what_stands_in_the_log_twice_has_one_effect() {
    let settings = RoomSettings { max_waiting: 3, ..RoomSettings::with_slots(1) };
    let mut it = Follower::new(settings.clone());
    let put = |settings: &RoomSettings, tag| Entry::Put { revision: Box::new(settings.clone().into()), tag };
    let first = [join(anonymous(), 1), join(named("ann"), 2), join(keyed(anonymous(), 7, 7), 3)];
    first.iter().for_each(|entry| assert!(matches!(it.say(entry).outcome, Outcome::Joined(Ok(Joined::New(_))))));
    assert!(matches!(it.say(&join(anonymous(), 4)).outcome, Outcome::Joined(Err(Rejection::Full { .. }))));
    it.say(&Entry::Leave { ticket: TicketId::first(number(1)), tag: 5 });
    let repeated = |number: Option<u32>| Outcome::Repeated(number.map(|it| (super::number(it), Drawn::New)));
    let again = [(1, Some(1), 45), (2, Some(2), 42), (3, Some(3), 43), (4, None, 0)];
    for (tag, known, rests_on) in again {
        let applied = it.say(&join(anonymous(), tag));
        assert_eq!((applied.outcome, applied.rests_on), (repeated(known), rests_on), "tag {tag}");
    }
    assert_eq!(it.replica.room().drawn(), 3);
    // An earlier setting or closing does not come back.
    it.say(&put(&ten_per_second(), 10));
    it.say(&put(&settings, 11));
    assert_eq!(it.say(&put(&ten_per_second(), 10)), Applied { outcome: repeated(None), rests_on: 51 });
    assert_eq!(it.replica.room().settings(), &settings);
    it.say(&Entry::Close { tag: 12 });
    assert_eq!(it.say(&put(&settings, 11)).outcome, repeated(None));
    assert_eq!(it.replica.room().state(it.now.wall), RoomState::Closed);
    it.say(&put(&settings, 13));
    it.joins(anonymous());
    assert_eq!(it.say(&Entry::Close { tag: 12 }).outcome, repeated(None));
    assert_eq!(it.replica.room().view(it.now).waiting, 1);
}

#[test]
fn a_join_that_stands_there_twice_tells_how_the_first_one_led_to_its_number() {
    let mut it = Follower::new(ten_per_second());
    it.say(&join(named("ann"), 1));
    it.say(&join(keyed(anonymous(), 7, 7), 2));
    it.say(&join(named("ann"), 3));
    it.say(&join(keyed(anonymous(), 7, 7), 4));
    let mut again = Follower::of(Replica::from_image(&it.replica.image(), hasher()).unwrap());
    let rows = [(1, 1, Drawn::New), (2, 2, Drawn::New), (3, 1, Drawn::SameUser), (4, 2, Drawn::SameRequest)];
    for (tag, ticket, drawn) in rows {
        let told = again.say(&join(anonymous(), tag)).outcome;
        assert_eq!(told, Outcome::Repeated(Some((number(ticket), drawn))), "tag {tag}");
    }
}

#[test]
fn numbers_that_may_have_been_drawn_elsewhere_are_unknown_and_drawn_by_no_visitor() {
    let settings = RoomSettings { max_waiting: 10_000, ..RoomSettings::with_slots(1) };
    let room = Room::new(settings, hasher(), start());
    let mut it = Follower::of(Replica::new(room, 40, 90, hasher(), start()));
    (1..=90).for_each(|ticket| assert_eq!(it.joins(anonymous()).0, ticket));
    let mut other = Follower::of(Replica::from_image(&it.replica.image(), hasher()).unwrap());
    let lost = |branch| Entry::Lost { ceiling: 9_000, grace_ms: 5_000, branch };
    assert_eq!((it.replica.ceiling(), other.replica.ceiling()), (90, 90), "all of them are drawn");
    assert_eq!(it.say(&lost(1)), Applied { outcome: Outcome::Done, rests_on: 0 });
    other.say(&lost(2));
    assert_ne!(it.replica.digest(), other.replica.digest(), "whoever saw another end is told apart");
    assert_eq!((it.replica.room().drawn(), it.replica.room().view(it.now).waiting), (9_000, 90));
    // Visitors hold these numbers, and come back with their tickets. A visitor who joins now is behind all of them.
    assert!(it.replica.room().is_unknown(number(91)) && !it.replica.room().is_unknown(number(90)));
    for ticket in [9_000, 91, 4_097, 4_096] {
        let tag = it.next_tag();
        it.say(&Entry::Readmit { ticket: TicketId::first(number(ticket)), user: None, tag });
    }
    it.say(&Entry::Ceiling(20_000));
    assert_eq!(it.joins(anonymous()).0, 9_001);
    assert_eq!(it.look(4_097).0, "waiting 92");
    assert_eq!(it.look(9_001).0, "waiting 94");
    // Visitors in front have time to come back.
    it.say(&Entry::Tick);
    assert_eq!(it.look(1).0, "waiting 0");
    it.now.steady = it.now.steady.plus_ms(5_000);
    it.say(&Entry::Tick);
    assert_eq!(it.look(1).0, "admitted");
    let again = Replica::from_image(&it.replica.image(), hasher()).unwrap();
    assert!(again.image() == it.replica.image());
}

#[test]
fn a_ceiling_of_another_branch_leaves_no_number_between_to_draw() {
    let mut it = Follower::new(RoomSettings { max_waiting: 10_000, ..RoomSettings::with_slots(1) });
    it.joins(anonymous());
    // This ceiling is above the one that the resuming node has read: the lost part may have drawn numbers up to it.
    let ceiling = it.replica.ceiling();
    it.say(&Entry::Lost { ceiling: 90, grace_ms: 0, branch: 1 });
    assert_eq!((it.replica.ceiling(), it.replica.room().drawn()), (ceiling, ceiling));
    assert!(it.replica.room().is_unknown(number(91)) && it.replica.room().is_unknown(number(ceiling)));
    assert_eq!(it.say(&join(anonymous(), 1)).outcome, Outcome::NoNumber);
    it.say(&Entry::Ceiling(ceiling + 1));
    assert_eq!(it.joins(anonymous()).0, ceiling + 1);
    assert!(Replica::from_image(&it.replica.image(), hasher()).unwrap().image() == it.replica.image());
}

#[test]
fn what_can_be_durable_is_what_has_to_be_and_the_word_that_it_is() {
    let mut it = Follower::new(ten_per_second());
    assert_eq!(it.replica.mark_up_to(u64::MAX), None);
    it.joins(anonymous());
    assert_eq!(it.replica.mark_up_to(u64::MAX), None, "of a stranger nothing is kept");
    it.joins(named("ann"));
    let ann = (42, it.replica.digest());
    it.say(&Entry::Contacts { numbers: vec![number(1)] });
    it.joins(named("bob"));
    let bob = (44, it.replica.digest());
    let marks = |it: &Follower| [41, 42, 43, 44, 99].map(|end| it.replica.mark_up_to(end));
    assert_eq!(marks(&it), [None, Some(ann), Some(ann), Some(bob), Some(bob)]);
    let again = Follower::of(Replica::from_image(&it.replica.image(), hasher()).unwrap());
    assert_eq!(marks(&again), marks(&it));
    let digest = it.replica.digest();
    assert_eq!(it.say(&Entry::Durable { position: 43, digest }).outcome, Outcome::Diverged, "nobody says so");
    it.say(&Entry::Durable { position: ann.0, digest: ann.1 });
    // With its own position a page can end that has nothing but a ceiling.
    let said = Some((46, it.replica.digest()));
    assert_eq!(
        [42, 44, 45, 46].map(|end| it.replica.mark_up_to(end).map(|mark| mark.0)),
        [None, Some(44), Some(45), Some(46)]
    );
    it.durable();
    assert_eq!((it.replica.durable(), it.pending().as_str()), (46, ""));
    assert_ne!(it.replica.mark_up_to(u64::MAX), said);
}

#[test]
fn an_image_in_which_something_could_never_be_durable_is_none() {
    let mut it = Follower::new(ten_per_second());
    it.joins(named("ann"));
    let digest = it.replica.digest().to_le_bytes();
    it.say(&Entry::Tick);
    let mut image = it.replica.image();
    let at = image.windows(8).position(|bytes| bytes == digest).expect("it is kept");
    assert_eq!(image[at - 1], 1, "so far behind what is durable");
    image[at - 1] = 2;
    assert_eq!(Replica::from_image(&image, hasher()).err(), Some(ImageError::Value("digest")));
}

#[test]
fn so_many_tags_are_remembered() {
    let mut it = Follower::new(RoomSettings { max_waiting: 1_000_000, ..RoomSettings::with_slots(1) });
    let apply = |it: &mut Follower, tag| {
        let position = it.replica.position() + 1;
        it.replica.apply(position, it.now, &join(anonymous(), tag), &mut it.changes).unwrap().outcome
    };
    (0..TAGS_MAX as u64).for_each(|tag| assert!(matches!(apply(&mut it, tag), Outcome::Joined(Ok(_)))));
    assert_eq!(apply(&mut it, 0), Outcome::Repeated(Some((number(1), Drawn::New))));
    assert!(matches!(apply(&mut it, TAGS_MAX as u64), Outcome::Joined(Ok(_))));
    assert_eq!(apply(&mut it, 1), Outcome::Repeated(Some((number(2), Drawn::New))));
    assert!(matches!(apply(&mut it, 0), Outcome::Joined(Ok(_))), "the oldest one is forgotten");
    let again = Replica::from_image(&it.replica.image(), hasher()).unwrap();
    assert!(again.image() == it.replica.image());
}

#[test]
fn what_a_closing_voids_is_told_once_the_closing_is_durable() {
    let mut it = Follower::new(RoomSettings::with_slots(1));
    it.joins(anonymous());
    it.joins(anonymous());
    it.say(&Entry::Tick);
    it.durable();
    assert_eq!(it.close(), Applied { outcome: Outcome::Done, rests_on: 45 });
    assert_eq!(it.close(), Applied { outcome: Outcome::Done, rests_on: 45 }, "once");
    assert_eq!(it.pending(), "45 closed 3");
    assert!(it.replica.unsettled(number(1)) && it.replica.unsettled(number(2)));
    assert_eq!(it.look(1), ("expired".to_owned(), 45));
    assert_eq!(
        it.say(&join(anonymous(), 1)),
        Applied { outcome: Outcome::Joined(Err(Rejection::Closed)), rests_on: 45 }
    );
    let image = it.replica.image();
    assert!(Replica::from_image(&image, hasher()).unwrap().unsettled(number(1)));
    it.durable();
    assert!(!it.replica.unsettled(number(1)));
    assert_eq!(it.look(1), ("expired".to_owned(), 0));
    assert_eq!(it.put(&ten_per_second()).rests_on, 51);
    assert_eq!(it.joins(anonymous()), (3, 51), "a closed room would come back closed after a loss");
    assert_eq!(it.pending(), "51 settings");
    it.durable();
    assert_eq!(it.joins(anonymous()), (4, 0));
}

#[test]
fn time_does_not_fall() {
    let mut it = Follower::new(RoomSettings { claim_window_ms: 1_000, ..RoomSettings::with_slots(1) });
    it.joins(anonymous());
    it.say(&Entry::Tick);
    it.now.steady = it.now.steady.plus_ms(1_000);
    it.now.wall = it.now.wall.plus_ms(3_000);
    it.joins(anonymous());
    let latest = it.now;
    it.now = start();
    assert_eq!(it.look(1), ("waiting 0".to_owned(), 44), "its window is over");
    assert_eq!(it.replica.now(), latest);
    it.say(&join(named("ann"), 1));
    let joined = it.changes.iter().rev().find_map(|change| match change {
        Change::Joined { joined_at, .. } => Some(*joined_at),
        _ => None,
    });
    assert_eq!(joined, Some(latest.wall));
}

#[test]
fn a_visitor_that_comes_back_after_a_loss_is_told_at_once_if_they_have_no_name() {
    let known = twins::nothing(&RoomSettings::with_slots(1), 10);
    let room = Room::rebuilt(&known, hasher(), start()).unwrap();
    let mut it = Follower::of(Replica::new(room, 0, 20, hasher(), start()));
    let readmit = |ticket, user: Option<&str>| Entry::Readmit {
        ticket: TicketId::first(number(ticket)),
        user: user.map(user_id),
        tag: 1,
    };
    let told = |applied: Applied| match applied.outcome {
        Outcome::Ticket(Some(view)) => (describe_state(view.state), applied.rests_on),
        other => (format!("{other:?}"), applied.rests_on),
    };
    assert_eq!(it.look(5), ("unknown".to_owned(), 0));
    assert_eq!(told(it.say(&readmit(5, None))), ("waiting 0".to_owned(), 0));
    assert_eq!(told(it.say(&readmit(7, Some("ann")))), ("waiting 1".to_owned(), 3));
    assert_eq!(told(it.say(&readmit(9, Some("ann")))), ("left".to_owned(), 4));
    assert_eq!(told(it.say(&readmit(11, None))), ("Ticket(None)".to_owned(), 0));
    assert_eq!(it.pending(), "3 joined 7, 4 left 9");
    it.say(&Entry::Tick);
    assert_eq!(told(it.say(&readmit(5, None))), ("admitted".to_owned(), 7), "a second one is a look");
    assert_eq!(it.joins(anonymous()).1, 0);
}
