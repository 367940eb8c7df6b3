use crate::{SpanId, TraceId};

/// A finished span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its own id.
    pub id: SpanId,
    /// The span that it is part of.
    pub parent: Option<SpanId>,
    /// Spans of the same trace that it continues.
    pub links: Vec<SpanId>,
    /// Its name, from [`genai`](crate::genai).
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its start and end, in Unix milliseconds.
    pub time: (i64, i64),
    /// Its attributes, with names from [`genai`](crate::genai).
    pub attributes: Vec<(&'static str, Value)>,
    /// A word for the reason why it failed.
    pub error: Option<&'static str>,
}

/// Where a span's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In this process.
    Internal,
    /// It answers a request.
    Server,
    /// It asks somebody else.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
