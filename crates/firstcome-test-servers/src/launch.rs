//! Checks whether a server answers, and whether it is the right one.

use crate::Kind;
use crate::install::name_of;
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::io;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns whether the server at this address takes commands, and has these files or this process id.
pub(crate) async fn answers(kind: Kind, url: &str, data: &Path, process: u32) -> bool {
    match kind {
        Kind::Postgres => postgres(url).await.is_ok_and(|there| is_same(&there, data)),
        Kind::MariaDb => mariadb(url).await.is_ok_and(|there| is_same(&there, data)),
        // Redis answers while it still loads its files. The line break excludes other lines that end like `loading`.
        Kind::Redis => redis(url).await.is_ok_and(|info| {
            // A sentinel loads nothing.
            let ready = info.contains("\nloading:0\r") || info.contains("_mode:sentinel\r");
            ready && info.contains(&format!("process_id:{process}\r"))
        }),
        // A healthy member has a leader, and so takes commands.
        Kind::Etcd => etcd(url).await.is_ok_and(|(health, members)| {
            // Newer servers with users, 3.6.9 for one, name their members only to root. Only a test of ours has switched users on.
            let is_ours = members.contains(&format!("\"name\":\"{}\"", name_of(data)));
            health.contains("\"health\":\"true\"") && (is_ours || members.contains("user name is empty"))
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

/// Returns the answers about the health and about the members of the cluster.
async fn etcd(url: &str) -> io::Result<(String, String)> {
    Ok((ask_http(url, "GET /health", "").await?, ask_http(url, "POST /v3/cluster/member/list", "{}").await?))
}

/// Sends one request over its own connection. Returns the whole answer with its head.
pub(crate) async fn ask_http(url: &str, what: &str, body: &str) -> io::Result<String> {
    let host = url.rsplit('/').next().unwrap_or_default();
    let mut connection = TcpStream::connect(host).await?;
    let head = format!("{what} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    connection.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}
