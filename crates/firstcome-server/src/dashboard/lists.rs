//! The overview, and the lists of what the store has.

use super::Visit;
use super::audit::AuditEntry;
use super::view::{Chart, Datum, Figure, Frame, ListPage, OverviewPage, Table, grouped, lasting, shown_at};
use super::{page, parameter};
use crate::api::body;
use crate::error::Problem;
use axum::http::StatusCode;
use axum::response::Response;
use firstcome::core::id::{CouponName, ListingName, MemberName, RoomName};
use firstcome::core::room::RoomSettings;
use firstcome::{Durability, Names};
use std::fmt::Display;

/// How many objects a page lists.
const LISTED: usize = 25;
/// How many objects, and entries of the audit log, the overview lists.
const OVERVIEW: usize = 8;

const CHARTS: [Chart; 6] = [
    Chart { title: "People", unit: "", columns: "line:in line,inside:inside" },
    Chart { title: "Flow", unit: "/s", columns: "arrivals:arrivals,admissions:admissions" },
    Chart { title: "Claims and locks", unit: "/s", columns: "issued:claims,grants:locks" },
    Chart { title: "Answers", unit: "/s", columns: "answers:answers" },
    Chart { title: "Latency", unit: "ms", columns: "p50_ms:half within,p99_ms:99 % within" },
    Chart { title: "Refusals and errors", unit: "/s", columns: "refused:refused,errors:errors" },
];
const AUCTION_CHARTS: [Chart; 3] = [
    Chart { title: "Answers", unit: "/s", columns: "answers:answers" },
    Chart { title: "Latency", unit: "ms", columns: "p50_ms:half within,p99_ms:99 % within" },
    Chart { title: "Refusals and errors", unit: "/s", columns: "refused:refused,errors:errors" },
];

/// The figures at the top: name, column, unit.
const FIGURES: [(&str, &str, &str); 6] = [
    ("in line", "line", ""),
    ("inside", "inside", ""),
    ("admissions", "admissions", "/s"),
    ("claims", "issued", "/s"),
    ("99 % within", "p99_ms", "ms"),
    ("errors", "errors", "/s"),
];

/// The address of the page after a name.
fn next(section: &str, names: Option<impl Display>) -> Option<String> {
    names.map(|name| format!("/dashboard/{section}?after={}", super::view::path_segment(&name.to_string())))
}

/// What limits the admissions of a room.
pub(super) fn pace(settings: &RoomSettings) -> String {
    let rate = settings.admit.map(|admit| format!("{} per {}", grouped(admit.count.into()), lasting(admit.every_ms)));
    let cap = settings.max_active.map(|cap| format!("{} inside", grouped(cap.into())));
    [rate, cap].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{}/s", grouped(rate.round() as u64)) }
}

pub(super) fn wait(wait_ms: Option<u64>) -> Datum {
    wait_ms.map_or_else(|| Datum::soft("not known"), |wait_ms| Datum::of(lasting(wait_ms)))
}

/// What stands in a row whose object cannot be read now.
fn unreadable(cells: usize) -> impl Iterator<Item = Datum> {
    std::iter::once(Datum::of("cannot be read now")).chain((1..cells).map(|_| Datum::of("")))
}

pub(super) fn audit_table(entries: Vec<AuditEntry>, next: Option<String>) -> Table {
    let row = |entry: AuditEntry| {
        let address = entry.address.map(|address| address.to_string()).unwrap_or_default();
        let session = if entry.session.is_empty() { "no session".to_owned() } else { entry.session };
        vec![
            Datum::soft(shown_at(entry.at)),
            Datum::of(entry.action),
            Datum::of(entry.object),
            Datum::of(entry.change),
            Datum::state(entry.answer),
            Datum::soft(format!("{} {session} {address}", entry.role)),
        ]
    };
    Table {
        title: "What operators did".into(),
        heads: &["When", "Action", "Object", "Before and after", "Answer", "By"],
        rows: entries.into_iter().map(row).collect(),
        empty: "Nothing since this process began.",
        next,
    }
}

impl Visit<'_> {
    pub(super) async fn overview(&self) -> Result<Response, Problem> {
        self.app.observe().await;
        let store = match self.app.durability() {
            _ if self.app.is_auctions_alone => "a database",
            Durability::Database => "Redis and a database, which all nodes share; the figures are those of this node",
            Durability::Disk => "embedded, on disk",
            _ => "embedded, in memory only",
        };
        let history = &self.app.dashboard.history;
        let figure = |(name, column, unit): (&'static str, &'static str, &'static str)| {
            let shown = |value: f32| if value < 10.0 { format!("{value:.1}") } else { grouped(value.round() as u64) };
            let whole = |value: f32| grouped(value.round() as u64);
            let value = history.last(column).map(if unit.is_empty() { whole as fn(f32) -> String } else { shown });
            Figure { name, column, value: value.unwrap_or_else(|| "–".into()), unit }
        };
        let rooms = ["line", "inside", "admissions", "issued"];
        let is_served = |column: &str| !self.app.is_auctions_alone || !rooms.contains(&column);
        let mut tables = Vec::new();
        if !self.app.is_auctions_alone {
            tables.push(self.room_table(None, OVERVIEW).await?);
            tables.push(self.coupon_table(None, OVERVIEW).await?);
        }
        let entries = self.app.dashboard.audit.newest(OVERVIEW);
        tables.push(audit_table(entries, Some("/dashboard/audit".into())));
        Ok(page(
            StatusCode::OK,
            &OverviewPage {
                frame: Frame::of(self, "overview"),
                store,
                figures: FIGURES.into_iter().filter(|(_, column, _)| is_served(column)).map(figure).collect(),
                charts: if self.app.is_auctions_alone { AUCTION_CHARTS.into() } else { CHARTS.into() },
                tables,
            },
        ))
    }

    /// The name after which the page begins.
    fn after<N>(&self, parse: impl FnOnce(&str) -> Result<N, Problem>) -> Result<Option<N>, Problem> {
        parameter(self.parts, "after").map(|name| parse(&name)).transpose()
    }

    async fn room_table(&self, after: Option<RoomName>, count: usize) -> Result<Table, Problem> {
        let Names { items, next: next_name } = self.app.rooms.names(after.as_ref(), count).await?;
        let mut rows = Vec::new();
        for name in &items {
            let mut row = vec![Datum::link("rooms", name.as_str())];
            match self.app.rooms.shown(name).await {
                Ok(Ok(summary)) => row.extend([
                    Datum::state(summary.view.state.as_str()),
                    Datum::number(summary.view.waiting),
                    Datum::number(summary.view.active),
                    Datum::of(rate(summary.view.rate)),
                    wait(summary.view.wait_at_tail_ms),
                    Datum::soft(pace(&summary.settings)),
                ]),
                _ => row.extend(unreadable(6)),
            }
            rows.push(row);
        }
        Ok(Table {
            title: "Rooms".into(),
            heads: &["Room", "State", "In line", "Inside", "Admits", "Wait", "Limit"],
            rows,
            empty: "No rooms yet. PUT /v1/rooms/{room} makes one.",
            next: next("rooms", next_name),
        })
    }

    async fn coupon_table(&self, after: Option<CouponName>, count: usize) -> Result<Table, Problem> {
        let Names { items, next: next_name } = self.app.coupons.names(after.as_ref(), count).await?;
        let mut rows = Vec::new();
        for name in &items {
            let mut row = vec![Datum::link("coupons", name.as_str())];
            match self.app.coupons.shown(name).await {
                Ok(Ok(view)) => row.extend([
                    Datum::state(view.state.as_str()),
                    Datum::number(view.issued),
                    Datum::number(view.settings.limit.get()),
                    Datum::of(view.settings.title.as_ref().map(|title| title.as_str().to_owned()).unwrap_or_default()),
                ]),
                _ => row.extend(unreadable(4)),
            }
            rows.push(row);
        }
        Ok(Table {
            title: "Coupons".into(),
            heads: &["Coupon", "State", "Issued", "Limit", "Title"],
            rows,
            empty: "No coupons yet. PUT /v1/coupons/{coupon} makes one.",
            next: next("coupons", next_name),
        })
    }

    pub(super) async fn rooms(&self) -> Result<Response, Problem> {
        let table = self.room_table(self.after(body::room)?, LISTED).await?;
        let open = Some(("rooms", "Room"));
        Ok(self.list("rooms", "Rooms", "All rooms by name, closed ones included.", open, table))
    }

    pub(super) async fn coupons(&self) -> Result<Response, Problem> {
        let table = self.coupon_table(self.after(body::coupon)?, LISTED).await?;
        let open = Some(("coupons", "Coupon"));
        Ok(self.list("coupons", "Coupons", "All coupons by name, deleted ones included.", open, table))
    }

    pub(super) async fn listings(&self) -> Result<Response, Problem> {
        let after: Option<ListingName> = self.after(body::listing)?;
        let names = self.app.auctions.listing_names(after.as_ref(), LISTED).await?;
        let (mut rows, is_listed) = (Vec::new(), names.is_some());
        let Names { items, next: next_name } = names.unwrap_or(Names { items: Vec::new(), next: None });
        for name in &items {
            let mut row = vec![Datum::link("listings", name.as_str())];
            match self.app.auctions.listing(name).await {
                Ok(Ok(view)) => row.extend([
                    Datum::state(view.standing.state(view.now).as_str()),
                    Datum::link("members", view.standing.owner.as_str()),
                    Datum::number(view.standing.highest.as_ref().map_or(view.standing.price, |bid| bid.price).get()),
                    Datum::number(view.standing.bids),
                ]),
                _ => row.extend(unreadable(4)),
            }
            rows.push(row);
        }
        let empty = if is_listed { "No listings yet. PUT /v1/listings/{listing} makes one." } else { NO_LIST };
        let table = Table {
            title: "Listings".into(),
            heads: &["Listing", "State", "Owner", "Price", "Bids"],
            rows,
            empty,
            next: next("listings", next_name),
        };
        let open = Some(("listings", "Listing"));
        Ok(self.list("listings", "Listings", "All listings by name, those that are over included.", open, table))
    }

    pub(super) async fn members(&self) -> Result<Response, Problem> {
        let after: Option<MemberName> = self.after(|name| body::member("after", name))?;
        let names = self.app.auctions.member_names(after.as_ref(), LISTED).await?;
        let (mut rows, is_listed) = (Vec::new(), names.is_some());
        let Names { items, next: next_name } = names.unwrap_or(Names { items: Vec::new(), next: None });
        for name in &items {
            let mut row = vec![Datum::link("members", name.as_str())];
            match self.app.auctions.balance(name).await {
                Ok(balance) => row.extend([balance.total(), balance.held(), balance.available()].map(Datum::number)),
                Err(_) => row.extend(unreadable(3)),
            }
            rows.push(row);
        }
        let table = Table {
            title: "Members".into(),
            heads: &["Member", "Points", "Held", "Available"],
            rows,
            empty: if is_listed { "No member has had points yet." } else { NO_LIST },
            next: next("members", next_name),
        };
        let open = Some(("members", "Member"));
        Ok(self.list("members", "Members", "All members by name.", open, table))
    }

    pub(super) fn audit(&self) -> Result<Response, Problem> {
        let table = audit_table(self.app.dashboard.audit.newest(usize::MAX), None);
        let lead = "The last 500 entries of this process, the newest first. The log has all, with the target firstcome::audit.";
        Ok(self.list("audit", "Audit", lead, None, table))
    }

    pub(super) fn list(
        &self,
        section: &'static str,
        title: &'static str,
        lead: &str,
        open: Option<(&'static str, &'static str)>,
        table: Table,
    ) -> Response {
        // A form without scripts cannot put a name into a path: it sends the name to `open`, which leads on.
        let page_of = ListPage { frame: Frame::of(self, section), title, lead: lead.into(), open, tables: vec![table] };
        page(StatusCode::OK, &page_of)
    }
}

const NO_LIST: &str = "This store keeps no list. Open one by its name.";
