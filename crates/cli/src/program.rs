//! The word by which the hints of commands name this executable.

use std::ffi::OsStr;
use std::path::Path;

/// Returns a word with which a shell runs this executable from any directory: its name if PATH leads to it, otherwise
/// its path.
#[must_use]
pub fn program() -> String {
    let Ok(this) = std::env::current_exe() else { return "opencode-cloud".to_owned() };
    program_for(&this, std::env::var_os("PATH").as_deref())
}

fn program_for(this: &Path, path: Option<&OsStr>) -> String {
    let name = this.file_name().unwrap_or(this.as_os_str());
    let real = this.canonicalize().ok();
    let mut folders = path.map(std::env::split_paths).into_iter().flatten();
    let first = folders.find_map(|folder| folder.join(name).canonicalize().ok());
    let is_on_path = first.is_some() && first == real;
    let word = if is_on_path { name.to_string_lossy() } else { this.to_string_lossy() };
    quoted(&word)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%=:,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_hint_runs_from_any_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let this = folder.path().join("opencode-cloud");
        std::fs::write(&this, "").expect("a file");
        let path = folder.path().as_os_str();
        assert_eq!(program_for(&this, Some(path)), "opencode-cloud");
        assert_eq!(program_for(&this, Some(OsStr::new("/nowhere"))), this.display().to_string());
        assert_eq!(program_for(&this, None), this.display().to_string());
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
