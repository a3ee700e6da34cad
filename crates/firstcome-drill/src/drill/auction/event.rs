//! Plays one auction event, from the first charge to the last read.

use super::Setting;
use super::bidders::Bidders;
use super::messages::{BidPage, Reader, RecordPage};
use super::plan::{HOT, Plan};
use super::record::{Balance, Bid, History, ListingObservation, ListingRecord, Movement, Names};
use crate::drill::chaos::{DrillTarget, kill_at, moments_us};
use crate::drill::client::{connection, dispatch};
use crate::drill::clock::RunClock;
use crate::drill::crowd::Crowd;
use crate::drill::messages::Request;
use crate::drill::sampler::{STEP_MS, line};
use crate::drill::server::call_on;
use crate::drill::spread::Spread;
use crate::output::grouped;
use anyhow::{Context, bail};
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval};

/// Connections that create the listings, and that read everything at the end.
const READERS: u32 = 8;
/// How long after its end an auction may still be open.
const CLOSING_US: i64 = 10_000_000;
/// A read so near to a deadline is repeated: the deadline may or may not have been handled.
const NEAR_US: i64 = 5_000;
/// How long the final reads retry a service that cannot answer.
const READING: Duration = Duration::from_secs(60);
/// How many reads measure the difference of the clocks.
const CLOCK_LOOKS: u32 = 16;
/// A larger difference is not due to reading two clocks.
const CLOCK_US_MAX: i64 = 1_000_000;

/// What an event leaves behind once every request is decided.
pub(crate) struct Played {
    pub(crate) bidders: Bidders,
    pub(crate) took_us: u64,
    pub(crate) latest_us: u64,
    pub(crate) rss_max: u64,
    pub(crate) started_at: String,
}

/// Plays the event to its end.
pub(crate) async fn play(setting: &Setting, place: Rc<DrillTarget>) -> anyhow::Result<Played> {
    let names = Names { prefix: setting.prefix.clone(), members: setting.size.people, listings: setting.size.stock };
    let plan = Plan::of(setting.size);
    let clock = RunClock::start();
    let reader = Reader { names, clock };
    put_listings(setting, &place, &reader, &plan.listings).await?;
    let apart_us =
        OperatorConnection::open(place.addresses[0], &reader, &setting.keys.service).await?.clocks_apart_us().await?;
    let (mut bidders, agenda) = Bidders::new(reader.clone(), setting.size.seed, setting.keys.service.clone(), plan);
    bidders.history.reading_us += apart_us;
    let spread = Spread::over(place.addresses.len(), setting.size.seed);
    let crowd = Rc::new(Crowd::new(clock, bidders, agenda, setting.ends_us(), spread));
    let rss_max = Rc::new(Cell::new(0));
    event(setting, &place, &crowd, &rss_max).await?;
    let (took_us, latest_us) = (clock.now_us(), crowd.latest_us());
    let mut bidders = Rc::try_unwrap(crowd).ok().context("a connection still runs")?.into_people();
    look_at_everything(&place, &reader, &setting.keys.service, &mut bidders.history).await?;
    Ok(Played { bidders, took_us, latest_us, rss_max: rss_max.get(), started_at: clock.text_of(0) })
}

/// Returns the settings of a listing as the body of a PUT.
fn settings(reader: &Reader, listing: &ListingRecord) -> String {
    let instant = |at_us: i64| reader.clock.text_at(at_us);
    let owner = reader.names.member(listing.owner);
    let kind = if listing.terms.is_some() { "auction" } else { "fixed_price" };
    let mut body =
        json!({"owner": owner, "kind": kind, "price": listing.price, "starts_at": instant(listing.starts_us)});
    if let Some(terms) = listing.terms {
        body["ends_at"] = instant(terms.ends_us).into();
        if let Some(increment) = terms.increment {
            body["min_increment"] = increment.into();
        }
        if let Some(extend) = terms.extend {
            let (window_ms, by_ms) = (extend.window_us / 1_000, extend.by_us / 1_000);
            body["extend"] = json!({"window_ms": window_ms, "by_ms": by_ms, "max_count": extend.max_count});
        }
        if let Some(settle_us) = terms.settle_us {
            body["settle_within_ms"] = (settle_us / 1_000).into();
            body["on_default"] = "release".into();
        }
    }
    body.to_string()
}

async fn put_listings(
    setting: &Setting,
    place: &DrillTarget,
    reader: &Reader,
    listings: &[ListingRecord],
) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for first in 0..READERS as usize {
        let some = (0..).zip(listings).skip(first).step_by(READERS as usize);
        let some: Vec<_> = some.map(|(at, listing)| (reader.names.listing(at), settings(reader, listing))).collect();
        let key = setting.keys.service.clone();
        let address = place.addresses[first % place.addresses.len()];
        tasks.push(spawn_local(async move {
            let mut stream =
                TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
            for (listing, body) in &some {
                let (path, body) = (["/v1/listings/", listing], [body.as_str()]);
                let put = Request { method: "PUT", path: &path, key: Some(&key), body: &body, ..Request::default() };
                let (status, bytes) = call_on(&mut stream, &put).await?;
                if status != 201 {
                    bail!("PUT {listing}: {status} {}", String::from_utf8_lossy(&bytes));
                }
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Runs the crowd and the kills, until every request is decided.
async fn event(
    setting: &Setting,
    place: &Rc<DrillTarget>,
    crowd: &Rc<Crowd<Bidders>>,
    rss_max: &Rc<Cell<u64>>,
) -> anyhow::Result<()> {
    // All tasks end when this function ends or is dropped.
    let mut tasks = JoinSet::new();
    for _ in 0..setting.connections {
        tasks.spawn_local(connection(Rc::clone(crowd), Rc::clone(&place.addresses)));
    }
    tasks.spawn_local(watch(Rc::clone(crowd), Rc::clone(place), Rc::clone(rss_max), setting.size.seconds));
    let kills = async {
        let (opens_us, ends_us) = (setting.opens_us(), setting.ends_us());
        // Kills also come while auctions end, which is later than the middle of a sale.
        let moments = moments_us(setting.size.seed, setting.kills, opens_us, 2 * ends_us - opens_us);
        kill_at(Rc::clone(crowd), place, setting.size.seed, moments).await?;
        // The kills are over; the crowd goes on.
        std::future::pending::<anyhow::Result<()>>().await
    };
    let outcome = tokio::select! {
        failed = kills => failed,
        () = dispatch(crowd) => Ok(()),
    };
    tasks.shutdown().await;
    outcome
}

/// Shows the progress, and samples the memory of the server. Never returns.
async fn watch(crowd: Rc<Crowd<Bidders>>, place: Rc<DrillTarget>, rss_max: Rc<Cell<u64>>, seconds: u64) {
    let bar = line(seconds);
    let mut ticks = interval(Duration::from_millis(STEP_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        rss_max.set(rss_max.get().max(place.rss()));
        bar.set_position(crowd.clock.now_us() / 1_000_000);
        let bidders = crowd.people();
        let (accepted, sold) = (grouped(bidders.accepted), grouped(bidders.sold));
        bar.set_message(format!("bids {accepted}  sold {sold}  kills {}", bidders.history.restarts.len()));
    }
}

/// A connection that reads the final state.
struct OperatorConnection {
    stream: TcpStream,
    reader: Reader,
    key: String,
}

impl OperatorConnection {
    async fn open(address: SocketAddr, reader: &Reader, key: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reader: reader.clone(), key: key.to_owned() })
    }

    async fn get(&mut self, path: &[&str]) -> anyhow::Result<Vec<u8>> {
        let request = Request { method: "GET", path, key: Some(&self.key), ..Request::default() };
        let mut ticks = interval(Duration::from_millis(100));
        let until_us = self.reader.clock.now_us() + READING.as_micros() as u64;
        loop {
            let (status, bytes) = call_on(&mut self.stream, &request).await?;
            if status == 200 {
                return Ok(bytes);
            }
            if status != 503 || until_us < self.reader.clock.now_us() {
                bail!("GET {}: {status} {}", path.concat(), String::from_utf8_lossy(&bytes));
            }
            ticks.tick().await;
        }
    }

    /// Returns the least difference between the service's clock and this one that the reads prove: 0 on one machine.
    async fn clocks_apart_us(&mut self) -> anyhow::Result<i64> {
        let listing = self.reader.names.listing(HOT);
        let mut apart_us = 0;
        for _ in 0..CLOCK_LOOKS {
            let sent_us = self.reader.clock.now_us().cast_signed();
            let bytes = self.get(&["/v1/listings/", &listing]).await?;
            let received_us = self.reader.clock.now_us().cast_signed();
            let as_of_us = self.reader.as_of(&bytes).with_context(|| format!("{listing} says no time"))?;
            apart_us = apart_us.max(sent_us - as_of_us).max(as_of_us - received_us);
        }
        if CLOCK_US_MAX < apart_us {
            bail!(
                "the clock of the service and that of this machine differ by {} ms: set one of them",
                apart_us / 1_000
            );
        }
        Ok(apart_us)
    }

    async fn listing(&mut self, listing: u32) -> anyhow::Result<ListingObservation> {
        let name = self.reader.names.listing(listing);
        let sent_us = self.reader.clock.now_us().cast_signed();
        let bytes = self.get(&["/v1/listings/", &name]).await?;
        let now_us = self.reader.clock.now_us().cast_signed();
        self.reader
            .look(listing, sent_us, now_us, &bytes)
            .with_context(|| format!("{name}: the answer is not a listing"))
    }

    /// Reads a listing until every deadline of it has passed and been handled.
    async fn settled(&mut self, listing: u32, rules: &ListingRecord) -> anyhow::Result<ListingObservation> {
        let mut ticks = interval(Duration::from_millis(20));
        loop {
            let look = self.listing(listing).await?;
            let due_us = rules.terms.and_then(|terms| {
                let ends_us = look.ends_us?;
                let settles_us = terms.settle_us.filter(|_| look.highest.is_some() && look.sale.is_none());
                Some(ends_us + settles_us.unwrap_or(0))
            });
            // If the winner is late, the listing changes twice: it closes, and then defaults.
            let is_late = look.highest.is_some()
                && look.sale.is_none()
                && rules.terms.is_some_and(|terms| terms.settle_us.is_some());
            let closed = 1 + u64::from(look.bids) + 1 + u64::from(look.sale.is_some() || is_late);
            let over = due_us.is_some_and(|due_us| (due_us..due_us + CLOSING_US).contains(&look.received_us));
            // Does not wait for an auction that runs on for long.
            let soon = due_us.is_some_and(|due_us| look.received_us < due_us && due_us < look.received_us + CLOSING_US);
            let span = look.sent_us - NEAR_US..look.received_us + NEAR_US;
            let near = [look.ends_us.filter(|_| rules.terms.is_some()), due_us]
                .into_iter()
                .flatten()
                .any(|at_us| span.contains(&at_us));
            if !soon && !near && (!over || closed <= look.version) {
                return Ok(look);
            }
            ticks.tick().await;
        }
    }

    /// Reads all pages of a list. `read` takes one page, and returns where the next one begins.
    async fn pages(
        &mut self,
        path: [&str; 3],
        mut read: impl FnMut(&Reader, &[u8]) -> anyhow::Result<Option<u64>>,
    ) -> anyhow::Result<()> {
        let mut after = 0;
        loop {
            let query = format!("?after={after}&limit=1000");
            let [collection, name, list] = path;
            let bytes = self.get(&[collection, name, list, &query]).await?;
            let Some(next) = read(&self.reader, &bytes)? else { return Ok(()) };
            if next <= after {
                bail!("{} goes on at {next} after {after}", path.concat());
            }
            after = next;
        }
    }

    async fn bids(&mut self, listing: u32) -> anyhow::Result<Vec<Bid>> {
        let (listing, mut bids) = (self.reader.names.listing(listing), Vec::new());
        let read = |reader: &Reader, bytes: &[u8]| {
            let page: BidPage<'_> = serde_json::from_slice(bytes).context("a page of bids")?;
            for bid in &page.items {
                bids.push(reader.bid(bid).context("a bid without instant")?);
            }
            Ok(page.next)
        };
        self.pages(["/v1/listings/", &listing, "/bids"], read).await?;
        Ok(bids)
    }

    async fn member(&mut self, member: u32) -> anyhow::Result<(Balance, Vec<Movement>)> {
        let (name, mut records) = (self.reader.names.member(member), Vec::new());
        let bytes = self.get(&["/v1/members/", &name]).await?;
        let balance = Reader::balance(&bytes).context("a balance")?;
        let read = |reader: &Reader, bytes: &[u8]| {
            let page: RecordPage<'_> = serde_json::from_slice(bytes).context("a page of records")?;
            for record in &page.items {
                records.push(reader.record(record).context("an invalid record")?);
            }
            Ok(page.next)
        };
        self.pages(["/v1/members/", &name, "/points/records"], read).await?;
        Ok((balance, records))
    }
}

/// Reads the final state of all listings and members, once all deadlines have passed.
async fn look_at_everything(
    place: &DrillTarget,
    reader: &Reader,
    key: &str,
    history: &mut History,
) -> anyhow::Result<()> {
    let node = |at: u32| place.addresses[at as usize % place.addresses.len()];
    let mut operator = OperatorConnection::open(node(0), reader, key).await?;
    for (at, listing) in (HOT..).zip(&history.listings) {
        history.last.push(operator.settled(at, listing).await?);
        history.bids.push(operator.bids(at).await?);
    }
    let members = reader.names.members;
    let mut tasks = Vec::new();
    for first in 0..READERS {
        let mut operator = OperatorConnection::open(node(first), reader, key).await?;
        tasks.push(spawn_local(async move {
            let mut found = Vec::new();
            for member in (first..members).step_by(READERS as usize) {
                found.push((member as usize, operator.member(member).await?));
            }
            anyhow::Ok(found)
        }));
    }
    history.balances = vec![Balance::default(); members as usize];
    history.records = vec![Vec::new(); members as usize];
    for task in tasks {
        for (member, (balance, records)) in task.await?? {
            history.balances[member] = balance;
            history.records[member] = records;
        }
    }
    Ok(())
}
