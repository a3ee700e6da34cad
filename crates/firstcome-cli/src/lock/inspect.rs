//! `firstcome locks`: shows who holds locks, and takes a lock away.
//!
//! A separate command, since the first argument of `firstcome lock` is a name, and a lock may be called `list`.

use super::{place, store};
use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use crate::settings::UserConfigArgs;
use crate::store_address::LockStoreArgs;
use crate::transport::TransportArgs;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use firstcome::core::id::LockName;
use firstcome::core::lock::{ClientId, Copies, Fence, LockAnswer, Released, Step};
use firstcome::edge::draw_id;
use firstcome::lock::{Layout, LockAddress};
use firstcome::redis::{LinkOptions, RedisLocks};
use firstcome::sqlite::{LockDurability, SqliteLocks, standing_locks};
use firstcome::{HeldLockView, LockStore, StoreError};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum LocksCommand {
    /// Show one lock: its holder, its fence, how long it lasts, how many wait
    Status(NamedArgs),
    /// Show all locks that are held
    List(ListArgs),
    /// Take a lock away from its holder, and give it to the next in line
    ///
    /// The holder learns of it at its next renewal, within a third of its lease, and its command is ended then. Until then that
    /// command and the next one may run at the same time: the next grant has a higher fence, by which a guarded store refuses the
    /// old holder. To stop a command and be sure that it has ended, send a signal to its `firstcome lock` instead.
    Release(ReleaseArgs),
}

/// The store to inspect.
#[derive(Args)]
struct Where {
    #[command(flatten)]
    store: LockStoreArgs,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    _settings: UserConfigArgs,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct NamedArgs {
    /// Name of the lock
    name: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    lock: NamedArgs,
    /// The holder may still be at work: take the lock away all the same
    #[arg(long)]
    force: bool,
    /// Only from the holder with this fence, as `status` shows it
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
}

/// A store that `firstcome locks` can inspect.
enum InspectedStore {
    Directory(PathBuf),
    Redis(Box<RedisLocks>),
}

impl InspectedStore {
    async fn open(args: &Where) -> Result<Self, Failure> {
        let transport = args.transport.settled()?;
        let usage = |says: &str| Err(Failure::Usage(anyhow!("{says}")));
        match store::named(&args.store.read()?).map_err(Failure::Usage)? {
            None => place::default_directory().map(Self::Directory).map_err(Failure::Usage),
            Some(LockAddress::Redis { url, .. }) if url.contains("+cluster://") => {
                usage("the locks of a Redis cluster cannot be looked at; firstcome lock --wait 0s says who holds one")
            }
            Some(LockAddress::Redis { url, layout: Layout::Native }) => {
                let url = transport.redis(&url)?;
                let client = draw_id().map_err(Failure::Store)?;
                let opened = RedisLocks::open(&url, ClientId(client), LinkOptions::default()).await;
                opened.map(|locks| Self::Redis(Box::new(locks))).map_err(store::redis_failure)
            }
            Some(LockAddress::Directory(directory)) => {
                place::check_there(&directory).map_err(Failure::Usage)?;
                Ok(Self::Directory(directory))
            }
            Some(LockAddress::Quorum(_)) => {
                usage("the locks of a quorum cannot be looked at: no server alone knows who holds one")
            }
            Some(_) => usage(
                "only locks in a directory and on Redis can be looked at; for etcd use etcdctl get --prefix firstcome/lock/",
            ),
        }
    }

    async fn standing(&self, name: &LockName) -> Result<Option<HeldLockView>, Failure> {
        match self {
            Self::Directory(directory) => {
                let all = standing_locks(directory).map_err(Failure::Store)?;
                Ok(all.into_iter().find(|lock| lock.name == *name))
            }
            Self::Redis(locks) => locks.standing(name).await.map_err(|error| unanswered(&error)),
        }
    }

    async fn all(&self) -> Result<Vec<HeldLockView>, Failure> {
        match self {
            Self::Directory(directory) => standing_locks(directory).map_err(Failure::Store),
            Self::Redis(locks) => {
                let mut all = Vec::new();
                for name in locks.names().await.map_err(|error| unanswered(&error))? {
                    all.extend(locks.standing(&name).await.map_err(|error| unanswered(&error))?);
                }
                Ok(all)
            }
        }
    }

    /// Ends the hold of a request. Returns whether it still had the lock.
    async fn release(&self, lock: &HeldLockView) -> Result<Released, Failure> {
        // The holder may have sent its request twice: a copy that arrives later must not get the lock again.
        let step = Step::Release { name: lock.name.clone(), request: lock.request, copies: Copies::Several };
        let answer = match self {
            Self::Directory(directory) => {
                let locks = SqliteLocks::open(directory, LockDurability::Durable).map_err(Failure::Store)?;
                locks.take(step).await
            }
            Self::Redis(locks) => locks.take(step).await,
        };
        match answer.map_err(|error| unanswered(&error))?.said {
            LockAnswer::Released(released) => Ok(released),
            _ => Err(unanswered(&StoreError::Unknown)),
        }
    }
}

fn unanswered(error: &StoreError) -> Failure {
    Failure::Unreachable(anyhow!("the store of locks: {error}"))
}

/// Runs a subcommand of `firstcome locks`.
pub(crate) fn look(command: &LocksCommand) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            LocksCommand::Status(args) => status(args).await,
            LocksCommand::List(args) => list(args).await,
            LocksCommand::Release(args) => release(args).await,
        }
    })
}

fn name_of(args: &NamedArgs) -> Result<LockName, Failure> {
    LockName::parse(&args.name).map_err(|error| Failure::Usage(anyhow!("the lock {error}")))
}

async fn status(args: &NamedArgs) -> Outcome {
    let name = name_of(args)?;
    let standing = InspectedStore::open(&args.place).await?.standing(&name).await?;
    if !wants_table(args.place.json) {
        // The same members as in the answer of the HTTP service.
        let free = json!({"lock": name.as_str(), "held": false, "holder": null, "fence": null, "ttl_ms": null,
            "holders": 0, "waiters": 0});
        return print(&standing.as_ref().map_or(free, shown));
    }
    match standing {
        Some(lock) => print_table(&[lock]),
        None => Ok(write_out(format!("lock {name} is free\n").as_bytes())?),
    }
}

async fn list(args: &ListArgs) -> Outcome {
    let all = InspectedStore::open(&args.place).await?.all().await?;
    if wants_table(args.place.json) {
        return print_table(&all);
    }
    print(&json!({"locks": all.iter().map(shown).collect::<Vec<_>>()}))
}

async fn release(args: &ReleaseArgs) -> Outcome {
    let name = name_of(&args.lock)?;
    if !args.force {
        let look = format!("see firstcome locks status {name}, and say --force to take the lock away");
        return Err(Failure::Usage(anyhow!("the holder of lock {name} may still be at work; {look}")));
    }
    let refused = |why: String| Err(Failure::Refused(anyhow!("lock {name}: {why}; nothing was released")));
    let place = InspectedStore::open(&args.lock.place).await?;
    let Some(lock) = place.standing(&name).await? else { return refused("no process holds it".to_owned()) };
    if args.fence.is_some_and(|fence| Fence::new(fence) != Some(lock.fence)) {
        return refused(format!("{} holds it with the fence {}", lock.owner, lock.fence));
    }
    match place.release(&lock).await? {
        Released::Released => {}
        // The hold ended between the read and the release.
        _ => return refused(format!("the hold with the fence {} has just ended", lock.fence)),
    }
    if wants_table(args.lock.place.json) {
        let says = format!("lock {name} was taken away from {}; the next fence is above {}\n", lock.owner, lock.fence);
        return Ok(write_out(says.as_bytes())?);
    }
    print(&json!({"lock": name.as_str(), "released": true, "holder": lock.owner.as_str(), "fence": lock.fence.get()}))
}

fn shown(lock: &HeldLockView) -> Value {
    json!({
        "lock": lock.name.as_str(), "held": true, "holder": lock.owner.as_str(), "fence": lock.fence.get(),
        "ttl_ms": lock.left.as_millis(), "holders": lock.holders, "waiters": lock.waiters,
    })
}

fn print(value: &Value) -> Outcome {
    Ok(write_out(format!("{value:#}\n").as_bytes())?)
}

fn print_table(locks: &[HeldLockView]) -> Outcome {
    let mut table = table(&["Lock", "Holder", ">Fence", ">Lasts", ">Waiting"]);
    for lock in locks {
        let lasts = format!("{:.1} s", lock.left.as_secs_f64());
        let holder = match lock.holders {
            0 | 1 => lock.owner.to_string(),
            holders => format!("{} and {} more", lock.owner, holders - 1),
        };
        let cells = [lock.name.to_string(), holder, lock.fence.to_string(), lasts, lock.waiters.to_string()];
        table.add_row(cells.map(Cell::new));
    }
    Ok(write_out(format!("{table}\n").as_bytes())?)
}
