//! Every limit by name, with what it protects.

/// Bytes in a name (coupon, room, user …). Protects row sizes, log lines and memory per claimant.
pub const NAME_BYTES_MAX: usize = 128;

/// Coupons in one campaign. A serial then fits in 27 bits, which the voucher code and the row key rely on.
pub const COUPON_LIMIT_MAX: u32 = 100_000_000;

/// Bytes of the JSON attributes of one claim (a nickname and a phone number, say). Protects the row size.
pub const ATTRIBUTES_BYTES_MAX: usize = 1024;

/// Bytes of a coupon's title. It is shown to people, on one line.
pub const TITLE_BYTES_MAX: usize = 256;

/// Bytes of an `Idempotency-Key`. Stores keep only its digest.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// Fewest characters of an `Idempotency-Key` on a public call: 22 base64url characters hold 128 bits, so that a
/// stranger cannot guess a key and read the answer that belongs to it.
pub const PUBLIC_IDEMPOTENCY_KEY_CHARS_MIN: usize = 22;

/// Items on one page of a list when the caller names no number.
pub const PAGE_ITEMS_DEFAULT: usize = 100;

/// Items on one page of a list at most.
pub const PAGE_ITEMS_MAX: usize = 1_000;

/// Bytes of a request body. Protects memory per connection.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Numbers that one room can draw. A ticket's number then fits in a row key beside its room.
pub const ROOM_NUMBER_MAX: u32 = u32::MAX - 1;

/// Visitors in the line of one room at most. Protects memory: about 64 bytes each.
pub const ROOM_WAITING_MAX: u32 = 100_000_000;

/// Slots that one room may give at once. Protects memory: about 100 bytes each.
pub const ROOM_ACTIVE_MAX: u32 = 10_000_000;

/// Admissions in one period at most.
pub const ADMIT_COUNT_MAX: u32 = 1_000_000;

/// Shortest and longest period of an admission rate, and of every window and time-out of a room except
/// [`WAITING_TTL_MS_MAX`].
pub const ROOM_PERIOD_MS_MIN: u64 = 100;
/// See [`ROOM_PERIOD_MS_MIN`].
pub const ROOM_PERIOD_MS_MAX: u64 = 86_400_000;

/// Longest silence after which a room may keep a visitor in line.
pub const WAITING_TTL_MS_MAX: u64 = 7 * 86_400_000;

/// Bytes of a room's message and of its target.
pub const ROOM_TEXT_BYTES_MAX: usize = 2_048;

/// Bytes of a text of a room's appearance. It is shown to people.
pub const APPEARANCE_TEXT_BYTES_MAX: usize = 512;

/// Languages of the texts of a room's appearance. Protects the row size.
pub const APPEARANCE_TRANSLATIONS_MAX: usize = 32;

/// Bytes of the style of a room's appearance. Protects the time until a visitor sees the page.
pub const APPEARANCE_STYLE_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the logo of a room's appearance. Protects the time until a visitor sees the page, and memory per room.
pub const APPEARANCE_LOGO_BYTES_MAX: usize = 64 * 1024;

/// How long a hand-off code is valid. Long enough for a slow redirect; protects a place whose code stands in a history or a log.
pub const HANDOFF_MS: u64 = 60_000;

/// Shortest and longest lease of a lock. The shortest protects against leases that end before the client reads the grant.
pub const LEASE_MS_MIN: u32 = 100;
/// See [`LEASE_MS_MIN`]. A day longer than a week, so that a job of a week can keep its slot.
pub const LEASE_MS_MAX: u32 = 8 * 86_400_000;

/// Fewest and most nodes of a quorum. With fewer than three, the loss of one node loses the lock.
pub const QUORUM_NODES_MIN: usize = 3;
/// See [`QUORUM_NODES_MIN`]. Protects the time of a grant, which waits for more than half of them.
pub const QUORUM_NODES_MAX: usize = 9;

/// Longest wait for a lock.
pub const WAIT_MS_MAX: u32 = 3_600_000;

/// Requests that may share one lock at most. Bounds the work and the bytes of one step.
pub const PERMITS_MAX: u32 = 1_000;

/// How long a waiter has to confirm a grant, and how long a process may be silent before it counts as dead. After this time
/// the lock goes to the next waiter. Any number of dead processes delay the waiters behind them by this time once.
pub const CLAIM_WINDOW_MS: u32 = 2_000;

/// Points that one step moves at most, and the largest price. Protects sums from overflow.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;

/// The largest balance: the largest integer that every JSON reader keeps exactly.
pub const BALANCE_MAX: u64 = (1 << 53) - 1;

/// Bids that one auction accepts. A bid's number then fits in a row key beside its listing.
pub const BIDS_MAX: u32 = u32::MAX - 1;

/// Extensions of one auction at most. With [`EXTENSION_MS_MAX`] it bounds how long an end can be put off.
pub const EXTENSIONS_MAX: u32 = 1_000;

/// Longest window in which a bid is late, and longest extension by one bid.
pub const EXTENSION_MS_MAX: u64 = 86_400_000;

/// Longest time that a winner may have to settle.
pub const SETTLE_MS_MAX: u64 = 366 * 86_400_000;

/// How long a store remembers the idempotency key of a charge or a refund.
pub const POINTS_KEY_MS: u64 = 30 * 86_400_000;

/// Names of API keys at most, those of revoked and expired keys included. Every node keeps all of them in memory.
pub const API_KEYS_MAX: usize = 1_024;

/// The longest life of an API key that has an end, and the longest time that a rotated key is still accepted: ten years.
pub const API_KEY_MS_MAX: u64 = 3_653 * 86_400_000;

/// Earliest and latest instant that RFC 3339 can write (years 0001 to 9999), in microseconds of Unix time.
pub const TIMESTAMP_US_MIN: i64 = -62_135_596_800_000_000;
/// See [`TIMESTAMP_US_MIN`].
pub const TIMESTAMP_US_MAX: i64 = 253_402_300_799_999_999;

// A row key is `coupon id << 32 | serial`.
const _: () = assert!(COUPON_LIMIT_MAX < 1 << 27);
// One step cannot move a balance past the largest one and wrap.
const _: () = assert!(AMOUNT_MAX < BALANCE_MAX);
const _: () = assert!(PAGE_ITEMS_DEFAULT <= PAGE_ITEMS_MAX);
const _: () = assert!(ATTRIBUTES_BYTES_MAX + 2 * NAME_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(PUBLIC_IDEMPOTENCY_KEY_CHARS_MIN <= IDEMPOTENCY_KEY_BYTES_MAX);
