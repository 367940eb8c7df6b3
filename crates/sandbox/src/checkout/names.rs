//! The names of an index's entries that no git of ours shall write: into a `.git`, or out of the checkout. At least those that git
//! itself refuses (`verify_path`), with its protection of HFS+ and NTFS, since a checkout may be shared with such a system.

use std::fmt;

/// The longest name of a file, in bytes.
const LONGEST: usize = 255;

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The mode is none of a file, a link or a submodule.
    Mode,
    /// It is empty, absolute, or has a part that is empty, `.`, `..` or too long.
    Part,
    /// It has a part that is `.git` on some system.
    Git,
    /// It is a link, and `.gitmodules` on some system.
    Modules,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "which is no file, no link and no submodule",
            Self::Part => "which is no name of a file in the checkout",
            Self::Git => "which git would write into a .git",
            Self::Modules => "a link which git would take for its .gitmodules",
        })
    }
}

/// Returns the first flaw of a path. `fresh`: only the parts that end behind this many bytes are looked at.
pub(super) fn find_flaw(path: &[u8], fresh: usize, is_link: bool) -> Option<Flaw> {
    let known = path.get(..fresh)?;
    let begin = known.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.get(begin..)?.split(|byte| *byte == b'/').find_map(|part| find_flaw_of(part, is_link))
}

fn find_flaw_of(part: &[u8], is_link: bool) -> Option<Flaw> {
    if part.is_empty() || part.len() > LONGEST || part == b"." || part == b".." {
        return Some(Flaw::Part);
    }
    let folded = fold(part);
    // On NTFS a backslash ends a part.
    let pieces = || part.split(|byte| *byte == b'\\');
    if folded == b".git" || pieces().any(is_git_of_ntfs) {
        return Some(Flaw::Git);
    }
    let is_modules = || is_modules(&folded) || pieces().any(|piece| is_modules(&fold(piece)));
    (is_link && is_modules()).then_some(Flaw::Modules)
}

/// Returns a name in small letters as HFS+ compares it: without the characters that it ignores, up to one that is none.
fn fold(part: &[u8]) -> Vec<u8> {
    if part.is_ascii() {
        return part.to_ascii_lowercase();
    }
    let valid = match std::str::from_utf8(part) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&part[..error.valid_up_to()]).unwrap_or_default(),
    };
    let is_seen = |c: &char| {
        !matches!(c,
            '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
    };
    valid.chars().filter(is_seen).collect::<String>().to_ascii_lowercase().into_bytes()
}

/// Returns whether NTFS takes a name for `.git`: also by its short name, with dots and spaces behind it, or with a stream.
fn is_git_of_ntfs(piece: &[u8]) -> bool {
    let name = piece.to_ascii_lowercase();
    let rest = name.strip_prefix(b".git").or_else(|| name.strip_prefix(b"git~1"));
    rest.is_some_and(|rest| {
        let end = rest.iter().find(|byte| !matches!(byte, b'.' | b' '));
        matches!(end, None | Some(b':'))
    })
}

/// Returns whether some system may take a name for `.gitmodules`. Longer names that begin like it count too.
fn is_modules(folded: &[u8]) -> bool {
    if folded.starts_with(b".gitmodules") {
        return true;
    }
    let mut halves = folded.splitn(2, |byte| *byte == b'~');
    let (head, tail) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let is_short = head == b"gitmod" || b"gi7eba".starts_with(head);
    is_short && tail.first().is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_refuses_are_refused() {
        let of_git = [
            ".git/hooks/x",
            "a/.git/config",
            ".GIT/x",
            ".giT",
            "a/.git",
            ".git /x",
            ".git./x",
            ".git . ./x",
            "git~1/x",
            "GIT~1",
            "Git~1 /x",
            ".git::$INDEX_ALLOCATION/x",
            ".g\u{200c}it/x",
            "\u{feff}.GIT/x",
            ".git\u{206f}",
            "a\\.git\\hooks\\x",
            "a\\git~1",
        ];
        for name in of_git {
            assert_eq!(find_flaw(name.as_bytes(), 0, false), Some(Flaw::Git), "{name}");
        }
        // Where characters end, a name of HFS+ ends.
        assert_eq!(find_flaw(b".git\xff", 0, false), Some(Flaw::Git));
        let long = "x".repeat(256);
        for name in ["", "/", "/a", "a/", "a//b", ".", "..", "../x", "a/../b", "a/./b", &long] {
            assert_eq!(find_flaw(name.as_bytes(), 0, false), Some(Flaw::Part), "{name}");
        }
        for name in [".gitmodules", ".GitModules ", "a\\.gitmodules", "gitmod~1", "GI7EBA~1"] {
            assert_eq!(find_flaw(name.as_bytes(), 0, true), Some(Flaw::Modules), "{name}");
            assert_eq!(find_flaw(name.as_bytes(), 0, false), None, "{name}");
        }
    }

    #[test]
    fn names_of_projects_are_not() {
        for name in [
            "a",
            ".gitignore",
            ".gitattributes",
            ".github/workflows/a.yml",
            "a/.gitkeep",
            "git",
            "git~2",
            "x.git/a",
            "...",
            "a b/ü.rs",
            "a\\b",
            "git~10",
        ] {
            assert_eq!(find_flaw(name.as_bytes(), 0, true), None, "{name}");
        }
    }

    #[test]
    fn a_part_is_looked_at_from_its_beginning() {
        // The entry before was `a/.gi`, of which all but the last letter was kept.
        assert_eq!(find_flaw(b"a/.git/x", 4, false), Some(Flaw::Git));
        assert_eq!(find_flaw(b"../x", 3, false), None, "that part was known");
    }
}
