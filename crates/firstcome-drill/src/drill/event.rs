//! Plays one event of a concert or a sale, and makes the calls of its operator.

use super::browsers::{Browser, Visit};
use super::chaos::{DrillTarget, kill_at, moments_us};
use super::client::{connection, dispatch};
use super::clock::RunClock;
use super::crowd::{Agenda, Crowd};
use super::messages::{Body, ClaimPage, Request, hash, holder};
use super::people::{People, Stage};
use super::plan::arrivals_us;
use super::record::{History, ListedClaim, PageStory, Rules, SlotReturn};
use super::sampler::Sampler;
use super::server::{KeyPair, call};
use super::spread::Spread;
use crate::failure::Failure;
use anyhow::{Context, bail};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::interval;

/// How many tickets and passes of another room the cheats get.
const FOREIGN: u32 = 6;
/// How often the operator repeats a call, at 20 times a second.
const TRIES: usize = 600;
/// The most age of the room's copy from which a node of a cluster answers.
const STALE_US: u64 = 250_000;

/// The settings of an event.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) event: &'static str,
    /// All people, with those who are real browsers.
    pub(crate) people: u32,
    pub(crate) browsers: u32,
    /// Where the browsers keep their memories while they run.
    pub(crate) profiles: PathBuf,
    pub(crate) stock: u32,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) kills: u32,
    pub(crate) connections: usize,
    pub(crate) opens_us: u64,
    /// Admissions in a second; 0 for a sale without a room.
    pub(crate) admit: u32,
    pub(crate) active_max: u64,
    pub(crate) claim_window_ms: u64,
    pub(crate) active_ttl_ms: u64,
    pub(crate) room: Option<String>,
    pub(crate) coupon: String,
    pub(crate) keys: KeyPair,
}

/// What an event leaves behind once everybody is home.
pub(crate) struct Played {
    pub(crate) people: People,
    pub(crate) arrivals_us: Vec<u64>,
    pub(crate) took_us: u64,
    pub(crate) latest_us: u64,
    pub(crate) rss_max: u64,
    pub(crate) started_at: String,
}

/// The operator of the shop.
struct Admin<'a> {
    place: &'a DrillTarget,
    setting: &'a Setting,
}

impl Admin<'_> {
    /// Makes a call that must succeed. Repeats it, at the next node, while a service cannot answer.
    async fn must(&self, method: &str, path: &[&str], body: &str) -> anyhow::Result<Vec<u8>> {
        let key = Some(self.setting.keys.admin.as_str());
        let body: &[&str] = if body.is_empty() { &[] } else { &[body] };
        let request = Request { method, path, key, body, ..Request::default() };
        let mut ticks = interval(Duration::from_millis(50));
        for address in self.place.addresses.iter().cycle().take(TRIES) {
            ticks.tick().await;
            let (status, bytes) = call(*address, &request).await?;
            if status < 300 {
                return Ok(bytes);
            }
            if status != 503 {
                bail!("{method} {}: {status} {}", path.concat(), String::from_utf8_lossy(&bytes));
            }
        }
        bail!("{method} {}: the service cannot say", path.concat())
    }

    /// Returns the settings of the room; a PUT replaces them all.
    fn room_settings(&self, opens_at: &str, paused: bool) -> String {
        let Setting { admit, active_max, claim_window_ms, active_ttl_ms, .. } = self.setting;
        format!(
            "{{\"admit\":{{\"count\":{admit},\"every_ms\":1000}},\"max_active\":{active_max},\"max_waiting\":1000000,\
             \"claim_window_ms\":{claim_window_ms},\"active_ttl_ms\":{active_ttl_ms},\"opens_at\":\"{opens_at}\",\
             \"paused\":{paused}}}"
        )
    }

    /// Creates another room, and returns tickets and passes that must be invalid in the first room.
    async fn foreign(&self, room: &str) -> anyhow::Result<Vec<(String, String)>> {
        let side = format!("{room}-side");
        self.must("PUT", &["/v1/rooms/", &side], "{\"admit\":{\"count\":1000,\"every_ms\":1000}}").await?;
        let mut foreign = Vec::new();
        for person in 0..FOREIGN {
            let key = Some(self.setting.keys.service.as_str());
            let user = format!("{{\"user\":\"stranger-{person}\"}}");
            let (path, body) = (["/v1/rooms/", side.as_str(), "/tickets"], [user.as_str()]);
            let join = Request { method: "POST", path: &path, key, body: &body, ..Request::default() };
            let (_, bytes) = call(self.place.addresses[0], &join).await?;
            let ticket = Body::parse(&bytes).and_then(|body| body.ticket.map(str::to_owned));
            let ticket = ticket.with_context(|| format!("no ticket: {}", String::from_utf8_lossy(&bytes)))?;
            let mut ticks = interval(Duration::from_millis(50));
            let mut pass = None;
            for _ in 0..200 {
                ticks.tick().await;
                let bytes = self.must("GET", &["/v1/rooms/", &side, "/tickets/", &ticket], "").await?;
                pass = Body::parse(&bytes).and_then(|body| body.pass.map(str::to_owned));
                if pass.is_some() {
                    break;
                }
            }
            foreign.push((ticket, pass.context("the other room admits no visitor")?));
        }
        Ok(foreign)
    }

    /// Pauses the room, and waits until every slot has come back.
    async fn slots_return(&self, room: &str, opens_at: &str, clock: RunClock) -> anyhow::Result<SlotReturn> {
        self.must("PUT", &["/v1/rooms/", room], &self.room_settings(opens_at, true)).await?;
        let started_us = clock.now_us();
        let longest_ms = self.setting.claim_window_ms.max(self.setting.active_ttl_ms) + self.setting.claim_window_ms;
        let deadline_us = started_us + (longest_ms + 5_000) * 1_000;
        let mut ticks = interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            let bytes = self.must("GET", &["/v1/rooms/", room], "").await?;
            let active = Body::parse(&bytes).and_then(|body| body.active).context("the room names no slots")?;
            let took_us = clock.now_us() - started_us;
            if active == 0 || deadline_us < clock.now_us() {
                // Every slot has ended by now at the latest.
                return Ok(SlotReturn { active, alive: 0, took_us });
            }
        }
    }

    async fn list_claims(&self) -> anyhow::Result<Vec<ListedClaim>> {
        let (mut listed, mut after) = (Vec::new(), 0_u32);
        loop {
            let query = format!("/claims?after={after}&limit=1000");
            let bytes = self.must("GET", &["/v1/coupons/", &self.setting.coupon, &query], "").await?;
            let page: ClaimPage<'_> = serde_json::from_slice(&bytes).context("a page of claims")?;
            listed.extend(page.items.iter().map(|claim| ListedClaim {
                serial: claim.serial,
                code_hash: hash(claim.code),
                holder: holder(claim.user),
            }));
            match page.next {
                Some(next) if after < next => after = next,
                Some(next) => bail!("the list of claims goes on at {next} after {after}"),
                None => return Ok(listed),
            }
        }
    }
}

/// Plays the event to its end.
pub(crate) async fn play(setting: &Setting, place: Rc<DrillTarget>) -> Result<Played, Failure> {
    let admin = Admin { place: &place, setting };
    let browsers = Browser::start_all(setting.browsers, &setting.profiles).await?;
    let mut foreign = Vec::new();
    if let Some(room) = &setting.room {
        foreign = admin.foreign(room).await?;
    }
    let clock = RunClock::start();
    let opens_at = clock.text_of(setting.opens_us);
    let mut coupon = format!("{{\"limit\":{}", setting.stock);
    if let Some(room) = &setting.room {
        admin.must("PUT", &["/v1/rooms/", room], &admin.room_settings(&opens_at, false)).await?;
        coupon.push_str(&format!(",\"room\":\"{room}\"}}"));
    } else {
        coupon.push_str(&format!(",\"opens_at\":\"{opens_at}\"}}"));
    }
    admin.must("PUT", &["/v1/coupons/", &setting.coupon], &coupon).await?;
    let (crowd, arrivals_us) = gather(setting, &place, clock, foreign);
    let rss_max = Rc::new(Cell::new(0));
    let pages = open_pages(setting, &place, clock, browsers);
    event(setting, &place, &crowd, &rss_max).await?;
    let took_us = clock.now_us();
    let pages = pages.join_all().await;
    crowd.history().pages = pages;
    if let Some(room) = &setting.room {
        let returned = admin.slots_return(room, &opens_at, clock).await?;
        crowd.history().returned = Some(returned);
    }
    let listed = admin.list_claims().await?;
    crowd.history().listed = listed;
    let latest_us = crowd.latest_us();
    let crowd = Rc::try_unwrap(crowd).ok().context("a connection still runs")?;
    let people = crowd.into_people();
    let started_at = clock.text_of(0);
    Ok(Played { people, arrivals_us, took_us, latest_us, rss_max: rss_max.get(), started_at })
}

/// Plans when each browser opens the page, and at which node. The tasks end with the sale, or when they are dropped.
fn open_pages(setting: &Setting, place: &DrillTarget, clock: RunClock, browsers: Vec<Browser>) -> JoinSet<PageStory> {
    let opens_s = setting.opens_us as f64 / 1e6;
    // Other people than those of the crowd.
    let arrivals = arrivals_us(setting.seed ^ 0x7061_6765, setting.browsers, setting.seconds as f64, opens_s);
    let mut pages = JoinSet::new();
    for ((browser, arrives_us), node) in browsers.into_iter().zip(arrivals).zip(place.addresses.iter().cycle()) {
        let address = format!("http://{node}/coupons/{}", setting.coupon);
        let plan = Visit { address, arrives_us, ends_us: setting.seconds * 1_000_000 };
        pages.spawn_local(browser.play(plan, clock));
    }
    pages
}

/// Creates the people, and plans when each arrives.
fn gather(
    setting: &Setting,
    place: &DrillTarget,
    clock: RunClock,
    foreign: Vec<(String, String)>,
) -> (Rc<Crowd>, Vec<u64>) {
    let stale_us = if place.is_shared { STALE_US } else { 0 };
    let rate_per_s = f64::from(setting.admit);
    let stage = Stage {
        clock,
        seed: setting.seed,
        room: setting.room.clone(),
        coupon: setting.coupon.clone(),
        keys: setting.keys.clone(),
        foreign,
        rate_per_s,
        claim_window_us: setting.claim_window_ms * 1_000,
        stale_us,
    };
    let rules = Rules {
        stock: setting.stock,
        people: setting.people,
        opens_us: setting.opens_us,
        rate_per_s,
        slice: (rate_per_s * 0.25).max(1.0),
        active_max: setting.active_max,
        claim_window_us: setting.claim_window_ms * 1_000,
        active_ttl_us: setting.active_ttl_ms * 1_000,
        reading_us: 2_000,
        is_shared: place.is_shared,
        stale_us,
    };
    let by_hand = setting.people - setting.browsers;
    let people = People::new(stage, by_hand, History { rules, ..History::default() });
    let seconds = setting.seconds as f64;
    let arrivals = arrivals_us(setting.seed, by_hand, seconds, setting.opens_us as f64 / 1e6);
    let mut agenda = Agenda::default();
    for (person, &at_us) in arrivals.iter().enumerate() {
        people.arrive(person as u32, at_us, &mut agenda);
    }
    let spread = Spread::over(place.addresses.len(), setting.seed);
    (Rc::new(Crowd::new(clock, people, agenda, setting.seconds * 1_000_000, spread)), arrivals)
}

/// Runs the crowd, the sampler and the kills, until everybody is home.
async fn event(
    setting: &Setting,
    place: &Rc<DrillTarget>,
    crowd: &Rc<Crowd>,
    rss_max: &Rc<Cell<u64>>,
) -> anyhow::Result<()> {
    // All tasks end when this function ends or is dropped.
    let mut tasks = JoinSet::new();
    for _ in 0..setting.connections {
        tasks.spawn_local(connection(Rc::clone(crowd), Rc::clone(&place.addresses)));
    }
    let sampler = Sampler {
        crowd: Rc::clone(crowd),
        place: Rc::clone(place),
        room: setting.room.clone(),
        admin: setting.keys.admin.clone(),
        rss_max: Rc::clone(rss_max),
        seconds: setting.seconds,
    };
    tasks.spawn_local(sampler.run());
    let kills = async {
        let moments = moments_us(setting.seed, setting.kills, setting.opens_us, setting.seconds * 1_000_000);
        kill_at(Rc::clone(crowd), place, setting.seed, moments).await?;
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
