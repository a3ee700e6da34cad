//! Whether a server answers, and which one it is.

use crate::Kind;
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::path::Path;

/// Whether the server at this address is the one with these files, or this process, and takes commands.
pub(crate) async fn answers(kind: Kind, url: &str, data: &Path, process: u32) -> bool {
    match kind {
        Kind::Postgres => postgres(url).await.is_ok_and(|there| is_same(&there, data)),
        Kind::MariaDb => mariadb(url).await.is_ok_and(|there| is_same(&there, data)),
        // It answers also while it still reads its files. Another line ends in the same word.
        Kind::Redis => redis(url).await.is_ok_and(|info| {
            // A sentinel has nothing to read.
            let ready = info.contains("\nloading:0\r") || info.contains("redis_mode:sentinel\r");
            ready && info.contains(&format!("process_id:{process}\r"))
        }),
    }
}

fn is_same(there: &str, data: &Path) -> bool {
    Path::new(there.trim_end_matches('/')) == data
}

async fn postgres(url: &str) -> Result<String, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let there = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(there)
}

async fn mariadb(url: &str) -> Result<String, sqlx::Error> {
    let mut connection = MySqlConnection::connect(url).await?;
    let there = sqlx::query_scalar("SELECT CONVERT(@@datadir USING utf8mb4)").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(there)
}

async fn redis(url: &str) -> redis::RedisResult<String> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("INFO").query_async(&mut connection).await
}
