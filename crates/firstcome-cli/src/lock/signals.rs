//! The signals that the holder forwards.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Signals that end a process by default, then signals of job control.
const SIGNALS: [Signal; 8] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TSTP, Signal::CONT];

/// Signals to this process, in order of arrival.
pub(super) struct Signals {
    came: UnboundedReceiver<Signal>,
}

impl Signals {
    /// Catches the signals, which then do not end this process. Signals that it was started to ignore (`nohup`, `&` in
    /// a script) stay ignored.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (sender, came) = unbounded_channel();
        let ignored = ignored();
        for wanted in SIGNALS {
            let raw = wanted.as_raw();
            if ignored >> (raw - 1) & 1 == 1 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(raw))?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(wanted).is_ok() {} });
        }
        Ok(Self { came })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        match self.came.recv().await {
            Some(signal) => signal,
            // All of them are ignored.
            None => std::future::pending().await,
        }
    }

    /// Waits for the next signal that ends this process while it has no command.
    pub(super) async fn next_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CONT => {}
                Signal::TSTP => stop_this_process(),
                signal => return signal,
            }
        }
    }
}

/// Stops this process, as the caught signal would have done.
pub(super) fn stop_this_process() {
    // Fails only if the signal does not exist.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Returns the ignored signals, one bit each; none where `/proc` is not readable.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
