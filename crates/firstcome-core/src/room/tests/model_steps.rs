//! Random commands on a room.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(in crate::room::tests) enum Step {
    Join(Join),
    Poll(u32),
    Leave(u32),
    /// The ticket of this generation is renewed by the request of this key.
    Renew(u32, u32, u128),
    Check(u32, u64),
    Release(u32, u64),
    Tick,
    Run(u32),
    Pass(u64),
    SetWall(i64),
    Put(RoomSettings),
    Close,
    Restart,
    /// A restart that forgets tickets in line without a user, and so many numbers more; with a time of grace.
    Lose(u32, Option<u64>),
    Readmit(u32, Option<UserId>),
    Contact(u32),
    Alive(u64),
    /// The room is restored from its image.
    Reload,
}

pub(in crate::room::tests) fn any_user() -> impl Strategy<Value = Option<UserId>> {
    proptest::option::weighted(0.5, (0..6_u32).prop_map(|user| user_id(&format!("user{user}"))))
}

pub(in crate::room::tests) fn any_join() -> impl Strategy<Value = Join> {
    let request = (0..6_u128, 0..2_u64).prop_map(|(key, body)| RequestId { key: key << 31, body });
    (any_user(), proptest::option::weighted(0.3, request)).prop_map(|(user, request)| Join { user, request })
}

pub(in crate::room::tests) fn any_settings() -> impl Strategy<Value = RoomSettings> {
    let rates = vec![(1, 100), (1, 10_000), (7, 3_000), (12, 116), (3, 1_000)];
    let admit = proptest::sample::select(rates).prop_map(|(count, every_ms)| Admit { count, every_ms });
    let limits = (proptest::option::of(admit), proptest::option::of(1..4_u32));
    let times = (
        proptest::sample::select(vec![5_000, 40_000, 100_000, 200_000_u64]),
        proptest::option::weighted(0.4, proptest::sample::select(vec![1_000, 30_000, 120_000_u64])),
        proptest::sample::select(vec![1_000, 20_000, 50_000_u64]),
        proptest::sample::select(vec![1_000, 35_000_u64]),
        proptest::option::weighted(0.3, proptest::sample::select(vec![500, 10_000_u64])),
    );
    let opens_at = proptest::option::weighted(0.35, (-100_000..200_000_i64).prop_map(|ms| WALL_US + ms * 1_000));
    let opens_at = (opens_at, proptest::bool::weighted(0.7));
    let rest = (proptest::sample::select(vec![2, 6, 1_000_u32]), proptest::bool::weighted(0.1), opens_at);
    (limits, times, rest).prop_map(|((admit, max_active), times, (max_waiting, paused, (opens_at, draws)))| {
        RoomSettings {
            admit,
            max_active: if admit.is_none() { max_active.or(Some(2)) } else { max_active },
            max_waiting,
            waiting_ttl_ms: times.0,
            first_poll_ms: times.1,
            active_ttl_ms: times.2,
            claim_window_ms: times.3,
            idle_ttl_ms: times.4,
            opens_at: opens_at.map(Timestamp::clamped_us),
            order: if draws && opens_at.is_some() { RoomOrder::Draw } else { RoomOrder::FirstCome },
            paused,
            ..RoomSettings::defaults()
        }
    })
}

pub(in crate::room::tests) fn any_step() -> impl Strategy<Value = Step> {
    let ms = prop_oneof![0..300_u64, 0..3_000_u64, 0..40_000_u64, Just(30_000), Just(35_000), Just(5_000), Just(1_000)];
    prop_oneof![
        12 => any_join().prop_map(Step::Join),
        14 => (0..30_u32).prop_map(Step::Poll),
        2 => (0..30_u32).prop_map(Step::Leave),
        3 => (0..30_u32, 0..3_u32, 0..3_u128).prop_map(|(ticket, of, key)| Step::Renew(ticket, of, key << 70)),
        3 => (0..30_u32, 0..3_u64).prop_map(|(ticket, admission)| Step::Check(ticket, admission)),
        2 => (0..30_u32, 0..3_u64).prop_map(|(ticket, admission)| Step::Release(ticket, admission)),
        8 => Just(Step::Tick),
        4 => (1..30_u32).prop_map(Step::Run),
        14 => ms.prop_map(Step::Pass),
        1 => (-3_600_000..3_600_000_i64).prop_map(Step::SetWall),
        2 => any_settings().prop_map(Step::Put),
        1 => Just(Step::Restart),
        1 => (0..5_u32, proptest::option::of(0..60_000_u64)).prop_map(|(more, ms)| Step::Lose(more, ms)),
        4 => (0..30_u32, any_user()).prop_map(|(ticket, user)| Step::Readmit(ticket, user)),
        4 => (0..30_u32).prop_map(Step::Contact),
        1 => any::<u64>().prop_map(Step::Alive),
        1 => Just(Step::Reload),
        // Seldom, so that something happens in between.
        1 => (0..4_u32).prop_map(|die| if die == 0 { Step::Close } else { Step::Tick }),
    ]
}
