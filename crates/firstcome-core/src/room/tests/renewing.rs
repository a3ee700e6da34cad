//! A renewal gives a place another ticket, once per ticket, and the ticket before it is void.

use super::*;

const KEY: RenewalKey = RenewalKey::new(7 << 90);
const OTHER: RenewalKey = RenewalKey::new(8 << 90);

fn ticket(of: u32, generation: u32) -> TicketId {
    TicketId { number: number(of), generation }
}

impl Play {
    fn renew(&mut self, shown: TicketId, key: RenewalKey) -> String {
        match self.room.renew(shown, key, self.now, &mut self.changes) {
            Ok(view) => describe_state(view.state),
            Err(rejection) => rejection.code().to_owned(),
        }
    }

    fn judged(&self, shown: TicketId) -> &'static str {
        self.room.judge_ticket(shown).map_or_else(|refusal| refusal.code(), |()| "judged")
    }
}

#[test]
fn a_ticket_is_renewed_once_and_a_repeat_finds_the_same_new_one() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(3);
    play.news();
    assert_eq!(play.renew(ticket(2, 0), KEY), "waiting 1");
    assert_eq!(play.news(), "renewed 2 as 1");
    assert_eq!(play.room.ticket_of(number(2)), ticket(2, 1));
    assert_eq!((play.judged(ticket(2, 0)), play.judged(ticket(2, 1))), ("ticket_renewed", "judged"));
    assert_eq!(play.renew(ticket(2, 0), KEY), "waiting 1", "the same request again");
    assert_eq!(play.renew(ticket(2, 0), OTHER), "ticket_renewed", "the link was used");
    assert_eq!(play.news(), "");
    assert_eq!(play.renew(ticket(2, 1), OTHER), "waiting 1");
    assert_eq!(play.renew(ticket(2, 0), KEY), "ticket_renewed", "after one more renewal the first repeat is void");
    assert_eq!(play.news(), "renewed 2 as 2");
    let others = [ticket(1, 0), ticket(3, 0)].map(|it| play.judged(it));
    assert_eq!((others, play.judged(ticket(2, 9))), (["judged"; 2], "judged"), "a copy may lag behind the store");
    assert_eq!(play.renew(ticket(9, 0), KEY), "unknown_ticket");
    assert_eq!(play.renew(ticket(1, u32::MAX), KEY), "ticket_renewed", "the last generation");
    assert_sound(&play.room);
}

#[test]
fn a_renewal_is_a_poll_and_leaves_the_place_as_it_is() {
    let mut play = Play::new(RoomSettings { claim_window_ms: 10_000, ..RoomSettings::with_slots(1) });
    play.strangers(2);
    play.tick();
    play.news();
    assert_eq!(play.renew(ticket(1, 0), KEY), "admitted");
    assert_eq!(play.news(), "taken 1, renewed 1 as 1");
    assert!(play.pass_left_ms(1, 1).is_some(), "the pass is of the admission, which goes on");
    assert_eq!(play.renew(ticket(2, 0), KEY), "waiting 0");
    play.leave(1);
    assert_eq!(play.room.ticket_of(number(1)), ticket(1, 0), "a place that is gone needs no generation");
    assert_eq!(play.renew(ticket(1, 0), OTHER), "left", "a place that is gone gets no ticket");
    assert_eq!(play.news(), "");
    play.room.close();
    assert_eq!(play.renew(ticket(2, 1), OTHER), "expired");
    assert_eq!(play.renew(ticket(2, 0), OTHER), "expired");
}

#[test]
fn a_renewal_comes_back_with_the_image_and_with_the_rows() {
    let mut play = Play::new(paused(ten_per_second()));
    play.strangers(2);
    let (plain, digest) = (play.room.image(), play.room.digest());
    play.renew(ticket(2, 0), KEY);
    let image = play.room.image();
    assert!(plain.len() < image.len() && digest != play.room.digest());
    let back = Room::from_image(&image, hasher()).expect("an image");
    assert_eq!(back.renewal(number(2)), Some(Renewal { generation: 1, key: KEY }));
    assert!(back.image() == image);
    assert_eq!(Room::from_image(&image[..image.len() - 1], hasher()).err(), Some(ImageError::Short));
    let mut room = Room::restoring(ten_per_second(), hasher(), play.now, 1);
    for (at, gone) in [(1, Some(Departure::Left)), (2, None)] {
        room.restore_ticket(number(at), &anonymous(), gone, play.now).unwrap();
    }
    let renewal = |generation| Renewal { generation, key: KEY };
    assert_eq!(room.restore_renewal(number(2), renewal(3)), Ok(()));
    let damaged =
        [(1, 1), (3, 1), (2, 4)].map(|(at, generation)| room.restore_renewal(number(at), renewal(generation)));
    assert_eq!(damaged, [Err(Damage::Renewal); 3], "gone, never drawn, twice");
    let mut room = Room::restoring(ten_per_second(), hasher(), play.now, 1);
    room.restore_ticket(number(1), &anonymous(), None, play.now).unwrap();
    assert_eq!(room.restore_renewal(number(1), renewal(0)), Err(Damage::Renewal), "the first ticket is no renewal");
}

#[test]
fn after_a_loss_only_the_newest_ticket_brings_its_visitor_back() {
    let renewals = vec![(number(3), Renewal { generation: 2, key: KEY })];
    let known = Known { renewals, ..super::twins::nothing(&paused(ten_per_second()), 5) };
    let mut room = Room::rebuilt(&known, hasher(), start()).expect("a room");
    assert_eq!(room.judge_ticket(ticket(3, 1)), Err(Rejection::TicketRenewed));
    assert_eq!(room.judge_ticket(ticket(3, 2)), Ok(()));
    let mut changes = Vec::new();
    assert_eq!(room.renew(ticket(3, 2), OTHER, start(), &mut changes), Err(Rejection::UnknownTicket));
    assert!(room.readmit(number(3), None, start(), &mut changes));
    assert_eq!(room.judge_ticket(ticket(3, 1)), Err(Rejection::TicketRenewed), "it stays void when the place is back");
    assert!(room.renew(ticket(3, 2), OTHER, start(), &mut changes).is_ok());
}
