//! The scripts, by which lines know what passes.

pub(crate) const CLAIM: &str = include_str!("../../src/lua/claim.lua");
pub(crate) const SETTLE: &str = include_str!("../../src/lua/settle.lua");
pub(crate) const SEIZE: &str = include_str!("../../src/lua/seize.lua");
pub(crate) const CLEAR: &str = include_str!("../../src/lua/clear.lua");
pub(crate) const FILL: &str = include_str!("../../src/lua/fill.lua");
pub(crate) const OPEN: &str = include_str!("../../src/lua/open.lua");
pub(crate) const ADJUST: &str = include_str!("../../src/lua/adjust.lua");
pub(crate) const APPEND: &str =
    concat!(include_str!("../../src/lua/clock.lua"), include_str!("../../src/lua/append.lua"));
pub(crate) const LOG_OPEN: &str = include_str!("../../src/lua/log_open.lua");
pub(crate) const LOG_IMAGE: &str = include_str!("../../src/lua/log_image.lua");
pub(crate) const LOG_PROBE: &str = include_str!("../../src/lua/log_probe.lua");

pub(crate) const ALL: [&str; 22] = [
    CLAIM,
    SETTLE,
    SEIZE,
    CLEAR,
    FILL,
    OPEN,
    ADJUST,
    APPEND,
    LOG_OPEN,
    LOG_IMAGE,
    include_str!("../../src/lua/log_load.lua"),
    LOG_PROBE,
    include_str!("../../src/lua/log_read.lua"),
    concat!(include_str!("../../src/lua/clock.lua"), include_str!("../../src/lua/log_resume.lua")),
    include_str!("../../src/lua/belongs.lua"),
    include_str!("../../src/lua/known.lua"),
    include_str!("../../src/lua/end.lua"),
    include_str!("../../src/lua/unkey.lua"),
    include_str!("../../src/lua/forget.lua"),
    include_str!("../../src/lua/probe.lua"),
    include_str!("../../src/lua/rights.lua"),
    include_str!("../../src/lua/unseize.lua"),
];
