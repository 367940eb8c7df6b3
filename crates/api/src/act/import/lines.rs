//! Splits an upload into lines, within bounds.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{Stream, StreamExt};

use crate::act::transfer::{MAX_BYTES, MAX_LINE};
use crate::error::ApiError;

/// How long the next piece of a body may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the lines of a body, one at a time.
pub(super) struct LineReader<S> {
    body: S,
    waiting: BytesMut,
    /// Bytes of `waiting` that have no line feed.
    scanned: usize,
    received: u64,
    /// Lines returned.
    pub(super) count: u64,
}

impl<S, E> LineReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    pub(super) fn new(body: S) -> Self {
        Self { body, waiting: BytesMut::new(), scanned: 0, received: 0, count: 0 }
    }

    /// Returns the next line with its line feed, which only the last one may lack; `None` at the end.
    ///
    /// # Errors
    /// 413 beyond a bound; 400 when the body breaks off.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(at) = self.waiting[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.waiting.split_to(self.scanned + at + 1).freeze();
                self.scanned = 0;
                self.count += 1;
                return Ok(Some(line));
            }
            self.scanned = self.waiting.len();
            if self.scanned > MAX_LINE {
                let number = self.count + 1;
                return Err(ApiError::TooLarge(format!(
                    "line {number} is longer than {MAX_LINE} bytes, which no line of an export is"
                )));
            }
            match self.piece().await? {
                Some(piece) => self.waiting.extend_from_slice(&piece),
                None if self.waiting.is_empty() => return Ok(None),
                None => {
                    self.scanned = 0;
                    self.count += 1;
                    return Ok(Some(self.waiting.split().freeze()));
                }
            }
        }
    }

    /// Returns all that is left, if it has at most `most` bytes.
    ///
    /// # Errors
    /// As for [`LineReader::next`].
    pub(super) async fn rest(mut self, most: usize) -> Result<Bytes, ApiError> {
        loop {
            if self.waiting.len() > most {
                return Err(ApiError::TooLarge(format!(
                    "an export of `opencode export` has at most {most} bytes here"
                )));
            }
            match self.piece().await? {
                Some(piece) => self.waiting.extend_from_slice(&piece),
                None => break,
            }
        }
        Ok(self.waiting.freeze())
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let next = tokio::time::timeout(PATIENCE, self.body.next()).await;
        let next = next.map_err(|_| {
            ApiError::invalid("the body stopped for a minute before its end; send it again")
        })?;
        let Some(piece) = next else { return Ok(None) };
        let piece = piece.map_err(|_| ApiError::invalid("the body did not arrive whole"))?;
        self.received += piece.len() as u64;
        if self.received > MAX_BYTES {
            return Err(ApiError::TooLarge(format!("an export has at most {MAX_BYTES} bytes")));
        }
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;

    use super::*;

    fn reader(
        pieces: &[&'static [u8]],
    ) -> LineReader<impl Stream<Item = Result<Bytes, Infallible>> + Unpin + use<>> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        LineReader::new(stream::iter(pieces))
    }

    #[tokio::test]
    async fn any_split_of_the_body_gives_the_same_lines() {
        let whole: &[u8] = b"a\nbc\n\nd";
        for cut in 0..whole.len() {
            let (left, right) = whole.split_at(cut);
            let mut reader = reader(&[left, right]);
            let mut lines = Vec::new();
            while let Some(line) = reader.next().await.expect("lines") {
                lines.push(line);
            }
            assert_eq!(lines, [&b"a\n"[..], b"bc\n", b"\n", b"d"], "{cut}");
        }
    }

    #[tokio::test]
    async fn a_line_has_a_bound() {
        let piece: &'static [u8] = Box::leak(vec![b'x'; MAX_LINE / 2 + 1].into_boxed_slice());
        let mut refused = reader(&[b"a\n", piece, piece]);
        assert!(refused.next().await.is_ok());
        let error = refused.next().await.expect_err("too long");
        assert_eq!(error.failure().status.as_u16(), 413);
        let left = reader(&[b"abc", b"def"]).rest(5).await.expect_err("too much");
        assert_eq!(left.failure().status.as_u16(), 413);
    }
}
