//! Finds files and directories by a part of their name, as somebody types it after `@`.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sandbox::HiddenPaths;
use tokio_util::sync::CancellationToken;
use tools::LocationTexts;

/// The most names that wait to be ordered, for each that is asked for.
const ROOM: usize = 16;

/// The kinds of entries that a search is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKinds {
    /// Files, and links whatever they lead to.
    Files,
    /// Directories with a file in them.
    Directories,
    /// Both.
    All,
}

/// A search for names.
#[derive(Debug, Clone)]
pub struct NameSearch {
    /// The typed text. A path matches that has its characters in this order, in any case; the best matches come first. Empty for
    /// the entries nearest to the top.
    pub query: String,
    /// The kinds that are wanted.
    pub kinds: EntryKinds,
    /// The most entries of an answer.
    pub limit: usize,
}

/// A file or a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundName {
    /// Its path below the directory that was searched, without a slash at its end.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// How well a path matches: the smaller the better. Equal ones are ordered by depth, length and path.
type Rank = (u8, usize, usize);

impl NameSearch {
    /// Looks for names below `root`, as `glob` sees them: nothing that is ignored or hidden, and through no link. `shows` says
    /// whether a file's name may be shown. When `cancel` fires, the answer is what was found so far. Blocking.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn find(
        &self,
        root: &Path,
        hidden: &HiddenPaths,
        shows: impl Fn(&Path) -> bool,
        cancel: &CancellationToken,
    ) -> io::Result<Vec<FoundName>> {
        let texts = LocationTexts::open(root, hidden)?;
        let mut matches = Matches { search: self, found: Vec::new() };
        let mut seen: HashSet<PathBuf> = HashSet::new();
        let query = self.query.trim_start_matches("./").to_lowercase();
        texts.visit_files(Path::new(""), cancel, |path| {
            if !shows(path) {
                return ControlFlow::Continue(());
            }
            if self.kinds != EntryKinds::Directories {
                matches.add(&query, path, false);
            }
            if self.kinds != EntryKinds::Files {
                let above = path.ancestors().skip(1);
                for directory in above.take_while(|above| !above.as_os_str().is_empty()) {
                    if !seen.insert(directory.to_path_buf()) {
                        break; // and so were those above it
                    }
                    matches.add(&query, directory, true);
                }
            }
            ControlFlow::Continue(())
        });
        Ok(matches.into_best())
    }
}

struct Matches<'s> {
    search: &'s NameSearch,
    found: Vec<(Rank, FoundName)>,
}

impl Matches<'_> {
    fn add(&mut self, query: &str, path: &Path, is_directory: bool) {
        // A name that is not UTF-8 cannot be sent back.
        let Some(path) = path.to_str() else { return };
        let Some(rank) = rank_path(query, path) else { return };
        self.found.push((rank, FoundName { path: path.to_owned(), is_directory }));
        if self.found.len() >= self.search.limit.saturating_mul(ROOM).max(ROOM) {
            self.keep_best();
        }
    }

    fn keep_best(&mut self) {
        self.found.sort();
        self.found.truncate(self.search.limit);
    }

    fn into_best(mut self) -> Vec<FoundName> {
        self.keep_best();
        self.found.into_iter().map(|(_, name)| name).collect()
    }
}

/// Returns how well a path matches a query in lower case; `None` if it does not.
fn rank_path(query: &str, path: &str) -> Option<Rank> {
    let depth = path.matches('/').count();
    if query.is_empty() {
        return Some((0, depth, 0));
    }
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    let class = if name == query || lower == query.trim_end_matches('/') {
        0
    } else if name.starts_with(query) {
        1
    } else if name.contains(query) {
        2
    } else if lower.contains(query) {
        3
    } else if has_in_order(name, query) {
        4
    } else if has_in_order(&lower, query) {
        5
    } else {
        return None;
    };
    Some((class, depth, path.len()))
}

/// Returns whether a text has the characters of another one in their order.
fn has_in_order(text: &str, wanted: &str) -> bool {
    let mut rest = text.chars();
    wanted.chars().all(|wanted| rest.any(|found| found == wanted))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::EntryKinds::{All, Directories, Files};
    use super::*;

    fn find(root: &Path, query: &str, kinds: EntryKinds) -> Vec<String> {
        let search = NameSearch { query: query.to_owned(), kinds, limit: 4 };
        let shows = |path: &Path| !path.starts_with("denied");
        let cancel = CancellationToken::new();
        let found = search.find(root, &HiddenPaths::new([root.join("keys")]), shows, &cancel);
        let text = |found: FoundName| found.path + if found.is_directory { "/" } else { "" };
        found.expect("a directory").into_iter().map(text).collect()
    }

    #[test]
    fn the_best_matches_come_first_and_nothing_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a real path");
        for path in [
            "src/main.rs",
            "src/deep/domain.rs",
            "README.md",
            "target/main.rs",
            "denied/main.rs",
            "keys/main.rs",
            ".git/main.rs",
            "m/a/i/n",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, "").expect("a file");
        }
        fs::write(root.join(".gitignore"), "target\n").expect("a file");
        symlink("/etc", root.join("main-link")).expect("a link");
        for (query, kinds, expected) in [
            ("main", Files, vec!["main-link", "src/main.rs", "src/deep/domain.rs", "m/a/i/n"]),
            ("MAIN.RS", All, vec!["src/main.rs", "src/deep/domain.rs"]),
            ("src/", All, vec!["src/", "src/deep/", "src/main.rs", "src/deep/domain.rs"]),
            ("sdr", Files, vec!["src/deep/domain.rs"]),
            ("deep", Directories, vec!["src/deep/"]),
            ("", All, vec![".gitignore", "README.md", "m/", "main-link"]),
            ("nothing like it", All, vec![]),
        ] {
            assert_eq!(find(&root, query, kinds), expected, "{query}");
        }
        for many in 0..200 {
            fs::write(root.join(format!("f{many:03}.txt")), "").expect("a file");
        }
        assert_eq!(find(&root, "f", Files), ["f000.txt", "f001.txt", "f002.txt", "f003.txt"]);
    }
}
