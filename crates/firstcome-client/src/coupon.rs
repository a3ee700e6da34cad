//! Coupons over HTTP.

use crate::call::{Call, CallReply, unavailable};
use crate::problem::Problem;
use crate::{HttpStore, instant};
use firstcome_store::core::coupon::{
    Acknowledge, Attributes, Claim, CouponLimit, CouponSettings, CouponState, Effect, Issued, Redeemed, Rejection,
    Serial, Title,
};
use firstcome_store::core::id::{CouponName, NameError, RoomName, UserId};
use firstcome_store::core::limits::{NAME_BYTES_MAX, PAGE_ITEMS_MAX};
use firstcome_store::core::revision::Revision;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Stopwatch, draw_pause};
use firstcome_store::{
    Answer, ClaimRecord, ClaimReply, Claimed, CouponStore, CouponView, Durability, FaultKind, Page, Put, RedeemRequest,
    Refused, ShownCode, StoreError, VoucherCode,
};
use http::StatusCode;
use http::header::{ETAG, IF_MATCH};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest pause between two looks at a claim that has a place and is not stored.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The body of a PUT of a coupon.
#[derive(Serialize)]
struct SettingsBody<'a> {
    limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redeem_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    /// Left out for the default, since a service that cannot choose takes no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
}

impl<'a> SettingsBody<'a> {
    fn new(settings: &'a CouponSettings) -> Self {
        Self {
            limit: settings.limit.get(),
            opens_at: settings.opens_at.map(instant::format),
            expires_at: settings.expires_at.map(instant::format),
            redeem_until: settings.redeem_until.map(instant::format),
            title: settings.title.as_ref().map(Title::as_str),
            room: settings.room.as_ref().map(RoomName::as_str),
            durability: (settings.acknowledge == Acknowledge::Placed).then_some(Durability::Redis.as_str()),
        }
    }
}

/// A coupon as the service shows it.
#[derive(Deserialize)]
struct CouponShown {
    limit: u32,
    issued: u32,
    state: String,
    purged_at: Option<String>,
    title: Option<String>,
    room: Option<String>,
    opens_at: Option<String>,
    expires_at: Option<String>,
    redeem_until: Option<String>,
    durability: Option<String>,
}

/// Reads an instant that may be absent: the outer `None` is a text that cannot be understood.
#[expect(clippy::option_option, reason = "absent, and not understood, are two things")]
pub(crate) fn optional_instant(text: Option<&str>) -> Option<Option<Timestamp>> {
    match text {
        None => Some(None),
        Some(text) => instant::parse(text).map(Some),
    }
}

impl CouponShown {
    fn view(&self) -> Option<CouponView> {
        let title = match &self.title {
            None => None,
            Some(title) => Some(Title::new(title)?),
        };
        let room = self.room.as_deref().map(RoomName::parse).transpose().ok()?;
        let placed = self.durability.as_deref() == Some(Durability::Redis.as_str());
        let settings = CouponSettings {
            limit: CouponLimit::new(self.limit)?,
            opens_at: optional_instant(self.opens_at.as_deref())?,
            expires_at: optional_instant(self.expires_at.as_deref())?,
            redeem_until: optional_instant(self.redeem_until.as_deref())?,
            title,
            room,
            acknowledge: if placed { Acknowledge::Placed } else { Acknowledge::Stored },
        };
        let states = [
            CouponState::Scheduled,
            CouponState::Open,
            CouponState::SoldOut,
            CouponState::Expired,
            CouponState::Deleted,
        ];
        let state = states.into_iter().find(|state| state.as_str() == self.state)?;
        let purged_at = optional_instant(self.purged_at.as_deref())?;
        Some(CouponView { settings, issued: self.issued, state, purged_at })
    }
}

#[derive(Serialize)]
struct ClaimBody<'a> {
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'a RawValue>,
}

/// A claim as the service shows it.
#[derive(Deserialize)]
struct ClaimShown {
    user: String,
    serial: Option<u32>,
    code: Option<String>,
    issued_at: String,
    durability: Option<String>,
    attributes: Option<Box<RawValue>>,
    redeemed_at: Option<String>,
}

impl ClaimShown {
    fn reply(&self) -> Option<ClaimReply> {
        let issued_at = instant::parse(&self.issued_at)?;
        let (Some(serial), Some(code)) = (self.serial, &self.code) else {
            return Some(ClaimReply::Placed(issued_at));
        };
        let issued = Issued { serial: Serial::new(serial)?, issued_at };
        Some(ClaimReply::Stored(Claimed { issued, code: VoucherCode::parse(code)? }))
    }

    fn record(&self) -> Option<ClaimRecord> {
        let ClaimReply::Stored(claimed) = self.reply()? else { return None };
        let attributes = match &self.attributes {
            None => None,
            Some(raw) => Some(Attributes::new(raw.get())?),
        };
        let redeemed_at = optional_instant(self.redeemed_at.as_deref())?;
        let redeemed = redeemed_at.map(|redeemed_at| Redeemed { serial: claimed.issued.serial, redeemed_at });
        Some(ClaimRecord { user: self.user.as_str().into(), claimed, attributes, redeemed })
    }
}

#[derive(Deserialize)]
struct ClaimPageShown {
    items: Vec<ClaimShown>,
    next: Option<u32>,
}

#[derive(Serialize)]
struct RedemptionBody<'a> {
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

/// Reads a refusal by a rule; `None` if it is none, or not understood. `code` is the code that was to be redeemed.
fn refusal(problem: &Problem, code: Option<&str>) -> Option<Refused> {
    let serial = || problem.number("serial").and_then(|number| Serial::new(u32::try_from(number).ok()?));
    let rejection = match problem.code() {
        "unknown_coupon" => Rejection::UnknownCoupon,
        "idempotency_key_reused" => Rejection::KeyReused(serial()?),
        "already_issued" => {
            let ClaimReply::Stored(claim) = problem.object::<ClaimShown>("claim")?.reply()? else { return None };
            return Some(Refused { rejection: Rejection::AlreadyIssued(claim.issued), claim: Some(claim) });
        }
        "deleted" => Rejection::Deleted,
        "purged" => Rejection::Purged(problem.instant("purged_at")?),
        "not_open" => Rejection::NotOpen(problem.instant("opens_at")?),
        "expired" => Rejection::Expired(problem.instant("expired_at")?),
        "sold_out" => Rejection::SoldOut,
        "settings_changed" => Rejection::SettingsChanged,
        "limit_below_issued" => Rejection::LimitBelowIssued(u32::try_from(problem.number("issued")?).ok()?),
        "room_fixed" => Rejection::RoomFixed,
        "unknown_code" => Rejection::UnknownCode,
        "wrong_user" => Rejection::WrongUser,
        "already_redeemed" => Rejection::AlreadyRedeemed(Redeemed {
            serial: ShownCode::parse(code?)?.serial(),
            redeemed_at: problem.instant("redeemed_at")?,
        }),
        _ => return None,
    };
    Some(rejection.into())
}

/// Hands on a refusal by a rule, and tells any other as an error.
pub(crate) fn refused<T>(told: &CallReply, code: Option<&str>) -> Answer<T> {
    match told.problem().and_then(|problem| refusal(&problem, code)) {
        Some(refused) => Ok(Err(refused)),
        None => Err(told.refused()),
    }
}

fn effect<T>(told: &CallReply, value: T) -> Effect<T> {
    if told.is_replayed() { Effect::Again(value) } else { Effect::New(value) }
}

/// Writes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._:@".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    segment
}

pub(crate) fn path(coupon: &CouponName) -> String {
    format!("/v1/coupons/{coupon}")
}

impl HttpStore {
    fn note_durability(&self, claim: &ClaimShown) {
        let told = match claim.durability.as_deref() {
            Some("memory") => Durability::Memory,
            Some("disk") => Durability::Disk,
            Some("database") => Durability::Database,
            // Of a claim that is not stored yet, which says nothing about those that are.
            _ => return,
        };
        self.durability.store(told as u8, Ordering::Relaxed);
    }

    /// Puts settings only over those that the caller has read. The tag of these is the service's own, so one request
    /// reads it and a second one makes it the condition.
    async fn revise_coupon(
        &self,
        coupon: &CouponName,
        settings: &CouponSettings,
        replaces: &CouponSettings,
    ) -> Answer<Put> {
        let told = self.service.call(&Call::get(path(coupon))).await?;
        if !told.is_yes() {
            return refused(&told, None);
        }
        let view = told.read::<CouponShown>()?.view().ok_or_else(|| told.strange())?;
        if view.state == CouponState::Deleted || view.purged_at.is_some() {
            return Ok(Err(Rejection::Deleted.into()));
        }
        if view.settings != *replaces {
            return Ok(Err(Rejection::SettingsChanged.into()));
        }
        let tag = told.header(&ETAG).cloned().ok_or_else(no_tag)?;
        self.put(Call::put(path(coupon), &SettingsBody::new(settings)).header(IF_MATCH, tag)).await
    }

    async fn put(&self, call: Call) -> Answer<Put> {
        let told = self.service.call(&call).await?;
        match told.status() {
            StatusCode::CREATED => Ok(Ok(Put::Created)),
            StatusCode::OK => Ok(Ok(Put::Replaced)),
            _ => refused(&told, None),
        }
    }

    /// Waits until a claim that has a place is stored.
    async fn stored(&self, coupon: &CouponName, user: &UserId) -> Result<Claimed, StoreError> {
        let watch = Stopwatch::start();
        loop {
            match self.claim_of(coupon, user.as_str()).await {
                Ok(Ok(Some(record))) => return Ok(record.claimed),
                Err(waits @ StoreError::NotStoredYet { .. }) => {
                    if self.service.options().retry_for < watch.elapsed() {
                        return Err(waits);
                    }
                }
                Err(error) => return Err(error),
                // The place was lost with Redis, or its coupon.
                Ok(Ok(None) | Err(_)) => return Err(StoreError::Unknown),
            }
            tokio::time::sleep(draw_pause(LOOK_AGAIN)).await;
        }
    }
}

/// The error of settings without their tag, which only an operator's key is shown.
pub(crate) fn no_tag() -> StoreError {
    unavailable(
        FaultKind::Unfit,
        "the service shows no tag of the settings: use a key of the scope that may change them",
    )
}

/// One method is one request, except: [`CouponStore::put_coupon`] of a revision (two), [`CouponStore::claims`] (one for
/// each thousand claims), and [`CouponStore::claim`] of a coupon that acknowledges early (it waits until the claim is stored).
impl CouponStore for HttpStore {
    /// What the service told with the last claim that it showed. [`Durability::Memory`], the least, before the first.
    fn durability(&self) -> Durability {
        let told = self.durability.load(Ordering::Relaxed);
        [Durability::Disk, Durability::Database]
            .into_iter()
            .find(|known| *known as u8 == told)
            .unwrap_or(Durability::Memory)
    }

    /// Needs an admin key. The service also refuses, as [`StoreError::Faulted`], an end that is not after the
    /// opening, and a room that does not exist. A lost answer is [`StoreError::Unknown`] and not repeated, since a
    /// second copy could undo what another operator has put.
    async fn put_coupon(
        &self,
        coupon: &CouponName,
        revision: impl Into<Revision<CouponSettings>> + Send,
    ) -> Answer<Put> {
        let Revision { settings, replaces } = revision.into();
        match replaces {
            Some(replaces) => self.revise_coupon(coupon, &settings, &replaces).await,
            None => self.put(Call::put(path(coupon), &SettingsBody::new(&settings))).await,
        }
    }

    /// Needs an admin key.
    async fn delete_coupon(&self, coupon: &CouponName) -> Answer<()> {
        let told = self.service.call(&Call::delete(path(coupon))).await?;
        if told.is_yes() { Ok(Ok(())) } else { refused(&told, None) }
    }

    /// With a service key, a node of a cluster may show a copy that is a quarter of a second old.
    async fn coupon(&self, coupon: &CouponName) -> Answer<CouponView> {
        let told = self.service.call(&Call::get(path(coupon))).await?;
        if !told.is_yes() {
            return refused(&told, None);
        }
        Ok(Ok(told.read::<CouponShown>()?.view().ok_or_else(|| told.strange())?))
    }

    async fn claim(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<Claimed>> {
        let user = claim.user.clone();
        let effect = match self.claim_early(coupon, claim).await? {
            Ok(effect) => effect,
            Err(refused) => return Ok(Err(refused)),
        };
        let (reply, rewrap): (ClaimReply, fn(Claimed) -> Effect<Claimed>) = match effect {
            Effect::New(reply) => (reply, Effect::New),
            Effect::Again(reply) => (reply, Effect::Again),
        };
        match reply {
            ClaimReply::Stored(claimed) => Ok(Ok(rewrap(claimed))),
            ClaimReply::Placed(_) => Ok(Ok(rewrap(self.stored(coupon, &user).await?))),
        }
    }

    /// The service keeps attributes that are a JSON object, without blanks and with its keys in order, and refuses any
    /// other as [`StoreError::Faulted`].
    async fn claim_early(&self, coupon: &CouponName, claim: Claim) -> Answer<Effect<ClaimReply>> {
        let attributes = claim.attributes.as_ref().map(|text| serde_json::from_str(text.as_str())).transpose();
        let attributes: Option<&RawValue> = attributes
            .map_err(|_| unavailable(FaultKind::Unfit, "the service keeps only attributes that are a JSON object"))?;
        let body = ClaimBody { user: claim.user.as_str(), attributes };
        let call = Call::post_once(format!("{}/claims", path(coupon)), &body, claim.request)?;
        let told = self.service.call(&call).await?;
        if !told.is_yes() {
            return refused(&told, None);
        }
        let shown = told.read::<ClaimShown>()?;
        self.note_durability(&shown);
        let reply = shown.reply().ok_or_else(|| told.strange())?;
        Ok(Ok(effect(&told, reply)))
    }

    async fn claim_of(&self, coupon: &CouponName, user: &str) -> Answer<Option<ClaimRecord>> {
        let may_claim = matches!(UserId::parse(user), Ok(_) | Err(NameError::Reserved));
        if !may_claim || NAME_BYTES_MAX < user.len() {
            // The service refuses such names. No claim has one, so only the coupon is in question.
            return Ok(self.coupon(coupon).await?.map(|_| None));
        }
        let told = self.service.call(&Call::get(format!("{}/claims/{}", path(coupon), segment(user)))).await?;
        if told.is_yes() {
            let shown = told.read::<ClaimShown>()?;
            self.note_durability(&shown);
            return Ok(Ok(Some(shown.record().ok_or_else(|| told.strange())?)));
        }
        match told.problem() {
            Some(problem) if problem.code() == "unknown_claim" => Ok(Ok(None)),
            _ => refused(&told, None),
        }
    }

    /// Needs an admin key. Beyond a thousand claims the later ones are read at a later instant.
    async fn claims(&self, coupon: &CouponName, after: Option<Serial>, count: usize) -> Answer<Page<ClaimRecord>> {
        let (mut items, mut next) = (Vec::new(), after);
        loop {
            // A page of no claims still says whether the coupon exists.
            let limit = (count - items.len()).clamp(1, PAGE_ITEMS_MAX);
            let after = next.map_or(0, Serial::get);
            let told =
                self.service.call(&Call::get(format!("{}/claims?after={after}&limit={limit}", path(coupon)))).await?;
            if !told.is_yes() {
                return refused(&told, None);
            }
            let page = told.read::<ClaimPageShown>()?;
            if count == 0 {
                return Ok(Ok(Page { items, next: None }));
            }
            let shown: Option<Vec<ClaimRecord>> = page.items.iter().map(ClaimShown::record).collect();
            items.extend(shown.ok_or_else(|| told.strange())?);
            next = page.next.and_then(Serial::new);
            if next.is_none() || count <= items.len() {
                return Ok(Ok(Page { items, next }));
            }
        }
    }

    async fn redeem(&self, coupon: &CouponName, redeem: RedeemRequest) -> Answer<Effect<ClaimRecord>> {
        let RedeemRequest { code, user, request } = redeem;
        let body = RedemptionBody { code: &code, user: user.as_ref().map(UserId::as_str) };
        let call = Call::post_once(format!("{}/redemptions", path(coupon)), &body, request)?;
        let told = self.service.call(&call).await?;
        if !told.is_yes() {
            return refused(&told, Some(&code));
        }
        let record = told.read::<ClaimShown>()?.record().ok_or_else(|| told.strange())?;
        Ok(Ok(effect(&told, record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstcome_store::VoucherKey;

    #[test]
    fn a_code_is_read_only_as_the_service_writes_it() {
        let issued = Issued { serial: Serial::new(7).expect("a serial"), issued_at: Timestamp::clamped_us(1) };
        let code = VoucherKey::new([7; 32]).code(issued, "ann");
        assert_eq!(VoucherCode::parse(code.as_str()), Some(code));
        let text = code.as_str();
        let (short, spaced, swapped) = (&text[1..], text.replace('-', " "), format!("{}{}", &text[6..], &text[..6]));
        for other in ["", short, &spaced, &swapped, &text.to_lowercase(), &text.replace('-', ""), &format!("{text} ")] {
            assert_eq!(VoucherCode::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_segment_of_a_path_is_escaped() {
        assert_eq!(segment("A.b_c:d@e-9"), "A.b_c:d@e-9");
        assert_eq!(segment("pass:'/é ?#%"), "pass:%27%2F%C3%A9%20%3F%23%25");
    }
}
