//! The root of the library: one store, and everything that it keeps.

mod any;

pub use any::AnyStore;

use crate::auction::member;
use crate::error::flat;
use crate::{CouponHandle, EraseError, InputError, ListingHandle, MemberHandle, WaitingRoom};
#[cfg(feature = "sqlite")]
use firstcome_store::Fault;
use firstcome_store::core::erase::Erased;
use firstcome_store::core::id::{CouponName, ListingName, RoomName, UserId};
use firstcome_store::{AuctionStore, Closings, CouponStore, Durability, Embedded, EraseStore, RoomStore, StoreError};
use std::fmt;
use std::sync::Arc;

/// One store with coupons, waiting rooms, listings and members. Cheap to clone.
///
/// The type is the same over every store: [`Self::memory`], [`Self::open`], [`Self::cluster`], [`Self::http`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firstcome::{Error, Outcome, Store};
///
/// let store = Store::memory(); // or Store::open("./firstcome-data")?, or Store::cluster(redis, sql, secret).await?
/// let launch = store.coupon("launch")?;
/// launch.put_limit(1).await?;
/// assert!(matches!(launch.claim("ann")?.send().await?, Outcome::Issued(_)));
/// assert!(matches!(launch.claim("bob")?.send().await, Err(Error::Refused(_))));
/// store.member("ann")?.charge(500)?.send().await?;
/// # Ok(()) }
/// ```
///
/// # What it promises
/// Handles of one name are alike, from whichever clone they come. What each promises stands with its type:
/// [`CouponHandle`], [`WaitingRoom`], [`ListingHandle`], [`MemberHandle`].
///
/// # Custom stores
/// `S` keeps coupons and rooms, `A` keeps listings and members. A root over a custom store, or over a store of one kind
/// without [`AnyStore`]'s branch, has that type: [`Self::over`], [`Self::over_both`].
pub struct Store<S = AnyStore, A = S> {
    pub(crate) store: Arc<S>,
    auctions: Arc<A>,
}

impl<S, A> Clone for Store<S, A> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), auctions: Arc::clone(&self.auctions) }
    }
}

impl<S, A> fmt::Debug for Store<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store in memory, which ends with the process.
    pub fn memory() -> Self {
        Self::over(Embedded::memory().into())
    }

    /// Opens a store in a directory, which is created if it is absent. A reply means that the change is synced to disk.
    ///
    /// Blocks while it loads, about half a second per million claims. Only one process can have the directory open.
    /// Fails with a [`Fault`] that says what to do.
    #[cfg(feature = "sqlite")]
    pub fn open(directory: impl AsRef<std::path::Path>) -> Result<Self, Fault> {
        let clock = Arc::new(firstcome_store::edge::SystemClock::default());
        Ok(Self::over(firstcome_sqlite::open(directory.as_ref(), clock)?.into()))
    }

    /// Opens a node of a cluster: Redis or Valkey decides about coupons and rooms, and all that lasts is in PostgreSQL,
    /// MySQL or MariaDB. All nodes of a deployment have the same secret. Call it within a Tokio runtime.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::{Store, cluster::DeploymentSecret};
    ///
    /// let secret = DeploymentSecret::new(&std::env::var("FIRSTCOME_SECRET")?).ok_or("at least 32 bytes")?;
    /// let store = Store::cluster("redis://10.0.0.1", "postgres://shop@10.0.0.2/shop", secret).await?;
    /// store.coupon("launch")?.put_limit(100).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Fails as [`Cluster::open`](firstcome_cluster::Cluster::open) does.
    #[cfg(feature = "cluster")]
    pub async fn cluster(
        redis: &str,
        sql: &str,
        secret: firstcome_cluster::DeploymentSecret,
    ) -> Result<Self, firstcome_cluster::ClusterError> {
        Self::cluster_with(redis, sql, secret, firstcome_cluster::ClusterOptions::default()).await
    }

    /// Opens a node as [`Self::cluster`] does, with custom time-outs and bounds.
    #[cfg(feature = "cluster")]
    pub async fn cluster_with(
        redis: &str,
        sql: &str,
        secret: firstcome_cluster::DeploymentSecret,
        options: firstcome_cluster::ClusterOptions,
    ) -> Result<Self, firstcome_cluster::ClusterError> {
        // Boxed: these futures have some kilobytes, and a caller would carry them in its own.
        let database = options.database.clone();
        let cluster = Box::pin(firstcome_cluster::Cluster::open(redis, sql, secret, options)).await?;
        let auctions = firstcome_sql::SqlAuctions::open_with(sql, database).await?;
        Ok(Self::over((cluster, auctions).into()))
    }

    /// Makes a client of a firstcome service, with the same face as an embedded store. Sends nothing. Its calls need a
    /// Tokio runtime.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstcome::Store;
    ///
    /// let key = std::fs::read_to_string("service.key")?;
    /// let store = Store::http("https://queue.example.org", key.trim())?;
    /// let claim = store.coupon("launch")?.claim("ann")?.idempotency_key("order-4711")?.send().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Fails as [`HttpStore::new`](firstcome_client::HttpStore::new) does.
    #[cfg(feature = "http")]
    pub fn http(url: &str, key: &str) -> Result<Self, firstcome_client::OpenHttpError> {
        Self::http_with(url, key, firstcome_client::HttpOptions::default())
    }

    /// Makes a client as [`Self::http`] does, with custom times and a custom number of requests under way.
    #[cfg(feature = "http")]
    pub fn http_with(
        url: &str,
        key: &str,
        options: firstcome_client::HttpOptions,
    ) -> Result<Self, firstcome_client::OpenHttpError> {
        Ok(Self::over(firstcome_client::HttpStore::with(url, key, options)?.into()))
    }
}

impl<S> Store<S> {
    /// Makes a root over a custom store. It has what the store has: a root over `sql::SqlAuctions` has
    /// listings and members only.
    pub fn over(store: S) -> Self {
        let store = Arc::new(store);
        Self { auctions: Arc::clone(&store), store }
    }
}

impl<S, A> Store<S, A> {
    /// Makes a root over two stores: one for coupons and rooms, one for listings and members.
    pub fn over_both(store: S, auctions: A) -> Self {
        Self { store: Arc::new(store), auctions: Arc::new(auctions) }
    }

    /// Returns the store of coupons and rooms itself.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store of listings and members itself.
    pub fn auctions(&self) -> &A {
        &self.auctions
    }
}

impl<S: CouponStore, A> Store<S, A> {
    /// Returns a coupon by its name. It need not exist yet.
    pub fn coupon(&self, name: &str) -> Result<CouponHandle<S>, InputError> {
        let name = CouponName::parse(name).map_err(|error| InputError::Name { field: "coupon", error })?;
        Ok(CouponHandle { store: Arc::clone(&self.store), name })
    }

    /// What an acknowledged claim survives.
    pub fn durability(&self) -> Durability {
        self.store.durability()
    }
}

impl<S: EraseStore> Store<S> {
    /// Erases a person: a pseudonym takes the place of the user, and of the member of the same name. Durable once it
    /// replies. The same user may come again, as a new person. See [`EraseStore::erase`] for what it costs and refuses.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = firstcome::Store::memory();
    /// let launch = store.coupon("launch")?;
    /// launch.put_limit(2).await?;
    /// launch.claim("ann")?.send().await?;
    /// assert_eq!(store.erase("ann").await?.claims, 1);
    /// assert!(store.erase("ann").await?.is_nothing());
    /// assert_eq!(launch.view().await?.issued, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// After [`Error::Unknown`](crate::Error::Unknown) a part may be erased: send it again, which erases the rest.
    pub async fn erase(&self, user: &str) -> Result<Erased, EraseError> {
        let user = UserId::parse(user).map_err(|error| InputError::Name { field: "user", error })?;
        flat(self.store.erase(&user).await)
    }
}

impl<S: RoomStore, A> Store<S, A> {
    /// Returns a waiting room by its name. It need not exist yet.
    pub fn room(&self, name: &str) -> Result<WaitingRoom<S>, InputError> {
        let name = RoomName::parse(name).map_err(|error| InputError::Name { field: "room", error })?;
        Ok(WaitingRoom { store: Arc::clone(&self.store), name })
    }

    /// Does everything that is due now in all rooms, and returns when it is durable. The stores do this by themselves.
    pub async fn tick(&self) -> Result<(), StoreError> {
        self.store.tick().await
    }
}

impl<S, A: AuctionStore> Store<S, A> {
    /// Returns a listing by its name. It need not exist yet.
    pub fn listing(&self, name: &str) -> Result<ListingHandle<A>, InputError> {
        let name = ListingName::parse(name).map_err(|error| InputError::Name { field: "listing", error })?;
        Ok(ListingHandle { store: Arc::clone(&self.auctions), name })
    }

    /// Returns a member by name. Members need not be created: a member that was never charged has no points.
    pub fn member(&self, name: &str) -> Result<MemberHandle<A>, InputError> {
        Ok(MemberHandle { store: Arc::clone(&self.auctions), name: member("member", name)? })
    }

    /// Closes all auctions that are due, and returns when that is durable. The stores do this by themselves.
    pub async fn close_due(&self) -> Result<(), StoreError> {
        self.auctions.close_due().await
    }

    /// Returns how many auctions were closed since the store was opened.
    pub fn closings(&self) -> Closings {
        self.auctions.closings()
    }
}
