//! Fences, buckets, and the effects of a client's steps.

use super::*;

#[test]
fn a_fence_is_above_zero_and_below_two_to_the_53() {
    let end = 1 << 53;
    for (number, wanted) in [(0, None), (1, Some(1)), (end - 1, Some(end - 1)), (end, None), (u64::MAX, None)] {
        assert_eq!(Fence::new(number).map(Fence::get), wanted);
    }
    assert!(Fence::new(1) < Fence::new(2));
    assert_eq!(Fence::new(7).unwrap().to_string(), "7");
}

#[test]
fn the_bucket_of_a_name_is_what_every_store_computes() {
    // FNV-1a 64 of `a` is af63dc4c8601ec8c, of `foobar` 85944171f73967e8 (draft-eastlake-fnv); folded by exclusive or.
    let fold = |hash: u64| hash.to_le_bytes().iter().fold(0, |folded, byte| folded ^ byte);
    assert_eq!(bucket_of(&lock_name("a")), fold(0xaf63_dc4c_8601_ec8c));
    assert_eq!(bucket_of(&lock_name("foobar")), fold(0x8594_4171_f739_67e8));
}

#[test]
fn names_spread_over_all_buckets() {
    let mut counts = [0_u32; BUCKETS as usize];
    for at in 0..256 * 100 {
        counts[usize::from(bucket_of(&lock_name(&format!("order-{at}"))))] += 1;
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(50 <= *least && *most <= 150, "{least} to {most} of 100");
}

#[test]
fn a_step_of_a_client_is_the_rule_of_its_name() {
    let mut play = Play::new();
    let name = lock_name("a");
    let acquire = |waiter, wait| Step::Acquire { name: lock_name("a"), waiter, wait };
    let (answer, pushes) = take(&mut play.table, &acquire(waiter(1, 1), Wait::No), START_US);
    assert!(matches!(answer.said, LockAnswer::Acquired(Acquired::Granted(_))));
    assert_eq!((answer.now_us, pushes.len()), (START_US, 0));
    take(&mut play.table, &acquire(waiter(2, 1), Wait::Yes), START_US);
    let renewals = [(1, 1), (2, 1), (1, 2)].map(|(client, number)| Renewal {
        name: name.clone(),
        request: request(client, number),
        lease_ms: 500,
    });
    let (answer, _) =
        take(&mut play.table, &Step::Renew { bucket: 0, renewals: renewals.into() }, START_US + 9_999_000);
    assert_eq!(answer.said, LockAnswer::Renewed(vec![Some(START_US + 10_499_000), None, None]));
    let step = Step::Release { name: name.clone(), request: request(1, 1), copies: Copies::One };
    let (answer, pushes) = take(&mut play.table, &step, START_US + 1_000);
    assert_eq!(answer.said, LockAnswer::Released(Released::Released));
    assert_eq!((pushes.len(), pushes[0].grant.request, &pushes[0].name), (1, request(2, 1), &name));
    let step = Step::Beat { bucket: 0, client: ClientId(2), names: vec![lock_name("b"), name] };
    let (answer, _) = take(&mut play.table, &step, START_US + 2_000);
    let LockAnswer::Beaten { looked, .. } = answer.said else { panic!("{answer:?}") };
    assert_eq!(looked[0], (Vec::new(), None));
    assert_eq!(looked[1].0, [pushes[0].grant]);
}
