use std::fmt;

use crate::words;

words! {
    /// Something that builds before some level do not read. It is written once every running build reads it. A change that
    /// writes something new gets a feature of its own, with the next level.
    #[derive(PartialOrd, Ord)]
    pub enum Feature {
        /// Controls and other changes of the inbox, context entries, names and titles, Compactions, Workspace Snapshots,
        /// Reverts, Moves and Forks.
        Controls = "controls",
        /// Provider state, calls that a provider ran, and variants of models.
        ProviderState = "provider-state",
        /// Rules of sessions about tool calls: an older build would let the calls run.
        ToolRules = "tool-rules",
        /// Sessions that are archived, and metadata of sessions.
        Archive = "archive",
        /// Asks: calls that wait for somebody's answer.
        Asks = "asks",
        /// Locations that begin with a repository: an older build would take an unfilled directory for a whole one.
        Repositories = "repositories",
        /// Locations that begin with what somebody has sent: an older build would look for a server that has it.
        Uploads = "uploads",
    }
}

impl Feature {
    /// The level from which on every running build reads it.
    #[must_use]
    pub const fn level(self) -> FeatureLevel {
        match self {
            Self::Controls => FeatureLevel(2),
            Self::ProviderState => FeatureLevel(3),
            Self::ToolRules => FeatureLevel(4),
            Self::Archive => FeatureLevel(5),
            Self::Asks => FeatureLevel(6),
            Self::Repositories => FeatureLevel(7),
            Self::Uploads => FeatureLevel(8),
        }
    }
}

/// The level that every running build of a cluster reads: the features of this level and of those below. It only grows. Code asks
/// for the feature that it needs, and never for a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeatureLevel(pub i32);

impl FeatureLevel {
    /// Of a cluster that was never raised: no feature is on.
    pub const FIRST: Self = Self(1);

    /// The level of what this build writes: the highest of its features'.
    pub const OF_THIS_BUILD: Self = {
        let (mut highest, mut index) = (Self::FIRST, 0);
        while index < Feature::ALL.len() {
            let level = Feature::ALL[index].level();
            if level.0 > highest.0 {
                highest = level;
            }
            index += 1;
        }
        highest
    };

    /// Whether every running build reads it.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >= feature.level().0
    }

    /// Whether every running build reads all that this one may write.
    #[must_use]
    pub fn has_all(self) -> bool {
        Feature::ALL.iter().all(|feature| self.has(*feature))
    }

    /// Whether newer builds write what this one does not read: it must not serve.
    #[must_use]
    pub const fn is_newer(self) -> bool {
        self.0 > Self::OF_THIS_BUILD.0
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_levels_of_their_own_in_order() {
        let levels: Vec<i32> = Feature::ALL.iter().map(|feature| feature.level().0).collect();
        let expected: Vec<i32> = (2..).take(levels.len()).collect();
        assert_eq!(levels, expected, "each landing takes the next level");
        assert_eq!(levels.last(), Some(&FeatureLevel::OF_THIS_BUILD.0));
        assert!(FeatureLevel::OF_THIS_BUILD.has_all());
    }

    #[test]
    fn a_level_has_its_features_and_those_below() {
        for feature in Feature::ALL {
            assert!(!FeatureLevel::FIRST.has(*feature));
            let level = feature.level();
            for other in Feature::ALL {
                assert_eq!(level.has(*other), other <= feature, "{feature} and {other}");
            }
        }
        let above = FeatureLevel(FeatureLevel::OF_THIS_BUILD.0 + 1);
        assert!(above.is_newer() && above.has_all());
        assert!(!FeatureLevel::OF_THIS_BUILD.is_newer() && !FeatureLevel::FIRST.has_all());
    }
}
