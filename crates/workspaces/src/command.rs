//! Git's command lines for a fill. A worker runs them in a cell.

use git_wire::Oid;

use crate::bounds::FillBounds;

/// A command of a fill: a program with its arguments and the variables that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Git {
    /// `git`, or `sh` for a pipe.
    pub program: &'static str,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside those of its cell.
    pub env: Vec<(&'static str, &'static str)>,
}

/// No configuration but the repository's own and the options below is read.
const ENV: [(&str, &str); 6] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("LC_ALL", "C"),
];

/// Options that win over the repository's configuration. They are a second wall: the first is the cell.
const OPTIONS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "protocol.allow=never",
    "transfer.fsckObjects=true",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",
];

/// Faults of old objects that harm nobody, and that many repositories have.
const HARMLESS: &str = "zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore,\
                        missingEmail=ignore,badEmail=ignore,zeroPaddedDate=ignore,badDateOverflow=ignore,\
                        missingTaggerEntry=ignore,badTagName=ignore,multipleAuthors=ignore";

impl Git {
    pub(crate) fn new(args: &[&str]) -> Self {
        let options = OPTIONS.iter().flat_map(|option| ["-c".to_owned(), (*option).to_owned()]);
        let args = options.chain(args.iter().map(|word| (*word).to_owned())).collect();
        Self { program: "git", args, env: ENV.to_vec() }
    }

    /// Returns a script for `sh`, in which `$git` begins each command of git, and `$1`, `$2`, … are `words`.
    pub(crate) fn script(script: &str, words: &[String]) -> Self {
        let options: String = OPTIONS.iter().map(|option| format!(" -c {option}")).collect();
        let script = format!("set -eu; git='git{options}'; {script}");
        let args =
            ["-c".to_owned(), script, "sh".to_owned()].into_iter().chain(words.iter().cloned());
        Self { program: "sh", args: args.collect(), env: ENV.to_vec() }
    }
}

/// Returns the command that checks each object of the pack `incoming.pack` and each link between objects, and writes its
/// index `incoming.idx`. It runs in a bare repository with the earlier packs, and prints the pack's id.
#[must_use]
pub fn index_pack() -> Git {
    let strict = format!("--strict={HARMLESS}");
    Git::new(&["index-pack", &strict, "-o", "incoming.idx", "incoming.pack"])
}

/// Returns the command that writes the index of a pack which was checked before.
#[must_use]
pub fn index_known_pack(pack: &str, index: &str) -> Git {
    Git::new(&["index-pack", "-o", index, pack])
}

/// Returns the command that adds up a commit's sizes, for [`crate::Measured::parse`]. It stops behind the bound on entries,
/// since a few objects can make a tree without end.
#[must_use]
pub fn measure(commit: Oid, bounds: &FillBounds) -> Git {
    Git::script(
        "$git cat-file -e \"$1^{tree}\"; $git ls-tree -r -t -l --full-tree \"$1\" | awk -v most=\"$2\" '\
         { entries++; if ($2 == \"blob\") { all += $4; if ($4 + 0 > large) large = $4 + 0 } } \
         entries > most { exit } END { printf \"%.0f %.0f %.0f\\n\", entries, all, large }'",
        &[commit.to_string(), bounds.entries.to_string()],
    )
}

/// Returns the command that makes the index and the files of HEAD's commit.
#[must_use]
pub fn check_out() -> Git {
    Git::new(&["reset", "--hard", "--quiet"])
}

/// Returns the command that makes files of the index again which are not there and have more than `bytes` bytes: those that
/// are in no snapshot.
#[must_use]
pub fn check_out_missing(bytes: u64) -> Git {
    Git::script(
        "[ -e .git/index ] || exit 0; $git -c core.quotePath=true ls-files -d --format='%(objectsize) %(path)' | \
         awk -v most=\"$1\" '$1 + 0 > most + 0 { sub(/^[0-9]+ /, \"\"); print }' | $git checkout-index --stdin",
        &[bytes.to_string()],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_reaches_a_script_as_a_word_only() {
        let commit: Oid = "a".repeat(40).parse().expect("an id");
        let git = measure(commit, &FillBounds::default());
        assert_eq!(git.args[2..], ["sh".to_owned(), "a".repeat(40), "2000000".to_owned()]);
        assert!(!git.args[1].contains(&"a".repeat(40)));
    }

    #[test]
    fn each_command_turns_hooks_and_monitors_off() {
        for git in [index_pack(), check_out(), check_out_missing(1)] {
            let words = git.args.join(" ");
            assert!(
                words.contains("core.hooksPath=/dev/null")
                    && words.contains("core.fsmonitor=false"),
                "{words}"
            );
            assert!(git.env.contains(&("GIT_CONFIG_NOSYSTEM", "1")));
        }
    }
}
