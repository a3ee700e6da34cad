//! The scripts, by which lines know what passes.

pub(crate) const CLAIM: &str = include_str!("../../src/fleet/lua/claim.lua");
pub(crate) const SETTLE: &str = include_str!("../../src/fleet/lua/settle.lua");
pub(crate) const FILL: &str = include_str!("../../src/fleet/lua/fill.lua");
pub(crate) const OPEN: &str = include_str!("../../src/fleet/lua/open.lua");
pub(crate) const ADJUST: &str = include_str!("../../src/fleet/lua/adjust.lua");

pub(crate) const ALL: [&str; 12] = [
    CLAIM,
    SETTLE,
    FILL,
    OPEN,
    ADJUST,
    include_str!("../../src/fleet/lua/belongs.lua"),
    include_str!("../../src/fleet/lua/clear.lua"),
    include_str!("../../src/fleet/lua/forget.lua"),
    include_str!("../../src/fleet/lua/probe.lua"),
    include_str!("../../src/fleet/lua/rights.lua"),
    include_str!("../../src/fleet/lua/seize.lua"),
    include_str!("../../src/fleet/lua/unseize.lua"),
];
