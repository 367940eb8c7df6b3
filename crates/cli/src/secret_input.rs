//! A secret from a file, from standard input, or typed in without being shown. Never from the command line, which other
//! users of the machine can read.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcsetattr};

use crate::CliError;
use crate::output::Screen;

/// The largest secret, in bytes. The key of a service account is a few KiB of JSON.
const MAX_SECRET: u64 = 64 * 1024;

/// Reads a secret from `file` (`-` is standard input). Without a file, reads standard input if it is not a terminal, and
/// otherwise asks for it with `prompt`.
///
/// # Errors
/// When it cannot be read, is empty, or the user gives up.
pub(crate) fn read(
    file: Option<&Path>,
    prompt: &str,
    screen: &mut Screen,
) -> Result<String, CliError> {
    let secret = match file {
        Some(path) if path != Path::new("-") => {
            let unreadable = |error: io::Error| {
                let (path, why) = (path.display(), client::cause_text(&error));
                CliError::Usage(format!("cannot read {path}: {why}; name the file with the key"))
            };
            bounded(std::fs::File::open(path).map_err(unreadable)?).map_err(unreadable)?
        }
        None if io::stdin().is_terminal() => typed(prompt, screen)?,
        Some(_) | None => bounded(io::stdin().lock())
            .map_err(|source| CliError::Io { doing: "cannot read standard input", source })?,
    };
    let secret = secret.trim();
    if secret.is_empty() {
        let usage = "no key: type it in, pipe it in, or name its file with --key-file";
        return Err(CliError::Usage(usage.to_owned()));
    }
    Ok(secret.to_owned())
}

/// Returns whether a secret without a file would be typed in.
pub(crate) fn is_typed() -> bool {
    io::stdin().is_terminal()
}

fn bounded(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_SECRET + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(io::Error::other(format!("it is larger than {} KiB", MAX_SECRET >> 10)));
    }
    Ok(text)
}

/// Asks for a secret at the terminal. Its modes are back before this returns, also after Ctrl-C.
fn typed(prompt: &str, screen: &mut Screen) -> Result<String, CliError> {
    screen.err.print(prompt)?;
    let refused = |source: io::Error| CliError::Io { doing: "cannot read the terminal", source };
    let silent = Silent::begin().map_err(refused)?;
    let line = line_of(io::stdin().lock().bytes());
    drop(silent);
    screen.err.print("\n")?;
    let line = line.map_err(refused)?;
    line.ok_or_else(|| CliError::Usage("nothing was entered".to_owned()))
}

/// Reads a line that a user types in a terminal without its own line editing. `None`: the user gave up.
fn line_of(typed: impl Iterator<Item = io::Result<u8>>) -> io::Result<Option<String>> {
    let mut line: Vec<u8> = Vec::new();
    for byte in typed {
        match byte? {
            b'\n' | b'\r' => break,
            3 => return Ok(None),                    // Ctrl-C
            4 if line.is_empty() => return Ok(None), // Ctrl-D
            4 => break,
            8 | 127 => drop(line.pop()), // Backspace; secrets are ASCII
            21 => line.clear(),          // Ctrl-U
            _ if line.len() as u64 >= MAX_SECRET => {
                return Err(io::Error::other("the line is too long"));
            }
            byte => line.push(byte),
        }
    }
    String::from_utf8(line).map(Some).map_err(|_| io::Error::other("the key is not UTF-8"))
}

/// A terminal that shows nothing of what is typed, and passes on each key. Dropping it restores the terminal.
struct Silent {
    before: Termios,
}

impl Silent {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Not `Flush`: what was pasted before the prompt appeared counts.
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        Ok(Self { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // If the terminal has gone away, there is nothing to restore.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(keys: &[u8]) -> Option<String> {
        line_of(keys.iter().map(|key| Ok(*key))).expect("readable")
    }

    #[test]
    fn a_typed_line_can_be_corrected_and_given_up() {
        assert_eq!(line(b"oc_x\x7fkey\nmore").as_deref(), Some("oc_key"));
        assert_eq!(line(b"wrong\x15oc_key\r").as_deref(), Some("oc_key"));
        assert_eq!(line(b"oc_key\x04").as_deref(), Some("oc_key"));
        assert_eq!((line(b"oc_k\x03\n"), line(b"\x04")), (None, None));
        assert_eq!(line(b"\n").as_deref(), Some(""));
    }

    #[test]
    fn a_secret_of_a_file_is_bounded_and_never_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        let mut screen = Screen::standard();
        let mut told = |text: &str| {
            std::fs::write(&file, text).expect("written");
            read(Some(&file), "", &mut screen)
        };
        assert_eq!(told(" oc_key\n").ok().as_deref(), Some("oc_key"));
        assert!(told("\n").is_err_and(|error| error.to_string().starts_with("no key:")));
        let large = "x".repeat(65 * 1024);
        assert!(told(&large).is_err_and(|error| error.to_string().contains("larger than 64 KiB")));
        let missing = read(Some(Path::new("/no/such")), "", &mut screen).expect_err("not there");
        assert_eq!(
            missing.to_string(),
            "cannot read /no/such: No such file or directory; name the file with the key"
        );
    }
}
