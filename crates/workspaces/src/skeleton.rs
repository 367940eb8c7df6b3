//! The `.git` of a workspace before its first checkout, as files: nothing has to run to make them.

use git_wire::{Listed, Oid, RefName};

use crate::address::Address;
use crate::pinned::Pinned;

/// The files of a new `.git`, beside its packs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    /// `HEAD`.
    pub head: String,
    /// `config`.
    pub config: String,
    /// `packed-refs`.
    pub packed_refs: String,
}

/// The folders of a new `.git`.
impl Skeleton {
    /// Returns the folders to make in it.
    #[must_use]
    pub const fn folders() -> [&'static str; 5] {
        ["objects/pack", "objects/info", "refs/heads", "refs/tags", "info"]
    }
}

/// Returns the `.git` of a clone of `address` at `pinned`; without an address there is no `origin`. Branches of the repository
/// are `origin/…`, tags are themselves, and `kept` are further refs by which git keeps commits.
#[must_use]
pub fn skeleton(
    address: Option<&Address>,
    pinned: &Pinned,
    refs: &[Listed],
    kept: &[(&str, Oid)],
) -> Skeleton {
    let head = match &pinned.branch {
        Some(branch) => format!("ref: {branch}\n"),
        None => format!("{}\n", pinned.commit),
    };
    let mut lines: Vec<(String, String)> = refs.iter().map(packed).collect();
    if let Some(branch) = &pinned.branch {
        lines.push((branch.to_string(), format!("{} {branch}\n", pinned.commit)));
    }
    lines.extend(kept.iter().map(|(name, oid)| ((*name).to_owned(), format!("{oid} {name}\n"))));
    // The first of equal names counts, and a list that is whole has none.
    lines.sort();
    lines.dedup_by(|later, earlier| later.0 == earlier.0);
    let packed_refs = lines.into_iter().map(|(_, line)| line).collect();
    Skeleton { head, config: config(address, pinned.branch.as_ref()), packed_refs }
}

fn packed(found: &Listed) -> (String, String) {
    match found.name.branch() {
        Some(branch) => {
            let name = format!("refs/remotes/origin/{branch}");
            let line = format!("{} {name}\n", found.oid);
            (name, line)
        }
        None => {
            let peeled = found.peeled.map(|oid| format!("^{oid}\n")).unwrap_or_default();
            (found.name.to_string(), format!("{} {}\n{peeled}", found.oid, found.name))
        }
    }
}

fn config(address: Option<&Address>, branch: Option<&RefName>) -> String {
    let mut config =
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
         [gc]\n\tauto = 0\n"
            .to_owned();
    let Some(address) = address else { return config };
    config += &format!(
        "[remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
        address.url()
    );
    if let Some((name, full)) = branch.and_then(|full| Some((full.branch()?, full))) {
        let name = name.replace('"', "\\\"");
        let merge = full.as_str().replace('"', "\\\"");
        config += &format!("[branch \"{name}\"]\n\tremote = origin\n\tmerge = \"{merge}\"\n");
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_clone_has_its_branch_and_those_of_origin() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let refs = crate::parse_refs(&format!("{a} - refs/heads/x\"y\n{b} {a} refs/tags/v1\n"))
            .expect("refs");
        let address = Address::parse("https://h.org/r").expect("an address");
        let pinned = Pinned { commit: refs[0].oid, branch: Some(refs[0].name.clone()) };
        let made = skeleton(Some(&address), &pinned, &refs, &[]);
        assert_eq!(made.head, "ref: refs/heads/x\"y\n");
        let expected =
            format!("{a} refs/heads/x\"y\n{a} refs/remotes/origin/x\"y\n{b} refs/tags/v1\n^{a}\n");
        assert_eq!(made.packed_refs, expected);
        assert!(
            made.config.contains("[branch \"x\\\"y\"]")
                && made.config.contains("url = https://h.org/r\n")
        );
        let kept = [("refs/oc/sent", refs[1].oid)];
        let detached = skeleton(None, &Pinned { branch: None, ..pinned }, &[], &kept);
        assert_eq!(detached.head, format!("{a}\n"));
        assert_eq!(detached.packed_refs, format!("{b} refs/oc/sent\n"));
        assert!(!detached.config.contains("remote"));
    }
}
