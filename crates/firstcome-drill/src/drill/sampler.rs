//! Samples the room and the coupon four times a second, and the memory of the server.

use super::chaos::DrillTarget;
use super::crowd::Crowd;
use super::messages::{Body, Request};
use super::record::{ClaimReceipt, RoomObservation};
use super::server::call_on;
use crate::output::grouped;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The time between two samples.
pub(crate) const STEP_MS: u64 = 250;

/// Samples the target of an event.
pub(crate) struct Sampler {
    pub(crate) crowd: Rc<Crowd>,
    pub(crate) place: Rc<DrillTarget>,
    pub(crate) room: Option<String>,
    pub(crate) admin: String,
    pub(crate) rss_max: Rc<Cell<u64>>,
    pub(crate) seconds: u64,
}

/// Returns a progress line on standard error if that is a terminal; otherwise a hidden one.
pub(crate) fn line(seconds: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(seconds), target);
    if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {pos}/{len} s  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// The highest acknowledged serial, which is the number of issued claims.
#[derive(Default)]
struct Issued {
    highest: u32,
    /// The number of answers that were read so far.
    looked_at: usize,
}

impl Issued {
    fn look(&mut self, told: &[ClaimReceipt]) {
        let fresh = told.get(self.looked_at..).unwrap_or_default();
        self.highest = fresh.iter().map(|claim| claim.serial).fold(self.highest, u32::max);
        self.looked_at = told.len();
    }
}

impl Sampler {
    /// Samples until it is dropped.
    pub(crate) async fn run(self) {
        let bar = line(self.seconds);
        let mut streams: Vec<Option<TcpStream>> = self.place.addresses.iter().map(|_| None).collect();
        let (mut node, mut issued) = (0, Issued::default());
        let mut ticks = interval(Duration::from_millis(STEP_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.rss_max.set(self.rss_max.get().max(self.place.rss()));
            // Asks the nodes in turn: their answers must be consistent with each other.
            node = (node + 1) % self.place.addresses.len();
            if !self.crowd.spread.is_up(node) {
                streams[node] = None;
            } else if let Some(seen) = self.look(node, &mut streams[node]).await {
                self.crowd.history().rooms.push(seen);
            }
            self.show(&bar, &mut issued);
        }
    }

    fn show(&self, bar: &ProgressBar, issued: &mut Issued) {
        bar.set_position(self.crowd.clock.now_us() / 1_000_000);
        let history = self.crowd.history();
        let seen = history.rooms.last().copied().unwrap_or_default();
        let (waiting, active) = (grouped(seen.waiting), grouped(seen.active));
        // There are more answers than claims: a retry gets the same claim again.
        issued.look(&history.told);
        let (told, kills) = (grouped(u64::from(issued.highest)), history.restarts.len());
        bar.set_message(format!("waiting {waiting}  active {active}  claims {told}  kills {kills}"));
    }

    async fn look(&self, node: usize, slot: &mut Option<TcpStream>) -> Option<RoomObservation> {
        let room = self.room.as_deref()?;
        let path = &["/v1/rooms/", room];
        let request = Request { method: "GET", path, key: Some(&self.admin), ..Request::default() };
        let work = async {
            let mut stream = match slot.take() {
                Some(stream) => stream,
                None => TcpStream::connect(self.place.addresses[node]).await?,
            };
            let sent_us = self.crowd.clock.now_us();
            let (status, bytes) = call_on(&mut stream, &request).await?;
            let received_us = self.crowd.clock.now_us();
            *slot = Some(stream);
            let body = Body::parse(&bytes).filter(|_| status == 200);
            anyhow::Ok(body.map(|body| RoomObservation {
                received_us,
                about_us: body.as_of.and_then(|text| self.crowd.clock.of_text(text)).unwrap_or(sent_us).min(sent_us),
                waiting: body.waiting.unwrap_or(0),
                active: body.active.unwrap_or(0),
                serving: body.serving.unwrap_or(0),
                rate_per_s: body.rate.unwrap_or(0.0),
            }))
        };
        timeout(Duration::from_secs(5), work).await.ok()?.ok()?
    }
}
