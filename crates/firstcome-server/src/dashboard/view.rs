//! The templates of the dashboard, and the pieces that they are made of.

use super::Visit;
use super::session::Role;
use crate::error::Code;
use crate::rfc3339::format as instant;
use askama::Template;
use firstcome::core::time::Timestamp;

/// The colour of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Plain,
    /// A number, which stands at the end of its column.
    Number,
    Good,
    Waits,
    Bad,
    Soft,
}

/// A word or number of a page.
#[derive(Clone)]
pub(super) struct Datum {
    pub(super) text: String,
    pub(super) link: Option<String>,
    tone: Tone,
}

impl Datum {
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), link: None, tone: Tone::Plain }
    }

    pub(super) fn number(number: impl Into<u64>) -> Self {
        Self { tone: Tone::Number, ..Self::of(grouped(number.into())) }
    }

    pub(super) fn soft(text: impl Into<String>) -> Self {
        Self { tone: Tone::Soft, ..Self::of(text) }
    }

    /// A link to a page of the dashboard.
    pub(super) fn link(section: &str, name: &str) -> Self {
        Self::leads(name, format!("/dashboard/{section}/{}", path_segment(name)))
    }

    /// A text that leads to an address of the dashboard.
    pub(super) fn leads(text: impl Into<String>, address: String) -> Self {
        Self { link: Some(address), ..Self::of(text) }
    }

    /// The state of an object, in the colour of what it means.
    pub(super) fn state(state: &str) -> Self {
        let tone = match state {
            "open" | "running" | "done" | "held" => Tone::Good,
            "paused" | "scheduled" | "sold_out" | "ended" => Tone::Waits,
            "closed" | "deleted" | "expired" | "unsold" => Tone::Soft,
            "sold" => Tone::Good,
            _ => Tone::Bad,
        };
        Self { tone, ..Self::of(state.replace('_', " ")) }
    }

    pub(super) const fn class(&self) -> &'static str {
        match self.tone {
            Tone::Plain => "",
            Tone::Number => "number",
            Tone::Good => "pill good",
            Tone::Waits => "pill waits",
            Tone::Bad => "pill bad",
            Tone::Soft => "soft",
        }
    }

    pub(super) fn is_number(&self) -> bool {
        self.tone == Tone::Number
    }
}

/// Encodes the characters of names that mean something in an address. Names are ASCII.
pub(super) fn path_segment(name: &str) -> String {
    name.replace(':', "%3A").replace('@', "%40")
}

/// Writes a number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if 0 < place && (digits.len() - place).is_multiple_of(3) {
            // A narrow space that breaks no line.
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Writes a duration by its two largest units.
pub(super) fn lasting(duration_ms: u64) -> String {
    let (seconds, minutes, hours) = (duration_ms / 1_000, duration_ms / 60_000, duration_ms / 3_600_000);
    let more = |number: u64, unit: &str| if number == 0 { String::new() } else { format!(" {number} {unit}") };
    match duration_ms {
        0..1_000 => format!("{duration_ms} ms"),
        1_000..60_000 => format!("{seconds} s"),
        60_000..3_600_000 => format!("{minutes} min{}", more(seconds % 60, "s")),
        _ => format!("{} h{}", grouped(hours), more(minutes % 60, "min")),
    }
}

/// Writes an instant for people: to the second, in UTC.
pub(super) fn shown_at(at: Timestamp) -> String {
    let whole = Timestamp::clamped_us(at.as_us().div_euclid(1_000_000) * 1_000_000);
    instant(whole).replace('T', " ").replace('Z', " UTC")
}

/// A name with a value.
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) cell: Datum,
}

pub(super) fn fact(name: &'static str, cell: Datum) -> Fact {
    Fact { name, cell }
}

/// Rows with a heading.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) heads: &'static [&'static str],
    pub(super) rows: Vec<Vec<Datum>>,
    /// What stands there without rows.
    pub(super) empty: &'static str,
    /// The address of the next page.
    pub(super) next: Option<String>,
}

/// A link to the confirmation of an action.
pub(super) struct ActionLink {
    pub(super) label: &'static str,
    pub(super) address: String,
    pub(super) is_dangerous: bool,
}

/// A chart that the script draws: the columns of the feed, with their names.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// `column:name`, separated by commas.
    pub(super) columns: &'static str,
}

/// A figure at the top of the overview.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) column: &'static str,
    pub(super) value: String,
    pub(super) unit: &'static str,
}

/// How full something is.
pub(super) struct Meter {
    pub(super) label: String,
    pub(super) value: u64,
    pub(super) max: u64,
}

/// What stands around each page.
pub(super) struct Frame {
    pub(super) version: &'static str,
    /// The page of the menu that this page belongs to.
    section: &'static str,
    role: Role,
    session: String,
    logout: String,
    state: &'static str,
    is_dev: bool,
    has_rooms: bool,
}

impl Frame {
    pub(super) fn of(visit: &Visit<'_>, section: &'static str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            section,
            role: visit.session.role,
            session: visit.session.id.clone(),
            logout: visit.session.token("logout"),
            state: visit.app.unready().unwrap_or("ready"),
            is_dev: visit.app.is_dev(),
            has_rooms: !visit.app.is_auctions_alone,
        }
    }

    /// The pages of the menu: section, address, name.
    fn menu(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let all = [
            ("overview", "/dashboard", "Overview"),
            ("rooms", "/dashboard/rooms", "Rooms"),
            ("coupons", "/dashboard/coupons", "Coupons"),
            ("listings", "/dashboard/listings", "Listings"),
            ("members", "/dashboard/members", "Members"),
            ("locks", "/dashboard/locks", "Locks"),
            ("find", "/dashboard/find", "Find"),
            ("audit", "/dashboard/audit", "Audit"),
        ];
        let is_served = |name: &str| self.has_rooms || !["rooms", "coupons", "locks"].contains(&name);
        all.into_iter().filter(|(name, ..)| is_served(name)).collect()
    }

    fn may_operate(&self) -> bool {
        self.role == Role::Operate
    }
}

#[derive(Template)]
#[template(path = "dashboard_login.html")]
pub(super) struct LoginPage {
    pub(super) version: &'static str,
    pub(super) problem: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "dashboard_problem.html")]
pub(super) struct ProblemPage {
    pub(super) version: &'static str,
    pub(super) code: Code,
    pub(super) detail: String,
    pub(super) is_inside: bool,
}

#[derive(Template)]
#[template(path = "dashboard_overview.html")]
pub(super) struct OverviewPage {
    pub(super) frame: Frame,
    pub(super) store: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
}

#[derive(Template)]
#[template(path = "dashboard_list.html")]
pub(super) struct ListPage {
    pub(super) frame: Frame,
    pub(super) title: &'static str,
    pub(super) lead: String,
    /// The section whose objects the form opens by name, and the label of its field.
    pub(super) open: Option<(&'static str, &'static str)>,
    pub(super) tables: Vec<Table>,
}

#[derive(Template)]
#[template(path = "dashboard_item.html")]
pub(super) struct ItemPage {
    pub(super) frame: Frame,
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) state: Datum,
    pub(super) meters: Vec<Meter>,
    pub(super) facts: Vec<Fact>,
    pub(super) links: Vec<(&'static str, String)>,
    pub(super) actions: Vec<ActionLink>,
    /// The address of the feed, if there are charts.
    pub(super) feed: Option<String>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
}

/// A field of the form of an action.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) kind: &'static str,
    pub(super) value: String,
}

#[derive(Template)]
#[template(path = "dashboard_action.html")]
pub(super) struct ActionPage {
    pub(super) frame: Frame,
    pub(super) title: &'static str,
    pub(super) name: String,
    pub(super) lead: &'static str,
    pub(super) fields: Vec<Field>,
    /// Member, before, after.
    pub(super) changes: Vec<(String, String, String)>,
    /// Whether the next press of the button does it.
    pub(super) is_sure: bool,
    pub(super) is_dangerous: bool,
    pub(super) address: String,
    pub(super) back: String,
    /// What an operator has to know before.
    pub(super) note: Option<String>,
    /// The request that this confirms.
    pub(super) request: Option<String>,
    pub(super) token: String,
    /// Names the settings that the operator has seen.
    pub(super) tag: String,
}

/// What an operator may look for.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
}

#[derive(Template)]
#[template(path = "dashboard_find.html")]
pub(super) struct FindPage<'a> {
    pub(super) frame: Frame,
    pub(super) kinds: &'a [Kind],
    pub(super) kind: &'a str,
    pub(super) place: &'a str,
    pub(super) what: &'a str,
    /// What became of the search: nothing before the first one.
    pub(super) found: Option<Result<Vec<Fact>, String>>,
}

/// The page of a request that a second operator has to confirm.
#[derive(Template)]
#[template(path = "dashboard_requested.html")]
pub(super) struct RequestedPage {
    pub(super) frame: Frame,
    pub(super) title: &'static str,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) back: String,
    pub(super) minutes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_for_people() {
        let numbers = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        let durations = [0, 999, 1_000, 61_000, 3_600_000, 90_061_000].map(lasting);
        assert_eq!(durations, ["0 ms", "999 ms", "1 s", "1 min 1 s", "1 h", "25 h 1 min"]);
        assert_eq!(path_segment("a:b@c"), "a%3Ab%40c");
    }
}
