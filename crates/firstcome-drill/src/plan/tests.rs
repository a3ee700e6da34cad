//! Tests the arithmetic against figures worked out by hand, and the simulation against queueing theory.

use super::PlanArgs;
use super::admit::Admit;
use super::check::{Check, judge};
use super::inputs::Inputs;
use super::rates::{Limit, Plan};
use super::simulation::{Arrivals, Measured, Run, simulate};
use clap::Parser;

#[derive(Parser)]
struct Call {
    #[command(flatten)]
    plan: PlanArgs,
}

fn inputs(arguments: &str) -> Result<Inputs, String> {
    let words = ["plan"].into_iter().chain(arguments.split_whitespace());
    Call::try_parse_from(words).map(|call| call.plan.inputs).map_err(|error| error.to_string())
}

#[track_caller]
fn plan(arguments: &str) -> Plan {
    Plan::new(&inputs(arguments).expect("inputs")).expect("a plan")
}

#[track_caller]
fn assert_near(left: f64, right: f64, share: f64) {
    assert!((left - right).abs() <= right.abs() * share, "{left} is not {right}");
}

#[test]
fn the_figures_of_o4_carry_103_people_a_second_and_not_12() {
    let plan = plan("");
    assert_near(plan.inputs.queries(), 24.0, 1e-12);
    assert_near(plan.inputs.visit_s(), 0.116, 1e-12);
    assert_near(plan.busy, 12.0, 1e-12);
    assert_near(plan.rate, 12.0 / 0.116, 1e-12);
    assert_eq!(plan.binding().0, Limit::DatabasePool);
    assert_eq!(plan.admit, Admit { count: 12, every_ms: 116 });
    assert_eq!(plan.max_active, 37_242); // 103.448 × 300 s × 1.2
    assert_near(plan.people, 6_000.0, 1e-12);
    assert_near(plan.line_s(), 58.0, 1e-9);
    assert_near(plan.offered(), 0.6, 1e-9);
    // All 6 000 are inside at once; 116 ms of each are spread over 300 s.
    assert_near(plan.offered_by_crowd(), 6_000.0 * 0.116 / 300.0 / 20.0, 1e-9);
}

#[test]
fn the_smallest_limit_binds() {
    let table = [
        ("--mau 100", Limit::Demand, 12.0),
        ("--spike 1h", Limit::Demand, 6_000.0 / 3_600.0),
        ("--max-active 3600", Limit::Slots, 10.0),
        ("--max-active 100000", Limit::DatabasePool, 12.0 / 0.116),
        ("--pool 1", Limit::DatabasePool, 0.6 / 0.116),
    ];
    for (arguments, limit, rate) in table {
        let plan = plan(arguments);
        assert_eq!(plan.binding().0, limit, "{arguments}");
        assert_near(plan.binding().1, rate, 1e-12);
        assert!(plan.limits.is_sorted_by(|left, right| left.1 <= right.1), "{arguments}");
    }
    // The room protects the back end, even if too few people come to need it.
    let few = plan("--mau 100");
    assert_near(few.rate, 12.0 / 0.116, 1e-12);
    assert_eq!(few.line_s(), 0.0);
    assert_eq!(plan("--max-active 3600").max_active, 3_600);
    assert_eq!(plan("--max-active 100000").max_active, 37_242, "no more slots than the pool fills");
}

#[test]
fn every_input_has_the_unit_that_its_name_says() {
    // The doubled input, and the factor for: people per second of the pool, people, slots.
    let table = [
        ("--mau 10000", 1.0, 2.0, 1.0),
        ("--daily 30%", 1.0, 0.5, 1.0),
        ("--daily 30", 1.0, 0.5, 1.0),
        ("--mau 100 --daily 7% --peak 1", 1.0, 7.0 / 6_000.0, 1.0),
        ("--peak 4", 1.0, 2.0, 1.0),
        ("--reads 31 --writes 17", 0.5, 1.0, 0.5),
        ("--read-ms 4 --write-ms 20", 0.5, 1.0, 0.5),
        ("--pool 40", 2.0, 1.0, 2.0),
        ("--utilisation 30%", 0.5, 1.0, 0.5),
        ("--stay 10m", 1.0, 1.0, 2.0),
    ];
    let before = plan("");
    for (arguments, rate, people, slots) in table {
        let after = plan(arguments);
        assert_near(after.rate, before.rate * rate, 1e-9);
        assert_near(after.people, before.people * people, 1e-9);
        assert_near(after.max_active as f64, before.max_active as f64 * slots, 1e-4);
    }
}

#[test]
fn the_ratio_is_never_above_the_rate_and_hardly_below() {
    let table = [(12.0 / 0.116, 12, 116), (100.0, 10, 100), (1.0, 1, 1_000), (0.01, 1, 100_000), (1e7, 1_000_000, 100)];
    for (rate, count, every_ms) in table {
        assert_eq!(Admit::at_most(rate), Some(Admit { count, every_ms }), "{rate}");
    }
    let mut rate = 1.2e-5;
    while rate < 9.9e6 {
        let admit = Admit::at_most(rate).expect("a ratio");
        assert!(admit.per_second() <= rate * (1.0 + 1e-11) && rate * 0.999 <= admit.per_second(), "{rate}: {admit:?}");
        assert!((100..=86_400_000).contains(&admit.every_ms) && (1..=1_000_000).contains(&admit.count));
        rate *= 1.037;
    }
    for rate in [1e-6, 1.01e7, 1e300] {
        assert_eq!(Admit::at_most(rate), None, "{rate}");
    }
}

#[test]
fn inputs_are_taken_up_to_their_bounds_and_refused_beyond() {
    let well = [
        "--mau 1",
        "--mau 1000000000 --daily 10% --peak 1",
        "--daily 100%",
        "--reads 0",
        "--writes 0",
        "--pool 10000 --stay 2m",
        "--utilisation 99%",
        "--utilisation 1",
        "--stay 24h --pool 1",
        "--spike 100ms",
        "--rate 0.001",
    ];
    for arguments in well {
        let plan = inputs(arguments).and_then(|inputs| Plan::new(&inputs).map_err(|error| error.to_string()));
        assert_eq!(plan.err(), None, "{arguments}");
    }
    let beyond = [
        ("--reads 0 --writes 0", "too few"),
        ("--reads 0.05 --writes 0.04", "too few"),
        ("--stay 116ms", "too short"),
        ("--stay 24h --pool 10000", "slots"),
        ("--mau 1000000000", "in line"),
        ("--rate 0.000001", "no room can be set"),
        ("--rate 100000000", "no room can be set"),
    ];
    for (arguments, words) in beyond {
        let error = Plan::new(&inputs(arguments).expect("inputs")).map(|_| ()).expect_err("no plan").to_string();
        assert!(error.contains(words), "{arguments}: {error}");
    }
}

#[test]
fn the_check_holds_for_what_is_planned_and_shows_what_the_others_come_to() {
    let check = Check::run(&plan(""), 7).expect("a check");
    assert_eq!(check.verdict, Ok(()));
    let used: Vec<f64> = check.rows.iter().map(|row| row.measured.utilisation).collect();
    for (used, wanted) in used.iter().zip([0.6, 1.0, 1.0, 12.0 * 0.116 / 20.0]) {
        assert!((used - wanted).abs() <= 0.03, "{used} {wanted}");
    }
    assert_near(check.rows[0].measured.admitted_per_second, 12.0 / 0.116, 0.01);
    let waits: Vec<f64> = check.rows.iter().map(|row| row.measured.wait_mean_ms).collect();
    assert!(waits[3] <= waits[0] && waits[0] < 1.0 && 10.0 < waits[1] && waits[1] < waits[2], "{waits:?}");
}

#[test]
fn the_check_is_the_same_for_a_seed_and_another_for_another() {
    let plan = plan("--pool 4");
    let run = |seed| Check::run(&plan, seed).expect("a check");
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).rows, run(4).rows);
}

#[test]
fn the_check_holds_for_other_plans_too() {
    for arguments in [
        "--pool 1",
        "--utilisation 90%",
        "--utilisation 10%",
        "--stay 1s",
        "--reads 0.3 --writes 0",
        "--pool 200",
        "--read-ms 900 --write-ms 5000 --stay 1h",
        "--max-active 3600",
        "--mau 10",
        "--rate 40",
        "--stay 24h --pool 2",
        "--rate 0.00002",
        "--reads 0.1 --writes 0 --pool 1 --stay 1m",
        "--reads 3000 --writes 300 --stay 1h",
    ] {
        for seed in [1, 2] {
            assert_eq!(Check::run(&plan(arguments), seed).expect("a check").verdict, Ok(()), "{arguments}");
        }
    }
}

#[test]
fn a_rate_that_is_forced_too_high_does_not_hold() {
    for (rate, words) in [("115", "are allowed"), ("150", "are allowed"), ("200", "grows"), ("2000", "grows")] {
        let reason = Check::run(&plan(&format!("--rate {rate}")), 1).expect("a check").verdict.expect_err(rate);
        assert!(reason.contains(words), "{rate}: {reason}");
    }
}

#[test]
fn a_plan_holds_within_three_points_and_with_a_queue_that_ends() {
    let table = [
        (0.60, 0.60, 0.629, 0.0, 20.0, None),
        (0.60, 0.60, 0.571, 0.0, 0.0, None),
        (0.60, 0.30, 0.30, 0.0, 0.0, None),
        (0.60, 0.60, 0.631, 0.0, 0.0, Some("60.0 % are allowed")),
        (0.60, 0.60, 0.569, 0.0, 0.0, Some("the formula says 60.0 %")),
        (0.60, 0.30, 0.40, 0.0, 0.0, Some("the formula says 30.0 %")),
        (0.60, 0.60, 0.60, 0.0, 20.1, Some("grows: 0.0 queries at first, 20.1 at last")),
        (0.99, 0.99, 0.99, 100.0, 170.0, None),
        (0.99, 0.99, 0.99, 100.0, 170.1, Some("grows")),
    ];
    for (allowed, offered, utilisation, queue_first, queue_last, words) in table {
        let measured = Measured { utilisation, queue_first, queue_last, ..Measured::default() };
        let reason = judge(allowed, offered, &measured, 20).err();
        assert_eq!(reason.is_some(), words.is_some(), "{measured:?}: {reason:?}");
        assert!(reason.unwrap_or_default().contains(words.unwrap_or_default()), "{measured:?}");
    }
}

#[test]
fn a_check_that_would_take_too_long_is_refused() {
    let error = Check::run(&plan("--pool 10000 --stay 2m"), 1).map(|_| ()).expect_err("too much").to_string();
    assert!(error.contains("--check would simulate"), "{error}");
}

/// Returns the mean wait in a queue with random arrivals, `servers` and exponential service (Erlang C), in service
/// times.
fn erlang_c_wait(servers: u32, utilisation: f64) -> f64 {
    let offered = f64::from(servers) * utilisation;
    let blocked = (1..=servers).fold(1.0, |blocked, busy| offered * blocked / (f64::from(busy) + offered * blocked));
    let waits = blocked / (1.0 - utilisation * (1.0 - blocked));
    waits / (f64::from(servers) - offered)
}

/// Simulates one query a visit, with random arrivals.
fn open_queue(servers: u32, utilisation: f64, seed: u64) -> Measured {
    let back_end = inputs(&format!("--reads 1 --writes 0 --read-ms 10 --pool {servers}")).expect("inputs");
    let per_second = f64::from(servers) * utilisation / 0.010;
    let end_ns = (200_000.0 / per_second * 1e9) as u64;
    let arrivals = Arrivals::Poisson { per_second };
    simulate(&Run { back_end: &back_end, arrivals, think_ns: 0.0, warm_ns: end_ns / 20, end_ns }, seed)
}

#[test]
fn the_simulated_wait_is_that_of_erlang_c() {
    // Two figures from textbooks: one server at half load, and two.
    assert_near(erlang_c_wait(1, 0.5), 1.0, 1e-12);
    assert_near(erlang_c_wait(2, 0.5), 1.0 / 3.0, 1e-12);
    for (servers, utilisation) in [(1, 0.5), (2, 0.7), (5, 0.8), (20, 0.9), (20, 0.75)] {
        let seen: Vec<Measured> = (0..5).map(|seed| open_queue(servers, utilisation, seed)).collect();
        let mean = |figure: fn(&Measured) -> f64| seen.iter().map(figure).sum::<f64>() / seen.len() as f64;
        assert_near(mean(|seen| seen.utilisation), utilisation, 0.005);
        assert_near(mean(|seen| seen.wait_mean_ms), erlang_c_wait(servers, utilisation) * 10.0, 0.05);
    }
}

#[test]
fn a_query_that_waits_holds_no_connection_and_its_time_counts() {
    let seen = open_queue(1, 0.5, 5);
    // With one server the total time is exponential with mean service ÷ (1 − utilisation); 99 of 100 end within ln 100
    // of it.
    assert_near(seen.query_p99_ms, 100_f64.ln() * 20.0, 0.05);
    assert!(seen.wait_p99_ms < seen.query_p99_ms);
}
