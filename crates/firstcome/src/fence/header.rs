//! Reads and writes a token in a header: a dictionary of RFC 9651 with exactly three members, each a string.

use super::{FenceToken, TokenError};
use crate::lock::Fence;
use std::fmt;
use std::str::FromStr;

/// The name of the header that carries a token: `Firstcome-Fence`, in the lower case that header maps need.
pub const HEADER: &str = "firstcome-fence";

/// The most bytes of the header's value. Every token is shorter. Limits the size of logs, which may show a refused
/// value.
const VALUE_BYTES_MAX: usize = 512;

/// Why the value of a header is not a token: see [`HEADER`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It is longer than any token.
    #[error("the value has more than 512 bytes")]
    TooLong,
    /// It is not a list of `name="value"` with commas between them.
    #[error("the value must be three members like lock=\"a\", with commas between them")]
    Syntax,
    /// It has a member that a token does not have.
    #[error("only lock, fence and owner are known")]
    Unknown,
    /// A member, or the header itself, occurs twice.
    #[error("{0} is there twice")]
    Twice(&'static str),
    /// A member is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The fence is not a number from 1 to 2^53 - 1, or has leading zeros.
    #[error("fence must be a number from 1 to 9007199254740991")]
    Fence,
    /// The parts do not make a token.
    #[error(transparent)]
    Token(TokenError),
}

const MEMBERS: [&str; 3] = ["lock", "fence", "owner"];

impl FenceToken {
    /// Returns the value of the header [`HEADER`]: `lock="auction:7", fence="1763730000000000",
    /// owner="worker-3#9f86d081884c7d65"`.
    ///
    /// The fence is a string, because numbers of RFC 9651 end at 15 digits and fences have 16.
    pub fn to_header(&self) -> String {
        format!("lock=\"{}\", fence=\"{}\", owner=\"{}\"", self.lock, self.fence, self.owner)
    }
}

impl fmt::Display for FenceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_header())
    }
}

impl FromStr for FenceToken {
    type Err = HeaderError;

    /// Reads the value of the header. Strict: each member once, in any order, with no others, no parameters and no
    /// escapes.
    ///
    /// (A general parser of RFC 9651 takes the last of two members of one name. Two programs that disagree about which
    /// one counts would disagree about who may write. So this parser refuses a repeated member.)
    fn from_str(value: &str) -> Result<Self, HeaderError> {
        if VALUE_BYTES_MAX < value.len() {
            return Err(HeaderError::TooLong);
        }
        let mut found: [Option<&str>; 3] = [None; 3];
        let mut rest = value.trim_matches(' ');
        loop {
            let (name, after) = rest.split_once("=\"").ok_or(HeaderError::Syntax)?;
            let (text, after) = after.split_once('"').ok_or(HeaderError::Syntax)?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
                return Err(HeaderError::Syntax);
            }
            let at = MEMBERS.iter().position(|known| *known == name).ok_or(HeaderError::Unknown)?;
            if found[at].replace(text).is_some() {
                return Err(HeaderError::Twice(MEMBERS[at]));
            }
            let after = after.trim_start_matches([' ', '\t']);
            if after.is_empty() {
                break;
            }
            rest = after.strip_prefix(',').ok_or(HeaderError::Syntax)?.trim_start_matches([' ', '\t']);
        }
        let member = |at: usize| found[at].ok_or(HeaderError::Missing(MEMBERS[at]));
        let (lock, fence, owner) = (member(0)?, parse_fence(member(1)?)?, member(2)?);
        Self::new(lock, fence, owner).map_err(HeaderError::Token)
    }
}

/// One number has one text, so programs that compare fences as text agree with those that compare numbers.
fn parse_fence(text: &str) -> Result<Fence, HeaderError> {
    let fence = text.parse().ok().and_then(Fence::new).ok_or(HeaderError::Fence)?;
    if fence.to_string() == text { Ok(fence) } else { Err(HeaderError::Fence) }
}
