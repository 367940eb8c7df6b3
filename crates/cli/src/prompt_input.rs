//! The text of a prompt: words, what is piped in, and files.

use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use client::cause_text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, tell};

use crate::CliError;

/// The largest prompt, in bytes. The service has the same bound.
const MAX_PROMPT: u64 = 512 * 1024;

/// Returns the prompt from the arguments, or from standard input if they are empty. A `-` at their end stands for it.
pub(crate) fn prompt_text(words: &[String]) -> Result<String, CliError> {
    let text = match words {
        [] if std::io::stdin().is_terminal() => String::new(),
        [] => piped(std::io::stdin().lock())?,
        [dash] if dash == "-" => piped(std::io::stdin().lock())?,
        [words @ .., dash] if dash == "-" => {
            format!("{}\n\n{}", words.join(" "), piped(std::io::stdin().lock())?)
        }
        words => words.join(" "),
    };
    if text.trim().is_empty() {
        let usage = "no prompt: opencode-cloud run \"PROMPT\", or pipe one in";
        return Err(CliError::Usage(usage.to_owned()));
    }
    Ok(text)
}

/// Returns what to say if something is piped in beside a prompt of words, which leaves it out. Waits for nothing.
pub(crate) fn unread_warning(words: &[String]) -> Option<&'static str> {
    let is_read = words.last().is_none_or(|last| last == "-");
    (!is_read && has_data(&std::io::stdin())).then_some(
        "standard input is not part of the prompt: to add what is piped in, end the command with `-`",
    )
}

/// Returns whether a pipe or a file has something to read now.
fn has_data(input: &impl AsFd) -> bool {
    let Ok(stat) = fstat(input) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            tell(input).is_ok_and(|at| at < size)
        }
        FileType::Fifo => {
            let mut inputs = [PollFd::new(input, PollFlags::IN)];
            let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut inputs, Some(&no_time)).is_ok()
                && inputs.iter().any(|input| input.revents().contains(PollFlags::IN))
        }
        FileType::Directory
        | FileType::Socket
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => false,
    }
}

/// Returns the texts of the attached files, each with its name. `used` is the size of the prompt without them.
pub(crate) fn attached(files: &[PathBuf], used: usize) -> Result<Vec<String>, CliError> {
    /// The service takes 100 parts.
    const MOST: usize = 99;
    let wrong =
        |path: &Path, why: &str| CliError::Usage(format!("--file {}: {why}", path.display()));
    if files.len() > MOST {
        return Err(CliError::Usage(format!("at most {MOST} files can be added to a prompt")));
    }
    let mut left = MAX_PROMPT.saturating_sub(used as u64);
    let mut texts = Vec::new();
    for path in files {
        let file = std::fs::File::open(path).map_err(|error| wrong(path, &cause_text(&error)))?;
        let mut bytes = Vec::new();
        let read = file.take(left + 1).read_to_end(&mut bytes);
        read.map_err(|error| wrong(path, &cause_text(&error)))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong(path, "it is not a text file; only text can be added so far"))?;
        let text = format!("Contents of the file {}:\n\n{text}", path.display());
        left = left.checked_sub(text.len() as u64).ok_or_else(|| {
            let why = format!(
                "with it the prompt is larger than {} KiB; let the model read it instead",
                MAX_PROMPT >> 10
            );
            wrong(path, &why)
        })?;
        texts.push(text);
    }
    Ok(texts)
}

fn piped(from: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    from.take(MAX_PROMPT + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| CliError::Io { doing: "cannot read the prompt", source })?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(CliError::Usage(format!("the prompt is larger than {MAX_PROMPT} bytes")));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| CliError::Usage("the prompt is not UTF-8".to_owned()))?;
    Ok(text.strip_suffix('\n').map_or(text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_words_or_a_pipe_and_never_empty() {
        assert_eq!(prompt_text(&["fix".into(), "it".into()]).ok(), Some("fix it".to_owned()));
        assert!(matches!(prompt_text(&[" ".into()]), Err(CliError::Usage(_))));
        assert_eq!(piped(&b"a\nb\n"[..]).ok(), Some("a\nb".to_owned()));
        assert!(matches!(piped(&b"\xff"[..]), Err(CliError::Usage(_))));
        assert!(matches!(piped(std::io::repeat(b'a')), Err(CliError::Usage(_))));
    }

    // Finding: report 30-b24 (anomalyco/opencode#42064): piped text beside words was dropped without a word.
    #[test]
    fn piped_data_is_seen_without_waiting_for_it() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        assert!(!has_data(&reader), "an open pipe without data");
        std::io::Write::write_all(&mut writer, b"diff").expect("written");
        assert!(has_data(&reader));
        drop(writer);
        assert!(has_data(&reader), "what is left counts");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(writer);
        assert!(!has_data(&reader), "a closed pipe without data");
        let mut file = tempfile::tempfile().expect("a file");
        assert!(!has_data(&file));
        std::io::Write::write_all(&mut file, b"diff").expect("written");
        assert!(!has_data(&file), "it was read to its end");
        std::io::Seek::rewind(&mut file).expect("at its beginning");
        assert!(has_data(&file));
        assert_eq!(unread_warning(&["review".into(), "-".into()]), None);
        assert_eq!(unread_warning(&[]), None);
    }

    #[test]
    fn files_come_with_their_names_and_within_the_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path
        };
        let (a, b) = (path("a.txt", b"one\n"), path("b.txt", b"two"));
        let texts = attached(&[a.clone(), b], 10).expect("two texts");
        assert_eq!(texts.len(), 2);
        assert!(texts[0].ends_with("a.txt:\n\none\n"), "{texts:?}");
        let told = |files: &[PathBuf], used: usize| {
            attached(files, used).expect_err("refused").to_string()
        };
        assert!(told(&[path("c", b"\xff")], 0).contains("not a text file"));
        assert!(told(std::slice::from_ref(&a), 512 * 1024 - 10).contains("larger than 512 KiB"));
        assert!(told(&[folder.path().join("none")], 0).contains("No such file"));
        assert!(told(&vec![a; 100], 0).contains("at most 99"));
    }
}
