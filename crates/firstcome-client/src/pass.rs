//! What a program needs that verifies passes by their signature: the public keys, and the admissions that have not ended.

use crate::HttpStore;
use crate::api_key::{ApiKeyReply, refusal};
use crate::call::{Call, CallReply};
use crate::instant;
use crate::room::{PassesShown, path, refused};
use firstcome_store::core::id::{RoomName, UserId};
use firstcome_store::core::room::TicketNumber;
use firstcome_store::core::time::Timestamp;
use firstcome_store::{LiveAdmissions, RoomAnswer, StoreError};
use http::StatusCode;
use http::header::{ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use serde::Deserialize;
use serde_json::json;

/// Says when the items of an answer were true, also where it has no body.
const AS_OF: HeaderName = HeaderName::from_static("x-firstcome-as-of");

/// A public key of passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassPublicKey {
    /// The number in the footer of the passes that this key signed.
    pub id: u32,
    /// The key as PASERK: `k4.public.…`.
    pub paserk: String,
}

/// The keys of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassPublicKeys {
    /// The keys, the signing one first. A pass of any other key is void.
    pub keys: Vec<PassPublicKey>,
    /// The implicit assertion of PASETO that every pass is signed with.
    pub implicit_assertion: String,
}

/// The claims of a pass. That they were read says nothing of the signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassClaims {
    /// The room that admitted the visitor.
    pub room: RoomName,
    /// The number of the ticket in the room.
    pub number: TicketNumber,
    /// The room's number of this admission.
    pub admission: u64,
    /// The user of the ticket, if a service key joined for one.
    pub user: Option<UserId>,
    /// The instant of the admission.
    pub issued_at: Timestamp,
    /// When the pass ends. The pass is invalid at this instant.
    pub expires_at: Timestamp,
}

/// The name of one list of admissions: the `ETag` of the answer that had it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionsTag(HeaderValue);

/// What has become of a list of admissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdmissionsChange {
    /// The list of this tag is true still.
    Same {
        /// When it was, by the wall clock of the service.
        as_of: Timestamp,
    },
    /// There is another list.
    New {
        /// The list.
        admissions: LiveAdmissions,
        /// Names the list in the next request.
        tag: Option<AdmissionsTag>,
    },
}

#[derive(Deserialize)]
struct KeyShown {
    kid: String,
    public_key: String,
}

#[derive(Deserialize)]
struct KeysShown {
    items: Vec<KeyShown>,
    implicit_assertion: String,
}

/// What a revocation of a pass key left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevokedPassKey {
    /// Whether the key was gone before: revoked earlier, or forgotten after the end of its last pass. Also true if the answer to
    /// the first of several attempts was lost.
    pub was_gone: bool,
    /// The keys whose passes are accepted from now on, the signing one first.
    pub keys: Vec<PassPublicKey>,
}

#[derive(Deserialize)]
struct RevocationShown {
    was_gone: bool,
    items: Vec<KeyShown>,
}

#[derive(Deserialize)]
struct ClaimsShown {
    room: String,
    number: u32,
    slot: u64,
    user: Option<String>,
    iat: String,
    exp: String,
}

impl PassClaims {
    /// Reads the payload of a pass; `None` if it does not have the form of one. A claim that this version does not know
    /// is left out.
    pub fn read(payload: &str) -> Option<Self> {
        let ClaimsShown { room, number, slot, user, iat, exp } = serde_json::from_str(payload).ok()?;
        Some(Self {
            room: RoomName::parse(&room).ok()?,
            number: TicketNumber::new(number)?,
            admission: slot,
            user: user.as_deref().map(UserId::parse).transpose().ok()?,
            issued_at: instant::parse(&iat)?,
            expires_at: instant::parse(&exp)?,
        })
    }
}

fn as_of(told: &CallReply) -> Result<Timestamp, StoreError> {
    let text = told.header(&AS_OF).and_then(|value| value.to_str().ok());
    text.and_then(instant::parse).ok_or_else(|| told.strange())
}

fn public_keys(shown: Vec<KeyShown>) -> Option<Vec<PassPublicKey>> {
    let key = |shown: KeyShown| Some(PassPublicKey { id: shown.kid.parse().ok()?, paserk: shown.public_key });
    shown.into_iter().map(key).collect()
}

fn keys_of(told: &CallReply) -> Result<PassPublicKeys, StoreError> {
    let KeysShown { items, implicit_assertion } = told.read()?;
    Ok(PassPublicKeys { keys: public_keys(items).ok_or_else(|| told.strange())?, implicit_assertion })
}

impl HttpStore {
    /// Reads the public keys of passes. Any key of the service may ask. One request; repeats as every read does.
    ///
    /// Dropping the future has no effect at the service.
    pub async fn pass_keys(&self) -> Result<PassPublicKeys, StoreError> {
        let told = self.service.call(&Call::get("/v1/pass-keys".to_owned())).await?;
        if !told.is_yes() {
            return Err(told.refused());
        }
        keys_of(&told)
    }

    /// Signs passes with a new key from now on. Passes of the other keys stay valid until they end. Needs an admin key. Returns
    /// the keys after that. A repeat after a lost answer may make one key more, which does no harm.
    pub async fn rotate_pass_key(&self) -> ApiKeyReply<PassPublicKeys> {
        let told = self.service.call(&Call::post("/v1/pass-keys".to_owned(), &json!({}))).await?;
        if told.is_yes() { Ok(Ok(keys_of(&told)?)) } else { Ok(Err(refusal(&told)?)) }
    }

    /// Revokes a pass key: the service refuses its passes from the answer on, and other nodes about a second later. If the key
    /// was the signing one, a new one signs. A second time has no effect. Needs an admin key. Refused: `unknown_pass_key`.
    pub async fn revoke_pass_key(&self, id: u32) -> ApiKeyReply<RevokedPassKey> {
        let told = self.service.call(&Call::delete(format!("/v1/pass-keys/{id}"))).await?;
        if !told.is_yes() {
            return Ok(Err(refusal(&told)?));
        }
        let RevocationShown { was_gone, items } = told.read()?;
        Ok(Ok(RevokedPassKey { was_gone, keys: public_keys(items).ok_or_else(|| told.strange())? }))
    }

    /// Reads the admissions of a room that have not ended, unless they are those of `known`. Needs a service key. One
    /// request, and no body while nothing has changed; the service looks at each slot. Refused: `unknown_room`.
    ///
    /// Dropping the future has no effect at the service.
    pub async fn admissions_since(
        &self,
        room: &RoomName,
        known: Option<&AdmissionsTag>,
    ) -> RoomAnswer<AdmissionsChange> {
        let mut call = Call::get(format!("{}/passes", path(room)));
        if let Some(AdmissionsTag(tag)) = known {
            call = call.header(IF_NONE_MATCH, tag.clone());
        }
        let told = self.service.call(&call).await?;
        if told.status() == StatusCode::NOT_MODIFIED && known.is_some() {
            return Ok(Ok(AdmissionsChange::Same { as_of: as_of(&told)? }));
        }
        if !told.is_yes() {
            return refused(&told);
        }
        let admissions = told.read::<PassesShown>()?.admissions().ok_or_else(|| told.strange())?;
        let tag = told.header(&ETAG).cloned().map(AdmissionsTag);
        Ok(Ok(AdmissionsChange::New { admissions, tag }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str =
        r#"{"room":"sale","number":7,"slot":9,"user":"ann","iat":"2030-01-01T00:00:00Z","exp":"2030-01-01T00:15:00Z"}"#;

    #[test]
    fn claims_are_read_as_the_service_writes_them() {
        let claims = PassClaims::read(FULL).expect("claims");
        assert_eq!((claims.room.as_str(), claims.number.get(), claims.admission), ("sale", 7, 9));
        assert_eq!(claims.user.as_ref().map(UserId::as_str), Some("ann"));
        assert_eq!(claims.expires_at.as_us() - claims.issued_at.as_us(), 900_000_000);
        let anonymous = FULL.replace(r#""user":"ann","#, "");
        assert_eq!(PassClaims::read(&anonymous).map(|claims| claims.user), Some(None));
        for (from, to) in [
            ("sale", "-"),
            (":7,", ":0,"),
            (":9,", ":-9,"),
            ("ann", "a b"),
            ("00:15:00Z", "00:15"),
            ("\"slot\":9,", ""),
            ("\"slot\":9,", "\"slot\":9,\"slot\":8,"),
            ("}", ""),
        ] {
            assert_eq!(PassClaims::read(&FULL.replace(from, to)), None, "{from} is {to}");
        }
    }
}
