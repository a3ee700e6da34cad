//! Chains that grow, statements that fit, and every way in which they do not.

use super::*;
use crate::id::{CouponName, RoomName, UserId};
use crate::limits::ROOM_NUMBER_MAX;
use proptest::prelude::*;

fn room() -> Object {
    Object::Room(RoomName::parse("sale").unwrap())
}

fn coupon() -> Object {
    Object::Coupon(CouponName::parse("launch").unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_us(second * 1_000_000).unwrap()
}

fn line(first: u32, given: u32, front: u32) -> Figures {
    Figures::Room { first, given, front }
}

/// A chain of a room: one head a second with these figures.
fn chain(figures: &[(u32, u32)]) -> Vec<Head> {
    let mut heads: Vec<Head> = Vec::new();
    for (second, &(given, front)) in (1..).zip(figures) {
        heads.extend(Head::next(heads.last(), &room(), line(1, given, front), at(second), Rhythm::EachSecond));
    }
    heads
}

fn link(heads: &[Head], sequence: usize) -> Link {
    Link { before: sequence.checked_sub(2).map(|at| heads[at].clone()), by: heads[sequence - 1].clone() }
}

fn ticket(number: u32, admission: Option<Admission>) -> Subject {
    Subject::Ticket { room: RoomName::parse("sale").unwrap(), number, ticket: Digest::of("ticket"), admission }
}

#[test]
fn a_chain_has_one_head_a_second_while_there_are_visitors_and_one_a_change_otherwise() {
    assert_eq!(Head::next(None, &room(), line(1, 0, 1), at(1), Rhythm::EachSecond), None, "no number was given");
    let first = Head::next(None, &room(), line(1, 1, 1), at(1), Rhythm::EachSecond).unwrap();
    assert_eq!((first.sequence, first.previous), (1, Digest::NONE));
    let next = |at, figures, rhythm| Head::next(Some(&first), &room(), figures, at, rhythm);
    let early = Timestamp::from_us(1_899_999).unwrap();
    assert_eq!(next(early, line(1, 2, 1), Rhythm::OnChange), None, "two nodes publish one head");
    assert_eq!(next(at(2), line(1, 1, 1), Rhythm::OnChange), None);
    let second = next(at(2), line(1, 1, 1), Rhythm::EachSecond).unwrap();
    assert_eq!((second.sequence, second.previous), (2, first.digest()));
    assert_eq!(next(at(2), line(1, 2, 1), Rhythm::OnChange).unwrap().figures, line(1, 2, 1));
}

#[test]
fn what_a_store_has_lost_stays_in_its_chain() {
    let heads = chain(&[(9, 4), (2, 1)]);
    assert_eq!(heads[1].figures, line(1, 9, 4));
    // A clock that was set back stands still.
    let back = Head::next(heads.last(), &room(), line(1, 10, 4), at(1), Rhythm::EachSecond).unwrap();
    assert_eq!(back.at, heads[1].at);
    let sold = Head::next(None, &coupon(), Figures::Coupon { limit: 9, issued: 5 }, at(1), Rhythm::OnChange).unwrap();
    let less = Figures::Coupon { limit: 6, issued: 3 };
    let next = Head::next(Some(&sold), &coupon(), less, at(1), Rhythm::OnChange).unwrap();
    assert_eq!(next.figures, Figures::Coupon { limit: 6, issued: 5 });
}

#[test]
fn a_number_is_given_between_two_heads_and_no_others() {
    let heads = chain(&[(3, 1), (7, 1), (7, 2), (9, 4)]);
    for number in 1..=9 {
        for sequence in 1..=heads.len() {
            let link = link(&heads, sequence);
            let statement = Statement { subject: ticket(number, None), by: Cover::of(&link.by) };
            let before = link.before.as_ref().map_or(0, |head| head.figures.given());
            let is_between = before < number && number <= link.by.figures.given();
            let expected = if is_between { Ok(()) } else { Err(Breach::NotBetween) };
            assert_eq!(statement.judge(&link, None), expected, "number {number} by head {sequence}");
        }
    }
}

#[test]
fn an_admission_before_the_line_reached_the_turn_is_told() {
    let heads = chain(&[(9, 1), (9, 1), (9, 4), (9, 4)]);
    let judge = |turn, at: Timestamp, sequence: usize| {
        let by = Cover::of(&heads[sequence - 1]);
        let admission = Admission { turn, at, by };
        let statement = Statement { subject: ticket(3, Some(admission)), by: Cover::of(&heads[0]) };
        statement.judge(&link(&heads, 1), Some(&link(&heads, sequence)))
    };
    let between = Timestamp::from_us(2_500_000).unwrap();
    assert_eq!(judge(3, between, 3), Ok(()));
    assert_eq!(judge(4, between, 3), Err(Breach::LetInAhead));
    assert_eq!(judge(3, Timestamp::from_us(1_500_000).unwrap(), 2), Err(Breach::LetInAhead));
    assert_eq!(judge(3, between, 4), Err(Breach::NotBetween), "a later head says nothing of it");
    assert_eq!(judge(3, at(3), 3), Err(Breach::NotBetween), "what happens in the instant of a head comes after it");
    assert_eq!(judge(3, at(3), 4), Ok(()));
}

#[test]
fn a_claim_is_issued_between_its_heads() {
    let head = |previous: Option<&Head>, issued, second| {
        let figures = Figures::Coupon { limit: 100, issued };
        Head::next(previous, &coupon(), figures, at(second), Rhythm::OnChange).unwrap()
    };
    let first = head(None, 2, 10);
    let second = head(Some(&first), 5, 12);
    let link = Link { before: Some(first), by: second };
    let judge = |serial, issued_at| {
        let (coupon, user) = (CouponName::parse("launch").unwrap(), UserId::parse("ann").unwrap());
        let subject = Subject::Claim { coupon, serial, user, issued_at };
        Statement { subject, by: Cover::of(&link.by) }.judge(&link, None)
    };
    assert_eq!(judge(3, at(10)), Ok(()));
    assert_eq!(judge(5, at(12)), Ok(()));
    assert_eq!(judge(2, at(10)), Err(Breach::NotBetween));
    assert_eq!(judge(6, at(12)), Err(Breach::NotBetween));
    assert_eq!(judge(3, at(9)), Err(Breach::NotBetween));
    assert_eq!(judge(5, at(13)), Err(Breach::NotBetween));
}

#[test]
fn heads_that_do_not_belong_together_are_told() {
    let heads = chain(&[(3, 1), (7, 1), (9, 4)]);
    let judge = |link: Link, by: &Head| Statement { subject: ticket(5, None), by: Cover::of(by) }.judge(&link, None);
    assert_eq!(judge(link(&heads, 2), &heads[1]), Ok(()));
    assert_eq!(judge(link(&heads, 2), &heads[2]), Err(Breach::OtherHead));
    let without = Link { before: None, by: heads[1].clone() };
    assert_eq!(judge(without, &heads[1]), Err(Breach::Gap));
    let skipped = Link { before: Some(heads[0].clone()), by: heads[2].clone() };
    assert_eq!(judge(skipped, &heads[2]), Err(Breach::Gap));
    let other = Head { at: at(77), ..heads[0].clone() };
    let forked = Link { before: Some(other), by: heads[1].clone() };
    assert_eq!(judge(forked, &heads[1]), Err(Breach::OtherChain));
    let lower = Head { figures: line(1, 2, 1), previous: heads[0].digest(), ..heads[1].clone() };
    assert_eq!(lower.follows(&heads[0]), Err(Breach::Falls));
    let earlier = Head { at: at(0), previous: heads[0].digest(), ..heads[1].clone() };
    assert_eq!(earlier.follows(&heads[0]), Err(Breach::Falls));
    let foreign = Head { object: coupon(), ..heads[1].clone() };
    assert_eq!(foreign.follows(&heads[0]), Err(Breach::OtherObject));
}

fn read_head(text: &str) -> Option<Head> {
    let mut lines = Lines::of(text);
    Head::read(&mut lines).ok().filter(|_| lines.is_at_end())
}

fn read_statement(text: &str) -> Option<Statement> {
    let mut lines = Lines::of(text);
    Statement::read(&mut lines).ok().filter(|_| lines.is_at_end())
}

#[test]
fn a_head_reads_as_documented() {
    let head = chain(&[(3, 1), (7, 2)]).pop().unwrap();
    let previous = head.previous;
    assert_eq!(
        head.text(),
        format!(
            "firstcome head 1\nroom sale\nsequence 2\nat_us 2000000\nfirst 1\ngiven 7\nfront 2\nprevious {previous}\n"
        )
    );
    assert_eq!(Digest::of("").to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn no_changed_text_reads_as_the_same_head_and_none_is_written_otherwise() {
    let heads = chain(&[(3, 1), (7, 2)]);
    let by = Cover::of(&heads[1]);
    let statement = Statement { subject: ticket(5, Some(Admission { turn: 1, at: at(1), by })), by };
    for (at, byte) in heads[1].text().bytes().enumerate() {
        for other in [b'0', b'7', b'a', b' ', b'\n', b'-', b'+', b'A'].into_iter().filter(|other| *other != byte) {
            let mut bytes = heads[1].text().into_bytes();
            bytes[at] = other;
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(read_head(&text).filter(|read| read.text() != text || *read == heads[1]), None, "{text}");
        }
    }
    for wrong in [
        heads[1].text().replace("given 7", "given 07"),
        heads[1].text().replace("given 7", "given +7"),
        heads[1].text().replace("sequence 2", "sequence 0"),
        heads[1].text().replace("sequence 2", "sequence 4611686018427387905"),
        heads[1].text().replace('\n', "\r\n"),
        heads[1].text() + "\n",
        heads[1].text() + "sequence 3\n",
        heads[1].text().to_uppercase(),
        String::new(),
    ] {
        assert_eq!(read_head(&wrong), None, "{wrong}");
    }
    let text = statement.text();
    assert_eq!(read_statement(&text), Some(statement));
    assert_eq!(read_statement(&text.replace("turn 1", "turn x")), None);
    assert_eq!(read_statement(&text[..text.len() - 2]), None);
}

proptest! {
    #[test]
    fn a_text_leads_back_to_its_head(
        sequence in 1..=SEQUENCE_MAX, at_us in 0_i64..4_000_000_000_000_000, given in 0..ROOM_NUMBER_MAX, front in 1..ROOM_NUMBER_MAX,
        previous in any::<[u8; 32]>(), is_room in any::<bool>(),
    ) {
        let figures = if is_room { line(1, given, front) } else { Figures::Coupon { limit: front, issued: given } };
        let object = if is_room { room() } else { coupon() };
        let at = Timestamp::from_us(at_us).unwrap();
        let head = Head { object, sequence, at, figures, previous: Digest::new(previous) };
        prop_assert_eq!(read_head(&head.text()), Some(head));
    }

    #[test]
    fn each_number_of_a_chain_is_covered_by_exactly_one_head(grown in prop::collection::vec((0_u32..5, 0_u32..5), 1..20)) {
        let mut sums = (0, 1);
        let figures: Vec<_> = grown.iter().map(|(given, front)| {
            sums = (sums.0 + given, sums.1 + front);
            sums
        }).collect();
        let heads = chain(&figures);
        let last = heads.last().map_or(0, |head| head.figures.given());
        for number in 1..=last {
            let covers = (1..=heads.len()).filter(|&sequence| {
                let link = link(&heads, sequence);
                Statement { subject: ticket(number, None), by: Cover::of(&link.by) }.judge(&link, None).is_ok()
            });
            prop_assert_eq!(covers.count(), 1);
        }
    }
}
