//! Rows of API keys: digests, never a key itself.

use super::Database;
use firstcome_core::api_key::{
    ApiKey, CallerId, KeyBook, KeyCommand, KeyDigest, KeyNumber, KeyOrigin, KeyRejection, KeyScope,
};
use firstcome_core::coupon::Effect;
use firstcome_core::id::{KeyName, RequestId};
use firstcome_core::time::Timestamp;
use firstcome_sql::SqlError;
use firstcome_sql::base::ROLL_BACK;
use firstcome_sql::dialect::{Dialect, Row, list, maybe, number, quoted};
use firstcome_sql::reader::{Reader, wrong};
use tokio::time::Instant;

const COLUMNS: &str =
    "number,name,scope,first_start,digest,caller,created_at,expires_at,revoked_at,request_key,request_body";

fn key_of(row: &Row) -> Result<ApiKey, SqlError> {
    let mut columns = Reader::at(row, 0);
    let number = KeyNumber(columns.small()?);
    let name = columns.maybe_text()?.and_then(|text| KeyName::parse(&text).ok());
    let scope = columns.integer()?;
    let is_of_first_start = columns.integer()? == 1;
    let (digest, caller) = (KeyDigest::from_bytes(columns.bytes()?), CallerId(columns.bytes()?));
    let (created_at, expires_at, revoked_at) = (columns.instant()?, columns.maybe_instant()?, columns.maybe_instant()?);
    let (key, body) = (columns.maybe_blob()?, columns.maybe_integer()?);
    let key = key.map(|bytes| <[u8; 16]>::try_from(bytes).map(u128::from_be_bytes)).transpose();
    let key = key.map_err(|_| wrong("an idempotency key of another length"))?;
    Ok(ApiKey {
        number,
        name: name.ok_or_else(|| wrong("an API key without a name"))?,
        scope: scope_of(scope).ok_or_else(|| wrong("an API key of an unknown scope"))?,
        origin: if is_of_first_start { KeyOrigin::FirstStart } else { KeyOrigin::Made },
        digest,
        caller,
        created_at,
        expires_at,
        revoked_at,
        request: key.zip(body).map(|(key, body)| RequestId { key, body: body.cast_unsigned() }),
    })
}

/// The scope with this number.
fn scope_of(number: i64) -> Option<KeyScope> {
    KeyScope::ALL.into_iter().find(|scope| number_of(*scope) == number)
}

const fn number_of(scope: KeyScope) -> i64 {
    match scope {
        KeyScope::View => 1,
        KeyScope::Service => 2,
        KeyScope::Admin => 3,
    }
}

impl Database {
    /// Reads all keys.
    pub(crate) async fn api_keys(&self) -> Result<KeyBook, SqlError> {
        let rows = self.base.read(format!("SELECT {COLUMNS} FROM firstcome_api_key ORDER BY number;")).await?;
        Ok(KeyBook::restore(rows.iter().map(key_of).collect::<Result<Vec<_>, _>>()?))
    }

    /// Changes the keys in one transaction, by the clock of the server. It is on disk when this returns.
    pub(crate) async fn change_api_keys(
        &self,
        command: &KeyCommand,
    ) -> Result<Result<Effect<ApiKey>, KeyRejection>, SqlError> {
        let mut attempts = self.attempts();
        loop {
            match self.try_change_api_keys(command, attempts.until).await {
                // Another node may have changed them just now.
                Err(error) if attempts.again(&error).await => {}
                done => return done,
            }
        }
    }

    async fn try_change_api_keys(
        &self,
        command: &KeyCommand,
        until: Instant,
    ) -> Result<Result<Effect<ApiKey>, KeyRejection>, SqlError> {
        let mut session = self.base.session(until).await?;
        let begin = self.dialect().words().begin;
        let rows =
            session.ask(format!("{begin}SELECT {COLUMNS} FROM firstcome_api_key ORDER BY number FOR UPDATE;")).await?;
        // After the locks: a change that this one waited for is not later than it.
        let now = session.ask(format!("SELECT {};", self.clock())).await?;
        let now = now.first().ok_or_else(super::coupon::gone)?;
        let now = Reader::at(now, 0).instant()?;
        let mut book = KeyBook::restore(rows.iter().map(key_of).collect::<Result<Vec<_>, _>>()?);
        let (effect, change) = match book.apply(command, now) {
            Ok(judged) => judged,
            Err(rejection) => {
                self.base.end(session, ROLL_BACK).await?;
                return Ok(Err(rejection));
            }
        };
        if change.put.is_empty() && change.forget.is_empty() {
            self.base.end(session, ROLL_BACK).await?;
            return Ok(Ok(effect));
        }
        let mut text = String::new();
        if !change.forget.is_empty() {
            let numbers = list(&change.forget, |text, KeyNumber(forgotten)| number(text, *forgotten));
            text.push_str(&format!("DELETE FROM firstcome_api_key WHERE number IN ({numbers});"));
        }
        change.put.iter().for_each(|key| self.put_api_key(&mut text, key));
        session.run(text).await?;
        self.commit(session).await?;
        Ok(Ok(effect))
    }

    fn put_api_key(&self, text: &mut String, key: &ApiKey) {
        text.push_str(&format!("INSERT INTO firstcome_api_key ({COLUMNS}) VALUES ("));
        number(text, key.number.0);
        text.push(',');
        quoted(text, key.name.as_str());
        text.push(',');
        number(text, number_of(key.scope));
        text.push_str(if key.origin == KeyOrigin::FirstStart { ",1," } else { ",0," });
        self.dialect().bytes(text, key.digest.as_bytes());
        text.push(',');
        self.dialect().bytes(text, &key.caller.0);
        text.push(',');
        number(text, key.created_at.as_us());
        for instant in [key.expires_at, key.revoked_at] {
            text.push(',');
            maybe(text, instant.map(Timestamp::as_us));
        }
        match key.request {
            Some(RequestId { key, body }) => {
                text.push(',');
                self.dialect().bytes(text, &key.to_be_bytes());
                text.push(',');
                number(text, body.cast_signed());
            }
            None => text.push_str(",NULL,NULL"),
        }
        text.push_str(match self.dialect() {
            Dialect::Postgres => {
                ") ON CONFLICT (number) DO UPDATE SET expires_at=excluded.expires_at,revoked_at=excluded.revoked_at \
                 WHERE firstcome_api_key.digest=excluded.digest;"
            }
            Dialect::MySql => ") ON DUPLICATE KEY UPDATE expires_at=VALUES(expires_at),revoked_at=VALUES(revoked_at);",
        });
    }
}
