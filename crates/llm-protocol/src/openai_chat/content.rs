//! The content of a message: plain text, or a list of parts if something is not text or carries a mark.

use std::borrow::Cow;

use serde::Serialize;

use crate::cache::CacheControl;
use crate::media::{data_url, is_url, not_shown};

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

/// One part. Exactly one member besides the type is set.
#[derive(Default, Serialize)]
pub(super) struct ContentPart<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_url: Option<ImageUrl<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_audio: Option<InputAudio<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<File>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
struct File {
    filename: &'static str,
    file_data: String,
}

impl<'a> ContentPart<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self { kind: "text", text: Some(text.into()), ..Self::default() }
    }

    /// Makes a part of an image, a sound or a document; `Err` is a replacement text for an unsupported type.
    pub(super) fn media(mime: &str, data: &'a str) -> Result<Self, String> {
        if mime.starts_with("image/") {
            let url = data_url(mime, data);
            return Ok(Self {
                kind: "image_url",
                image_url: Some(ImageUrl { url }),
                ..Self::default()
            });
        }
        let format = match mime {
            "audio/wav" | "audio/x-wav" => Some("wav"),
            "audio/mpeg" | "audio/mp3" => Some("mp3"),
            _ => None,
        };
        match format.filter(|_| !is_url(data)) {
            Some(format) => {
                let input_audio = Some(InputAudio { data, format });
                Ok(Self { kind: "input_audio", input_audio, ..Self::default() })
            }
            None if mime == "application/pdf" && !is_url(data) => {
                let file_data = data_url(mime, data).into_owned();
                let file = Some(File { filename: "document.pdf", file_data });
                Ok(Self { kind: "file", file, ..Self::default() })
            }
            None => Err(not_shown(mime)),
        }
    }
}

impl<'a> Content<'a> {
    /// Joins the parts by line feeds if all are unmarked text. `None` if there are no parts, or only one
    /// empty one. A single text is not copied, so that a long history is cheap.
    pub(super) fn of(parts: Vec<ContentPart<'a>>) -> Option<Self> {
        let plain = |part: &ContentPart<'_>| part.text.is_some() && part.cache_control.is_none();
        if parts.iter().all(plain) {
            return join(parts.into_iter().filter_map(|part| part.text)).map(Self::Text);
        }
        // A list must not hold empty texts.
        let says = |part: &ContentPart<'_>| part.text.as_ref().is_none_or(|text| !text.is_empty());
        let parts: Vec<_> = parts.into_iter().filter(says).collect();
        (!parts.is_empty()).then_some(Self::Parts(parts))
    }

    /// Joins the contents of two messages: texts with an empty line between, anything else as one list.
    pub(super) fn followed_by(self, next: Self) -> Self {
        match (self, next) {
            (Self::Text(first), Self::Text(second)) => {
                Self::Text(format!("{first}\n\n{second}").into())
            }
            (first, second) => {
                let mut parts = first.into_parts();
                parts.extend(second.into_parts());
                Self::Parts(parts)
            }
        }
    }

    fn into_parts(self) -> Vec<ContentPart<'a>> {
        match self {
            Self::Text(text) => vec![ContentPart::text(text)],
            Self::Parts(parts) => parts,
        }
    }
}

pub(super) fn join<'a>(mut texts: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let first = texts.next()?;
    let Some(second) = texts.next() else {
        return (!first.is_empty()).then_some(first);
    };
    let mut joined = format!("{first}\n{second}");
    for text in texts {
        joined.push('\n');
        joined.push_str(&text);
    }
    Some(Cow::Owned(joined))
}
