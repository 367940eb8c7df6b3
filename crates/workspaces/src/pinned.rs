//! From a reference to one commit, and from what is known to what is fetched.

use std::collections::HashSet;

use git_wire::{Listed, Oid, RefName};

use crate::address::Wanted;

/// The most commits that a server is told to be there. More only make a pack larger than it had to be.
pub const MAX_HAVES: usize = 512;

/// The commit with which a workspace begins. It is chosen once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The commit.
    pub commit: Oid,
    /// The branch that is checked out; `None` for a tag or a commit, which leave no branch.
    pub branch: Option<RefName>,
}

/// The reason why a reference leads to no commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The repository has no branch at all.
    #[error("it has no commits yet; push one first")]
    Empty,
    /// No branch or tag has the name.
    #[error(
        "it has no branch or tag `{wanted}`; it has {has}. A commit is named by its whole id of 40 digits"
    )]
    Unknown {
        /// The reference.
        wanted: String,
        /// Some of the repository's branches.
        has: String,
    },
}

/// The most branches that an error names.
const NAMED: usize = 5;

/// Finds the commit of a reference; without one, that of the branch that HEAD names, or of `main`, `master`, or the first.
///
/// # Errors
/// There is no such reference.
pub fn resolve(
    wanted: Option<&Wanted>,
    head: Option<&RefName>,
    refs: &[Listed],
) -> Result<Pinned, ResolveError> {
    let find = |name: &RefName| refs.iter().find(|found| found.name == *name);
    let pinned = |found: &Listed| {
        let branch = found.name.branch().map(|_| found.name.clone());
        Pinned { commit: found.commit(), branch }
    };
    let Some(wanted) = wanted else {
        let usual = ["refs/heads/main", "refs/heads/master"]
            .into_iter()
            .filter_map(|name| name.parse().ok());
        let usual = head.cloned().into_iter().chain(usual).find_map(|name| find(&name).cloned());
        let any = || refs.iter().find(|found| found.name.branch().is_some()).cloned();
        return usual.or_else(any).as_ref().map(pinned).ok_or(ResolveError::Empty);
    };
    if let Some(found) = wanted.names().iter().find_map(find) {
        return Ok(pinned(found));
    }
    if let Some(commit) = wanted.commit() {
        return Ok(Pinned { commit, branch: None });
    }
    let mut has: Vec<&str> =
        refs.iter().filter_map(|found| found.name.branch()).take(NAMED + 1).collect();
    let more = has.len() > NAMED;
    has.truncate(NAMED);
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    let has = if more { format!("{has}, …") } else { has };
    Err(ResolveError::Unknown { wanted: wanted.to_string(), has })
}

/// Returns the objects to ask for: the commit, and each branch and tag that no earlier pack has. Empty if nothing is missing.
/// `known`: everything that the packs of the repository were made for.
#[must_use]
pub fn wanted(commit: Oid, refs: &[Listed], known: &HashSet<Oid>) -> Vec<Oid> {
    if known.contains(&commit) {
        // The pinned commit suffices: other branches are not worth a fetch.
        return Vec::new();
    }
    let mut seen = HashSet::new();
    std::iter::once(commit)
        .chain(refs.iter().map(|found| found.oid))
        .filter(|oid| !known.contains(oid) && seen.insert(*oid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: &str) -> Oid {
        digit.repeat(40).parse().expect("an id")
    }

    fn listed(name: &str, digit: &str) -> Listed {
        Listed { name: name.parse().expect("a name"), oid: oid(digit), peeled: None }
    }

    #[test]
    fn a_reference_leads_to_one_commit() {
        let mut refs = vec![
            listed("refs/heads/dev", "a"),
            listed("refs/heads/main", "b"),
            listed("refs/tags/dev", "c"),
            listed("refs/tags/v1", "d"),
        ];
        refs[3].peeled = Some(oid("e"));
        let head = "refs/heads/dev".parse().ok();
        let of = |wanted: Option<&str>, head: Option<&RefName>| {
            let wanted = wanted.map(|text| text.parse().expect("a reference"));
            let found = resolve(wanted.as_ref(), head, &refs);
            found.map(|it| (it.commit, it.branch.map(|name| name.to_string())))
        };
        assert_eq!(of(None, head.as_ref()), Ok((oid("a"), Some("refs/heads/dev".to_owned()))));
        assert_eq!(of(None, None), Ok((oid("b"), Some("refs/heads/main".to_owned()))));
        assert_eq!(of(Some("dev"), None), Ok((oid("a"), Some("refs/heads/dev".to_owned()))));
        assert_eq!(of(Some("v1"), None), Ok((oid("e"), None)));
        assert_eq!(of(Some(&"9".repeat(40)), None), Ok((oid("9"), None)));
        let unknown = of(Some("nope"), None).expect_err("none").to_string();
        assert!(unknown.contains("it has dev, main."), "{unknown}");
        assert_eq!(resolve(None, None, &[]), Err(ResolveError::Empty));
    }

    #[test]
    fn only_what_is_missing_is_fetched() {
        let refs =
            [listed("refs/heads/a", "a"), listed("refs/heads/b", "b"), listed("refs/tags/b", "b")];
        let known = |digits: &[&str]| digits.iter().map(|digit| oid(digit)).collect::<HashSet<_>>();
        assert_eq!(wanted(oid("a"), &refs, &known(&[])), [oid("a"), oid("b")]);
        assert_eq!(wanted(oid("c"), &refs, &known(&["a"])), [oid("c"), oid("b")]);
        assert_eq!(wanted(oid("a"), &refs, &known(&["a"])), []);
    }
}
