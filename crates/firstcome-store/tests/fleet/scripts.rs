//! The scripts, by which lines know what passes.

pub(crate) const CLAIM: &str = include_str!("../../src/fleet/lua/claim.lua");
pub(crate) const SETTLE: &str = include_str!("../../src/fleet/lua/settle.lua");
pub(crate) const SEIZE: &str = include_str!("../../src/fleet/lua/seize.lua");
pub(crate) const CLEAR: &str = include_str!("../../src/fleet/lua/clear.lua");
pub(crate) const FILL: &str = include_str!("../../src/fleet/lua/fill.lua");
pub(crate) const OPEN: &str = include_str!("../../src/fleet/lua/open.lua");
pub(crate) const ADJUST: &str = include_str!("../../src/fleet/lua/adjust.lua");
pub(crate) const APPEND: &str =
    concat!(include_str!("../../src/fleet/lua/clock.lua"), include_str!("../../src/fleet/lua/append.lua"));
pub(crate) const LOG_OPEN: &str = include_str!("../../src/fleet/lua/log_open.lua");
pub(crate) const LOG_IMAGE: &str = include_str!("../../src/fleet/lua/log_image.lua");
pub(crate) const LOG_PROBE: &str = include_str!("../../src/fleet/lua/log_probe.lua");

pub(crate) const ALL: [&str; 20] = [
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
    include_str!("../../src/fleet/lua/log_load.lua"),
    LOG_PROBE,
    include_str!("../../src/fleet/lua/log_read.lua"),
    concat!(include_str!("../../src/fleet/lua/clock.lua"), include_str!("../../src/fleet/lua/log_resume.lua")),
    include_str!("../../src/fleet/lua/belongs.lua"),
    include_str!("../../src/fleet/lua/known.lua"),
    include_str!("../../src/fleet/lua/forget.lua"),
    include_str!("../../src/fleet/lua/probe.lua"),
    include_str!("../../src/fleet/lua/rights.lua"),
    include_str!("../../src/fleet/lua/unseize.lua"),
];
