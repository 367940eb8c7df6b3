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

/// Processes that make a commit's files, where there are many: each inflates and writes its part. Git makes them one after
/// the other unless it is told otherwise. More than these gain little on one disk.
const WRITERS: &str = "checkout.workers=4";

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
        "$git cat-file -e \"$1^{tree}\"; $git ls-tree -r -t -l --full-tree \"$1\" | \
         awk -v most=\"$2\" -v levels=\"$3\" '\
         { entries++; level = gsub(\"/\", \"/\"); if (level > deep) deep = level; if ($2 == \"blob\") { all += $4; if ($4 + 0 > large) large = $4 + 0 } } \
         entries > most || deep > levels { exit } \
         END { printf \"%.0f %.0f %.0f %.0f\\n\", entries, all, large, deep }'",
        &[commit.to_string(), bounds.entries.to_string(), bounds.depth.to_string()],
    )
}

/// Returns the command that makes the index and the files of HEAD's commit.
#[must_use]
pub fn check_out() -> Git {
    Git::new(&["-c", WRITERS, "reset", "--hard", "--quiet"])
}

/// Returns the command that makes files of the index again which are in no snapshot because they are too large, and which were
/// there at the last one: the file `list` in the workspace has their names, each with a NUL byte behind it. Without that
/// file, it makes all that are not there and have more than `bytes` bytes. Git before 2.40 tells no sizes with the names.
#[must_use]
pub fn check_out_missing(bytes: u64, list: &str) -> Git {
    Git::script(
        "[ -e .git/index ] || exit 0; \
         if [ -f \"$2\" ]; then LC_ALL=C; export LC_ALL; \
         $git ls-files -d -z | sort -z >.git/oc-missing; \
         sort -z \"$2\" | comm -z -12 - .git/oc-missing | $git checkout-index -z --stdin; \
         rm -f .git/oc-missing; exit 0; fi; \
         $git -c core.quotePath=true diff-files --diff-filter=D --ignore-submodules=all | \
         awk '{ sub(/^:[0-9]+ [0-9]+ /, \"\"); sub(/ [0-9a-f]+ D\t/, \" \"); print }' | \
         $git cat-file --batch-check='%(objectsize) %(rest)' | \
         awk -v most=\"$1\" '$1 + 0 > most + 0 { sub(/^[0-9]+ /, \"\"); print }' | $git checkout-index --stdin",
        &[bytes.to_string(), list.to_owned()],
    )
}

/// Returns the command that checks a pack which leans on earlier ones, completes it, and writes `incoming.pack` and
/// `incoming.idx`. It reads the file `uploaded` in a bare repository with the earlier packs, prints the pack's id, and fails
/// if the commit is in none of them.
#[must_use]
pub fn index_upload(commit: Oid) -> Git {
    let strict = format!("--strict={HARMLESS}");
    Git::script(
        "id=$($git index-pack --stdin --fix-thin \"$1\" <uploaded); id=${id##*[!0-9a-f]}; \
         $git cat-file -e \"$2^{commit}\"; \
         for end in pack idx; do mv \"objects/pack/pack-$id.$end\" \"incoming.$end\"; done; echo \"$id\"",
        &[strict, commit.to_string()],
    )
}

/// Returns the command that takes the pack in the file `uploaded` of a workspace into its own objects, checked and completed.
#[must_use]
pub fn take_upload(uploaded: &str) -> Git {
    let strict = format!("--strict={HARMLESS}");
    Git::script(
        "$git index-pack --stdin --fix-thin \"$1\" <\"$2\" >/dev/null; rm -f \"$2\"",
        &[strict, uploaded.to_owned()],
    )
}

/// Returns the command that makes the files of the commit `wip` and the index of the commit `staged`: what was staged on the
/// machine that it came from is staged, and the rest is not.
#[must_use]
pub fn check_out_changes(staged: Oid, wip: Oid) -> Git {
    Git::script(
        "$git -c \"$3\" read-tree --reset -u \"$2\"; $git read-tree --reset \"$1\"; \
         $git update-index -q --refresh || :",
        &[staged.to_string(), wip.to_string(), WRITERS.to_owned()],
    )
}

/// How much of a checkout's changes is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesAsked {
    /// The lines around each change; `None`: no patches.
    pub context: Option<u32>,
}

/// Files of more bytes than this are compared as binary ones.
const TEXT_BYTES: &str = "core.bigFileThreshold=2m";

/// Returns the command that prints what differs between `head` (or nothing at all) and the working tree, below the directory
/// `below` of a checkout's top, which is where it runs. It writes nothing in the checkout and obeys nothing of it but its
/// ignore files and attributes: git gets a folder of its own in place of `.git`, with a copy of the index and without any
/// configuration, in which attributes name filters and drivers that nobody has defined. Submodules and repositories within
/// are not entered.
///
/// It prints `? NAME` for each untracked file, then `git diff --raw --numstat` and, if patches are wanted, the patches.
#[must_use]
pub fn show_changes(head: Option<Oid>, below: &str, asked: ChangesAsked) -> Git {
    // The tree of no files. Git knows it without having it.
    const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let from = head.map_or_else(|| EMPTY_TREE.to_owned(), |head| head.to_string());
    let head = head.map_or_else(|| "ref: refs/heads/unborn".to_owned(), |head| head.to_string());
    let patches =
        asked.context.map_or_else(String::new, |lines| format!("--patch --unified={lines}"));
    Git::script(
        "exec 2>/dev/null; umask 077; own=$(mktemp -d); trap 'rm -rf \"$own\"' EXIT; \
         mkdir \"$own/refs\" \"$own/info\"; echo \"$1\" >\"$own/HEAD\"; : >\"$own/config\"; \
         copy() { if [ -f \".git/$1\" ] && [ ! -L \".git/$1\" ]; then head -c \"$2\" \".git/$1\" >\"$own/$1\"; fi; }; \
         copy index 268435456; copy info/exclude 65536; \
         GIT_DIR=$own GIT_WORK_TREE=$PWD GIT_OBJECT_DIRECTORY=$PWD/.git/objects; \
         export GIT_DIR GIT_WORK_TREE GIT_OBJECT_DIRECTORY; \
         git=\"$git --literal-pathspecs --no-optional-locks -c core.quotePath=false -c $5\"; \
         $git ls-files -t --others --exclude-standard -- \"$3\"; \
         $git diff --raw --numstat $4 --abbrev=40 --no-color --no-ext-diff --no-textconv --no-renames \
         --ignore-submodules=all --src-prefix=a/ --dst-prefix=b/ \"$2\" -- \"$3\"",
        &[head, from, below.to_owned(), patches, TEXT_BYTES.to_owned()],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_reaches_a_script_as_a_word_only() {
        let commit: Oid = "a".repeat(40).parse().expect("an id");
        let git = measure(commit, &FillBounds::default());
        assert_eq!(git.args[2..], ["sh", &"a".repeat(40), "2000000", "1000"]);
        assert!(!git.args[1].contains(&"a".repeat(40)));
    }

    #[test]
    fn each_command_turns_hooks_and_monitors_off() {
        for git in [index_pack(), check_out(), check_out_missing(1, ".git/list"), take_upload("u")]
        {
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
