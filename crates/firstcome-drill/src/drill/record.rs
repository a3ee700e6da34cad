//! A compact record of every answer, for the audit at the end.

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Call {
    Join,
    Poll,
    Leave,
    Claim,
    Release,
    Verify,
    View,
    /// A cheat. `Record::value` says which; see [`super::plan::Cheat`].
    Cheat,
}

impl Call {
    pub(crate) const ALL: [Self; 8] =
        [Self::Join, Self::Poll, Self::Leave, Self::Claim, Self::Release, Self::Verify, Self::View, Self::Cheat];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Poll => "poll",
            Self::Leave => "leave",
            Self::Claim => "claim",
            Self::Release => "release",
            Self::Verify => "verify",
            Self::View => "look at coupon",
            Self::Cheat => "cheat",
        }
    }
}

/// The parsed answer: status and code together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reply {
    /// No answer: the connection broke. The effect may have happened.
    Lost,
    Joined,
    JoinedAgain,
    Waiting,
    Admitted,
    Expired,
    Left,
    Done,
    Issued,
    AlreadyIssued,
    SoldOut,
    InvalidPass,
    PassRequired,
    Unauthorized,
    UnknownTicket,
    RoomFull,
    RoomClosed,
    RateLimited,
    Overloaded,
    StoreUnavailable,
    OutcomeUnknown,
    NotOpen,
    Valid,
    Invalid,
    CouponOpen,
    CouponSoldOut,
    /// An answer that the API does not allow for this call.
    Unexpected,
}

impl Reply {
    /// Whether the outcome is unknown, so that the person asks again.
    pub(crate) const fn is_undecided(self) -> bool {
        matches!(
            self,
            Self::Lost | Self::RateLimited | Self::Overloaded | Self::StoreUnavailable | Self::OutcomeUnknown
        )
    }
}

/// One request and its answer. Times are in microseconds since the start. Its effect, if it had one, happened between
/// sent and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) sent_us: u64,
    pub(crate) took_us: u32,
    pub(crate) person: u32,
    /// The number of the ticket that the answer told or the request named; 0 for none.
    pub(crate) number: u32,
    /// The position of a waiting ticket, the index in `History::admissions` of an admitted one, the serial of a claim,
    /// or the kind of a cheat.
    pub(crate) value: u32,
    pub(crate) poll_after_ms: u32,
    /// How much older than the request the state in the answer is.
    pub(crate) age_ms: u16,
    pub(crate) call: Call,
    pub(crate) reply: Reply,
}

impl Record {
    pub(crate) const fn received_us(&self) -> u64 {
        self.sent_us + self.took_us as u64
    }

    /// Returns the earliest instant that the answer can describe.
    pub(crate) const fn about_us(&self) -> u64 {
        self.sent_us.saturating_sub(self.age_ms as u64 * 1_000)
    }

    /// Whether this is an answered join or poll, so that the room saw the ticket.
    pub(crate) const fn is_contact(&self) -> bool {
        matches!(self.call, Call::Join | Call::Poll)
            && matches!(self.reply, Reply::Joined | Reply::JoinedAgain | Reply::Waiting | Reply::Admitted)
    }
}

/// An admission that a ticket was told, with the instant of the first such answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) number: u32,
    /// The room's instant of the admission, on the drill's clock.
    pub(crate) admitted_us: u64,
    pub(crate) received_us: u64,
    pub(crate) expires_us: u64,
}

/// The holder of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Holder {
    /// `pass:{number}`.
    Pass(u32),
    /// `u{person}`.
    User(u32),
    /// Any other name, by its hash.
    Other(u64),
}

/// An acknowledged claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimReceipt {
    pub(crate) received_us: u64,
    pub(crate) serial: u32,
    pub(crate) code_hash: u64,
    pub(crate) holder: Holder,
    /// The holder that it should have.
    pub(crate) expected: Holder,
}

/// A claim in the list at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedClaim {
    pub(crate) serial: u32,
    pub(crate) code_hash: u64,
    pub(crate) holder: Holder,
}

/// A read of the room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomObservation {
    pub(crate) received_us: u64,
    pub(crate) about_us: u64,
    pub(crate) waiting: u64,
    pub(crate) active: u64,
    pub(crate) serving: u64,
    pub(crate) rate_per_s: f64,
}

/// A kind of server that the drill can kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The service, or one of its nodes.
    Server,
    Redis,
    Sql,
}

impl Target {
    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Redis => "redis",
            Self::Sql => "sql",
        }
    }
}

/// A time during which a server was down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    pub(crate) target: Target,
    /// Whether its data were lost too.
    pub(crate) loses: bool,
    /// Whether it lost what was known of people in line beyond what is durable. An embedded server loses it with its
    /// memory. A Redis loses it with the logs of the rooms. A node of a cluster has only a copy of the log, and SQL
    /// has what is durable.
    pub(crate) forgets: bool,
    pub(crate) killed_us: u64,
    pub(crate) ready_us: u64,
    pub(crate) in_flight: u64,
}

/// How the slots came back after the sale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotReturn {
    pub(crate) active: u64,
    pub(crate) alive: u64,
    pub(crate) took_us: u64,
}

/// The settings that the audit checks the server against.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) stock: u32,
    pub(crate) people: u32,
    pub(crate) opens_us: u64,
    pub(crate) rate_per_s: f64,
    pub(crate) slice: f64,
    pub(crate) active_max: u64,
    pub(crate) claim_window_us: u64,
    /// How long a slot lasts if it is not released.
    pub(crate) active_ttl_us: u64,
    /// How far two readings of the same instant may differ: resolution of the text, and another machine's clock.
    pub(crate) reading_us: u64,
    /// Whether nodes of a cluster share the room.
    pub(crate) is_shared: bool,
    /// How old the state may be from which a node answers: 0 for a single server.
    pub(crate) stale_us: u64,
}

/// What a page showed, and between which instants it was read.
#[derive(Clone, Debug)]
pub(crate) struct PageObservation {
    pub(crate) asked_us: u64,
    pub(crate) read_us: u64,
    /// The phase by the page's own name; empty while it shows nothing of ours.
    pub(crate) phase: String,
    pub(crate) number: Option<u32>,
    /// How many people it says are ahead.
    pub(crate) ahead: Option<u32>,
    pub(crate) serial: Option<u32>,
    pub(crate) code_hash: Option<u64>,
}

/// What a real browser showed of the event.
#[derive(Default)]
pub(crate) struct PageStory {
    /// When it first asked for the page; absent if it never did.
    pub(crate) opened_us: Option<u64>,
    /// In order of time, each different from the one before.
    pub(crate) observations: Vec<PageObservation>,
}

impl PageStory {
    /// Adds what the page shows now, unless it shows what it has shown.
    pub(crate) fn add(&mut self, now: PageObservation) {
        let shows = |it: &PageObservation| (it.phase.clone(), it.number, it.ahead, it.serial, it.code_hash);
        if self.observations.last().is_none_or(|last| shows(last) != shows(&now)) {
            self.observations.push(now);
        }
    }

    /// Returns the last phase that the page showed.
    pub(crate) fn phase(&self) -> &str {
        self.observations.last().map_or("", |last| &last.phase)
    }

    /// Whether the page shows an end: nothing follows it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase(), "claimed" | "soldout" | "ended" | "over")
    }
}

/// All answers.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) rules: Rules,
    /// In order of arrival of the answers.
    pub(crate) records: Vec<Record>,
    pub(crate) admissions: Vec<Admission>,
    pub(crate) rooms: Vec<RoomObservation>,
    pub(crate) restarts: Vec<Restart>,
    pub(crate) told: Vec<ClaimReceipt>,
    pub(crate) listed: Vec<ListedClaim>,
    pub(crate) returned: Option<SlotReturn>,
    /// What real browsers showed.
    pub(crate) pages: Vec<PageStory>,
    /// The text of answers that the API does not allow.
    pub(crate) strange: Vec<String>,
}

impl History {
    fn within(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = &Restart> {
        self.restarts.iter().filter(move |restart| restart.killed_us <= to_us && from_us <= restart.ready_us)
    }

    /// Whether a server was down at some time in this span.
    pub(crate) fn restarted_within(&self, from_us: u64, to_us: u64) -> bool {
        self.within(from_us, to_us).next().is_some()
    }

    /// Whether what was known of the line was lost at some time in this span. Afterwards every ticket counts as just
    /// seen, and the positions are those of a line that was rebuilt from durable data.
    pub(crate) fn forgotten_within(&self, from_us: u64, to_us: u64) -> bool {
        self.within(from_us, to_us).any(|restart| restart.forgets)
    }

    /// Returns how long Redis was down in this span: nodes report the contacts of that time to the room afterwards.
    pub(crate) fn unheard_us(&self, from_us: u64, to_us: u64) -> u64 {
        let redis = self.within(from_us, to_us).filter(|restart| restart.target == Target::Redis);
        redis.map(|restart| restart.ready_us - restart.killed_us).sum()
    }

    /// Whether a node ended so soon after this span that it may not have passed on its contacts.
    pub(crate) fn may_be_unheard(&self, from_us: u64, to_us: u64) -> bool {
        let (is_shared, to_us) = (self.rules.is_shared, to_us + self.rules.stale_us);
        is_shared && self.within(from_us, to_us).any(|restart| restart.target == Target::Server)
    }
}
