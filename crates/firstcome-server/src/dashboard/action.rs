//! Changes of rooms and coupons, each behind a confirmation that works without scripts.
//!
//! The form of an action shows what was and what will be. Its answer replaces only the settings that the form has
//! shown: if another operator changes them meanwhile, it is refused with `settings_changed`.

use super::second;
use super::view::{ActionPage, Field, Frame, path_segment};
use super::{Form, Visit, page, see_other};
use crate::api::{self, answered, body, revision};
use crate::error::{Code, Problem};
use crate::rfc3339::format as instant;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use firstcome::RoomStore;
use firstcome::core::coupon::CouponSettings;
use firstcome::core::id::{CouponName, RoomName};
use firstcome::core::room::RoomSettings;
use serde_json::{Map, Value, json};
use std::pin::pin;

/// The object of an action.
enum Object {
    Room(RoomName),
    Coupon(CouponName),
}

/// A field of a form: its name in the settings, its label, its kind in HTML.
type Wanted = (&'static str, &'static str, &'static str);

/// What an operator can do with an object.
struct Action {
    /// Its name in the path.
    name: &'static str,
    title: &'static str,
    /// What it means for visitors.
    lead: &'static str,
    fields: &'static [Wanted],
    is_dangerous: bool,
}

const ROOM_ACTIONS: [Action; 6] = [
    Action {
        name: "pause",
        title: "Pause",
        lead: "The room admits no visitor until it is resumed. Visitors may join, and those inside stay.",
        fields: &[],
        is_dangerous: false,
    },
    Action {
        name: "resume",
        title: "Resume",
        lead: "The room admits again, by its settings.",
        fields: &[],
        is_dangerous: false,
    },
    Action {
        name: "message",
        title: "Message",
        lead: "Visitors in line read it on the page of the room. An empty message is none.",
        fields: &[("message", "Message", "text")],
        is_dangerous: false,
    },
    Action {
        name: "limits",
        title: "Limits",
        lead: "A rate, a number inside, or both must be set. An empty field sets the default: no limit, a line of 1 000 000, and no time for the first poll.",
        fields: &[
            ("count", "Admissions per period", "number"),
            ("every_ms", "Period in milliseconds", "number"),
            ("max_active", "Visitors inside at most", "number"),
            ("max_waiting", "Visitors in line at most", "number"),
            ("first_poll_ms", "A place without a first poll ends after, in milliseconds", "number"),
        ],
        is_dangerous: false,
    },
    Action {
        name: "close",
        title: "Close",
        lead: "All tickets and passes of the room are void. This cannot be undone: an opening brings no visitor back.",
        fields: &[],
        is_dangerous: true,
    },
    Action {
        name: "open",
        title: "Open",
        lead: "The room takes visitors again, with the settings that it had. Its earlier tickets and passes stay void.",
        fields: &[],
        is_dangerous: false,
    },
];

const COUPON_ACTIONS: [Action; 3] = [
    Action {
        name: "limits",
        title: "Limit",
        lead: "The number of coupons that are issued at most. It cannot be lower than what is issued.",
        fields: &[("limit", "Limit", "number")],
        is_dangerous: false,
    },
    Action {
        name: "open",
        title: "Open now",
        lead: "The coupon is issued from now on, and without an end.",
        fields: &[],
        is_dangerous: false,
    },
    Action {
        name: "close",
        title: "End now",
        lead: "No more are issued from now on. Codes that are issued stay good. It can be opened again.",
        fields: &[],
        is_dangerous: true,
    },
];

/// Reads a number of a form; nothing is null, which sets the default.
fn number(form: &Form, field: &str) -> Result<Value, Problem> {
    let text: String = form.get(field).unwrap_or_default().chars().filter(|digit| !digit.is_whitespace()).collect();
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let wrong = || Problem::field(Code::InvalidField, field, format!("{field} must be a whole number"));
    text.parse::<u64>().map(Value::from).map_err(|_| wrong())
}

/// Shows a value of settings in a field, or in a table.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The changes that a patch makes: member, before, after.
fn changes(before: &Value, patch: &Map<String, Value>) -> Vec<(String, String, String)> {
    let word = |value: &Value| if value.is_null() { "none".to_owned() } else { shown(value) };
    let of = |(name, after): (&String, &Value)| (name.clone(), word(&before[name]), word(after));
    patch.iter().map(of).filter(|(_, before, after)| before != after).collect()
}

impl Object {
    fn section(&self) -> &'static str {
        match self {
            Self::Room(_) => "rooms",
            Self::Coupon(_) => "coupons",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Room(room) => room.as_str(),
            Self::Coupon(coupon) => coupon.as_str(),
        }
    }

    fn address(&self) -> String {
        format!("/dashboard/{}/{}", self.section(), path_segment(self.name()))
    }

    fn action(&self, name: &str) -> Result<&'static Action, Problem> {
        let all: &'static [Action] = match self {
            Self::Room(_) => &ROOM_ACTIONS,
            Self::Coupon(_) => &COUPON_ACTIONS,
        };
        all.iter().find(|action| action.name == name).ok_or_else(|| Code::NotFound.into())
    }

    /// The settings in force, as the body of a PUT.
    async fn settings(&self, visit: &Visit<'_>) -> Result<Value, Problem> {
        use revision::Settings;
        Ok(match self {
            Self::Room(room) => RoomSettings::in_force(visit.app, room).await?.shown(visit.app),
            Self::Coupon(coupon) => CouponSettings::in_force(visit.app, coupon).await?.shown(visit.app),
        })
    }

    /// The members that an action replaces. Nothing for an action that is no change of settings.
    fn patch(&self, visit: &Visit<'_>, action: &Action, form: &Form) -> Result<Map<String, Value>, Problem> {
        let patch = match (self, action.name) {
            (Self::Room(_), "pause") => json!({"paused": true}),
            (Self::Room(_), "resume") => json!({"paused": false}),
            (Self::Room(_), "message") => {
                let message = form.get("message").unwrap_or_default().trim();
                json!({"message": if message.is_empty() { Value::Null } else { message.into() }})
            }
            (Self::Room(_), "limits") => {
                let (count, every_ms) = (number(form, "count")?, number(form, "every_ms")?);
                let is_limited = !count.is_null() || !every_ms.is_null();
                let admit = if is_limited { json!({"count": count, "every_ms": every_ms}) } else { Value::Null };
                let (active, waiting) = (number(form, "max_active")?, number(form, "max_waiting")?);
                let first_poll_ms = number(form, "first_poll_ms")?;
                json!({"admit": admit, "max_active": active, "max_waiting": waiting, "first_poll_ms": first_poll_ms})
            }
            (Self::Coupon(_), "limits") => json!({"limit": number(form, "limit")?}),
            (Self::Coupon(_), "open") => json!({"opens_at": null, "expires_at": null}),
            (Self::Coupon(_), "close") => json!({"expires_at": instant(visit.at())}),
            _ => json!({}),
        };
        Ok(match patch {
            Value::Object(patch) => patch,
            _ => Map::new(),
        })
    }

    /// Does it, if the settings still are those of the tag.
    async fn apply(
        &self,
        visit: &Visit<'_>,
        action: &Action,
        patch: &Map<String, Value>,
        tag: &str,
    ) -> Result<(), Problem> {
        let mut headers = HeaderMap::new();
        let tag = HeaderValue::from_str(tag).map_err(|_| Problem::from(Code::FormExpired))?;
        headers.insert(header::IF_MATCH, tag);
        match self {
            Self::Room(room) if action.name == "close" => {
                answered(visit.app, pin!(visit.app.rooms.close_room(room))).await?.map_err(api::room::refused)
            }
            Self::Room(room) => revision::patch::<RoomSettings>(visit.app, room, &headers, patch).await,
            Self::Coupon(coupon) => revision::patch::<CouponSettings>(visit.app, coupon, &headers, patch).await,
        }
    }
}

impl Visit<'_> {
    fn object(&self) -> Result<(Object, &'static Action), Problem> {
        let object = match self.path[..] {
            ["rooms", room, _] => Object::Room(body::room(room)?),
            ["coupons", coupon, _] => Object::Coupon(body::coupon(coupon)?),
            _ => return Err(Code::NotFound.into()),
        };
        let action = object.action(self.path[2])?;
        Ok((object, action))
    }

    /// Shows the form of an action, and what it changes once its fields are known.
    fn confirm(
        &self,
        object: &Object,
        action: &Action,
        before: &Value,
        form: Option<&Form>,
        patch: &Map<String, Value>,
    ) -> Result<Response, Problem> {
        let in_force = |field: &str| match field {
            "count" | "every_ms" => shown(&before["admit"][field]),
            field => shown(&before[field]),
        };
        let fields = action.fields.iter().map(|&(name, label, kind)| {
            let value = form.and_then(|form| form.get(name)).map_or_else(|| in_force(name), str::to_owned);
            Field { name, label, kind, value }
        });
        let is_sure = form.is_some() || action.fields.is_empty();
        let request = self.parameter(second::FIELD);
        let requested = request.as_deref().map(|request| self.requested(request)).transpose()?;
        let note = match requested {
            Some(requested) => {
                Some(format!("{} has requested it. You confirm it as the second operator.", requested.operator))
            }
            None if action.is_dangerous && self.second_within_s().is_some() => {
                Some("A second operator must confirm it. You get an address to hand on.".to_owned())
            }
            None => None,
        };
        let confirmation = ActionPage {
            frame: Frame::of(self, object.section()),
            title: action.title,
            name: object.name().to_owned(),
            lead: action.lead,
            fields: fields.collect(),
            changes: if is_sure { changes(before, patch) } else { Vec::new() },
            is_sure,
            is_dangerous: action.is_dangerous,
            address: format!("{}/{}", object.address(), action.name),
            back: object.address(),
            note,
            request,
            token: self.session.token(&self.path.join("/")),
            tag: form.and_then(|form| form.get("tag")).map_or_else(|| revision::tag(before), str::to_owned),
        };
        Ok(page(StatusCode::OK, &confirmation))
    }

    /// Shows the form of an action.
    pub(super) async fn ask(&self) -> Result<Response, Problem> {
        self.operator()?;
        let (object, action) = self.object()?;
        let before = object.settings(self).await?;
        let patch = if action.fields.is_empty() { object.patch(self, action, &Form(Vec::new()))? } else { Map::new() };
        self.confirm(&object, action, &before, None, &patch)
    }

    /// Shows what an action will change, or does it once the operator is sure.
    pub(super) async fn act(&self, form: &Form) -> Result<Response, Problem> {
        let (object, action) = self.object()?;
        let name = format!("{} {}", object.section().trim_end_matches('s'), object.name());
        let entry = self.entry(action.name, name);
        let (done, change) = match self.try_act(form, &object, action).await {
            Ok(Acted::ToConfirm(response)) => return Ok(response),
            Ok(Acted::Requested(response, change)) => {
                self.app.dashboard.audit.add(super::audit::AuditEntry { change, answer: "requested", ..entry });
                return Ok(response);
            }
            Ok(Acted::Done(change)) => (Ok(()), change),
            Err((problem, change)) => (Err(problem), change),
        };
        let answer = done.as_ref().map_or_else(|problem: &Problem| problem.code().as_str(), |()| "done");
        self.app.dashboard.audit.add(super::audit::AuditEntry { change, answer, ..entry });
        done?;
        see_other(&object.address())
    }

    async fn try_act(&self, form: &Form, object: &Object, action: &Action) -> Result<Acted, (Problem, String)> {
        let early = |problem: Problem| (problem, String::new());
        self.operator().map_err(early)?;
        let before = object.settings(self).await.map_err(early)?;
        let patch = object.patch(self, action, form).map_err(early)?;
        if form.get("sure").is_none() {
            return self.confirm(object, action, &before, Some(form), &patch).map(Acted::ToConfirm).map_err(early);
        }
        let words = changes(&before, &patch).into_iter().map(|(name, was, is)| format!("{name}: {was} → {is}"));
        let change = words.collect::<Vec<_>>().join("; ");
        if action.is_dangerous {
            let second = self.second(form, action.title, object.section(), &object.address());
            if let Some(requested) = second.map_err(|problem| (problem, change.clone()))? {
                return Ok(Acted::Requested(requested, change));
            }
        }
        match object.apply(self, action, &patch, form.get("tag").unwrap_or_default()).await {
            Ok(()) => Ok(Acted::Done(change)),
            Err(problem) => Err((problem, change)),
        }
    }
}

/// What came of the form of an action.
enum Acted {
    /// The operator is asked whether it is meant.
    ToConfirm(Response),
    /// A second operator has to confirm it.
    Requested(Response, String),
    /// It is done: what was, and what is now.
    Done(String),
}
