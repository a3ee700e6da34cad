//! `firstcome gate`: a waiting room before a site. It is a service with one more port, which visitors of the site use.

use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::plaintext::{Protocol, service_destination};
use crate::serve::{self, ServiceArgs};
use anyhow::{Context, anyhow};
use clap::Args;
use firstcome::core::id::RoomName;
use firstcome::core::room::appearance::{Appearance, Logo};
use firstcome::core::room::{Admit, RoomSettings};
use firstcome_server::gate::{GateConfig, PathRule, PathRules, Upstream};
use firstcome_server::{App, appearance_of_json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a slot lasts without any contact: as for a room that the API makes.
const IDLE_TTL_MS: u64 = 300_000;

/// The arguments of `firstcome gate`.
#[derive(Args)]
pub struct GateArgs {
    /// The site, such as http://127.0.0.1:3000
    #[arg(long, env = "FIRSTCOME_UPSTREAM", value_name = "URL")]
    upstream: Upstream,
    /// The room of those who wait for the site
    #[arg(long, value_name = "NAME", value_parser = room)]
    room: RoomName,
    /// How fast visitors are admitted, such as 100/s or 10/500ms. Makes the room if it is not there
    #[arg(long, value_name = "N/TIME", value_parser = admit)]
    admit: Option<Admit>,
    /// Visitors inside at once. Makes the room if it is not there
    #[arg(long, value_name = "N")]
    max_active: Option<u32>,
    /// Time within which a visitor who joined must poll, or loses the place, such as 2m; for a room that the gate makes
    /// [default: no such time]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    first_poll: Option<Duration>,
    /// Path that needs a pass, as /checkout, or as /checkout/* for it and all below it [default: all paths]
    #[arg(long, value_name = "PATH")]
    path: Vec<PathRule>,
    /// Path that needs no pass, an exception of the others, such as /robots.txt or /static/*
    #[arg(long, value_name = "PATH")]
    open_path: Vec<PathRule>,
    /// File that says how the page of the room looks, as the body of PUT /v1/rooms/{room}/appearance; set at each start
    #[arg(long, value_name = "FILE")]
    appearance: Option<PathBuf>,
    /// Picture at the head of the page: PNG, JPEG, WebP or SVG; set at each start
    #[arg(long, value_name = "FILE")]
    logo: Option<PathBuf>,
    /// Lower the rate, down to a quarter, while more than a tenth of the site's answers take longer than this to begin, or
    /// more than a twentieth fail [default: the rate does not depend on the site]
    #[arg(long, env = "FIRSTCOME_SLOW_AFTER", value_name = "TIME", value_parser = duration)]
    slow_after: Option<Duration>,
    /// Address for visitors of the site
    #[arg(long, env = "FIRSTCOME_GATE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Address for operators and back ends, where the whole API is
    #[arg(long, env = "FIRSTCOME_LISTEN", value_name = "ADDRESS", default_value_t = serve::LISTEN)]
    service_listen: SocketAddr,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// What the command line says of a gate.
pub(crate) struct GatePlan {
    pub(crate) listen: SocketAddr,
    pub(crate) config: GateConfig,
    /// The limits of the command line, if it has any.
    settings: Option<RoomSettings>,
    /// How the page looks from this start on, and its logo, if the command line says so.
    look: (Option<Appearance>, Option<Logo>),
}

fn room(text: &str) -> Result<RoomName, String> {
    RoomName::parse(text).map_err(|error| error.to_string())
}

/// Parses a rate: `100/s`, `10/500ms`, `2/1m`.
fn admit(text: &str) -> anyhow::Result<Admit> {
    let wrong = || anyhow!("{text:?} is not a rate; write 100/s, 10/500ms or 2/1m");
    let (count, time) = text.split_once('/').ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    let one = format!("1{time}");
    let time = if time.starts_with(|first: char| first.is_ascii_digit()) { time } else { &one };
    let every = duration(time).map_err(|_| wrong())?;
    Ok(Admit { count, every_ms: u64::try_from(every.as_millis()).map_err(|_| wrong())? })
}

/// What the command line can say of a room.
const fn limits(settings: &RoomSettings) -> (Option<Admit>, Option<u32>, Option<u64>) {
    (settings.admit, settings.max_active, settings.first_poll_ms)
}

/// Reads a file of the command line.
fn read(flag: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}: check {flag}", path.display()))
}

impl GateArgs {
    fn look(&self) -> anyhow::Result<(Option<Appearance>, Option<Logo>)> {
        let appearance = self.appearance.as_ref().map(|path| {
            let appearance = appearance_of_json(&read("--appearance", path)?);
            appearance.map_err(|says| anyhow!("{}: {says}", path.display()))
        });
        let logo = self
            .logo
            .as_ref()
            .map(|path| Logo::new(&read("--logo", path)?).map_err(|error| anyhow!("{} {error}", path.display())));
        Ok((appearance.transpose()?, logo.transpose()?))
    }

    fn plan(self) -> Result<(SocketAddr, ServiceArgs, GatePlan), Failure> {
        let settings = (self.admit.is_some() || self.max_active.is_some()).then(|| RoomSettings {
            admit: self.admit,
            max_active: self.max_active,
            idle_ttl_ms: Some(IDLE_TTL_MS),
            first_poll_ms: self.first_poll.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..RoomSettings::defaults()
        });
        if self.first_poll.is_some() && settings.is_none() {
            return Err(Failure::Usage(anyhow!(
                "--first-poll is for a room that the gate makes: give --admit, --max-active or both with it"
            )));
        }
        if let Some(settings) = &settings {
            settings.check().map_err(|(field, says)| match field {
                "first_poll_ms" => Failure::Usage(anyhow!("--first-poll: {says}")),
                _ => Failure::Usage(anyhow!("--{}", says.replace("max_active", "max-active"))),
            })?;
        }
        if let Some(site) = service_destination(&self.upstream.to_string()) {
            self.service.transport().settled()?.plaintext.check(Protocol::Site, &site)?;
        }
        let look = self.look().map_err(Failure::Usage)?;
        let paths = PathRules { gated: self.path, open: self.open_path };
        let config = GateConfig { room: self.room, upstream: self.upstream, paths, slow_after: self.slow_after };
        Ok((self.service_listen, self.service, GatePlan { listen: self.listen, config, settings, look }))
    }
}

impl GatePlan {
    /// Makes the room if it is not there, and sets how its page looks.
    pub(crate) async fn prepare(&self, app: &App) -> Outcome {
        self.make_room(app).await?;
        let (appearance, logo) = &self.look;
        if appearance.is_none() && logo.is_none() {
            return Ok(());
        }
        let mut look = match appearance {
            Some(appearance) => appearance.clone(),
            // A logo alone leaves the rest as an operator has set it.
            None => app.appearance(&self.config.room).await?,
        };
        if logo.is_some() {
            look.logo.clone_from(logo);
        }
        Ok(app.put_appearance(&self.config.room, look).await?)
    }

    /// Makes the room if it is not there. Never changes an existing one: an operator may have changed it.
    async fn make_room(&self, app: &App) -> Outcome {
        let name = &self.config.room;
        match (app.room_settings(name).await?, &self.settings) {
            (Some(there), Some(wanted)) if limits(&there) != limits(wanted) => {
                tracing::warn!(
                    "--admit, --max-active and --first-poll change nothing: room {name} is there with other limits; change them by PATCH /v1/rooms/{name}"
                );
                Ok(())
            }
            (Some(_), _) => Ok(()),
            (None, Some(wanted)) => Ok(app.make_room(name, wanted.clone()).await?),
            (None, None) => {
                Err(Failure::Usage(anyhow!("there is no room {name}: give --admit, --max-active or both to make it")))
            }
        }
    }
}

/// Checks the settings as a start does, and starts nothing.
pub(crate) fn check(args: GateArgs) -> Outcome {
    let (listen, service, gate) = args.plan()?;
    serve::check_with(listen, service, Some(gate))
}

/// Runs the gate and its service until SIGTERM or SIGINT. Call it once in a process.
pub fn run(args: GateArgs) -> Outcome {
    let (listen, service, gate) = args.plan()?;
    serve::run_with(listen, service, Some(gate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_per_time() {
        for (text, count, every_ms) in
            [("100/s", 100, 1_000), ("10/500ms", 10, 500), ("2/1m", 2, 60_000), ("5/h", 5, 3_600_000)]
        {
            assert_eq!(admit(text).unwrap(), Admit { count, every_ms }, "{text}");
        }
        for text in ["", "100", "/s", "100/", "100/d", "-1/s", "1.5/s", "1/s/s", "4294967296/s"] {
            assert!(admit(text).is_err(), "{text}");
        }
    }
}
