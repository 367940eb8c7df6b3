use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The proof that a worker was given a Location: `generation << 40 | Raft log index`.
///
/// Only compare it with tokens of the same Location. It only grows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct FencingToken(pub i64);

impl FencingToken {
    const INDEX_BITS: u32 = 40;

    /// Returns the token of the Raft entry at `index` in `generation`; `None` if either is out of range.
    #[must_use]
    pub fn new(generation: Generation, index: u64) -> Option<Self> {
        let high = i64::from(generation.0).checked_mul(1 << Self::INDEX_BITS)?;
        let low = i64::try_from(index).ok().filter(|index| *index < 1 << Self::INDEX_BITS)?;
        Some(Self(high | low))
    }

    /// Returns the generation that minted it.
    #[must_use]
    pub fn generation(self) -> Generation {
        Generation(u32::try_from(self.0 >> Self::INDEX_BITS).unwrap_or(0))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The generation of the placement group that minted a token: one Postgres row, raised by `placement init`, by
/// `restore` and when a standby is promoted. At most 2^23 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

/// The fence of one session: a new drain's first write raises it, and every later write proves it. It does not
/// identify a drain, and nothing refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Claim(pub i64);

impl Claim {
    /// Returns the incarnation of the claim's session, which claims hold in their high bits.
    #[must_use]
    pub fn incarnation(self) -> SessionIncarnation {
        SessionIncarnation(self.0 >> 32)
    }
}

/// A number that distinguishes a session from an earlier one with the same id. 0 belongs to no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SessionIncarnation(pub i64);

/// A sequence number of a session's durable log: 1, 2, 3, … without holes. 0 is "before the first".
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One life of a worker process: a random boot id. A restarted worker is another incarnation, so a
/// lease can never pass to it by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub Uuid);

impl Incarnation {
    /// Returns a fresh one, for a process that starts.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_generation_outranks_every_index_of_an_earlier_one() {
        let late = FencingToken::new(Generation(1), (1 << 40) - 1).expect("in range");
        let next = FencingToken::new(Generation(2), 0).expect("in range");
        assert!(next > late);
        assert_eq!((late.generation(), next.generation()), (Generation(1), Generation(2)));
        assert_eq!(FencingToken::new(Generation(1), 1 << 40), None);
        assert_eq!(FencingToken::new(Generation(u32::MAX), 1), None);
    }
}
