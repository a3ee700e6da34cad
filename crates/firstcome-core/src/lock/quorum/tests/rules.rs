//! The rules one by one.

use super::super::super::Fence;
use super::super::*;
use std::num::NonZeroU32;

const LEASE_MS: u32 = 10_000;
/// The validity of a lease of which no time has passed.
const WHOLE_US: u64 = 9_898_000;
const LONGEST_MS: u32 = 60_000;
const ONE: NonZeroU32 = NonZeroU32::MIN;
const NOW_US: u64 = 1_700_000_000_000_000;

fn quorum(nodes: usize) -> Quorum {
    Quorum::of(nodes).unwrap()
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn granted(number: u64) -> Answer {
    Answer::Granted(fence(number))
}

fn held(lasts_us: u64) -> Answer {
    Answer::Held { lasts_us }
}

const YOUNG: Answer = Answer::Young { birth_us: 1, ripe: false };

fn nodes(list: &[usize]) -> Nodes {
    list.iter().fold(Nodes::NONE, |sum, node| sum.and(Nodes::only(*node)))
}

/// Gives all answers at once after the attempt began. Only the last one may lead to a step.
fn told(of: usize, answers: &[(usize, Answer)]) -> (Votes, Step) {
    let mut tally = Votes::new(quorum(of), LEASE_MS);
    let (last, first) = answers.split_last().unwrap();
    for (node, answer) in first {
        assert_eq!(tally.on_reply(*node, *answer, 0), Step::Wait, "node {node}");
    }
    let step = tally.on_reply(last.0, last.1, 0);
    (tally, step)
}

#[test]
fn any_two_majorities_meet_and_a_process_that_knows_meets_each() {
    let rows = [(3, 2, 2), (4, 3, 2), (5, 3, 3), (6, 4, 3), (7, 4, 4), (8, 5, 4), (9, 5, 5)];
    for (count, majority, knowing) in rows {
        let quorum = quorum(count);
        assert_eq!((quorum.nodes(), quorum.majority(), quorum.knowing()), (count, majority, knowing));
        assert!(count < 2 * majority && count < majority + knowing, "{count}");
        assert_eq!(quorum.all().iter().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    }
    assert_eq!([0, 2, 10].map(Quorum::of), [None; 3]);
}

#[test]
fn a_validity_is_what_is_left_less_what_clocks_differ_by() {
    let rows = [
        (LEASE_MS, 0, Some(WHOLE_US)),
        (LEASE_MS, 1_000_000, Some(8_898_000)),
        (100, 96_999, Some(1)),
        (100, 97_000, None),
        (100, u64::MAX, None),
        (0, 0, None),
        (u32::MAX, 0, Some(4_252_017_620_050)),
    ];
    for (lease_ms, elapsed_us, left) in rows {
        assert_eq!(validity_us(lease_ms, elapsed_us), left, "{lease_ms} {elapsed_us}");
    }
}

#[test]
fn a_majority_that_drew_alike_is_a_grant_at_once_and_said_once() {
    let (mut tally, step) = told(5, &[(4, granted(7)), (0, held(5)), (1, granted(7)), (2, granted(7))]);
    assert_eq!(step, Step::Granted { fence: fence(7), left_us: WHOLE_US });
    assert_eq!(tally.on_reply(3, granted(9), 0), Step::Wait);
    assert_eq!(tally.close(), quorum(5).all(), "a renewal may have given it to node 0");
    assert_eq!(tally.on_reply(3, granted(9), 0), Step::Undo);
}

#[test]
fn a_fence_that_too_few_know_is_written_back_before_the_grant() {
    let (mut tally, step) = told(5, &[(0, granted(7)), (1, granted(9)), (2, granted(8))]);
    assert_eq!(step, Step::WriteBack { fence: fence(9), nodes: nodes(&[0, 2]) });
    assert_eq!(tally.written(0, Written::Yes, 5), Step::Wait);
    assert_eq!(tally.written(0, Written::Yes, 5), Step::Wait, "the same node again");
    assert_eq!(tally.written(3, Written::Yes, 5), Step::Wait, "a node that has not granted");
    assert_eq!(tally.on_reply(3, granted(6), 5), Step::WriteBack { fence: fence(9), nodes: nodes(&[3]) });
    assert_eq!(tally.written(2, Written::Gone, 6), Step::Wait);
    assert_eq!(tally.written(3, Written::Yes, 1_000), Step::Granted { fence: fence(9), left_us: WHOLE_US - 1_000 });
    // A node that drew as much or more needs no write.
    let (mut tally, _) = told(3, &[(0, granted(7)), (1, granted(9))]);
    assert_eq!(tally.on_reply(2, granted(12), 5), Step::Granted { fence: fence(9), left_us: WHOLE_US - 5 });
}

#[test]
fn a_fence_that_cannot_be_written_back_is_no_grant() {
    let (mut tally, _) = told(3, &[(0, held(1)), (1, granted(9)), (2, granted(8))]);
    let step = tally.written(2, Written::Silent, 5);
    let why = Lost::Unavailable { young: Nodes::NONE, silent: nodes(&[2]) };
    assert_eq!(step, Step::Lost { why, undo: nodes(&[1, 2]) });
    assert_eq!(tally.written(2, Written::Yes, 6), Step::Wait, "it was given up");
}

#[test]
fn nothing_left_of_the_lease_is_no_grant() {
    let lost = Step::Lost { why: Lost::TooLate, undo: nodes(&[0, 1, 2]) };
    let (mut tally, _) = told(3, &[(0, granted(9))]);
    assert_eq!(tally.on_reply(1, granted(9), WHOLE_US), lost);
    let (mut tally, _) = told(3, &[(0, granted(9))]);
    let undo = nodes(&[0, 2]);
    assert_eq!(tally.on_reply(1, held(1), WHOLE_US), Step::Lost { why: Lost::TooLate, undo }, "nothing to wait for");
    let (mut tally, _) = told(3, &[(0, granted(9)), (1, granted(8))]);
    assert_eq!(tally.written(1, Written::Yes, WHOLE_US), lost);
    assert_eq!(tally.on_reply(2, granted(9), WHOLE_US), Step::Undo);
}

#[test]
fn an_attempt_is_lost_as_soon_as_no_majority_can_come() {
    let (_, step) = told(5, &[(0, granted(1)), (1, held(300)), (2, held(100)), (3, held(200))]);
    assert_eq!(step, Step::Lost { why: Lost::Held { lasts_us: 100 }, undo: nodes(&[0, 4]) });
    // Two halves are no majority.
    let (_, step) = told(4, &[(0, granted(1)), (1, granted(1)), (2, held(300)), (3, held(100))]);
    assert_eq!(step, Step::Lost { why: Lost::Held { lasts_us: 100 }, undo: nodes(&[0, 1]) });
    // With two nodes that do not vote, one key more is not enough: all three keys must go.
    let (_, step) = told(5, &[(0, YOUNG), (1, Answer::Silent), (2, held(300))]);
    assert_eq!(step, Step::Lost { why: Lost::Held { lasts_us: 300 }, undo: nodes(&[1, 3, 4]) });
    let (_, step) = told(3, &[(0, Answer::Silent), (2, YOUNG)]);
    let why = Lost::Unavailable { young: nodes(&[2]), silent: nodes(&[0]) };
    assert_eq!(step, Step::Lost { why, undo: nodes(&[0, 1]) });
    let (_, step) = told(3, &[(0, Answer::Refused), (2, Answer::Refused)]);
    let why = Lost::Unavailable { young: Nodes::NONE, silent: Nodes::NONE };
    assert_eq!(step, Step::Lost { why, undo: nodes(&[1]) });
}

#[test]
fn a_node_votes_once_and_may_do_so_after_its_silence() {
    let (_, step) = told(3, &[(0, granted(1)), (0, granted(1)), (0, Answer::Silent), (1, held(1)), (2, granted(1))]);
    assert_eq!(step, Step::Granted { fence: fence(1), left_us: WHOLE_US });
    let (_, step) = told(3, &[(0, Answer::Silent), (0, Answer::Silent), (1, granted(1)), (0, granted(1))]);
    assert_eq!(step, Step::Granted { fence: fence(1), left_us: WHOLE_US });
    // A grant after a refusal is no vote, and needs a release.
    let (mut tally, step) = told(3, &[(0, held(1)), (0, granted(1)), (1, held(1))]);
    assert_eq!(step, Step::Lost { why: Lost::Held { lasts_us: 1 }, undo: nodes(&[0, 2]) });
    assert_eq!([tally.on_reply(0, granted(1), 1), tally.on_reply(2, held(1), 1)], [Step::Undo, Step::Wait]);
}

#[test]
#[should_panic(expected = "node 3 of 3")]
fn an_answer_of_no_process_is_no_vote() {
    let _ = told(3, &[(3, granted(1))]);
}

#[test]
fn a_hold_goes_on_if_a_majority_says_so_while_it_lasts() {
    let renewal = |left_us| Renewal::new(quorum(3), LEASE_MS, left_us).unwrap();
    let mut renewed = renewal(5_000_000);
    assert_eq!([renewed.on_reply(0, Renewed::Yes, 1), renewed.on_reply(0, Renewed::Yes, 1)], [RenewalStep::Wait; 2]);
    assert_eq!(renewed.on_reply(1, Renewed::Silent, 2), RenewalStep::Wait);
    assert_eq!(renewed.on_reply(1, Renewed::Yes, 3), RenewalStep::Renewed { left_us: WHOLE_US - 3 });
    assert_eq!(renewed.on_reply(2, Renewed::Yes, 4), RenewalStep::Wait);
    renewed.close();
    assert_eq!(renewed.on_reply(2, Renewed::Yes, 4), RenewalStep::Undo);
    // A shorter lease does not shorten it.
    let mut shorter = Renewal::new(quorum(3), 1_000, 5_000_000).unwrap();
    assert_eq!(shorter.on_reply(0, Renewed::Yes, 1), RenewalStep::Wait);
    assert_eq!(shorter.on_reply(1, Renewed::Yes, 500_000), RenewalStep::Renewed { left_us: 4_500_000 });
    // The first real answer of a node counts.
    let mut twice = renewal(5_000_000);
    let said = [(0, Renewed::Yes), (0, Renewed::Other), (1, Renewed::Other)];
    assert_eq!(said.map(|(node, renewed)| twice.on_reply(node, renewed, 1)), [RenewalStep::Wait; 3]);
    assert_eq!(twice.on_reply(2, Renewed::Yes, 1), RenewalStep::Renewed { left_us: WHOLE_US - 1 });
    // Too late: another client may have had the lock in between.
    assert!(Renewal::new(quorum(3), LEASE_MS, 0).is_none());
    let mut late = renewal(5_000);
    assert_eq!(late.on_reply(0, Renewed::Yes, 4_999), RenewalStep::Wait);
    assert_eq!(late.on_reply(1, Renewed::Yes, 5_000), RenewalStep::Lost);
}

#[test]
fn a_renewal_without_answers_has_failed_and_one_that_is_refused_is_lost() {
    let said = |answers: [Renewed; 2]| {
        let mut renewal = Renewal::new(quorum(3), LEASE_MS, 5_000_000).unwrap();
        assert_eq!(renewal.on_reply(0, answers[0], 1), RenewalStep::Wait);
        renewal.on_reply(1, answers[1], 1)
    };
    assert_eq!(said([Renewed::Silent, Renewed::Silent]), RenewalStep::Failed);
    assert_eq!(said([Renewed::Other, Renewed::Silent]), RenewalStep::Failed);
    assert_eq!(said([Renewed::Other, Renewed::Other]), RenewalStep::Lost);
}

#[test]
fn a_lock_is_gone_when_a_majority_has_it_no_more() {
    let said = |answers: &[(usize, Ended)]| {
        let mut ending = Ending::new(quorum(3));
        answers.iter().map(|(node, ended)| ending.on_reply(*node, *ended)).collect::<Vec<_>>()
    };
    use EndingStep::{Gone, Unsure, Wait};
    let (released, absent, silent) = (Ended::Released, Ended::Absent, Ended::Silent);
    assert_eq!(said(&[(0, released), (0, absent), (1, absent), (2, released)]), [Wait, Wait, Gone, Wait]);
    assert_eq!(said(&[(0, silent), (0, released), (2, released)]), [Wait, Wait, Gone]);
    assert_eq!(said(&[(0, silent), (1, released), (2, silent)]), [Wait, Wait, Unsure { again: nodes(&[0, 2]) }]);
}

#[test]
fn a_node_joins_with_what_enough_of_the_others_know() {
    let known = |counter, joined| Known::Counter { counter, joined };
    let mut joining = Joining::of(quorum(5), 1);
    assert_eq!(joining.others(), nodes(&[0, 2, 3, 4]));
    let rows = [
        (0, known(9, true), None),
        (0, known(99, true), None),
        (1, known(99, true), None),
        (2, Known::Silent, None),
        (2, known(20, false), None),
        (3, known(7, true), None),
        (4, known(8, true), Some(20)),
        (2, known(21, true), None),
    ];
    for (node, known, wanted) in rows {
        assert_eq!(joining.on_reply(node, known), wanted, "{node} {known:?}");
    }
    // If too few nodes vote, every node must answer.
    let mut joining = Joining::of(quorum(3), 0);
    assert_eq!([joining.on_reply(1, known(5, false)), joining.on_reply(2, known(3, true))], [None, Some(5)]);
}

fn voting() -> Node {
    let mut node = Node::default();
    node.begin(NOW_US);
    node
}

#[test]
fn a_node_draws_above_all_that_it_knows_and_says_the_same_again() {
    let (mut node, mut key) = (voting(), None);
    assert_eq!(node.take(&mut key, (1, LEASE_MS, 0, ONE), LONGEST_MS, NOW_US), granted(NOW_US + 1));
    assert_eq!(node.take(&mut key, (1, 1, NOW_US * 2, ONE), LONGEST_MS, NOW_US + 1), granted(NOW_US + 1));
    assert_eq!(key.unwrap().ends_us, NOW_US + 10_000_000, "a repeat changes nothing");
    assert_eq!(node.take(&mut key, (2, LEASE_MS, 0, ONE), LONGEST_MS, NOW_US + 1), held(9_999_999));
    assert_eq!(
        node.take(&mut key, (2, LEASE_MS, NOW_US * 2, ONE), LONGEST_MS, NOW_US + 10_000_000),
        granted(NOW_US * 2 + 1)
    );
    let three = NonZeroU32::new(3).unwrap();
    assert_eq!(node.take(&mut None, (4, LEASE_MS, 0, three), LONGEST_MS, NOW_US), granted(NOW_US * 2 + 4));
    assert_eq!(node.take(&mut None, (5, LEASE_MS, 0, ONE), LONGEST_MS, NOW_US), granted(NOW_US * 2 + 5));
    assert_eq!(node.take(&mut None, (3, LONGEST_MS + 1, 0, ONE), LONGEST_MS, NOW_US), Answer::Refused);
    assert_eq!(node.take(&mut None, (3, LEASE_MS, u64::MAX, ONE), LONGEST_MS, NOW_US), Answer::Refused);
}

#[test]
fn only_who_has_the_key_writes_back_and_releases() {
    let (mut node, mut key) = (voting(), None);
    let _ = node.take(&mut key, (1, LEASE_MS, 0, ONE), LONGEST_MS, NOW_US);
    assert_eq!(node.write_back(&mut key, 2, fence(NOW_US + 50), NOW_US), Written::Gone);
    assert_eq!(node.known(NOW_US), Known::Counter { counter: NOW_US + 1, joined: true });
    assert_eq!(node.write_back(&mut key, 1, fence(NOW_US + 50), NOW_US), Written::Yes);
    assert_eq!(node.write_back(&mut key, 1, fence(NOW_US + 40), NOW_US), Written::Yes);
    assert_eq!(node.known(NOW_US), Known::Counter { counter: NOW_US + 50, joined: true });
    assert_eq!(node.release(&mut key, 2, NOW_US), Ended::Absent);
    assert_eq!(node.renew(&mut key, (2, LEASE_MS, fence(9)), NOW_US), Renewed::Other);
    assert_eq!(node.renew(&mut key, (1, LEASE_MS / 2, fence(9)), NOW_US), Renewed::Yes);
    assert_eq!(key.unwrap().ends_us, NOW_US + 10_000_000, "no shorter than before");
    assert_eq!(node.write_back(&mut key, 1, fence(NOW_US + 60), NOW_US + 10_000_000), Written::Gone);
    assert_eq!(node.renew(&mut key, (1, LEASE_MS, fence(NOW_US + 70)), NOW_US + 10_000_000), Renewed::Yes);
    assert_eq!(node.release(&mut key, 1, NOW_US + 10_000_001), Ended::Released);
    assert_eq!(node.known(NOW_US), Known::Counter { counter: NOW_US + 70, joined: true });
}

#[test]
fn a_node_that_has_forgotten_takes_renewals_and_votes_once_it_is_ripe_and_told() {
    let (mut node, mut key) = (Node::default(), None);
    assert_eq!(node.renew(&mut key, (1, LEASE_MS, fence(9)), NOW_US), Renewed::Yes);
    let ask = |node: &mut Node, now_us| node.take(&mut None, (2, LEASE_MS, 0, ONE), LONGEST_MS, now_us);
    let young = |ripe| Answer::Young { birth_us: NOW_US, ripe };
    assert_eq!(ask(&mut node, NOW_US + 59_999_999), young(false));
    assert!(!node.join(NOW_US, 5, LONGEST_MS, NOW_US + 59_999_999), "not ripe");
    assert_eq!(ask(&mut node, NOW_US + 60_000_000), young(true));
    assert!(!node.join(NOW_US - 1, 5, LONGEST_MS, NOW_US + 60_000_000), "said to an earlier life");
    assert_eq!(ask(&mut node, NOW_US + 60_000_000), young(true));
    assert!(node.join(NOW_US, NOW_US + 100, LONGEST_MS, NOW_US + 60_000_000));
    assert!(node.join(NOW_US, 5, LONGEST_MS, NOW_US), "said twice");
    assert_eq!(ask(&mut node, NOW_US + 60_000_000), granted(NOW_US + 101));
}

/// The one case in which a fence may fall, as the module's docs say. If this test fails, they promise too little.
#[test]
fn a_clock_that_jumps_while_its_node_waits_to_vote_lets_a_fence_fall() {
    const HOUR_US: u64 = 3_600_000_000;
    let (mut ahead, mut first, mut second) = (voting(), voting(), voting());
    assert!(ahead.join(NOW_US, NOW_US + HOUR_US, LONGEST_MS, NOW_US));
    let (mut ahead_key, mut first_key, mut second_key) = (None, None, None);
    let ask = (1, LEASE_MS, 0, ONE);
    let mut tally = Votes::new(quorum(3), LEASE_MS);
    let high = ahead.take(&mut ahead_key, ask, LONGEST_MS, NOW_US);
    assert_eq!(tally.on_reply(0, high, 0), Step::Wait);
    let Step::WriteBack { fence: told, .. } = tally.on_reply(1, first.take(&mut first_key, ask, LONGEST_MS, NOW_US), 0)
    else {
        panic!("they have counted differently")
    };
    // The node forgets, its clock jumps, and it gets the others' counters before that fence is written back.
    (ahead, ahead_key) = (Node::default(), None);
    let Answer::Young { birth_us, .. } = ahead.take(&mut ahead_key, (9, LEASE_MS, 0, ONE), LONGEST_MS, NOW_US) else {
        panic!()
    };
    let jumped_us = NOW_US + u64::from(LONGEST_MS) * 1_000;
    let mut joining = Joining::of(quorum(3), 0);
    assert_eq!(joining.on_reply(1, first.known(NOW_US)), None);
    let counter = joining.on_reply(2, second.known(NOW_US)).unwrap();
    assert!(ahead.join(birth_us, counter, LONGEST_MS, jumped_us));
    let written = first.write_back(&mut first_key, 1, told, NOW_US);
    assert!(matches!(tally.written(1, written, 0), Step::Granted { .. }));
    let ask = (2, LEASE_MS, 0, ONE);
    let mut tally = Votes::new(quorum(3), LEASE_MS);
    let _ = tally.on_reply(0, ahead.take(&mut ahead_key, ask, LONGEST_MS, jumped_us), 0);
    let step = tally.on_reply(2, second.take(&mut second_key, ask, LONGEST_MS, NOW_US), 0);
    let (Step::Granted { fence: next, .. } | Step::WriteBack { fence: next, .. }) = step else { panic!("{step:?}") };
    assert!(next < told, "{next:?} after {told:?}");
}
