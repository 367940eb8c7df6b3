//! Whether a configuration of git has only settings by which git runs nothing and reads nothing elsewhere.

/// Settings that `git init`, `git clone` and `git remote` write. `*` stands for the name between the two parts.
const HARMLESS: [&str; 25] = [
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.symlinks",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "extensions.objectformat",
    "extensions.refstorage",
    "init.defaultbranch",
    "user.name",
    "user.email",
    "remote.*.url",
    "remote.*.fetch",
    "remote.*.mirror",
    "remote.*.tagopt",
    "branch.*.remote",
    "branch.*.merge",
    "branch.*.rebase",
    "submodule.*.url",
    "submodule.*.active",
    "pull.rebase",
    "gc.auto",
];

/// Returns whether a configuration is harmless. One that is written in an unusual way is not.
pub(super) fn is_harmless(text: &str) -> bool {
    let mut section = String::new();
    text.lines().map(str::trim).all(|line| {
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        if line.ends_with('\\') {
            return false; // the next line goes on
        }
        if let Some(header) = line.strip_prefix('[') {
            let Some(name) = header.strip_suffix(']').and_then(section_name) else { return false };
            section = name;
            return true;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let setting = format!("{section}.{}", key.trim().to_ascii_lowercase());
        HARMLESS.contains(&setting.as_str()) && is_plain(value)
    })
}

/// Returns whether a value says what it seems to, and names no helper of a transport, such as `ext::`, which runs programs: git
/// takes `ext:"":sh` for one, and an address where the name of a remote is expected.
fn is_plain(value: &str) -> bool {
    !value.contains(['"', '\\']) && !value.contains("::")
}

/// Returns a section's name, with `*` for its second part.
fn section_name(header: &str) -> Option<String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    match header.split_once(' ') {
        None => is_word(header).then(|| header.to_ascii_lowercase()),
        Some((name, second)) => {
            let second = second.trim().strip_prefix('"')?.strip_suffix('"')?;
            let is_plain = !second.contains(['"', '\\', ']']);
            (is_word(name) && is_plain).then(|| format!("{}.*", name.to_ascii_lowercase()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_and_clone_write_is_harmless() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                    # words\n[remote \"origin\"]\n\turl = https://example.com/a.git\n\
                    \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\
                    \tmerge = refs/heads/main\n[user]\n\tname = A\n";
        assert!(is_harmless(text) && is_harmless(""));
    }

    #[test]
    fn what_git_runs_or_includes_is_not() {
        for text in [
            "[core]\n\tfsmonitor = touch x\n",
            "[core] fsmonitor = touch x\n",
            "[CORE]\n\tFSMonitor = touch x\n",
            "[core]\n\tbare = false \\\n\tfsmonitor = x\n",
            "[core]\n\thooksPath = x\n",
            "[core]\n\tworktree = /\n",
            "[include]\n\tpath = ../x\n",
            "[includeIf \"gitdir:/\"]\n\tpath = ../x\n",
            "[filter \"a\"]\n\tclean = x\n",
            "[alias]\n\tst = !x\n",
            "[remote \"a\"]\n\tuploadpack = x\n",
            "[remote \"a\"]\n\turl = ext::sh -c x\n",
            "[remote \"a\"]\n\turl = ext:\"\":sh -c x\n",
            "[remote \"a\"]\n\turl = \"ext:\":sh -c x\n",
            "[remote \"a\"]\n\turl = ext:\\\":sh\n",
            "[branch \"main\"]\n\tremote = ext::sh -c x\n",
            "[submodule \"a\"]\n\turl = ext::sh -c x\n",
            "[remote \"a\\\"]\n[core]\n\tfsmonitor = x\n",
            "[extensions]\n\tworktreeConfig = true\n",
            "fsmonitor = x\n",
            "[core.fsmonitor]\n",
        ] {
            assert!(!is_harmless(text), "{text}");
        }
    }
}
