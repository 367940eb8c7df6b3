//! Output of any size in bounded memory: its beginning, its end, and a file with all of it up to a cap.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek};
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::live_output::LiveOutput;
use crate::text::TextDecoder;

/// The bounds of one spool.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// UTF-8 bytes in memory, for the beginning and for the end each.
    pub(crate) keep_bytes: usize,
    /// Size of the file; beyond it, output is counted and dropped.
    pub(crate) file_bytes: u64,
    /// Where the file is, nameless, so that it cannot be left behind.
    pub(crate) directory: PathBuf,
}

/// The output of a command, as text: bytes that are not UTF-8, and NUL, are U+FFFD.
#[derive(Debug)]
pub struct Output {
    /// The beginning.
    pub head: String,
    /// The end; begins where `head` ends unless something was left out between them.
    pub tail: String,
    /// UTF-8 bytes of all of it.
    pub total_bytes: u64,
    /// `\n`s in all of it.
    pub line_breaks: u64,
    /// All of it, at its first byte, when it is more than `head` and `tail`; without the `lost_bytes`.
    pub file: Option<File>,
    /// Bytes between `head` and `tail` that are not in `file`: those past its cap, or all after `file_error`.
    pub lost_bytes: u64,
    /// Why the file could not be written further, for operators.
    pub file_error: Option<String>,
}

impl Output {
    /// Whether `head` and `tail` together are everything.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.total_bytes == (self.head.len() + self.tail.len()) as u64
    }
}

/// Collects one command's output.
pub(crate) struct Spool {
    bounds: Bounds,
    decoder: TextDecoder,
    head: String,
    head_full: bool,
    tail: VecDeque<u8>,
    total_bytes: u64,
    line_breaks: u64,
    file: Spooled,
    live: LiveOutput,
}

enum Spooled {
    /// All of it is in memory.
    NotYet,
    Open {
        file: tokio::fs::File,
        written: u64,
    },
    /// At its cap, or broken.
    Closed {
        file: Option<tokio::fs::File>,
        written: u64,
        error: Option<io::Error>,
    },
}

impl Spool {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            decoder: TextDecoder::default(),
            head: String::new(),
            head_full: false,
            tail: VecDeque::new(),
            total_bytes: 0,
            line_breaks: 0,
            file: Spooled::NotYet,
            live: LiveOutput::default(),
        }
    }

    /// Shows the end of the output in `live` while it grows.
    pub(crate) fn shown_in(self, live: LiveOutput) -> Self {
        Self { live, ..self }
    }

    /// Takes in everything until the end of `pipe`. A pipe that breaks has ended.
    pub(crate) async fn fill(&mut self, pipe: &mut (impl AsyncRead + Unpin)) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match pipe.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let text = self.decoder.push(&buffer[..count]);
                    self.push(&text).await;
                }
            }
        }
    }

    async fn push(&mut self, text: &str) {
        let before = self.total_bytes;
        self.live.add_text(text);
        self.total_bytes += text.len() as u64;
        self.line_breaks += text.bytes().filter(|byte| *byte == b'\n').count() as u64;
        let room = if self.head_full { 0 } else { self.bounds.keep_bytes - self.head.len() };
        let (to_head, to_tail) = text.split_at(text.floor_char_boundary(room));
        self.head.push_str(to_head);
        self.head_full |= !to_tail.is_empty();
        let overflows = self.tail.len() + to_tail.len() > self.bounds.keep_bytes;
        if overflows && matches!(self.file, Spooled::NotYet) {
            self.open_file(before).await;
        }
        self.append(text).await;
        let fresh = &to_tail.as_bytes()[to_tail.len().saturating_sub(self.bounds.keep_bytes)..];
        let excess = (self.tail.len() + fresh.len()).saturating_sub(self.bounds.keep_bytes);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(fresh);
    }

    /// Begins the file with the first `before` bytes of the output, all of which are still in memory.
    async fn open_file(&mut self, before: u64) {
        let directory = self.bounds.directory.clone();
        let made = tokio::task::spawn_blocking(move || tempfile::tempfile_in(directory)).await;
        match made.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(file) => {
                self.file = Spooled::Open { file: tokio::fs::File::from_std(file), written: 0 };
            }
            Err(error) => {
                self.file = Spooled::Closed { file: None, written: 0, error: Some(error) };
                return;
            }
        }
        let mut start = self.head.clone().into_bytes();
        start.extend(&self.tail);
        start.truncate(usize::try_from(before).unwrap_or(usize::MAX)); // the head has taken from this piece
        let start = String::from_utf8_lossy(&start).into_owned();
        self.append(&start).await;
    }

    async fn append(&mut self, text: &str) {
        let Spooled::Open { file, written } = &mut self.file else { return };
        let room = usize::try_from(self.bounds.file_bytes - *written).unwrap_or(usize::MAX);
        let fits = &text[..text.floor_char_boundary(room)];
        let done = file.write_all(fits.as_bytes()).await;
        if done.is_ok() {
            *written += fits.len() as u64;
        }
        if done.is_ok() && fits.len() == text.len() {
            return;
        }
        if let Spooled::Open { file, written } = std::mem::replace(&mut self.file, Spooled::NotYet)
        {
            self.file = Spooled::Closed { file: Some(file), written, error: done.err() };
        }
    }

    pub(crate) async fn finish(mut self) -> Output {
        let last = std::mem::take(&mut self.decoder).finish();
        self.push(last).await;
        let continuation = |byte: &&u8| **byte & 0xC0 == 0x80;
        let torn = self.tail.iter().take(3).take_while(continuation).count();
        let torn = if self.tail.len() < self.bounds.keep_bytes { 0 } else { torn };
        self.tail.drain(..torn);
        let tail = String::from_utf8_lossy(self.tail.make_contiguous()).into_owned();
        let (file, written, error) = match self.file {
            Spooled::NotYet => (None, self.total_bytes, None),
            Spooled::Open { file, written } => (Some(file), written, None),
            Spooled::Closed { file, written, error } => (file, written, error),
        };
        let (file, flush_error) = match file {
            Some(file) => rewound(file).await,
            None => (None, None),
        };
        Output {
            lost_bytes: self.total_bytes - if flush_error.is_some() { 0 } else { written },
            head: self.head,
            tail,
            total_bytes: self.total_bytes,
            line_breaks: self.line_breaks,
            file,
            file_error: error.or(flush_error).map(|error| error.to_string()),
        }
    }
}

/// The file at its first byte, or the error that its last bytes met.
async fn rewound(mut file: tokio::fs::File) -> (Option<File>, Option<io::Error>) {
    if let Err(error) = file.flush().await {
        return (None, Some(error));
    }
    let mut file = file.into_std().await;
    match file.rewind() {
        Ok(()) => (Some(file), None),
        Err(error) => (None, Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    async fn spool(bytes: &[u8], keep_bytes: usize, file_bytes: u64) -> Output {
        let directory = std::env::temp_dir();
        let mut spool = Spool::new(Bounds { keep_bytes, file_bytes, directory });
        for piece in bytes.chunks(7) {
            spool.fill(&mut &*piece).await;
        }
        spool.finish().await
    }

    fn all_of(output: &mut Output) -> String {
        let mut text = String::new();
        output.file.as_mut().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn head_and_tail_are_the_ends_and_the_file_is_everything(
            text in "[a-zé€🦀\n]{0,80}", keep in 4_usize..24,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut output = runtime.block_on(spool(text.as_bytes(), keep, 1 << 20));
            prop_assert!(text.starts_with(&output.head) && output.head.len() <= keep);
            prop_assert!(text.ends_with(&output.tail) && output.tail.len() <= keep);
            prop_assert_eq!(output.total_bytes, text.len() as u64);
            prop_assert_eq!(output.line_breaks, text.matches('\n').count() as u64);
            prop_assert_eq!(output.lost_bytes, 0);
            if output.file.is_some() {
                prop_assert_eq!(all_of(&mut output), text);
            } else {
                prop_assert!(output.is_whole());
            }
        }
    }

    #[tokio::test]
    async fn beyond_the_cap_output_is_counted() {
        let mut output = spool(&b"0123456789".repeat(100), 16, 300).await;
        assert_eq!((output.total_bytes, output.lost_bytes), (1000, 700));
        assert_eq!(output.tail, "4567890123456789");
        assert_eq!(all_of(&mut output).len(), 300);
    }

    #[tokio::test]
    async fn a_missing_directory_loses_the_middle_only() {
        let directory = "/nonexistent".into();
        let mut spool = Spool::new(Bounds { keep_bytes: 4, file_bytes: 99, directory });
        spool.fill(&mut &b"aaaabbbbcccc"[..]).await;
        let output = spool.finish().await;
        assert_eq!((output.head.as_str(), output.tail.as_str()), ("aaaa", "cccc"));
        assert!(output.file.is_none() && output.file_error.is_some());
    }
}
