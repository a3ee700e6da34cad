//! What a drill keeps of every answer, small, for the audit at the end.

/// Which call it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Call {
    Join,
    Poll,
    Leave,
    Claim,
    Release,
    Verify,
    Look,
    /// `Record::value` says which; see [`super::plan::Cheat`].
    Cheat,
}

impl Call {
    pub(crate) const ALL: [Self; 8] =
        [Self::Join, Self::Poll, Self::Leave, Self::Claim, Self::Release, Self::Verify, Self::Look, Self::Cheat];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Poll => "poll",
            Self::Leave => "leave",
            Self::Claim => "claim",
            Self::Release => "release",
            Self::Verify => "verify",
            Self::Look => "look at coupon",
            Self::Cheat => "cheat",
        }
    }
}

/// What the answer was: status and code together.
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
    /// Nothing that the API knows for this call.
    Unexpected,
}

impl Reply {
    /// Whether a person that hears this asks again, since nothing was decided.
    pub(crate) const fn is_undecided(self) -> bool {
        matches!(
            self,
            Self::Lost | Self::RateLimited | Self::Overloaded | Self::StoreUnavailable | Self::OutcomeUnknown
        )
    }
}

/// One request and its answer. Times in microseconds since the start. Its effect, if it had one, happened somewhere
/// between sent and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) sent_us: u64,
    pub(crate) took_us: u32,
    pub(crate) person: u32,
    /// Of the ticket told or asked about; 0 is none.
    pub(crate) number: u32,
    /// Position of a waiting ticket, index into `History::admissions` of an admitted one, serial of a claim, kind of a
    /// cheat.
    pub(crate) value: u32,
    pub(crate) poll_after_ms: u32,
    /// How much older than the request the answer says it is.
    pub(crate) age_ms: u16,
    pub(crate) call: Call,
    pub(crate) reply: Reply,
}

impl Record {
    pub(crate) const fn received_us(&self) -> u64 {
        self.sent_us + self.took_us as u64
    }

    /// The earliest instant that the answer can be about.
    pub(crate) const fn about_us(&self) -> u64 {
        self.sent_us.saturating_sub(self.age_ms as u64 * 1_000)
    }

    /// An answered join or poll: the room saw this ticket.
    pub(crate) const fn is_contact(&self) -> bool {
        matches!(self.call, Call::Join | Call::Poll)
            && matches!(self.reply, Reply::Joined | Reply::JoinedAgain | Reply::Waiting | Reply::Admitted)
    }
}

/// An admission that a ticket was told, when it was told first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) number: u32,
    /// The instant of the room, by the drill's clock.
    pub(crate) admitted_us: u64,
    pub(crate) received_us: u64,
    pub(crate) expires_us: u64,
}

/// Who holds a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Holder {
    /// `pass:{number}`.
    Pass(u32),
    /// `u{person}`.
    User(u32),
    /// Anybody else, by a hash of the name.
    Other(u64),
}

/// A claim that a person was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimReceipt {
    pub(crate) received_us: u64,
    pub(crate) serial: u32,
    pub(crate) code_hash: u64,
    pub(crate) holder: Holder,
    /// Who it should be.
    pub(crate) expected: Holder,
}

/// A claim in the list at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedClaim {
    pub(crate) serial: u32,
    pub(crate) code_hash: u64,
    pub(crate) holder: Holder,
}

/// What the room said about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomObservation {
    pub(crate) received_us: u64,
    pub(crate) about_us: u64,
    pub(crate) waiting: u64,
    pub(crate) active: u64,
    pub(crate) serving: u64,
    pub(crate) rate_per_s: f64,
}

/// What can be killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The service, or one node of it.
    Server,
    Redis,
    Sql,
}

impl Target {
    /// As reports name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Redis => "redis",
            Self::Sql => "sql",
        }
    }
}

/// A time in which something was down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    pub(crate) target: Target,
    /// Its data were lost too.
    pub(crate) loses: bool,
    /// What was known of people in line beyond what is durable was lost with it: that of an embedded server, whose memory has it,
    /// or the log of the rooms, which lies in Redis. A node of a cluster has a copy of that log only, and SQL what outlives it.
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

/// What the server was told to keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) stock: u32,
    pub(crate) people: u32,
    pub(crate) opens_us: u64,
    pub(crate) rate_per_s: f64,
    pub(crate) slice: f64,
    pub(crate) active_max: u64,
    pub(crate) claim_window_us: u64,
    /// How long a slot lasts that no person gives back.
    pub(crate) active_ttl_us: u64,
    /// How far two readings of the same instant may lie apart: resolution of the text, and another machine's clock.
    pub(crate) reading_us: u64,
    /// Whether a cluster share the room.
    pub(crate) is_shared: bool,
    /// How old what a node answers from may be: 0 where one server has it all.
    pub(crate) stale_us: u64,
}

/// Everything that was heard.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) rules: Rules,
    /// In the order in which the answers came.
    pub(crate) records: Vec<Record>,
    pub(crate) admissions: Vec<Admission>,
    pub(crate) rooms: Vec<RoomObservation>,
    pub(crate) restarts: Vec<Restart>,
    pub(crate) told: Vec<ClaimReceipt>,
    pub(crate) listed: Vec<ListedClaim>,
    pub(crate) returned: Option<SlotReturn>,
    /// Answers that the API does not know, in words.
    pub(crate) strange: Vec<String>,
}

impl History {
    fn within(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = &Restart> {
        self.restarts.iter().filter(move |restart| restart.killed_us <= to_us && from_us <= restart.ready_us)
    }

    /// Whether anything was down at some time between these.
    pub(crate) fn restarted_within(&self, from_us: u64, to_us: u64) -> bool {
        self.within(from_us, to_us).next().is_some()
    }

    /// Whether what was known of the line was lost at some time between these: afterwards all count as just seen, and positions
    /// are those of a line made anew from what is durable.
    pub(crate) fn forgotten_within(&self, from_us: u64, to_us: u64) -> bool {
        self.within(from_us, to_us).any(|restart| restart.forgets)
    }

    /// For how long Redis was down between these: contacts of that time are told to the room afterwards.
    pub(crate) fn unheard_us(&self, from_us: u64, to_us: u64) -> u64 {
        let redis = self.within(from_us, to_us).filter(|restart| restart.target == Target::Redis);
        redis.map(|restart| restart.ready_us - restart.killed_us).sum()
    }

    /// Whether a node ended so soon after these that it may not have passed on yet who was there.
    pub(crate) fn may_be_unheard(&self, from_us: u64, to_us: u64) -> bool {
        let (is_shared, to_us) = (self.rules.is_shared, to_us + self.rules.stale_us);
        is_shared && self.within(from_us, to_us).any(|restart| restart.target == Target::Server)
    }
}
