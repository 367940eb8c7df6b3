//! Suggests existing paths for one that does not exist.

use std::path::Path;

use rustix::fs::{Dir, OFlags};

use crate::files::LocationFiles;

/// The most names of a directory that are compared.
const MAX_NAMES: usize = 2_000;
/// The most suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// Returns a sentence with up to three names that resemble `path`'s, from the directory where it should be;
/// or an empty text.
pub(crate) fn did_you_mean(files: &LocationFiles, path: &Path) -> String {
    let Some(wanted) = path.file_name().and_then(|name| name.to_str()) else {
        return String::new();
    };
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let names = match files.open(parent, OFlags::RDONLY | OFlags::DIRECTORY).map(Dir::new) {
        Ok(Ok(directory)) => directory
            .flatten()
            .take(MAX_NAMES)
            .filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()))
            .filter(|name| name != "." && name != "..")
            .collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    let found: Vec<_> = closest(wanted, names)
        .iter()
        .map(|name| parent.join(name).components().as_path().display().to_string())
        .map(|path| path.trim_start_matches("./").to_owned())
        .collect();
    if found.is_empty() { String::new() } else { format!(". Did you mean {}?", found.join(" or ")) }
}

/// Returns the closest names. Names that contain the other, ignoring case, come first; then similar
/// spellings.
fn closest(wanted: &str, mut names: Vec<String>) -> Vec<String> {
    names.sort();
    let lower = wanted.to_lowercase();
    let contains = |name: &&String| {
        let name = name.to_lowercase();
        name.contains(&lower) || lower.contains(&name)
    };
    let mut found: Vec<String> = names.iter().filter(contains).cloned().collect();
    let candidates: Vec<&str> = names.iter().map(String::as_str).collect();
    for alike in similar::get_close_matches(wanted, &candidates, MAX_SUGGESTIONS, 0.7) {
        if !found.iter().any(|name| name == alike) {
            found.push(alike.to_owned());
        }
    }
    found.truncate(MAX_SUGGESTIONS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        let names = || ["lib.rs", "main.rs", "README.md", "registry.rs"].map(String::from).to_vec();
        assert_eq!(closest("mian.rs", names()), ["main.rs"]);
        assert_eq!(closest("readme", names()), ["README.md"]);
        assert!(closest("zzz", names()).is_empty());
    }
}
