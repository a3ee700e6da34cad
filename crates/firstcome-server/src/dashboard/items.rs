//! The page of one room, coupon, listing, member or lock.

use super::lists::{pace, rate, wait};
use super::view::{
    ActionLink, Chart, Datum, Fact, Frame, ItemPage, Meter, Table, fact, grouped, lasting, path_segment, shown_at,
};
use super::{Visit, page, see_other};
use crate::api::{self, answered, body};
use crate::error::{Code, Problem};
use axum::http::StatusCode;
use axum::response::Response;
use firstcome::core::auction::{Phase, Terms};
use firstcome::core::coupon::Serial;
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::points::{Record, Reference};
use firstcome::core::room::RoomState;
use firstcome::{ClaimRecord, CouponStore, CouponView, RoomStore, RoomSummary};
use std::pin::pin;

/// How many claims, bids or records a page lists.
const ROWS: usize = 25;

const ROOM_CHARTS: [Chart; 3] = [
    Chart { title: "People", unit: "", columns: "line:in line,inside:inside" },
    Chart { title: "Admissions", unit: "/s", columns: "rate:admissions" },
    Chart { title: "Number that the line has reached", unit: "", columns: "serving:number" },
];

fn maybe(text: Option<String>, otherwise: &'static str) -> Datum {
    text.map_or_else(|| Datum::soft(otherwise), Datum::of)
}

fn action(section: &str, name: &str, action: &str, label: &'static str, is_dangerous: bool) -> ActionLink {
    ActionLink { label, address: format!("/dashboard/{section}/{}/{action}", path_segment(name)), is_dangerous }
}

fn room_facts(summary: &RoomSummary) -> Vec<Fact> {
    let (settings, view) = (&summary.settings, &summary.view);
    vec![
        fact("In line", Datum::of(grouped(view.waiting.into()))),
        fact("Inside", Datum::of(grouped(view.active.into()))),
        fact("Number reached", Datum::of(grouped(view.serving.into()))),
        fact("Admits now", Datum::of(rate(view.rate))),
        fact("Wait at the end of the line", wait(view.wait_at_tail_ms)),
        fact("Limit", Datum::of(pace(settings))),
        fact("Line takes at most", Datum::of(grouped(settings.max_waiting.into()))),
        fact("Opens", maybe(settings.opens_at.map(shown_at), "at once")),
        fact("Message", maybe(settings.message.as_deref().map(str::to_owned), "none")),
        fact("Leads to", maybe(settings.target_url.as_deref().map(str::to_owned), "where the visitor came from")),
        fact("A place ends after", Datum::of(lasting(settings.waiting_ttl_ms) + " of silence")),
        fact("Without a first poll", maybe(settings.first_poll_ms.map(lasting), "after that time too")),
        fact("A slot lasts", Datum::of(lasting(settings.active_ttl_ms))),
        fact("An idle slot ends after", maybe(settings.idle_ttl_ms.map(lasting), "its full time")),
        fact("An admission waits", Datum::of(lasting(settings.claim_window_ms))),
        fact("As of", Datum::soft(shown_at(summary.as_of))),
    ]
}

fn room_actions(name: &RoomName, summary: &RoomSummary) -> Vec<ActionLink> {
    let act = |to_do, label, is_dangerous| action("rooms", name.as_str(), to_do, label, is_dangerous);
    if summary.view.state == RoomState::Closed {
        return vec![act("open", "Open", false)];
    }
    let turn = if summary.settings.paused { act("resume", "Resume", false) } else { act("pause", "Pause", false) };
    vec![turn, act("message", "Message", false), act("limits", "Limits", false), act("close", "Close", true)]
}

fn coupon_facts(view: &CouponView) -> Vec<Fact> {
    let settings = &view.settings;
    let purged = view.purged_at.map(|at| fact("Claims purged", Datum::soft(shown_at(at))));
    let facts = vec![
        fact("Issued", Datum::of(grouped(view.issued.into()))),
        fact("Left", Datum::of(grouped(settings.limit.get().saturating_sub(view.issued).into()))),
        fact("Limit", Datum::of(grouped(settings.limit.get().into()))),
        fact("Title", maybe(settings.title.as_ref().map(|title| title.as_str().to_owned()), "none")),
        fact("Opens", maybe(settings.opens_at.map(shown_at), "at once")),
        fact("Ends", maybe(settings.expires_at.map(shown_at), "never")),
        fact("Codes are good until", maybe(settings.redeem_until.map(shown_at), "always")),
        fact(
            "Room",
            match &settings.room {
                Some(room) => Datum::link("rooms", room.as_str()),
                None => Datum::soft("none"),
            },
        ),
    ];
    purged.into_iter().chain(facts).collect()
}

/// The facts of a claim, without its voucher code.
pub(super) fn claim_facts(record: &ClaimRecord) -> Vec<Fact> {
    let issued = &record.claimed.issued;
    vec![
        fact("User", Datum::of(record.user.as_ref())),
        fact("Serial", Datum::of(grouped(issued.serial.get().into()))),
        fact("Issued", Datum::of(shown_at(issued.issued_at))),
        fact("Redeemed", maybe(record.redeemed.map(|redeemed| shown_at(redeemed.redeemed_at)), "not yet")),
        fact("Attributes", maybe(record.attributes.as_ref().map(|text| text.as_str().to_owned()), "none")),
    ]
}

fn record_row(record: &Record) -> Vec<Datum> {
    vec![
        Datum::number(record.number),
        Datum::soft(shown_at(record.at)),
        Datum::of(record.kind.as_str()),
        record.about.as_ref().map_or_else(|| Datum::soft("none"), about),
        Datum::number(record.amount.get()),
        Datum::number(record.balance.total()),
        Datum::number(record.balance.held()),
        Datum::soft(record.chain.to_string()),
    ]
}

fn about(about: &Reference) -> Datum {
    Datum::leads(about.to_string(), format!("/dashboard/listings/{}", path_segment(about.listing.as_str())))
}

impl Visit<'_> {
    /// The number after which a page begins.
    fn after_number(&self) -> Result<Option<u64>, Problem> {
        let wrong = |_| Problem::new(Code::InvalidQuery).detail("after must be a whole number");
        self.parameter("after").map(|text| text.parse().map_err(wrong)).transpose()
    }

    fn item(&self, section: &'static str, kind: &'static str, name: &str, state: Datum) -> ItemPage {
        ItemPage {
            frame: Frame::of(self, section),
            kind,
            name: name.to_owned(),
            state,
            meters: Vec::new(),
            facts: Vec::new(),
            links: Vec::new(),
            actions: Vec::new(),
            feed: None,
            charts: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Leads to the object that an operator has named in the form of a list.
    pub(super) fn open(&self) -> Result<Response, Problem> {
        let (section, name) =
            (self.parameter("section").unwrap_or_default(), self.parameter("name").unwrap_or_default());
        let name = name.trim();
        match section.as_str() {
            "rooms" => body::room(name).map(drop)?,
            "coupons" => body::coupon(name).map(drop)?,
            "listings" => body::listing(name).map(drop)?,
            "members" => body::member("name", name).map(drop)?,
            "locks" => body::lock(name).map(drop)?,
            _ => return Err(Code::NotFound.into()),
        }
        see_other(&format!("/dashboard/{section}/{}", path_segment(name)))
    }

    pub(super) async fn room(&self, name: &str) -> Result<Response, Problem> {
        let name = body::room(name)?;
        let summary = answered(self.app, pin!(self.app.rooms.room(&name))).await?.map_err(api::room::refused)?;
        // From now on the room has a history.
        let steady_us = self.app.backend.steady().as_us().unsigned_abs();
        self.app.dashboard.history.shown_room(&name, i64::MAX, steady_us);
        let mut item = self.item("rooms", "Room", name.as_str(), Datum::state(summary.view.state.as_str()));
        if let Some(cap) = summary.settings.max_active {
            let label = format!("{} of {} slots in use", grouped(summary.view.active.into()), grouped(cap.into()));
            item.meters.push(Meter { label, value: summary.view.active.into(), max: cap.into() });
        }
        item.facts = room_facts(&summary);
        item.links.push(("The page for visitors", format!("/rooms/{}", path_segment(name.as_str()))));
        item.actions = room_actions(&name, &summary);
        item.feed = Some(format!("/dashboard/feed?room={}", path_segment(name.as_str())));
        item.charts = ROOM_CHARTS.into();
        Ok(page(StatusCode::OK, &item))
    }

    /// A page of claims, without their voucher codes.
    async fn claims(&self, coupon: &CouponName) -> Result<Table, Problem> {
        let after = self.after_number()?.and_then(|number| u32::try_from(number).ok()).and_then(Serial::new);
        let found = answered(self.app, pin!(self.app.coupons.claims(coupon, after, ROWS))).await?;
        let found = found.map_err(|refusal| api::coupon::refused(self.app, coupon, "", &refusal))?;
        let row = |record: &ClaimRecord| {
            let redeemed = record.redeemed.map(|redeemed| shown_at(redeemed.redeemed_at));
            vec![
                Datum::number(record.claimed.issued.serial.get()),
                Datum::of(record.user.as_ref()),
                Datum::soft(shown_at(record.claimed.issued.issued_at)),
                maybe(redeemed, "not yet"),
            ]
        };
        let next = found
            .next
            .map(|serial| format!("/dashboard/coupons/{}?after={}", path_segment(coupon.as_str()), serial.get()));
        Ok(Table {
            title: "Claims".into(),
            heads: &["Serial", "User", "Issued", "Redeemed"],
            rows: found.items.iter().map(row).collect(),
            empty: "No claim yet.",
            next,
        })
    }

    pub(super) async fn coupon(&self, name: &str) -> Result<Response, Problem> {
        let name = body::coupon(name)?;
        let view = answered(self.app, pin!(self.app.coupons.coupon(&name))).await?;
        let view = view.map_err(|refusal| api::coupon::refused(self.app, &name, "", &refusal))?;
        let mut item = self.item("coupons", "Coupon", name.as_str(), Datum::state(view.state.as_str()));
        let (issued, limit) = (view.issued, view.settings.limit.get());
        let label = format!("{} of {} issued", grouped(issued.into()), grouped(limit.into()));
        item.meters.push(Meter { label, value: issued.into(), max: limit.into() });
        item.facts = coupon_facts(&view);
        if view.purged_at.is_some() {
            // Neither claims nor actions are left.
            return Ok(page(StatusCode::OK, &item));
        }
        item.tables.push(self.claims(&name).await?);
        let act = |to_do, label| action("coupons", name.as_str(), to_do, label, false);
        item.actions = match view.state.as_str() {
            "deleted" => Vec::new(),
            "expired" | "scheduled" => vec![act("open", "Open now"), act("limits", "Limit")],
            _ => vec![act("limits", "Limit"), act("close", "End now")],
        };
        item.links.push(("Claims as CSV", format!("/dashboard/coupons/{}/claims.csv", path_segment(name.as_str()))));
        Ok(page(StatusCode::OK, &item))
    }

    pub(super) async fn listing(&self, name: &str) -> Result<Response, Problem> {
        let name = body::listing(name)?;
        let view = answered(self.app, pin!(self.app.auctions.listing(&name))).await?;
        let view = view.map_err(|rejection| api::listing::refused(&rejection))?;
        let after = self.after_number()?;
        let bids = answered(self.app, pin!(self.app.auctions.bids(&name, after, ROWS))).await?;
        let bids = bids.map_err(|rejection| api::listing::refused(&rejection))?;
        let standing = &view.standing;
        let mut item = self.item("listings", "Listing", name.as_str(), Datum::state(standing.state(view.now).as_str()));
        item.facts = vec![
            fact("Owner", Datum::link("members", standing.owner.as_str())),
            fact("Price", Datum::of(grouped(standing.price.get()))),
            fact("Starts", Datum::of(shown_at(standing.starts_at))),
        ];
        if let Terms::Auction(_) = standing.terms {
            let highest =
                standing.highest.as_ref().map(|bid| format!("{} by {}", grouped(bid.price.get()), bid.bidder));
            item.facts.push(fact("Ends", Datum::of(shown_at(standing.effective_ends_at))));
            item.facts.push(fact("Highest bid", maybe(highest, "none")));
            item.facts.push(fact("Extensions", Datum::of(grouped(standing.extensions.into()))));
        }
        if let Phase::Sold(sale) = &standing.phase {
            item.facts.push(fact("Buyer", Datum::link("members", sale.buyer.as_str())));
        }
        let row = |bid: &firstcome::core::auction::Bid| {
            let bidder = Datum::link("members", bid.bidder.as_str());
            vec![Datum::number(bid.number), bidder, Datum::number(bid.price.get()), Datum::soft(shown_at(bid.at))]
        };
        let next = bids.next.map(|next| format!("/dashboard/listings/{}?after={next}", path_segment(name.as_str())));
        item.tables.push(Table {
            title: "Bids".into(),
            heads: &["Number", "Bidder", "Price", "At"],
            rows: bids.items.iter().map(row).collect(),
            empty: "No bid yet.",
            next,
        });
        Ok(page(StatusCode::OK, &item))
    }

    pub(super) async fn member(&self, name: &str) -> Result<Response, Problem> {
        let name = body::member("member", name)?;
        let balance = self.app.auctions.balance(&name).await?;
        let records = self.app.auctions.records(&name, self.after_number()?, ROWS).await?;
        let mut item = self.item("members", "Member", name.as_str(), Datum::of(""));
        item.facts = vec![
            fact("Points", Datum::of(grouped(balance.total()))),
            fact("Held by bids", Datum::of(grouped(balance.held()))),
            fact("Available", Datum::of(grouped(balance.available()))),
        ];
        if 0 < records.removed_to {
            item.facts.push(fact("Records removed", Datum::soft(format!("up to {}", grouped(records.removed_to)))));
        }
        let next = records.next.map(|next| format!("/dashboard/members/{}?after={next}", path_segment(name.as_str())));
        item.tables.push(Table {
            title: "Records".into(),
            heads: &["Number", "At", "Kind", "Listing and bid", "Points", "Balance", "Held", "Hash"],
            rows: records.items.iter().map(record_row).collect(),
            empty: "No points have moved.",
            next,
        });
        Ok(page(StatusCode::OK, &item))
    }

    pub(super) async fn lock(&self, name: &str) -> Result<Response, Problem> {
        let name = body::lock(name)?;
        let facts = self.lock_facts(&name).await?;
        let is_held = facts.iter().any(|fact| fact.name == "Holder");
        let mut item = self.item("locks", "Lock", name.as_str(), Datum::state(if is_held { "held" } else { "open" }));
        item.facts = facts;
        Ok(page(StatusCode::OK, &item))
    }

    pub(super) async fn lock_facts(&self, name: &firstcome::core::id::LockName) -> Result<Vec<Fact>, Problem> {
        let seen = self.app.service.view(name).await.map_err(api::lock::failed)?;
        let mut facts = Vec::new();
        if let Some((owner, fence, until_us)) = &seen.view.held {
            facts.push(fact("Holder", Datum::of(owner.as_str())));
            facts.push(fact("Fence", Datum::of(fence.get().to_string())));
            let left_ms = until_us.saturating_sub(seen.now_us) / 1_000;
            facts.push(fact("Lease ends in", Datum::of(lasting(left_ms))));
        }
        facts.push(fact("Holders", Datum::of(grouped(seen.view.holders.into()))));
        facts.push(fact("In line", Datum::of(grouped(seen.view.waiters.into()))));
        Ok(facts)
    }

    /// Locks are not listed: every name is one, and most are free.
    pub(super) async fn locks(&self) -> Result<Response, Problem> {
        self.app.service.sweep();
        let locks = &self.app.metrics.locks;
        let count = |count: i64| Datum::number(count.unsigned_abs());
        let table = Table {
            title: "Locks over HTTP, of this process".into(),
            heads: &["Held", "Requests in line", "Granted since the start"],
            rows: vec![vec![count(locks.held.get()), count(locks.waiting.get()), Datum::number(locks.granted())]],
            empty: "",
            next: None,
        };
        let lead = "Every name is a lock, so there is no list of them. Open one by its name.";
        Ok(self.list("locks", "Locks", lead, Some(("locks", "Lock")), table))
    }
}
