//! What each kind of store promises for its locks, in one place. A caller knows it before it asks for a lock.

use std::fmt::{self, Write as _};

/// The order in which a store grants a lock to its waiters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GrantOrder {
    /// The order in which the store accepted the requests.
    Arrival,
    /// The order of the server's own queue: that of arrival, except among waiters that the server wakes together.
    Server,
    /// No order: the client that tries at the right moment gets the lock, and a client may never get it.
    None,
}

/// Whether grants carry a fence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Fencing {
    /// Each grant has a fence above that of every grant before it.
    EveryGrant,
    /// The layout has no place for a fence.
    None,
}

/// What keeps a hold while its guard lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HoldKeeper {
    /// A lease, which the client renews three times in its length unless the request is fixed.
    RenewedLease,
    /// One lease for all holds and places of a process, which the client renews three times in its length. They end
    /// together.
    ProcessLease,
    /// The connection to the server. The hold has no end of its own.
    Connection,
}

/// Whether requests may share a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Sharing {
    /// Yes: shared and exclusive holds take turns, and each shared hold has as many holders as its permits allow.
    InTurns,
    /// No: each hold is exclusive.
    None,
}

/// What becomes of a hold, when something happens to the store while its holder lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Survival {
    /// The hold stands: the store keeps what it acknowledged.
    Kept,
    /// The hold stands if the store still has it. If the store lost it, a second client may get the lock before the
    /// holder notices; where there are fences, they tell the two apart.
    MayBeLost,
    /// The hold ends, and its holder learns that.
    Ends,
    /// The store is a part of the holder's process or machine: it happens to both or to neither.
    Shared,
}

/// What a caller may demand of a store of locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Demand {
    /// [`GrantOrder::Arrival`].
    Ordered,
    /// [`Fencing::EveryGrant`].
    Fenced,
}

/// What a store promises for its locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Guarantees {
    /// The order of grants.
    pub order: GrantOrder,
    /// Whether grants carry a fence.
    pub fencing: Fencing,
    /// Whether requests may share a lock.
    pub sharing: Sharing,
    /// What keeps a hold.
    pub keeper: HoldKeeper,
    /// When a server of the store is killed and starts again with its data.
    pub restart: Survival,
    /// When another server takes the place of one that failed.
    pub fail_over: Survival,
    /// When the network parts the store's servers for longer than a lease, and the holder can still reach most of them.
    pub partition: Survival,
}

impl Guarantees {
    /// Locks in the memory of one process.
    pub const MEMORY: Self = Self {
        order: GrantOrder::Arrival,
        fencing: Fencing::EveryGrant,
        sharing: Sharing::InTurns,
        keeper: HoldKeeper::RenewedLease,
        restart: Survival::Shared,
        fail_over: Survival::Shared,
        partition: Survival::Shared,
    };
    /// Locks in a directory, between the processes of one machine.
    pub const DIRECTORY: Self = Self { restart: Survival::Kept, ..Self::MEMORY };
    /// Locks on Redis or Valkey in the layout of this library: one server, Sentinel or Cluster. A restart keeps what
    /// the server wrote to its disk.
    pub const REDIS: Self = Self {
        restart: Survival::MayBeLost,
        fail_over: Survival::MayBeLost,
        partition: Survival::MayBeLost,
        ..Self::MEMORY
    };
    /// Locks on Redis or Valkey in a layout of other libraries.
    pub const SHARED_LAYOUT: Self =
        Self { order: GrantOrder::None, fencing: Fencing::None, sharing: Sharing::None, ..Self::REDIS };
    /// Locks on several servers that vote, of which a minority fails.
    pub const QUORUM: Self = Self { order: GrantOrder::None, ..Self::VOTED };
    /// Locks on etcd.
    pub const ETCD: Self = Self { keeper: HoldKeeper::ProcessLease, ..Self::VOTED };
    /// What servers that agree on each grant keep.
    const VOTED: Self = Self {
        sharing: Sharing::None,
        restart: Survival::Kept,
        fail_over: Survival::Kept,
        partition: Survival::Kept,
        ..Self::MEMORY
    };
    /// Locks of sessions on PostgreSQL, MySQL or MariaDB.
    pub const SQL_SESSION: Self = Self {
        order: GrantOrder::Server,
        sharing: Sharing::None,
        keeper: HoldKeeper::Connection,
        restart: Survival::Ends,
        fail_over: Survival::MayBeLost,
        partition: Survival::MayBeLost,
        ..Self::MEMORY
    };
    /// Locks in rows of a table of PostgreSQL. A fail-over to a copy that was behind may lose grants.
    pub const SQL_LEASE: Self = Self {
        restart: Survival::Kept,
        fail_over: Survival::MayBeLost,
        partition: Survival::MayBeLost,
        ..Self::MEMORY
    };

    /// Locks of a service over HTTP. A client does not know the store behind the service, so this is what the weakest
    /// one gives: a service that keeps its locks in memory ends all holds when it restarts, without a word to their
    /// holders.
    pub const HTTP: Self = Self::REDIS;

    /// All kinds of stores, by the call that opens them.
    pub const ALL: [(&'static str, Self); 9] = [
        ("Locks::memory()", Self::MEMORY),
        ("Locks::open(directory)", Self::DIRECTORY),
        ("Locks::redis(url)", Self::REDIS),
        (".layout(Redisson), .layout(SingleKey)", Self::SHARED_LAYOUT),
        ("Locks::quorum(urls)", Self::QUORUM),
        ("Locks::etcd(url)", Self::ETCD),
        ("Locks::postgres(url), Locks::mysql(url)", Self::SQL_SESSION),
        ("Locks::postgres_leases(url)", Self::SQL_LEASE),
        ("Locks::http(url, key)", Self::HTTP),
    ];

    /// Returns whether the store promises this.
    pub const fn meets(&self, demand: Demand) -> bool {
        match demand {
            Demand::Ordered => matches!(self.order, GrantOrder::Arrival),
            Demand::Fenced => matches!(self.fencing, Fencing::EveryGrant),
        }
    }

    /// Returns the table of `docs/guarantees.md`.
    pub fn table() -> String {
        let mut text = "| store | order | fence | shared | kept by | restart | fail-over | partition |\n".to_owned();
        text.push_str("|---|---|---|---|---|---|---|---|\n");
        for (store, of) in Self::ALL {
            let store = store.replace("), ", ")`, `");
            let _ = writeln!(
                text,
                "| `{store}` | {} | {} | {} | {} | {} | {} | {} |",
                of.order, of.fencing, of.sharing, of.keeper, of.restart, of.fail_over, of.partition
            );
        }
        text
    }
}

impl fmt::Display for GrantOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrival => "of arrival",
            Self::Server => "the server's",
            Self::None => "none",
        })
    }
}

impl fmt::Display for Fencing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EveryGrant => "every grant",
            Self::None => "none",
        })
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTurns => "in turns",
            Self::None => "no",
        })
    }
}

impl fmt::Display for HoldKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RenewedLease => "a renewed lease",
            Self::ProcessLease => "one lease of the process",
            Self::Connection => "a connection",
        })
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ordered => "grants in the order of arrival",
            Self::Fenced => "a fence with every grant",
        })
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::MayBeLost => "may be lost",
            Self::Ends => "ends",
            Self::Shared => "–",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_meets_what_it_promises_and_nothing_else() {
        for (store, of) in Guarantees::ALL {
            assert_eq!(of.meets(Demand::Fenced), of.fencing == Fencing::EveryGrant, "{store}");
            assert_eq!(of.meets(Demand::Ordered), of.order == GrantOrder::Arrival, "{store}");
        }
        assert!(!Guarantees::SHARED_LAYOUT.meets(Demand::Fenced) && !Guarantees::QUORUM.meets(Demand::Ordered));
    }

    #[test]
    fn the_document_says_what_the_code_says() {
        let (page, table) = (include_str!("../../../docs/guarantees.md"), Guarantees::table());
        assert!(page.contains(&table), "docs/guarantees.md must have this table:\n{table}");
    }
}
