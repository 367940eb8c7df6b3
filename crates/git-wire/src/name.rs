use std::fmt;
use std::str::FromStr;

/// The most bytes of a name.
const MAX_BYTES: usize = 255;

/// The full name of a branch or a tag that git takes, such as `refs/heads/main`. Names have no control characters, no spaces
/// and no `..`, so that they are safe in a file of refs and on a command line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// The reason why text is no [`RefName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no name of a branch or tag: {why}")]
pub struct RefNameError {
    /// The text, without control characters.
    pub name: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

impl RefName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the branch's own name, if this is a branch.
    #[must_use]
    pub fn branch(&self) -> Option<&str> {
        self.0.strip_prefix("refs/heads/")
    }

    /// Returns the tag's own name, if this is a tag.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.0.strip_prefix("refs/tags/")
    }
}

/// Returns the rule that a name breaks: those of `git check-ref-format`, and at most 255 bytes.
fn fault(name: &str) -> Option<&'static str> {
    let bad = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    if !name.starts_with("refs/heads/") && !name.starts_with("refs/tags/") {
        Some("it begins with refs/heads/ or refs/tags/")
    } else if name.len() > MAX_BYTES {
        Some("it has at most 255 bytes")
    } else if name.bytes().any(bad) {
        Some("it has no space, control character or any of ~ ^ : ? * [ \\")
    } else if name.contains("..") || name.contains("@{") {
        Some("it has neither `..` nor `@{`")
    } else if name.ends_with('.') || name.ends_with('/') {
        Some("it ends with neither a dot nor a slash")
    } else if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
        Some("no part of it is empty or begins with a dot")
    } else if name.split('/').any(|part| part.ends_with(".lock")) {
        Some("no part of it ends with .lock")
    } else if name.split('/').nth(2).is_some_and(|part| part.starts_with('-')) {
        Some("it does not begin with a dash")
    } else {
        None
    }
}

impl FromStr for RefName {
    type Err = RefNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match fault(name) {
            None => Ok(Self(name.to_owned())),
            Some(why) => {
                let shown = name.chars().filter(|one| !one.is_control()).take(MAX_BYTES);
                Err(RefNameError { name: shown.collect(), why })
            }
        }
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_git_refuses_are_refused() {
        for good in ["refs/heads/main", "refs/heads/a/b.c", "refs/tags/v1.0", "refs/heads/é"] {
            assert!(good.parse::<RefName>().is_ok(), "{good}");
        }
        for bad in [
            "HEAD",
            "refs/heads/",
            "refs/heads/a..b",
            "refs/heads/x/../main",
            "refs/heads/a b",
            "refs/heads/a\nb",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/heads/a.lock/b",
            "refs/heads/a//b",
            "refs/heads/a@{1}",
            "refs/heads/-x",
            "refs/pull/1/head",
        ] {
            assert!(bad.parse::<RefName>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Git takes every name that this takes.
        #[test]
        fn what_is_taken_git_takes(name in "refs/heads/[a-c.@{}/~ *-]{1,12}(\\.lock)?") {
            if name.parse::<RefName>().is_ok() {
                let status = Command::new("git").args(["check-ref-format", &name]).status().expect("git");
                prop_assert!(status.success(), "{}", name);
            }
        }
    }
}
