//! Names that have the same letters in other code points: macOS writes `é` as two, models and keyboards as one.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, OFlags};
use unicode_normalization::UnicodeNormalization as _;

use crate::files::LocationFiles;

/// The most names of a directory that are compared.
const MAX_NAMES: usize = 10_000;

/// Returns a text with each letter in as few code points as there are for it (Unicode's form NFC).
pub(crate) fn compose_letters(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}

/// Returns the path as it is spelled on the disk. A name that does not exist becomes the only one with the same letters.
pub(crate) fn find_spelling(files: &LocationFiles, path: PathBuf) -> PathBuf {
    let is_plain = path.to_str().is_none_or(str::is_ascii);
    if is_plain || files.open(&path, OFlags::PATH).is_ok() {
        return path;
    }
    let mut found = PathBuf::new();
    for part in path.components() {
        let spelled = match part {
            Component::Normal(name) => find_other_spelling(files, &found, name),
            Component::CurDir
            | Component::ParentDir
            | Component::RootDir
            | Component::Prefix(_) => None,
        };
        found.push(spelled.as_deref().unwrap_or(part.as_os_str()));
    }
    found
}

/// Returns the one other spelling of a name in a directory, if the name itself is not there.
fn find_other_spelling(files: &LocationFiles, directory: &Path, name: &OsStr) -> Option<OsString> {
    let wanted = name.to_str().filter(|name| !name.is_ascii())?;
    let composed = compose_letters(wanted);
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    let fd = files.open(directory, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
    let mut only = None;
    for entry in Dir::new(fd).ok()?.flatten().take(MAX_NAMES) {
        let Ok(entry) = entry.file_name().to_str() else { continue };
        if entry == wanted || (only.is_some() && compose_letters(entry) == composed) {
            return None;
        }
        if compose_letters(entry) == composed {
            only = Some(OsString::from(entry));
        }
    }
    only
}
