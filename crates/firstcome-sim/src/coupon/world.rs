//! Coupons in their world: how the store is asked and started, and what must be sold after the heal.

use super::history::{Command, CouponReply, Operation};
use super::recovery as restore;
use super::rows::{self, Stored};
use super::workload::{Coupons, settings};
use crate::history::Request;
use crate::invariants::{self, Evidence, Violation};
use crate::journal::Call;
use crate::primitive::{Breach, Primitive};
use crate::recovery;
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::Plan;
use crate::world::World;
use firstcome_core::coupon::{Claim, Effect};
use firstcome_core::id::{CouponName, UserId};
use firstcome_core::time::Now;
use firstcome_store::edge::{Clock, ManualClock, draw_hasher};
use firstcome_store::embedded::{Backing, Embedded};
use firstcome_store::{CouponStore, Refused};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::runtime::Runtime;

impl Primitive for Coupons {
    type Stored = Stored;

    const FAULT: &'static str = "fault";
    const COMMIT: &'static str = "commit";
    const VISITORS_MAX: u64 = 3;
    const JUDGED_AFTER_PANIC: bool = false;

    fn call(store: &Embedded, runtime: &Arc<Runtime>, (coupon, command): Request<Self>) -> Call<Self> {
        let (store, runtime) = (store.clone(), Arc::clone(runtime));
        Box::pin(async move {
            Ok(match command {
                Command::Put(settings) => told(store.put_coupon(&coupon, settings).await?, CouponReply::Put),
                Command::Delete => told(store.delete_coupon(&coupon).await?, |()| CouponReply::Deleted),
                Command::View => told(store.coupon(&coupon).await?, |view| CouponReply::View {
                    limit: view.settings.limit.get(),
                    issued: view.issued,
                    state: view.state,
                }),
                Command::Claim(claim) => told(store.claim(&coupon, claim).await?, |effect| {
                    let code = match &effect {
                        Effect::New(claimed) | Effect::Again(claimed) => claimed.code,
                    };
                    CouponReply::Claimed(effect.map(|claimed| claimed.issued), code)
                }),
                Command::ClaimOf(user) => told(runtime.block_on(store.claim_of(&coupon, user.as_str()))?, |record| {
                    CouponReply::ClaimOf(record.map(|record| (record.claimed.issued, record.redeemed)))
                }),
                Command::Redeem(redeem, _) => {
                    told(store.redeem(&coupon, redeem).await?, |effect| match effect.clone().into_inner().redeemed {
                        Some(redeemed) => CouponReply::Redeemed(effect.map(|_| redeemed)),
                        None => panic!("a redemption came back without its instant"),
                    })
                }
            })
        })
    }

    fn recover(stored: &Stored, _: &ManualClock) -> Result<Backing, Breach> {
        let hasher = draw_hasher();
        let recover = |stored: &Stored| restore::recover(stored, &hasher);
        let written_again = |found: &Vec<_>, stored: &Stored| restore::written_again(found, stored);
        let coupons = recovery::twice(stored, recover, written_again, restore::difference)?;
        Ok(Backing { coupons, ..Backing::memory() })
    }

    fn check(evidence: &Evidence<'_, Self>) -> Result<(), Violation> {
        invariants::check_coupons(evidence)
    }

    fn durable(stored: &Stored, coupon: &CouponName) -> u32 {
        rows::rows_of(stored, coupon).map_or(0, |rows| rows.claims.len() as u32)
    }

    fn trace(operation: &Operation, now: Now, report: &mut Report) {
        report.trace(u64::from(operation.claims_implied()));
        report.trace(now.wall.as_us() as u64);
    }

    fn act(_: &mut World<Self>, action: Infallible) -> Result<(), Violation> {
        match action {}
    }

    fn healed_batch(plan: &Plan<Infallible>, rng: &mut Rng) -> u64 {
        rng.range(1, plan.batch_max)
    }

    /// Clients repeat what is unclear, and the store must sell everything that it can.
    fn heal(world: &mut World<Self>) -> Result<(), Violation> {
        let opens_at = world.disk.lock().stored.values().filter_map(|rows| rows.settings.opens_at).max();
        if let Some(opens_at) = opens_at {
            world.clock.set(opens_at);
        }
        let coupons = world.clients.coupons.clone();
        for coupon in &coupons {
            if rows::rows_of(&world.disk.lock().stored, coupon).is_none() {
                let mut settings = settings(&mut world.rng);
                settings.opens_at = None;
                world.ask(coupon.clone(), Command::Put(settings));
            }
        }
        world.settle()?;
        let repeats = world.history.operations().iter().filter(|operation| {
            operation.is_unclear() && matches!(operation.command, Command::Claim(_) | Command::Redeem(..))
        });
        let repeats: Vec<_> = repeats.map(|unclear| (unclear.name.clone(), unclear.command.clone())).collect();
        for (coupon, command) in repeats {
            world.ask(coupon, command);
        }
        for coupon in coupons {
            let users: Vec<UserId> = world.history.claimants(&coupon).into_iter().cloned().collect();
            for user in users {
                world.ask(coupon.clone(), Command::Claim(Claim { user, attributes: None, request: None }));
            }
        }
        world.settle()?;
        world.history.end_life(world.clock.both());
        world.judge(Some(world.clock.now()))?;
        world.restart()?;
        count_healed(world);
        Ok(())
    }
}

fn count_healed(world: &mut World<Coupons>) {
    for rows in world.disk.lock().stored.values() {
        let issued = rows.claims.len();
        let how = if issued == rows.settings.limit.get() as usize {
            "sold all"
        } else if issued == world.history.claimants(&rows.name).len() {
            "served all"
        } else {
            "ended before all were served"
        };
        world.report.count("heal", how);
    }
}

fn told<T>(answer: Result<T, Refused>, tell: impl FnOnce(T) -> CouponReply) -> CouponReply {
    answer.map_or_else(|refused| CouponReply::Refused(refused.rejection, refused.claim.map(|claim| claim.code)), tell)
}
