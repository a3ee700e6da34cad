//! Random requests over a network that delays, loses and doubles at random. [`Net`] checks the promises at every instant.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Move {
    Ask { at: usize, name: usize, waits: u32, lease_ms: u32, fixed: bool },
    Release(usize),
    Drop(usize),
    Renew(usize, u32),
    Run(u64),
    Way(CallFate),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn any_move() -> impl Strategy<Value = Move> {
    let lease = || proptest::sample::select(vec![100, 400, 2_500, 6_000_u32]);
    let waits = proptest::sample::select(vec![0, 0, 300, 5_000, 600_000, 600_000_u32]);
    let ways = vec![
        CallFate::Refused,
        CallFate::StepLost,
        CallFate::AnswerLost,
        CallFate::Late(700),
        CallFate::Good,
        CallFate::Good,
        CallFate::Good,
    ];
    prop_oneof![
        8 => (0..3_usize, 0..3_usize, waits, lease(), proptest::bool::weighted(0.3))
            .prop_map(|(at, name, waits, lease_ms, fixed)| Move::Ask { at, name, waits, lease_ms, fixed }),
        5 => (0..20_usize).prop_map(Move::Release),
        2 => (0..20_usize).prop_map(Move::Drop),
        2 => (0..20_usize, lease()).prop_map(|(pick, lease_ms)| Move::Renew(pick, lease_ms)),
        10 => prop_oneof![0..20_u64, 0..500_u64, 0..4_000_u64].prop_map(Move::Run),
        1 => proptest::sample::select(ways).prop_map(Move::Way),
    ]
}

/// Serves the waiting requests, one after the other.
fn serve_all(net: &mut Net, waiting: &BTreeSet<(usize, u64)>) {
    (net.chance, net.way, net.lose_pushes, net.delay_ms) = (None, CallFate::Good, false, (1, 1));
    for _ in 0..400 {
        net.run_ms(100);
        let held: Vec<(usize, u64)> = net.held.keys().copied().collect();
        held.into_iter().for_each(|(at, number)| net.release(at, number));
        if net.clients.iter().flatten().all(Client::is_empty) {
            break;
        }
    }
    for (at, number) in waiting {
        let granted = net.told_at_ms(*at, *number, "granted").is_some();
        let over = net.ended.contains(&(*at, *number));
        assert!(granted || over, "{at} {number} is stuck");
    }
}

fn play(moves: &[Move], seed: u64, rate_ppm: i64) {
    let mut net = Net::new(3);
    (net.chance, net.rate_ppm) = (Some(Chance(seed)), rate_ppm);
    let (mut asked, mut dropped) = (Vec::new(), BTreeSet::new());
    for step in moves {
        let pick = |pick: usize| -> Option<(usize, u64)> {
            let count: usize = asked.len();
            count.checked_sub(1 + pick % count.clamp(1, 8)).map(|at| asked[at])
        };
        match step {
            Move::Ask { at, name, waits, lease_ms, fixed } => {
                let watch = if *fixed { Watch::Fixed } else { Watch::Renew };
                let ask = Ask { wait_ms: *waits, lease_ms: *lease_ms, watch, ..wish(NAMES[*name]) };
                asked.push((*at, net.ask(*at, ask)));
            }
            Move::Release(at) => {
                if let Some((at, number)) = pick(*at) {
                    if !net.held.contains_key(&(at, number)) && !net.ended.contains(&(at, number)) {
                        dropped.insert((at, number));
                    }
                    net.release(at, number);
                }
            }
            Move::Drop(at) => {
                if let Some((at, number)) = pick(*at) {
                    dropped.insert((at, number));
                    net.drop_request(at, number);
                }
            }
            Move::Renew(at, lease_ms) => {
                if let Some((at, number)) = pick(*at) {
                    net.renew(at, number, *lease_ms);
                }
            }
            Move::Run(ms) => net.run_ms(*ms),
            Move::Way(way) => net.way = *way,
        }
    }
    let all: BTreeSet<(usize, u64)> = asked.iter().copied().collect();
    serve_all(&mut net, &all.difference(&dropped).copied().collect());
    net.run_ms(10_000);
    for key in &asked {
        assert!(net.ended.contains(key) || dropped.contains(key), "{key:?} has no final word");
    }
    net.end();
    assert!(net.wake_ups < 200_000, "{} wake-ups", net.wake_ups);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_matter_what_the_net_does_holders_hold_and_everybody_has_one_final_word(
        moves in proptest::collection::vec(any_move(), 1..60),
        seed in any::<u64>(),
        rate_ppm in proptest::sample::select(vec![-9_000_i64, 0, 9_000]),
    ) {
        play(&moves, seed, rate_ppm);
    }
}
