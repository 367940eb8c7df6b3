/// Text for one of both streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A part of the answer.
    Out(String),
    /// Messages for people, as whole lines.
    Err(String),
}

/// Text to print, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    pieces: Vec<Piece>,
}

impl Printed {
    /// Returns the pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(super) fn add_out(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Out(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Out(text.to_owned())),
        }
    }

    pub(super) fn add_err(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Err(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Err(text.to_owned())),
        }
    }
}
