//! Waiting rooms in the field: polls and joins over HTTP, by firstcome and by a sorted set of Redis behind a plain
//! route.

use super::{POLLED, again, fill};
use crate::coupons::Scratch;
use crate::failure::Failure;
use crate::field::table::{Sample, Table, Way};
use crate::field::{FieldArgs, Progress};
use crate::http::{KEY, Service, fresh_body, get, no_body};
use crate::load::{Aim, Load, Shot, fire};
use crate::output::grouped;
use crate::redis_set::SORTED_SET;
use anyhow::Context;
use firstcome_test_servers::{Durability, Kind, Options, Server};
use std::path::Path;
use std::time::Duration;

/// Connections over HTTP.
const CONNECTIONS: usize = 64;
/// A waiting room of another project, which is a Go module.
const ANTEROOM: &str = "anteroom (Go)";
const NO_ANTEROOM: &str = "the Go module proxy does not serve github.com/rsendz/anteroom";

/// One kind of request to one service.
struct Requests<'a> {
    name: &'static str,
    service: &'a Service,
    shot: Shot,
    status: u16,
    durable: Option<bool>,
    note: Option<&'static str>,
    samples: Vec<Sample>,
}

/// Measures both kinds of request, each round beside the empty route.
pub(crate) fn field(args: &FieldArgs, progress: &Progress) -> Result<Vec<Table>, Failure> {
    Ok(measure(args, progress)?)
}

fn measure(args: &FieldArgs, progress: &Progress) -> anyhow::Result<Vec<Table>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let scratch = Scratch::new(&args.data, "field-rooms")?;
    let directory = scratch.0.join("rooms");
    std::fs::create_dir(&directory)?;
    progress.expect(args.rounds as usize + 1);
    progress.step("rooms: the line forms");
    let (tickets, joined) = fill(&directory, args.people, &runtime)?;
    anyhow::ensure!(joined.correct == Some(true), "the line does not hold the people who joined");
    let options = Options::new(Durability::Quick).within(&scratch.0);
    let redis = runtime.block_on(Server::start(Kind::Redis, &options))?;
    let members = runtime.block_on(line_up(redis.url(), args.people))?;
    let ours = serve(&directory)?;
    let other = Service::start(&["empty-route", "--redis", redis.url()])?;
    let poll =
        |paths: Vec<String>| Shot { method: "GET", aim: Aim::Many(paths.into()), key: None, pass: None, body: no_body };
    let join = |path: &str| Shot {
        method: "POST",
        aim: Aim::One(path.into()),
        key: Some(KEY.into()),
        pass: None,
        body: fresh_body,
    };
    let asked = |name, service, shot, status| Requests {
        name,
        service,
        shot,
        status,
        durable: None,
        note: None,
        samples: Vec::new(),
    };
    let mut polls = [
        asked("firstcome", &ours, poll(tickets), 200),
        asked("sorted set, ZRANK at each poll", &other, poll(members), 200),
    ];
    let mut joins = [
        asked("firstcome", &ours, join("/v1/rooms/joins/tickets"), 201),
        asked("sorted set, INCR and ZADD", &other, join("/zadd"), 200),
    ];
    (joins[0].durable, joins[1].durable) = (Some(true), Some(false));
    polls[1].note = Some("the place counts people who have gone away; nothing admits");
    for round in 0..args.rounds {
        progress.step(&format!("rooms: round {}", round + 1));
        let empty = load(&other, &get("/empty"), 200, args.time)?;
        for one in polls.iter_mut().chain(&mut joins) {
            // Users of the first round have a place already: other users join in the next rounds.
            let shot =
                if round == 0 || one.durable.is_none() { one.shot.clone() } else { again(&one.shot, round as usize)? };
            let load = load(one.service, &shot, one.status, args.time).context(one.name)?;
            one.samples.push(Sample {
                per_second: load.per_second(),
                limit: Some(empty.per_second()),
                p99_us: Some(load.times.value_at_quantile(0.99) as f64),
                ..Sample::default()
            });
        }
    }
    let people = grouped(u64::from(args.people));
    Ok(vec![
        table("rooms-polls", format!("Polls of a place over HTTP, {people} people in line"), "polls per second", polls),
        table("rooms-joins", "Joins over HTTP".into(), "joins per second", joins),
    ])
}

fn table(name: &'static str, title: String, unit: &'static str, asked: [Requests<'_>; 2]) -> Table {
    let mut table = Table::new(name, title, unit);
    for Requests { name, durable, note, samples, .. } in asked {
        let ours = name == "firstcome";
        let way = Way { name: name.to_owned(), ours, limit: "an empty axum route", durable, note };
        table.add(way, None, &samples, None);
    }
    table.leave_out(ANTEROOM, NO_ANTEROOM);
    table
}

fn serve(directory: &Path) -> anyhow::Result<Service> {
    let directory = directory.to_str().context("the directory's name is not text")?;
    Service::start(&["serve", "--listen", "127.0.0.1:0", "--data", directory])
}

fn load(service: &Service, shot: &Shot, status: u16, time: Duration) -> anyhow::Result<Load> {
    let load = fire(service.address, shot, CONNECTIONS, time)?;
    load.expect("a request", &[status])?;
    Ok(load)
}

/// Puts so many people into the sorted set, and returns the paths of some of them.
async fn line_up(url: &str, people: u32) -> anyhow::Result<Vec<String>> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (members, every) = ((0..people).collect::<Vec<_>>(), (people / POLLED).max(1));
    for some in members.chunks(1_000) {
        let mut add = redis::cmd("ZADD");
        add.arg(SORTED_SET);
        for number in some {
            add.arg(number).arg(format!("user-{number:011}"));
        }
        add.query_async::<()>(&mut connection).await?;
    }
    Ok(members.iter().step_by(every as usize).map(|number| format!("/zrank/user-{number:011}")).collect())
}
