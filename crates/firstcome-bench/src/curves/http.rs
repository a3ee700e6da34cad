//! How requests over HTTP change with connections and with the size of a claim.

use super::{Curve, CurvesArgs, order};
use crate::coupons::Scratch;
use crate::failure::Failure;
use crate::field::Progress;
use crate::http::{KEY, Service, claims, fresh_body, get};
use crate::load::{Aim, Shot, fire};
use anyhow::Context;
use std::time::Duration;

const CONNECTIONS: [u32; 5] = [16, 64, 256, 1_024, 4_096];
/// Bytes of the attributes of a claim: at most 1 KiB.
const PAYLOADS: [u32; 4] = [16, 64, 256, 1_000];
/// The connections of the curve over payloads.
const CONNECTIONS_OF_PAYLOADS: usize = 64;

const CLAIMS: &str = "claims";
const HEALTH: &str = "/healthz";

/// Measures both curves on one service.
pub(super) fn measure(args: &CurvesArgs, progress: &Progress) -> Result<Vec<Curve>, Failure> {
    Ok(both(args, progress)?)
}

fn both(args: &CurvesArgs, progress: &Progress) -> anyhow::Result<Vec<Curve>> {
    let points: Vec<u32> = CONNECTIONS.into_iter().filter(|connections| *connections <= args.connections).collect();
    progress.expect((points.len() + PAYLOADS.len()) * args.rounds as usize);
    let title = "Durable claims over HTTP";
    let mut connections = Curve::new("connections", title, "requests per second", "connections", &[CLAIMS, HEALTH]);
    let title = "Durable claims over HTTP, by size";
    let mut payload = Curve::new("payload", title, "claims per second", "bytes of attributes", &[CLAIMS]);
    for round in 0..args.rounds {
        for count in order(&points, round) {
            progress.step(&format!("{count} connections, round {}", round + 1));
            let rates = on_new_service(args, |service, time| {
                let claims = load(service, &claims("open", fresh_body), count as usize, 201, time)?;
                Ok([claims, load(service, &get("/healthz"), count as usize, 200, time)?])
            });
            let [claims, health] = rates?;
            connections.add(CLAIMS, count, claims);
            connections.add(HEALTH, count, health);
        }
        for bytes in order(&PAYLOADS, round) {
            progress.step(&format!("{bytes} bytes, round {}", round + 1));
            let shot = with_attributes(bytes);
            let rate = on_new_service(args, |service, time| load(service, &shot, CONNECTIONS_OF_PAYLOADS, 201, time))?;
            payload.add(CLAIMS, bytes, rate);
        }
    }
    Ok(vec![connections, payload])
}

/// Runs a load on a service with an empty store: each point begins with the same one.
fn on_new_service<T>(
    args: &CurvesArgs,
    measure: impl FnOnce(&Service, Duration) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let scratch = Scratch::new(&args.data, "curves-http")?;
    let directory = scratch.0.to_str().context("the directory's name is not text")?;
    let coupon = ["--coupon", "open=100000000"];
    let service = Service::start(&[&["serve", "--listen", "127.0.0.1:0", "--data", directory], &coupon[..]].concat())?;
    measure(&service, args.time)
}

fn load(service: &Service, shot: &Shot, connections: usize, status: u16, time: Duration) -> anyhow::Result<f64> {
    let load = fire(service.address, shot, connections, time)?;
    load.expect("a request", &[status])?;
    Ok(load.per_second())
}

/// Returns claims whose attributes have so many bytes.
fn with_attributes(bytes: u32) -> Shot {
    let body: fn(usize, usize) -> String = match bytes {
        ..=16 => |connection, number| sized::<16>(connection, number),
        17..=64 => |connection, number| sized::<64>(connection, number),
        65..=256 => |connection, number| sized::<256>(connection, number),
        _ => |connection, number| sized::<1_000>(connection, number),
    };
    let aim = Aim::One("/v1/coupons/open/claims".into());
    Shot { method: "POST", aim, key: Some(KEY.into()), pass: None, body }
}

/// The bytes of `{"a":""}`.
const AROUND: usize = 8;

fn sized<const BYTES: usize>(connection: usize, number: usize) -> String {
    let filling = "x".repeat(BYTES - AROUND);
    format!(r#"{{"user":"user-{connection:03}-{number:08}","attributes":{{"a":"{filling}"}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_bytes_of_their_point() {
        for bytes in PAYLOADS {
            let body = (with_attributes(bytes).body)(1, 2);
            let value: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!(value["attributes"].to_string().len(), bytes as usize);
        }
    }
}
