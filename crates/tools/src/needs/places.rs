//! Finds the files and directories that a command names, as far as its text says.
//!
//! A variable has the values that the script gives it; `$HOME` and `$PWD` are known. Where a program that works on files
//! gets an argument that is known only when it runs, the place is unknown, and no rule may take it for one inside.
//!
//! Absent: what a program opens by itself, and what a script of `awk` or `python` names. The sandbox bounds those.

use std::collections::BTreeMap;

use super::script::Variable;
use super::word::{Piece, Word};
use super::wrapped::base;

/// The most texts that one word may stand for. A word with more is unknown.
const MAX_TEXTS: usize = 16;
/// Programs whose arguments are directories rather than files in one.
const OF_DIRECTORIES: [&str; 8] = ["cd", "du", "find", "ls", "mkdir", "pushd", "rmdir", "tree"];
/// Programs that work on the files that their arguments name, besides those of directories.
const OF_FILES: [&str; 84] = [
    ".",
    "7z",
    "ag",
    "awk",
    "base32",
    "base64",
    "bat",
    "batcat",
    "bunzip2",
    "bzip2",
    "cat",
    "chgrp",
    "chmod",
    "chown",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cp",
    "csplit",
    "cut",
    "dd",
    "diff",
    "ed",
    "egrep",
    "ex",
    "fgrep",
    "file",
    "fold",
    "gawk",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "iconv",
    "install",
    "join",
    "jq",
    "less",
    "ln",
    "mawk",
    "md5sum",
    "more",
    "mv",
    "nano",
    "nl",
    "od",
    "paste",
    "patch",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "rm",
    "rsync",
    "scp",
    "sdiff",
    "sed",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "shred",
    "shuf",
    "sort",
    "source",
    "split",
    "stat",
    "strings",
    "tac",
    "tail",
    "tar",
    "tee",
    "touch",
    "truncate",
    "uniq",
    "unlink",
    "unzip",
    "vi",
    "vim",
    "wc",
    "xxd",
    "xz",
    "zcat",
];
/// Programs whose arguments are only text.
const OF_TEXT: [&str; 19] = [
    ":", "basename", "date", "dirname", "echo", "exit", "export", "expr", "false", "kill",
    "printf", "return", "seq", "set", "sleep", "tr", "true", "type", "which",
];
/// Programs with options whose values are no files, by their letters, and whether their first argument is a pattern or a
/// script unless one of the options `e` and `f` gives it.
const WITH_TEXTS: [(&str, &str, bool); 15] = [
    ("ag", "ABCGm", true),
    ("awk", "Fve", true),
    ("cut", "bcdf", false),
    ("egrep", "ABCDdem", true),
    ("fgrep", "ABCDdem", true),
    ("gawk", "Fve", true),
    ("grep", "ABCDdem", true),
    ("head", "cn", false),
    ("jq", "", true),
    ("mawk", "Fv", true),
    ("paste", "d", false),
    ("rg", "ABCEMTegjmrt", true),
    ("sed", "el", true),
    ("sort", "Skt", false),
    ("tail", "cn", false),
];
/// Files that hold nothing of anybody.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
];

/// A place that an argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// This path.
    Known {
        /// As it was written.
        path: String,
        /// Whether it is the directory itself, and no file in it.
        is_directory: bool,
    },
    /// One that is known only when the command runs: the word as it was written.
    Unknown(String),
}

/// The values that scripts give their variables. `None` is one that is known only when they run.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, Vec<Option<String>>>,
}

impl Variables {
    /// Adds the values that a script gives.
    pub(super) fn extend(&mut self, given: &[Variable], directory: &str) {
        for Variable { name, value } in given {
            let texts = value.as_ref().and_then(|word| self.list_texts(word, directory));
            let values = self.values.entry(name.clone()).or_default();
            match texts {
                Some(texts) => values.extend(texts.into_iter().map(Some)),
                None => values.push(None),
            }
        }
    }

    /// Returns all texts that a word may stand for. `None` if one of them is not known.
    pub(super) fn list_texts(&self, word: &Word, directory: &str) -> Option<Vec<String>> {
        let mut texts = vec![String::new()];
        for piece in &word.pieces {
            let values = match piece {
                Piece::Text(text) => vec![text.clone()],
                Piece::Number => vec!["0".to_owned()],
                Piece::Variable(name) => self.list_values(name, directory)?,
                Piece::Unknown => return None,
            };
            let longer = |text: &String| {
                values.iter().map(|value| format!("{text}{value}")).collect::<Vec<_>>()
            };
            texts = texts.iter().flat_map(longer).collect();
            if texts.len() > MAX_TEXTS {
                return None;
            }
        }
        Some(texts)
    }

    /// Returns whether a script gives a variable a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn list_values(&self, name: &str, directory: &str) -> Option<Vec<String>> {
        // It says where values are split into words.
        if self.values.contains_key("IFS") {
            return None;
        }
        match self.values.get(name) {
            Some(values) => values.iter().cloned().collect(),
            None if name == "HOME" => Some(vec!["~".to_owned()]),
            None if name == "PWD" => Some(vec![directory.to_owned()]),
            None => None,
        }
    }
}

/// Returns the places that the arguments of a command name. `has_more`: others follow that are known only when it runs.
pub(super) fn list_places(
    words: &[Word],
    has_more: bool,
    variables: &Variables,
    directory: &str,
) -> Vec<Place> {
    let Some(name) = words.first().and_then(Word::exact).map(base) else { return Vec::new() };
    if OF_TEXT.contains(&name) {
        return Vec::new();
    }
    let is_directory = OF_DIRECTORIES.contains(&name);
    let is_of_files = is_directory || OF_FILES.contains(&name);
    let mut places = Vec::new();
    for word in files_among(name, &words[1..]) {
        match variables.list_texts(word, directory) {
            Some(mut texts) => {
                // The shell makes several words of a value with blanks.
                let is_value = |piece: &Piece| matches!(piece, Piece::Variable(_));
                if word.pieces.iter().any(is_value) {
                    let words: Vec<String> = texts
                        .iter()
                        .flat_map(|text| text.split_whitespace())
                        .map(str::to_owned)
                        .collect();
                    texts.extend(words);
                }
                let paths = texts.iter().flat_map(|text| list_paths(text, word.is_exact));
                let paths = paths.filter(|path| !is_device(path));
                places.extend(paths.map(|path| Place::Known { path, is_directory }));
            }
            None if is_of_files => places.push(Place::Unknown(word.raw.clone())),
            None => {}
        }
    }
    if name == "cd" && words.len() == 1 {
        places.push(Place::Known { path: "~".to_owned(), is_directory });
    }
    if has_more && is_of_files {
        places.push(Place::Unknown(format!("{name} …")));
    }
    places
}

/// Returns the arguments that may be files: not the pattern of `grep`, nor the values of options that are none.
fn files_among<'w>(name: &str, arguments: &'w [Word]) -> Vec<&'w Word> {
    let Some((_, valued, has_script)) = WITH_TEXTS.iter().find(|(known, ..)| *known == name) else {
        return arguments.iter().collect();
    };
    let mut files = Vec::new();
    let (mut is_text, mut needs_script, mut are_options) = (false, *has_script, true);
    for word in arguments {
        if std::mem::take(&mut is_text) {
            continue;
        }
        let option = word.text.as_deref().filter(|text| are_options && text.len() > 1);
        match option.and_then(|text| text.strip_prefix('-')) {
            Some("-") => are_options = false,
            Some(long) if long.starts_with('-') => {
                needs_script &= !(long.starts_with("-regexp") || long.starts_with("-file"));
                needs_script &= !long.starts_with("-expression");
                if !long.starts_with("-regexp") && !long.starts_with("-expression") {
                    files.push(word);
                }
            }
            Some(letters) => {
                needs_script &= !letters.contains(['e', 'f']);
                match letters.find(|c| valued.contains(c)) {
                    // Its value is the next argument, or the rest of this one.
                    Some(at) => is_text = at + 1 == letters.len(),
                    None => files.push(word),
                }
            }
            None if needs_script => needs_script = false,
            None => files.push(word),
        }
    }
    files
}

/// Returns the paths in an argument: itself, or the value in `--name=value`, `name=value` and `-Xvalue`.
fn list_paths(text: &str, is_exact: bool) -> Vec<String> {
    let value = match text.split_once('=') {
        Some((_, value)) => Some(value),
        None => text
            .strip_prefix('-')
            .and_then(|letters| letters.char_indices().nth(1))
            .map(|(at, _)| &text[at + 1..])
            .filter(|value| *value != "/"),
    };
    let whole = Some(text).filter(|text| !text.starts_with('-'));
    let named = whole.into_iter().chain(value).filter(|path| !path.is_empty());
    let named = named.map(|path| {
        let path = path.strip_prefix('@').unwrap_or(path);
        path.strip_prefix("file://").unwrap_or(path)
    });
    // `{a,b}` is several words.
    let pieces = named.flat_map(|path| {
        let is_several = !is_exact && path.contains('{');
        if is_several { path.split(['{', ',', '}']).collect() } else { vec![path] }
    });
    pieces.filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// Returns whether a path is a device that holds nothing.
pub(super) fn is_device(path: &str) -> bool {
    DEVICES.contains(&path) || path.starts_with("/dev/fd/")
}
