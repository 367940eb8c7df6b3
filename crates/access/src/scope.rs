use std::fmt;

use crate::Need;

/// A name for several needs, as keys have had since before needs had names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bundle {
    /// Reads.
    Read,
    /// Creates and deletes sessions, admits prompts, interrupts.
    Prompt,
    /// Everything else.
    Administer,
}

impl Bundle {
    const ALL: [Self; 3] = [Self::Read, Self::Prompt, Self::Administer];

    /// Returns the stored form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prompt => "prompt",
            Self::Administer => "administer",
        }
    }
}

/// The needs that a key is confined to. The default has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u32);

/// A text that is no scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScope(pub String);

impl Scopes {
    /// The stored scope that allows everything.
    pub const EVERYTHING: &str = "*";

    /// Everything that the owner may.
    #[must_use]
    pub fn all() -> Self {
        Need::ALL.into_iter().fold(Self::default(), Self::with)
    }

    /// Reads stored scopes. Those of a newer build are kept in the database and allow nothing here.
    pub fn read<'s>(stored: impl IntoIterator<Item = &'s str>) -> Self {
        let known = stored.into_iter().filter_map(|text| Self::one(text).ok());
        known.fold(Self::default(), |all, one| Self(all.0 | one.0))
    }

    /// Reads scopes that somebody asks for.
    ///
    /// # Errors
    /// [`UnknownScope`] for one that there is not.
    pub fn parse<'s>(asked: impl IntoIterator<Item = &'s str>) -> Result<Self, UnknownScope> {
        asked
            .into_iter()
            .try_fold(Self::default(), |all, text| Ok(Self(all.0 | Self::one(text)?.0)))
    }

    fn one(text: &str) -> Result<Self, UnknownScope> {
        if text == Self::EVERYTHING {
            return Ok(Self::all());
        }
        if let Some(need) = Need::ALL.into_iter().find(|need| need.as_str() == text) {
            return Ok(Self::default().with(need));
        }
        if !Bundle::ALL.into_iter().any(|bundle| bundle.as_str() == text) {
            return Err(UnknownScope(text.to_owned()));
        }
        let its = Need::ALL.into_iter().filter(|need| need.bundle().as_str() == text);
        Ok(its.fold(Self::default(), Self::with))
    }

    #[must_use]
    fn with(self, need: Need) -> Self {
        Self(self.0 | bit(need))
    }

    /// Returns whether `need` is among them.
    #[must_use]
    pub fn has(self, need: Need) -> bool {
        self.0 & bit(need) != 0
    }

    /// Returns whether all of `other` are among them.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

fn bit(need: Need) -> u32 {
    1 << (need as u32)
}

impl fmt::Display for UnknownScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs: Vec<&str> = Need::ALL.iter().map(|need| need.as_str()).collect();
        let needs = needs.join(", ");
        write!(f, "there is no scope `{}`; there are *, read, prompt, administer, {needs}", self.0)
    }
}

impl std::error::Error for UnknownScope {}
