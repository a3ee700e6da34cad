//! `firstcome-bench gate`: a site behind the gate, beside nginx as a plain proxy before the same site, round by round.
//! nginx checks no pass; the gate checks one with each request.

use super::conditions::Conditions;
use super::coupons::Scratch;
use super::http::{KEY, ROUNDS, Service, get, median_ratio, middle_row, no_body};
use super::load::{Aim, Load, Shot, fire, once};
use super::report::{Report, Target};
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{progress, wants_table};
use anyhow::{Context, bail};
use clap::Args;
use firstcome::edge::Stopwatch;
use firstcome_test_servers::free_port;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const NGINX: &str = "/usr/sbin/nginx";
/// How long nginx and an admission may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Args)]
pub(crate) struct GateArgs {
    /// Directory on a disk, in which scratch directories are made and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Time for each way to the site, in each of five rounds
    #[arg(long, value_parser = duration, default_value = "3s")]
    time: Duration,
    /// Connections of visitors
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Print JSON also on a terminal
    #[arg(long, conflicts_with = "table")]
    json: bool,
    /// Print tables even if the output is not a terminal
    #[arg(long)]
    table: bool,
}

/// An nginx of the benchmark's own.
struct Nginx {
    child: Child,
    address: SocketAddr,
    config: PathBuf,
}

impl Nginx {
    /// Starts it with so many processes. `location` is what it does with each request, `beside` what stands beside its server.
    fn start(directory: &Path, name: &str, processes: usize, beside: &str, location: &str) -> anyhow::Result<Self> {
        let here = directory.join(name);
        fs::create_dir(&here)?;
        let here = fs::canonicalize(here)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let shown = here.display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {shown}/{kind};"))
            .join(" ");
        let text = format!(
            "daemon off; worker_processes {processes}; pid {shown}/pid; error_log {shown}/errors;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 100000000; {paths} {beside}\n\
             server {{ listen {address} backlog=4096; location / {{ {location} }} }} }}\n"
        );
        let config = here.join("nginx.conf");
        fs::write(&config, text)?;
        let mut command = Command::new(NGINX);
        command.arg("-e").arg(here.join("errors")).arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start nginx; `cargo xtask setup` installs it")?;
        let nginx = Self { child, address, config };
        let watch = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            if PATIENCE <= watch.elapsed() {
                bail!("nginx does not listen: {}", fs::read_to_string(here.join("errors")).unwrap_or_default());
            }
            #[expect(clippy::disallowed_methods, reason = "looks again, with a deadline")]
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its processes end with the first one only if that one is asked to stop.
        let mut stop = Command::new(NGINX);
        let stopped = stop.arg("-c").arg(&self.config).args(["-s", "stop"]).stderr(Stdio::null()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Joins the room `site`, and returns the pass.
pub(super) async fn admitted(service: SocketAddr) -> anyhow::Result<String> {
    let shot =
        |method, path: String, body| Shot { method, aim: Aim::One(path), key: Some(KEY.into()), pass: None, body };
    let json = async |shot: Shot| {
        let (status, body) = once(service, &shot).await?;
        serde_json::from_str::<serde_json::Value>(&body).with_context(|| format!("{status}: {body}"))
    };
    let joined = json(shot("POST", "/v1/rooms/site/tickets".into(), |_, _| "{}".into())).await?;
    let ticket = joined["ticket"].as_str().with_context(|| format!("no ticket in {joined}"))?;
    let watch = Stopwatch::start();
    loop {
        let place = json(shot("GET", format!("/v1/rooms/site/tickets/{ticket}"), no_body)).await?;
        if let Some(pass) = place["pass"].as_str() {
            return Ok(pass.to_owned());
        }
        if PATIENCE <= watch.elapsed() {
            bail!("no admission: {place}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn run(args: &GateArgs) -> Outcome {
    let conditions = Conditions::measure(&args.data).map_err(Failure::Usage)?;
    let mut report = Report { conditions, rows: Vec::new(), targets: Vec::new() };
    measure(args, &mut report)?;
    report.print(args.table || wants_table(args.json))
}

fn measure(args: &GateArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new(&args.data, "gate")?;
    let processors = std::thread::available_parallelism()?.get();
    let page = "default_type text/html; return 200 \"a page of the site, which is as short as this line of text\";";
    let site = Nginx::start(&scratch.0, "site", 1, "", page)?;
    let upstream = format!("upstream site {{ server {}; keepalive 512; keepalive_requests 100000000; }}", site.address);
    let forward = "proxy_pass http://site; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
        proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
        proxy_set_header X-Forwarded-Proto $scheme;";
    let proxy = Nginx::start(&scratch.0, "proxy", processors, &upstream, forward)?;
    let door = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let (listen, before) = (door.to_string(), format!("http://{}", site.address));
    let data = scratch.0.join("data");
    let data = data.to_str().context("the directory's name is not text")?;
    let room = ["serve-gate", "--upstream", &before, "--room", "site", "--max-active", "1000", "--listen", &listen];
    let service = Service::start(&[&room[..], &["--service-listen", "127.0.0.1:0", "--data", data]].concat())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pass = runtime.block_on(admitted(service.address))?;

    let ways = [
        ("the site itself", site.address, get("/")),
        ("nginx, a plain proxy", proxy.address, get("/")),
        ("firstcome gate, with a pass", door, Shot { pass: Some(pass), ..get("/") }),
    ];
    let bar = progress(ROUNDS as u64, "rounds");
    let mut crowd: [Vec<Load>; 3] = Default::default();
    let mut alone: [Vec<Load>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (at, (name, address, shot)) in ways.iter().enumerate() {
            for (connections, loads) in [(args.connections, &mut crowd), (1, &mut alone)] {
                let load = fire(*address, shot, connections, args.time)?;
                load.expect(name, &[200])?;
                loads[at].push(load);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [_, plain, gate] = [0, 1, 2];
    report.targets.push(Target::at_least(
        "gate ÷ nginx as a plain proxy",
        median_ratio(&crowd[gate], &crowd[plain]),
        0.7,
    ));
    let more_us = alone[gate].iter().zip(&alone[plain]).map(|(gate, plain)| p50_us(gate) - p50_us(plain));
    let mut more_us: Vec<f64> = more_us.collect();
    more_us.sort_by(f64::total_cmp);
    report.targets.push(Target::at_most("gate − nginx, p50, one connection, µs", more_us[ROUNDS / 2], 200.0));
    for (title, loads) in [("", crowd), (", one connection", alone)] {
        for ((name, _, _), loads) in ways.iter().zip(loads) {
            let row = middle_row("", loads);
            let row = super::report::ReportRow { strategy: format!("{name}{title}"), ..row };
            report.rows.push(if name.starts_with("firstcome") { row } else { row.into_comparison() });
        }
    }
    Ok(())
}

fn p50_us(load: &Load) -> f64 {
    load.times.value_at_quantile(0.5) as f64
}
