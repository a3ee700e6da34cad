//! A process that wants the locks again and again, and writes down what it was told before it does anything with it.

use super::*;
use firstcome::Guard;
use firstcome::lock::quorum;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, sleep};

/// Tasks that want each lock.
const TASKS: usize = 2;
/// Leases, in ms: [`REJOIN_AFTER`] and less. Short, so that many end by themselves.
const LEASE_MS: (u64, u64) = (300, 900);
const WAIT: Duration = Duration::from_millis(300);

/// One lock, and what is written down about it.
struct Wanted {
    /// Where this process writes what it has done so far.
    counts: PathBuf,
    locks: Locks,
    name: &'static str,
    register: Register,
    grants: File,
}

impl Wanted {
    /// One call: who is killed has written all of it or, at the end, less than a line.
    fn note(&self, line: &str) {
        (&self.grants).write_all(line.as_bytes()).expect("it can be written");
    }

    /// Who is killed in the middle of it has counted nothing: no rule rests on it.
    fn count(&self) {
        let counts = quorum::counts(&self.locks).expect("locks over several servers");
        let text = format!("{} {} {}", counts.written_back, counts.undone_late, counts.rejoined);
        std::fs::write(&self.counts, text).expect("it can be written");
    }
}

/// Until when it is certainly had. Not too late, wherever between these lines the process is stopped.
fn certain_until_us(guard: &Guard) -> u64 {
    let now_us = now_us();
    now_us + guard.remaining().as_micros() as u64
}

/// The order: seed, directory, bug, addresses. A second order ends it.
pub(super) async fn run(order: &str, orders: &mut UnboundedReceiver<String>) {
    let words: Vec<&str> = order.split(' ').collect();
    let [seed, directory, planted, urls @ ..] = &words[..] else { panic!("{order}?") };
    plant(planted);
    let (seed, directory) = (seed.parse::<u64>().expect("a number"), PathBuf::from(directory));
    let locks = open(urls).await;
    let over = Rc::new(AtomicBool::new(false));
    let tasks = LocalSet::new();
    for task in 0..TASKS {
        for (number, name) in STEADY.into_iter().chain(JUMPED).enumerate() {
            let wanted = want(&locks, name, &directory);
            let chance = Chance(seed + 1_000_000 * (TASKS * number + task + 1) as u64);
            let over = Rc::clone(&over);
            tasks.spawn_local(async move { contend(&wanted, chance, &over).await });
        }
    }
    let calm = tasks.run_until(orders.recv()).await;
    over.store(true, Ordering::Relaxed);
    tasks.await;
    if calm.is_some() {
        settle(&locks, &directory).await;
    }
}

fn want(locks: &Locks, name: &'static str, directory: &Path) -> Wanted {
    let mut options = OpenOptions::new();
    let grants = options.append(true).create(true).open(directory.join(format!("grants-{}", std::process::id())));
    let register = Register::open(directory, name);
    let counts = directory.join(format!("counts-{}", std::process::id()));
    Wanted { counts, locks: locks.clone(), name, register, grants: grants.expect("the file can be opened") }
}

#[cfg(feature = "planted-bugs")]
fn plant(name: &str) {
    use firstcome::core::planted::{Bug, plant};
    if name != "nothing" {
        let bug = Bug::ON_QUORUM.iter().find(|(_, known)| known.replace(' ', "-") == name);
        plant(Some(bug.unwrap_or_else(|| panic!("there is no bug {name}")).0));
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(name: &str) {
    assert_eq!(name, "nothing", "bugs are planted with the feature planted-bugs");
}

/// Connects, as soon as it can reach a majority.
async fn open(urls: &[&str]) -> Locks {
    let until = Instant::now() + PATIENCE;
    loop {
        match Locks::quorum_with(urls, options()).await {
            Ok(locks) => return locks,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn contend(wanted: &Wanted, mut chance: Chance, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let lease = chance.millis(LEASE_MS.0, LEASE_MS.1);
        let asked_us = now_us();
        let request = wanted.locks.lock(wanted.name).lease(lease).fixed();
        // Who tries once began its attempt when it says so; who waits may have begun a later one.
        let tried = match chance.within(0, 3) {
            0 => request.wait(WAIT).acquire().await,
            _ => request.try_acquire().await,
        };
        match tried {
            Ok(guard) => {
                let told_us = now_us();
                let (fence, until_us) = (guard.fence().unwrap().get(), certain_until_us(&guard));
                wanted.note(&format!("granted {} {fence} {asked_us} {told_us} {until_us}\n", wanted.name));
                inside(wanted, guard, lease, &mut chance).await;
            }
            Err(LockError::Contended { .. } | LockError::TimedOut { .. }) => {}
            Err(LockError::Unavailable(_) | LockError::Unknown) => {}
            Err(error) => panic!("nothing is wrong with what was asked: {error}"),
        }
        wanted.count();
        sleep(chance.millis(0, 30)).await;
    }
}

/// Writes when it comes in, stays for a while, writes again, and gives the lock back.
async fn inside(wanted: &Wanted, guard: Guard, lease: Duration, chance: &mut Chance) {
    let fence = guard.fence().unwrap().get();
    wanted.register.write(fence);
    match chance.within(0, 20) {
        // It needs longer than it thought.
        0..2 => {
            sleep(lease.mul_f64(0.6)).await;
            if guard.renew(lease).await.is_ok() {
                wanted.note(&format!("renewed {} {fence} {}\n", wanted.name, certain_until_us(&guard)));
            }
            sleep(chance.millis(1, 100)).await;
        }
        // It does not mind its deadline.
        2 => sleep(lease + chance.millis(1, 100)).await,
        3 => sleep(lease.mul_f64(0.9)).await,
        _ => sleep(chance.millis(0, 60)).await,
    }
    wanted.register.write(fence);
    wanted.note(&format!("ended {} {fence} {}\n", wanted.name, now_us()));
    if chance.within(0, 4) == 0 {
        drop(guard);
        yield_now().await;
    } else {
        // It may have been lost, and the answer too.
        let _ = guard.release().await;
    }
}

/// All faults are over: everything can be had again. How long that took.
async fn settle(locks: &Locks, directory: &Path) {
    let begun = Instant::now();
    for name in STEADY.into_iter().chain(JUMPED) {
        let wanted = want(locks, name, directory);
        let asked_us = now_us();
        let guard = locks.lock(name).lease(Duration::from_secs(1)).wait(PATIENCE).acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("{name} is not to be had any more: {error}"));
        let (told_us, fence) = (now_us(), guard.fence().unwrap().get());
        wanted.note(&format!("granted {name} {fence} {asked_us} {told_us} {}\n", certain_until_us(&guard)));
        assert_eq!(wanted.register.write(fence), Written::Accepted, "{name}");
        wanted.note(&format!("ended {name} {fence} {}\n", now_us()));
        guard.release().await.expect("it is held");
    }
    say(&format!("calm {}", begun.elapsed().as_millis()));
}
