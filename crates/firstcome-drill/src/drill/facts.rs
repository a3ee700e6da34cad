//! The facts of a drill, which the table, `report.json` and `report.html` show.

/// The whole outcome of one drill.
pub(crate) struct Facts {
    /// `concert`, `coupon` or `auction`.
    pub(crate) event: &'static str,
    /// RFC 3339.
    pub(crate) started_at: String,
    /// How long the event took.
    pub(crate) seconds: f64,
    pub(crate) people: u64,
    /// Tickets, coupons, or listings.
    pub(crate) stock: u64,
    /// How many of them were issued or sold.
    pub(crate) issued: u64,
    /// Settings and machine, for the head: `("seed", "7")`, `("admit", "1000 per 1 s")`, `("processors", "2")`.
    pub(crate) conditions: Vec<(String, String)>,
    /// What a reader wants to know: `("server memory, highest", "212 MB")`, `("admission rate, measured", "999.2/s")`.
    pub(crate) figures: Vec<(String, String)>,
    /// The outcomes of people, or of orders at auctions: `("got one", 90000)`, `("sold out", …)`, `("gave up", …)`.
    pub(crate) outcomes: Vec<(String, u64)>,
    /// Every invariant, with the number of its checks.
    pub(crate) checks: Vec<AuditCheck>,
    pub(crate) kills: Vec<Kill>,
    pub(crate) latencies: Vec<Latency>,
    pub(crate) series: Series,
    pub(crate) sample_people: Vec<SamplePerson>,
    /// The facts that only auctions have.
    pub(crate) auctions: Option<AuctionFacts>,
}

/// The facts of bids and sales. Series are sampled like those of [`Series`].
pub(crate) struct AuctionFacts {
    /// Bids that were accepted.
    pub(crate) bids: u64,
    /// Listings that were sold.
    pub(crate) sales: u64,
    pub(crate) accepted_per_s: Vec<f64>,
    pub(crate) refused_per_s: Vec<f64>,
    /// Sales so far.
    pub(crate) sold: Vec<f64>,
    /// Points that back bids.
    pub(crate) held: Vec<f64>,
    /// The bids of the hot listing: when, and how much.
    pub(crate) hot_prices: Vec<(f64, f64)>,
    /// When the auction of the hot listing ended.
    pub(crate) hot_ends_s: Option<f64>,
}

/// One invariant, with the numbers of its checks and breaches.
pub(crate) struct AuditCheck {
    pub(crate) invariant: &'static str,
    pub(crate) says: &'static str,
    pub(crate) checked: u64,
    pub(crate) breaches: u64,
    pub(crate) examples: Vec<String>,
}

/// One process that was killed in the middle of the event.
pub(crate) struct Kill {
    /// `server`, `redis` or `sql`.
    pub(crate) target: &'static str,
    /// Whether it lost its data.
    pub(crate) loses: bool,
    pub(crate) at_s: f64,
    /// Requests under way at that moment.
    pub(crate) in_flight: u64,
    pub(crate) down_ms: u64,
}

impl Kill {
    /// Describes what was killed.
    pub(crate) fn what(&self) -> String {
        format!("{}{}", self.target, if self.loses { ", with its data" } else { "" })
    }
}

/// How long one kind of call took.
pub(crate) struct Latency {
    pub(crate) call: String,
    pub(crate) count: u64,
    /// `(0.5, 1.2)` … up to `(0.9999, …)` and `(1.0, highest)`, counted from the intended send time.
    pub(crate) quantiles_ms: Vec<(f64, f64)>,
}

/// Evenly spaced samples, `step_s` apart, beginning at 0.
#[derive(Default)]
pub(crate) struct Series {
    pub(crate) step_s: f64,
    pub(crate) arrivals_per_s: Vec<f64>,
    pub(crate) admissions_per_s: Vec<f64>,
    pub(crate) admission_limit_per_s: Option<f64>,
    pub(crate) waiting: Vec<f64>,
    pub(crate) active: Vec<f64>,
    pub(crate) active_cap: Option<f64>,
    pub(crate) issued: Vec<f64>,
    pub(crate) requests_per_s: Vec<f64>,
}

/// One of the people whose positions are drawn.
pub(crate) struct SamplePerson {
    pub(crate) label: String,
    /// When a position was told, and which.
    pub(crate) positions: Vec<(f64, u32)>,
    pub(crate) admitted_at_s: Option<f64>,
    pub(crate) outcome: String,
}
