//! Puts the texts of files in the place of `{file:…}`. `{env:…}` stays as it is: the environment is the service's.

use std::path::Path;

use domain::is_secret_path;

use crate::diagnostic::{Remarks, shown};

/// Reads a file that a settings file names, by its path from the top of the project. `Err` is a sentence that says why there is
/// no text.
pub type ReadText<'r> = dyn FnMut(&Path) -> Result<String, String> + 'r;

const FILE_GAP: &str = "{file:";
const ENVIRONMENT_GAP: &str = "{env:";

/// Returns a text with the texts of the files that it names. `what` it is stands in a message.
///
/// # Errors
/// A file has no text, or all is longer than `max` bytes. It is told as a mistake, and returned with its place.
pub(crate) fn fill_files(
    text: &str,
    (what, max): (&str, usize),
    at: u32,
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) -> Result<String, String> {
    if text.contains(ENVIRONMENT_GAP) {
        remarks.idle(at, format!("`{{env:…}}` is not filled in here: it stays in {what} as it is"));
    }
    let too_long = format!("{what} has more than {max} bytes and does not count");
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(FILE_GAP) {
        let Some((name, behind)) = after.split_once('}') else { break };
        filled.push_str(before);
        match read_named(name.trim(), remarks.path(), read) {
            Ok(named) => filled.push_str(named.trim()),
            Err(why) => {
                let message = format!("`{FILE_GAP}{}}}` cannot be put in: {why}", shown(name));
                return Err(remarks.tell_error(at, message));
            }
        }
        if filled.len() > max {
            return Err(remarks.tell_error(at, too_long));
        }
        rest = behind;
    }
    filled.push_str(rest);
    if filled.trim().len() > max {
        return Err(remarks.tell_error(at, too_long));
    }
    Ok(filled)
}

/// Reads a file by its path from the folder of the settings file.
fn read_named(name: &str, settings: &str, read: &mut ReadText<'_>) -> Result<String, String> {
    if name.is_empty() {
        return Err("it names no file".to_owned());
    }
    // A person is asked before such a file is read: no settings file gives it to a model.
    if is_secret_path(name) {
        return Err("it is a file for secrets".to_owned());
    }
    let folder = Path::new(settings).parent().unwrap_or(Path::new(""));
    read(&folder.join(name))
}

/// Returns whether a text has a gap that is filled in for nobody but in instructions and templates.
pub(crate) fn has_gap(text: &str) -> bool {
    text.contains(FILE_GAP) || text.contains(ENVIRONMENT_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Severity;

    /// Fills a text of `a/.opencode/opencode.json`.
    fn fill(text: &str) -> (Result<String, String>, Vec<(Severity, String)>) {
        let mut remarks = Remarks::new("a/.opencode/opencode.json");
        let mut read = |path: &Path| match path.to_str() {
            Some("a/.opencode/./x.txt") => Ok(" Look at {file:y} and {env:Z}.\n".to_owned()),
            Some("/etc/x") => Ok("an absolute path stays one".to_owned()),
            Some(_) | None => Err(format!("{} is not there", path.display())),
        };
        let filled = fill_files(text, ("the text", 50), 7, &mut read, &mut remarks);
        let told = remarks.into_all().into_iter().map(|told| (told.severity, told.message));
        (filled, told.collect())
    }

    #[test]
    fn a_files_text_takes_the_place_of_its_name() {
        let (filled, told) = fill("First. {file: ./x.txt } Last. {file:");
        let expected = "First. Look at {file:y} and {env:Z}. Last. {file:";
        assert_eq!((filled.as_deref(), told), (Ok(expected), Vec::new()));
        assert_eq!(fill("{file:/etc/x}").0.as_deref(), Ok("an absolute path stays one"));
    }

    #[test]
    fn a_file_without_a_text_is_a_mistake() {
        for (text, why) in [
            ("{file:no.txt}", "a/.opencode/no.txt is not there"),
            ("{file:}", "names no file"),
            ("{file:../.env}", "for secrets"),
            ("{file:./x.txt}{file:./x.txt}", "more than 50 bytes"),
            (&"x".repeat(51), "more than 50 bytes"),
        ] {
            let (filled, told) = fill(text);
            let error = filled.expect_err(text);
            assert!(error.starts_with("a/.opencode/opencode.json:7: "), "{error}");
            assert!(error.contains(why), "{error}");
            assert_eq!(told.len(), 1);
            assert_eq!(told[0].0, Severity::Error);
        }
    }

    #[test]
    fn the_environment_is_not_filled_in() {
        let (filled, told) = fill("Use {env:HOME}.");
        assert_eq!(filled.as_deref(), Ok("Use {env:HOME}."));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, Severity::Note);
    }
}
