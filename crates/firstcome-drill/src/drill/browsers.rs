//! Real browsers among the people of a concert. Each opens the page of the coupon, which leads through the page of its
//! room, and presses what a person would press: "claim", and "reload" when the browser itself says that no server answers.
//!
//! The driver of the browsers is a child process that speaks WebDriver, <https://www.w3.org/TR/webdriver2/>. The browsers
//! hold a pipe of the driver, and end with it, however it ends. On Linux the driver ends with the drill, also when the drill is
//! killed: the kernel then kills it, as `setpriv` of util-linux demands. The standard library could demand that only by
//! `unsafe` code. Without `setpriv` a killed drill leaves its driver behind.

use super::Scratch;
use super::clock::RunClock;
use super::messages::{Request, hash};
use super::record::{PageObservation, PageStory};
use super::server::call_within;
use crate::failure::Failure;
use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const DRIVER: &str = "chromedriver";
/// What `setpriv` ends with if it finds no driver.
const NOT_FOUND: i32 = 127;
/// The longest start of the driver or of a browser, on a machine with much other work.
const START: Duration = Duration::from_secs(120);
/// The longest answer of the driver. A page that is not there in time is asked for again.
const ANSWER: Duration = Duration::from_secs(30);
/// How often the drill reads what a page shows.
const READ: Duration = Duration::from_millis(500);
/// How long a person waits before the next press.
const AGAIN_US: u64 = 5_000_000;
/// How long a page may take to show the end of the sale: the longest poll interval, with its spread.
const LAST_POLL_US: u64 = 75_000_000;

/// Returns what a page shows.
const SHOWN: &str = "\
    const text = name => {
        const element = document.querySelector(`[data-text=${name}]`);
        return element && !(element.closest('[data-row]') || element).hidden ? element.textContent : null;
    };
    return { phase: document.body.dataset.phase || null, ahead: text('ahead'), number: text('number'),
        serial: text('serial'), code: text('code') };";

/// What stands on a page, in its words.
#[derive(Deserialize, Default)]
struct Shown {
    phase: Option<String>,
    ahead: Option<String>,
    number: Option<String>,
    serial: Option<String>,
    code: Option<String>,
}

/// An answer of the driver.
#[derive(Deserialize)]
struct Answer {
    value: Value,
}

/// The driver. It ends when this is dropped, and the browsers with it.
pub(crate) struct Driver {
    process: Child,
    address: SocketAddr,
    profiles: Scratch,
}

/// One browser, with a memory of its own.
pub(crate) struct Browser {
    driver: Rc<Driver>,
    session: String,
}

impl Driver {
    /// Starts the driver. The browsers keep their memories below `parent`. Call it on a thread that lives as long as the driver:
    /// the end of this thread ends the driver.
    pub(crate) fn start(parent: &Path) -> Result<Self, Failure> {
        let profiles = Scratch::named(parent, "browsers")?;
        let absent = || {
            let says =
                "--browser needs Chromium and chromedriver: on Debian, `apt-get install chromium chromium-driver`";
            Failure::Usage(anyhow!(says))
        };
        let spawn = |command: &mut Command| {
            command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        };
        let started = spawn(Command::new("setpriv").args(["--pdeathsig", "KILL", DRIVER]));
        let mut process = started.or_else(|_| spawn(&mut Command::new(DRIVER))).map_err(|_| absent())?;
        let output = process.stdout.take();
        let mut driver = Self { process, address: SocketAddr::from(([127, 0, 0, 1], 0)), profiles };
        let output = output.context("the driver has no output")?;
        // Without a port the driver is dropped, which ends it.
        match port_of(output, START) {
            Ok(port) => driver.address.set_port(port),
            Err(error) => {
                // A process that has ended keeps its status.
                let _ = driver.process.kill();
                let is_absent = driver.process.wait()?.code() == Some(NOT_FOUND);
                return Err(if is_absent { absent() } else { Failure::Unreachable(error) });
            }
        }
        Ok(driver)
    }

    async fn ask(&self, method: &str, path: &[&str], body: Value, patience: Duration) -> anyhow::Result<Value> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let body: &[&str] = if text.is_empty() { &[] } else { &[&text] };
        let request = Request { method, path, body, ..Request::default() };
        let (status, bytes) = call_within(self.address, &request, patience).await?;
        if status != 200 {
            bail!("the driver of the browsers answered {status}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(serde_json::from_slice::<Answer>(&bytes)?.value)
    }
}

/// Waits until the driver says on which port it listens. An error: its output ended without a port, or it has named none
/// within `patience`.
fn port_of(output: impl Read + Send + 'static, patience: Duration) -> anyhow::Result<u16> {
    let (tell, told) = mpsc::channel();
    // A read cannot be given up, so a thread reads. It ends with the driver, or with the line that names the port.
    std::thread::spawn(move || {
        let port = BufReader::new(output).lines().find_map(|line| {
            let line = line.ok()?;
            line.rsplit_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        // Fails only if the wait is over.
        let _ = tell.send(port);
    });
    match told.recv_timeout(patience) {
        Ok(Some(port)) => Ok(port),
        Ok(None) | Err(RecvTimeoutError::Disconnected) => {
            bail!("{DRIVER} ended before it named its port: run it by hand to see why")
        }
        Err(RecvTimeoutError::Timeout) => {
            bail!("{DRIVER} named no port within {} s: run it by hand to see why", patience.as_secs())
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Browser {
    /// Starts so many browsers, one after the other.
    pub(crate) async fn start_all(count: u32, parent: &Path) -> Result<Vec<Self>, Failure> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let driver = Rc::new(Driver::start(parent)?);
        let mut all = Vec::new();
        for at in 0..count {
            all.push(Self::start(Rc::clone(&driver), at).await.map_err(Failure::Unreachable)?);
        }
        Ok(all)
    }

    async fn start(driver: Rc<Driver>, at: u32) -> anyhow::Result<Self> {
        let profile = format!("--user-data-dir={}", driver.profiles.0.canonicalize()?.join(at.to_string()).display());
        // The sandbox of the browser needs rights that a container may not have; the pages are our own.
        let usual = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"];
        let arguments: Vec<&str> = usual.into_iter().chain(["--remote-debugging-pipe", &profile]).collect();
        // The driver answers as soon as a page is under way, and not when it is there.
        let wanted = json!({"pageLoadStrategy": "none", "goog:chromeOptions": {"args": arguments}});
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let session = driver.ask("POST", &["/session"], body, START).await.context("a browser did not start")?;
        let session = session["sessionId"].as_str().context("a browser has no session")?.to_owned();
        Ok(Self { driver, session })
    }

    async fn ask(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.driver.ask("POST", &["/session/", &self.session, path], body, ANSWER).await
    }

    async fn shown(&self) -> anyhow::Result<Shown> {
        let told = self.ask("/execute/sync", json!({"script": SHOWN, "args": []})).await?;
        Ok(serde_json::from_value(told)?)
    }

    /// Presses the button of the form that the page shows in this phase.
    async fn press(&self, phase: &str) -> anyhow::Result<()> {
        let selector = format!("form[data-in~={phase}] button");
        let found = self.ask("/element", json!({"using": "css selector", "value": selector})).await?;
        let element = found.as_object().and_then(|found| found.values().next()?.as_str());
        let element = element.context("the page has no such button")?;
        self.ask(&format!("/element/{element}/click"), json!({})).await?;
        Ok(())
    }

    /// Plays one person, from the planned arrival to the end of the sale or of all patience.
    pub(crate) async fn play(self, plan: Visit, clock: RunClock) -> PageStory {
        let (mut story, mut acted_us) = (PageStory::default(), 0);
        let mut ticks = interval(READ);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while clock.now_us() < plan.ends_us + LAST_POLL_US {
            ticks.tick().await;
            if clock.now_us() < plan.arrives_us {
                continue;
            }
            if story.opened_us.is_none() {
                acted_us = clock.now_us();
                story.opened_us = Some(acted_us);
                self.visit(&plan.address).await;
                continue;
            }
            let asked_us = clock.now_us();
            // A page that is under way cannot be read.
            let Ok(shown) = self.shown().await else { continue };
            // What is under way would be broken off by a second press.
            let may_act = acted_us + AGAIN_US <= asked_us;
            match shown.phase.as_deref() {
                // The browser says that no server answers, or shows nothing yet.
                None if may_act => {
                    acted_us = asked_us;
                    self.visit(&plan.address).await;
                }
                // A press that does not arrive is made again: the page still shows the button.
                Some(phase @ "claim") if may_act => {
                    acted_us = asked_us;
                    let _ = self.press(phase).await;
                }
                _ => {}
            }
            story.add(observed(&shown, asked_us, clock.now_us()));
            if story.is_over() {
                break;
            }
        }
        // The browser also ends with its driver.
        let _ = self.driver.ask("DELETE", &["/session/", &self.session], Value::Null, ANSWER).await;
        story
    }

    async fn visit(&self, address: &str) {
        // Without an answer the page shows nothing, and is asked for again.
        let _ = self.ask("/url", json!({"url": address})).await;
    }
}

/// When a browser opens which page, and when the sale ends.
pub(crate) struct Visit {
    pub(crate) address: String,
    pub(crate) arrives_us: u64,
    pub(crate) ends_us: u64,
}

fn observed(shown: &Shown, asked_us: u64, read_us: u64) -> PageObservation {
    // "1,204 people are ahead of you" has its number; "No one is ahead of you" has none.
    let number = |text: &String| text.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok();
    PageObservation {
        asked_us,
        read_us,
        phase: shown.phase.clone().unwrap_or_default(),
        number: shown.number.as_ref().and_then(number),
        ahead: shown.ahead.as_ref().map(|text| number(text).unwrap_or(0)),
        serial: shown.serial.as_ref().and_then(number),
        code_hash: shown.code.as_deref().map(hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_names_no_port_is_not_waited_for_without_end() {
        let port = |text: &'static str| port_of(text.as_bytes(), START).map_err(|error| error.to_string());
        assert_eq!(port("Starting\nChromeDriver was started successfully on port 4711.\n"), Ok(4_711));
        assert!(port("Exiting\n").is_err_and(|error| error.contains("ended before")));
        // The other end stays open and says nothing.
        let (silent, _open) = std::io::pipe().expect("a pipe");
        let told = port_of(silent, Duration::from_millis(50)).expect_err("it names no port").to_string();
        assert!(told.contains("named no port within"), "{told}");
    }

    #[test]
    fn what_a_page_says_is_read_as_numbers() {
        let text = |text: &str| Some(text.to_owned());
        let waits = Shown {
            phase: text("waiting"),
            ahead: text("1,204 people are ahead of you"),
            number: text("31,007"),
            ..Shown::default()
        };
        let read = observed(&waits, 5, 9);
        assert_eq!((read.ahead, read.number, read.serial), (Some(1_204), Some(31_007), None));
        let next = Shown { ahead: text("No one is ahead of you"), ..Shown::default() };
        assert_eq!(observed(&next, 5, 9).ahead, Some(0));
    }
}
