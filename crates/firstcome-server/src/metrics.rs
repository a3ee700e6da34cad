//! Figures for Prometheus. Labels come from fixed lists: never a name, a user or a ticket.

mod auction;
mod certificate;
mod cluster;
mod failure;
mod gate;
mod join;
mod live;
mod lock;
mod purge;
mod receipt;
mod room;

pub(crate) use auction::{AuctionFigures, Movement};
use failure::FailureFigures;
use gate::GateFigures;
use join::JoinFigures;
pub(crate) use live::{LiveFigures, StreamEnd};
pub(crate) use lock::{Ending, LockFigures};

use crate::auction::Auctions;
use crate::backend::Backend;
use crate::error::Code;
use cluster::{ClusterCollector, last_success};
use firstcome::stats::Histogram as StoreHistogram;
use firstcome::{Embedded, FaultKind, Faults, stats::WriterStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use purge::PurgeFigures;
use receipt::HeadFigures;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The calls that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    PutCoupon,
    PatchCoupon,
    GetCoupon,
    DeleteCoupon,
    PostClaim,
    GetClaim,
    GetClaims,
    GetDeadLetters,
    PostRedemption,
    PutRoom,
    PatchRoom,
    PostPause,
    PostResume,
    PostFeedback,
    GetRoom,
    GetDraw,
    GetRoomHeads,
    GetTicketReceipt,
    GetCouponHeads,
    GetClaimReceipt,
    DeleteRoom,
    PostTicket,
    GetTicket,
    DeleteTicket,
    GetTicketEvents,
    GetRoomEvents,
    GetEvents,
    PostRenewal,
    PostHandoff,
    PostRedeemedHandoff,
    PostRelease,
    PostVerify,
    GetPasses,
    GetGate,
    GetPassKeys,
    PostPassKey,
    DeletePassKey,
    GetApiKeys,
    PostApiKey,
    DeleteApiKey,
    PostApiKeyRotation,
    PostErasure,
    PostPurge,
    GetLock,
    PostAcquire,
    PostRenew,
    PostLockRelease,
    GetMember,
    GetRecords,
    PostCharge,
    PostRefund,
    PutListing,
    PatchListing,
    GetListing,
    GetBids,
    PostBid,
    PostPurchase,
    PutAppearance,
    GetAppearance,
    DeleteAppearance,
    GetRoomPage,
    GetDrawPage,
    PostRoomJoin,
    PostRoomLeave,
    PostRoomTake,
    GetCouponPage,
    PostCouponClaim,
    GetRoomPageEvents,
    GetReceiptPage,
    GetDashboard,
    PostDashboard,
    GetDashboardStream,
}

impl Route {
    // Figures are kept by the place of a route in the list. A route in another place would have the name of another one.
    const ALL: [(Self, &'static str); 72] = [
        (Self::PutCoupon, "put_coupon"),
        (Self::PatchCoupon, "patch_coupon"),
        (Self::GetCoupon, "get_coupon"),
        (Self::DeleteCoupon, "delete_coupon"),
        (Self::PostClaim, "post_claim"),
        (Self::GetClaim, "get_claim"),
        (Self::GetClaims, "get_claims"),
        (Self::GetDeadLetters, "get_dead_letters"),
        (Self::PostRedemption, "post_redemption"),
        (Self::PutRoom, "put_room"),
        (Self::PatchRoom, "patch_room"),
        (Self::PostPause, "post_pause"),
        (Self::PostResume, "post_resume"),
        (Self::PostFeedback, "post_feedback"),
        (Self::GetRoom, "get_room"),
        (Self::GetDraw, "get_draw"),
        (Self::GetRoomHeads, "get_room_heads"),
        (Self::GetTicketReceipt, "get_ticket_receipt"),
        (Self::GetCouponHeads, "get_coupon_heads"),
        (Self::GetClaimReceipt, "get_claim_receipt"),
        (Self::DeleteRoom, "delete_room"),
        (Self::PostTicket, "post_ticket"),
        (Self::GetTicket, "get_ticket"),
        (Self::DeleteTicket, "delete_ticket"),
        (Self::GetTicketEvents, "get_ticket_events"),
        (Self::GetRoomEvents, "get_room_events"),
        (Self::GetEvents, "get_events"),
        (Self::PostRenewal, "post_renewal"),
        (Self::PostHandoff, "post_handoff"),
        (Self::PostRedeemedHandoff, "post_redeemed_handoff"),
        (Self::PostRelease, "post_release"),
        (Self::PostVerify, "post_verify"),
        (Self::GetPasses, "get_passes"),
        (Self::GetGate, "get_gate"),
        (Self::GetPassKeys, "get_pass_keys"),
        (Self::PostPassKey, "post_pass_key"),
        (Self::DeletePassKey, "delete_pass_key"),
        (Self::GetApiKeys, "get_api_keys"),
        (Self::PostApiKey, "post_api_key"),
        (Self::DeleteApiKey, "delete_api_key"),
        (Self::PostApiKeyRotation, "post_api_key_rotation"),
        (Self::PostErasure, "post_erasure"),
        (Self::PostPurge, "post_purge"),
        (Self::GetLock, "get_lock"),
        (Self::PostAcquire, "post_acquire"),
        (Self::PostRenew, "post_renew"),
        (Self::PostLockRelease, "post_lock_release"),
        (Self::GetMember, "get_member"),
        (Self::GetRecords, "get_records"),
        (Self::PostCharge, "post_charge"),
        (Self::PostRefund, "post_refund"),
        (Self::PutListing, "put_listing"),
        (Self::PatchListing, "patch_listing"),
        (Self::GetListing, "get_listing"),
        (Self::GetBids, "get_bids"),
        (Self::PostBid, "post_bid"),
        (Self::PostPurchase, "post_purchase"),
        (Self::PutAppearance, "put_appearance"),
        (Self::GetAppearance, "get_appearance"),
        (Self::DeleteAppearance, "delete_appearance"),
        (Self::GetRoomPage, "get_room_page"),
        (Self::GetDrawPage, "get_draw_page"),
        (Self::PostRoomJoin, "post_room_join"),
        (Self::PostRoomLeave, "post_room_leave"),
        (Self::PostRoomTake, "post_room_take"),
        (Self::GetCouponPage, "get_coupon_page"),
        (Self::PostCouponClaim, "post_coupon_claim"),
        (Self::GetRoomPageEvents, "get_room_page_events"),
        (Self::GetReceiptPage, "get_receipt_page"),
        (Self::GetDashboard, "get_dashboard"),
        (Self::PostDashboard, "post_dashboard"),
        (Self::GetDashboardStream, "get_dashboard_stream"),
    ];
}

/// What became of a request at the gate of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passage {
    /// It reached the site, with a pass.
    Passed,
    /// It reached the site, at a path that needs none.
    Open,
    /// The service answered it: with the page of the room, or with what belongs to it.
    Shown,
    /// It reached the site although the store gave no answer about it.
    Unjudged,
    /// It reached no answer of the site, or was refused.
    Failed,
}

impl Passage {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Passed, "passed"),
        (Self::Open, "open"),
        (Self::Shown, "shown"),
        (Self::Unjudged, "unjudged"),
        (Self::Failed, "failed"),
    ];
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PassageLabels {
    outcome: &'static str,
}

/// The bounds of the latencies of the dashboard, in microseconds.
const LATENCY_US: &[u64] = &[
    50, 75, 100, 150, 200, 300, 400, 600, 800, 1_200, 1_600, 2_400, 3_200, 4_800, 6_400, 9_600, 12_800, 19_200, 25_600,
    38_400, 51_200, 76_800, 102_400, 204_800, 409_600, 819_200, 1_638_400, 3_276_800, 10_000_000,
];

/// What the calls of clients came to, since the start of this process. The dashboard's own pages do not count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    /// Answers.
    pub(crate) answers: u64,
    /// Answers with a status from 400 to 499.
    pub(crate) refusals: u64,
    /// Answers with a status of 500 or more.
    pub(crate) errors: u64,
    /// Joins that drew a number.
    pub(crate) joins: u64,
    /// Claims that were answered with a claim.
    pub(crate) claims: u64,
    /// Locks granted.
    pub(crate) grants: u64,
    /// Answers by their time: inclusive upper bounds in microseconds. Requests that may wait for a lock do not count.
    pub(crate) latency_us: Vec<(u64, u64)>,
}

/// The statuses that these calls can have; the last one stands for all others.
const STATUSES: [u16; 21] =
    [200, 201, 204, 303, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 422, 425, 429, 500, 503, 0];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

/// The metric handles, looked up once: counting a request is a few atomic additions.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Vec<[Counter; STATUSES.len()]>,
    seconds: Vec<Histogram>,
    refusals: Vec<Counter>,
    passages: Vec<Counter>,
    latency_us: StoreHistogram,
    connections: Gauge,
    refused: Counter,
    address_refused: Counter,
    client_refused: Counter,
    forwarded_untrusted: Counter,
    made_room: Counter,
    overdue: Counter,
    panics: Counter,
    /// Spans of traces that were not exported.
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "without the feature no service has a tracer"))]
    pub(crate) spans_dropped: Counter,
    pub(crate) failures: FailureFigures,
    pub(crate) gate: GateFigures,
    pub(crate) heads: HeadFigures,
    pub(crate) purges: PurgeFigures,
    pub(crate) joins: JoinFigures,
    pub(crate) live: LiveFigures,
    pub(crate) locks: LockFigures,
    pub(crate) auctions: AuctionFigures,
}

/// Registers what is read at each scrape.
fn register_collectors(registry: &mut Registry, store: Option<&Backend>, auctions: &Auctions) {
    registry.register_collector(Box::new(AuctionCollector(auctions.clone())));
    let faults = std::iter::once(auctions.faults()).chain(store.map(Backend::faults)).collect();
    registry.register_collector(Box::new(FaultsCollector(faults)));
    match store {
        Some(Backend::Embedded(store)) => registry.register_collector(Box::new(StoreCollector(store.clone()))),
        Some(Backend::Cluster(cluster, _)) => {
            registry.register_collector(Box::new(ClusterCollector(cluster.clone())));
        }
        None => {}
    }
}

impl Metrics {
    /// Registers the metrics of a service. With `store` they include those of the store.
    pub(crate) fn new(store: Option<&Backend>, auctions: &Auctions) -> Self {
        let mut registry = Registry::with_prefix("firstcome");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("http_requests", "Answered calls by route and status", requests.clone());
        let bounds = [0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 2.0, 10.0];
        let seconds = Family::<RouteLabels, Histogram, _>::new_with_constructor(move || Histogram::new(bounds));
        let help = "From the end of the head to the answer";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, seconds.clone());
        let refusals = Family::<CodeLabels, Counter>::default();
        registry.register("refusals", "Calls that were answered with a problem, by its code", refusals.clone());
        let passages = Family::<PassageLabels, Counter>::default();
        registry.register("gate_requests", "Requests at the gate of a site, by what became of them", passages.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let refused = counter("connections_refused", "Connections over the limit");
        let address_refused = counter("connections_refused_address", "Connections over the limit of their address");
        let client_refused = counter("requests_refused_client", "Requests over the limit of a client behind a proxy");
        let forwarded_untrusted =
            counter("requests_forwarded_untrusted", "Requests with an X-Forwarded-For of a peer that is not trusted");
        let made_room = counter("connections_made_room", "Idle connections closed to make room for others");
        let panics = counter("panics", "Requests that ended in a panic, which is a bug of the service");
        let spans_dropped = counter("trace_spans_dropped", "Spans of traces that did not reach the collector");
        let overdue = counter("connections_overdue", "Connections closed for taking too long");
        let (gate, joins) = (GateFigures::register(&mut registry), JoinFigures::register(&mut registry));
        let failures = FailureFigures::register(&mut registry);
        let (heads, purges) = (HeadFigures::register(&mut registry), PurgeFigures::register(&mut registry));
        let (live, locks) = (LiveFigures::register(&mut registry), LockFigures::register(&mut registry));
        let auction_figures = AuctionFigures::register(&mut registry);
        register_collectors(&mut registry, store, auctions);
        let counters = |route| STATUSES.map(|status| requests.get_or_create(&RequestLabels { route, status }).clone());
        Self {
            requests: Route::ALL.iter().map(|(_, route)| counters(route)).collect(),
            seconds: Route::ALL
                .iter()
                .map(|(_, route)| seconds.get_or_create(&RouteLabels { route }).clone())
                .collect(),
            refusals: Code::ALL
                .iter()
                .map(|code| refusals.get_or_create(&CodeLabels { code: code.as_str() }).clone())
                .collect(),
            passages: Passage::ALL
                .iter()
                .map(|&(_, outcome)| passages.get_or_create(&PassageLabels { outcome }).clone())
                .collect(),
            latency_us: StoreHistogram::new(LATENCY_US),
            registry,
            connections,
            refused,
            address_refused,
            client_refused,
            forwarded_untrusted,
            made_room,
            overdue,
            panics,
            spans_dropped,
            failures,
            gate,
            heads,
            purges,
            joins,
            live,
            locks,
            auctions: auction_figures,
        }
    }

    pub(crate) fn answered(&self, route: Route, status: u16, elapsed: Duration) {
        let at = STATUSES.iter().position(|&known| known == status).unwrap_or(STATUSES.len() - 1);
        self.requests[route as usize][at].inc();
        self.seconds[route as usize].observe(elapsed.as_secs_f64());
        let is_of_dashboard = Route::GetDashboard as usize <= route as usize;
        if !is_of_dashboard && !matches!(route, Route::PostAcquire) {
            self.latency_us.record(elapsed.as_micros() as u64);
        }
    }

    /// Reads the counters that the dashboard shows. Costs a look at each counter.
    pub(crate) fn totals(&self) -> Totals {
        let of = |route: Route, status: u16| {
            let at = STATUSES.iter().position(|&known| known == status);
            at.map_or(0, |at| self.requests[route as usize][at].get())
        };
        let clients = &self.requests[..Route::GetDashboard as usize];
        let count = |counts: &dyn Fn(u16) -> bool| {
            let of_route = |counters: &[Counter; STATUSES.len()]| {
                let each = STATUSES.iter().zip(counters).filter(|(status, _)| counts(**status));
                each.map(|(_, counter)| counter.get()).sum::<u64>()
            };
            clients.iter().map(of_route).sum::<u64>()
        };
        Totals {
            answers: count(&|_| true),
            refusals: count(&|status| (400..500).contains(&status)),
            // 0 stands for those that are not listed.
            errors: count(&|status| status == 0 || 500 <= status),
            joins: of(Route::PostTicket, 201) + of(Route::PostRoomJoin, 303),
            claims: of(Route::PostClaim, 201),
            grants: self.locks.granted(),
            latency_us: self.latency_us.buckets(),
        }
    }

    pub(crate) fn refused(&self, code: Code) {
        self.refusals[code as usize].inc();
    }

    pub(crate) fn passed(&self, passage: Passage) {
        self.passages[passage as usize].inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.dec();
    }

    pub(crate) fn connections_refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn address_refused(&self) {
        self.address_refused.inc();
    }

    pub(crate) fn forwarded_untrusted(&self) {
        self.forwarded_untrusted.inc();
    }

    pub(crate) fn client_refused(&self) {
        self.client_refused.inc();
    }

    pub(crate) fn connection_made_room(&self) {
        self.made_room.inc();
    }

    pub(crate) fn connection_overdue(&self) {
        self.overdue.inc();
    }

    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Reads, at each scrape, what the auctions did on their own.
struct AuctionCollector(Auctions);

impl fmt::Debug for AuctionCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuctionCollector")
    }
}

impl Collector for AuctionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let closings = self.0.closings();
        for (name, help, count) in [
            ("auctions_closed", "Auctions that were closed, since the start", closings.closed),
            ("auctions_defaulted", "Of these, those whose winner did not settle in time", closings.defaulted),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        Ok(())
    }
}

/// Counts the faults that are open at each scrape.
#[derive(Debug)]
struct FaultsCollector(Vec<Faults>);

impl Collector for FaultsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let open: Vec<_> = self.0.iter().flat_map(Faults::open).collect();
        let help = "Coupons, rooms, servers and other objects that stand still, by what is wrong";
        let mut metric = encoder.encode_descriptor("faults_open", help, None, MetricType::Gauge)?;
        for kind in FaultKind::ALL {
            let count = open.iter().filter(|open| open.fault.kind == kind).count();
            let labels = CodeLabels { code: kind.code() };
            ConstGauge::new(count as f64).encode(metric.encode_family(&labels)?)?;
        }
        let raised = self.0.iter().map(Faults::raised).sum::<u64>();
        let help = "Faults of such objects that were found, since the start";
        let metric = encoder.encode_descriptor("faults", help, None, MetricType::Counter)?;
        ConstCounter::new(raised).encode(metric)
    }
}

/// Reads the embedded store's own figures at each scrape. A cluster has no such gauges: counting listings and members
/// in a database would read all of them.
struct StoreCollector(Embedded);

impl fmt::Debug for StoreCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreCollector")
    }
}

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats: &WriterStats = self.0.stats();
        histogram(&mut encoder, "store_batch_changes", "Changes per commit", &stats.batch_changes, 1)?;
        let commits = "Seconds from the begin of a transaction to the end of its sync";
        histogram(&mut encoder, "store_commit_seconds", commits, &stats.commit_us, 1_000_000)?;
        let help = "When the store synced a transaction for the last time; 0 if never";
        last_success(&mut encoder, "store_last_sync_timestamp", help, stats.last_sync.at())?;
        room::totals(&mut encoder, &self.0.room_totals())?;
        let (listings, members) = self.0.auction_counts();
        let gauges = [
            ("listings", "Listings, those that are over included", listings as u64),
            ("members", "Members who have, or had, points", members as u64),
            ("store_queue_depth", "Commands that wait for the writer", stats.queue_depth.load(Ordering::Relaxed)),
            ("store_queue_limit", "Commands that may wait now", stats.queue_limit.load(Ordering::Relaxed)),
            ("store_writable", "1 while the store takes writes", u64::from(self.0.fault().is_none())),
            ("store_coupons", "Coupons, deleted ones included", self.0.coupon_count() as u64),
        ];
        for (name, help, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(metric)?;
        }
        let counters = [
            ("store_overloaded", "Commands refused because too many waited", &stats.overloaded),
            ("room_joined", "Numbers drawn", &stats.joined),
            ("room_admitted", "Slots offered", &stats.admitted),
            ("room_taken", "Slots taken", &stats.taken),
            ("room_lapsed", "Slots that no visitor took in time", &stats.lapsed),
            ("room_left", "Tickets given up", &stats.left),
            ("room_expired", "Tickets whose time was over", &stats.expired),
        ];
        for (name, help, counter) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(counter.load(Ordering::Relaxed)).encode(metric)?;
        }
        Ok(())
    }
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    histogram: &StoreHistogram,
    per_unit: u32,
) -> fmt::Result {
    let bound = |bound: u64| if bound == u64::MAX { f64::INFINITY } else { bound as f64 / f64::from(per_unit) };
    let buckets: Vec<(f64, u64)> = histogram.buckets().into_iter().map(|(at, count)| (bound(at), count)).collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(
        histogram.sum() as f64 / f64::from(per_unit),
        histogram.count(),
        &buckets,
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_counted_under_its_own_name() {
        for (at, (route, name)) in Route::ALL.iter().enumerate() {
            let words = format!("{route:?}").to_lowercase();
            assert_eq!((*route as usize, name.replace('_', "")), (at, words));
        }
    }
}
