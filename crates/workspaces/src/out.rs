//! The work of a session as a patch and as a bundle.

use git_wire::Oid;

use crate::command::Git;

/// Which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// One patch from the first commit to the newest files, commits and what is not committed alike.
    Patch,
    /// A git bundle: the commits, and one more with what is not committed.
    Bundle,
}

/// The commits that a bundle was made of, as [`bundle`] prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutFound {
    /// The newest commit.
    pub head: Oid,
    /// The commit of what was not committed, if there was any.
    pub wip: Option<Oid>,
}

impl OutFound {
    /// Reads the line that [`bundle`] prints.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let head = words.next()?.parse().ok()?;
        let wip = match words.next()? {
            "-" => None,
            oid => Some(oid.parse().ok()?),
        };
        words.next().is_none().then_some(Self { head, wip })
    }

    /// Returns whether nothing has changed since `base`.
    #[must_use]
    pub fn is_nothing(&self, base: Oid) -> bool {
        self.wip.is_none() && self.head == base
    }
}

/// Begins a script of a workspace's copy: makes `$tree` of all files that are not ignored, in an index of its own, and names
/// the author of the commit that is made of them.
const TREE: &str = "GIT_INDEX_FILE=\"$PWD/.git/oc-index\"; export GIT_INDEX_FILE; \
                    GIT_AUTHOR_NAME=OpenCode; GIT_AUTHOR_EMAIL=noreply@opencode.invalid; \
                    GIT_COMMITTER_NAME=OpenCode; GIT_COMMITTER_EMAIL=noreply@opencode.invalid; \
                    export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL; \
                    rm -f \"$GIT_INDEX_FILE\"; $git read-tree HEAD; $git add -A; tree=$($git write-tree); ";

/// Returns the command that writes a patch from `base` to the newest files to the file `to`.
#[must_use]
pub fn patch(base: Oid, to: &str) -> Git {
    let script = format!(
        "{TREE} $git diff --binary --full-index --no-ext-diff --no-textconv --no-color \
         --src-prefix=a/ --dst-prefix=b/ \"$1\" \"$tree\" >\"$2\""
    );
    Git::script(&script, &[base.to_string(), to.to_owned()])
}

/// Returns the command that writes a bundle of everything since `base` to the file `to`, under the names
/// `refs/oc/head` and, for what is not committed, `refs/oc/wip`. It prints a line for [`OutFound::parse`]; if nothing has
/// changed, there is no file. The same files give the same commits.
#[must_use]
pub fn bundle(base: Oid, to: &str) -> Git {
    let script = format!(
        "{TREE} head=$($git rev-parse --verify HEAD^{{commit}}); wip=-; set -- \"$1\" \"$2\" refs/oc/head; \
         $git update-ref refs/oc/head \"$head\"; $git update-ref -d refs/oc/wip; \
         if [ \"$tree\" != \"$($git rev-parse --verify \"$head^{{tree}}\")\" ]; then \
         date=\"@$($git log -1 --format=%ct \"$head\") +0000\"; \
         GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date; export GIT_AUTHOR_DATE GIT_COMMITTER_DATE; \
         wip=$($git commit-tree -m 'Changes that were not committed' -p \"$head\" \"$tree\"); \
         $git update-ref refs/oc/wip \"$wip\"; set -- \"$1\" \"$2\" refs/oc/head refs/oc/wip; fi; \
         base=$1; to=$2; shift 2; \
         if [ \"$head\" = \"$base\" ]; then if [ \"$wip\" = - ]; then echo \"$head -\"; exit 0; fi; \
         set -- refs/oc/wip; fi; \
         $git bundle create --quiet \"$to\" \"^$base\" \"$@\"; echo \"$head $wip\""
    );
    Git::script(&script, &[base.to_string(), to.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_bundle_is_read_whole() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let found = OutFound::parse(&format!("{a} -\n")).expect("a line");
        assert!(
            found.is_nothing(a.parse().expect("an id"))
                && !found.is_nothing(b.parse().expect("an id"))
        );
        let found = OutFound::parse(&format!("{a} {b}\n")).expect("a line");
        assert!(!found.is_nothing(found.head));
        for bad in ["", "x -", &a, &format!("{a} - more")] {
            assert_eq!(OutFound::parse(bad), None, "{bad}");
        }
    }
}
