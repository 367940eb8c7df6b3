//! Images, documents and videos in Bedrock's form: by format, in base64.

use serde::Serialize;

use crate::bedrock_converse::content::Content;
use crate::media::not_shown;

/// An image, a document or a video.
#[derive(Serialize)]
pub(super) struct MediaBlock<'a> {
    format: &'static str,
    /// A name, which only documents need.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    source: Source<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Source<'a> {
    /// Base64.
    Bytes(&'a str),
    S3Location(S3Location<'a>),
}

#[derive(Serialize)]
struct S3Location<'a> {
    uri: &'a str,
}

const IMAGES: &[(&str, &str)] = &[
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("image/jpg", "jpeg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
];
const DOCUMENTS: &[(&str, &str)] = &[
    ("application/pdf", "pdf"),
    ("text/csv", "csv"),
    ("application/msword", "doc"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("text/html", "html"),
    ("text/plain", "txt"),
    ("text/markdown", "md"),
];
const VIDEOS: &[(&str, &str)] = &[
    ("video/x-matroska", "mkv"),
    ("video/quicktime", "mov"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
    ("video/mpeg", "mpeg"),
];

/// Numbers the documents of a request. Bedrock wants unique names for them, which the model sees.
#[derive(Default)]
pub(super) struct Documents(usize);

/// Returns the block, or a text in its place. Bedrock fetches only from S3.
pub(super) fn block<'a>(mime: &str, data: &'a str, documents: &mut Documents) -> Content<'a> {
    let fetched = data.split_once("://").map(|(scheme, _)| scheme);
    let source = match fetched {
        None => Source::Bytes(data),
        Some("s3") => Source::S3Location(S3Location { uri: data }),
        Some(_) => return Content::Text(not_shown(mime).into()),
    };
    let format = |known: &[(&str, &'static str)]| {
        known.iter().find(|(name, _)| *name == mime).map(|(_, format)| *format)
    };
    if let Some(format) = format(IMAGES) {
        Content::Image(MediaBlock { format, name: None, source })
    } else if let Some(format) = format(DOCUMENTS) {
        documents.0 += 1;
        let name = Some(format!("document-{}", documents.0));
        Content::Document(MediaBlock { format, name, source })
    } else if let Some(format) = format(VIDEOS) {
        Content::Video(MediaBlock { format, name: None, source })
    } else {
        Content::Text(not_shown(mime).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn media_are_named_by_format_and_documents_are_numbered() {
        let mut documents = Documents::default();
        let mut written = |mime: &str, data: &'static str| {
            serde_json::to_value(block(mime, data, &mut documents)).unwrap()
        };
        let image = json!({"image": {"format": "jpeg", "source": {"bytes": "AA=="}}});
        assert_eq!(written("image/jpeg", "AA=="), image);
        let pdf = |name: &str| json!({"document": {"format": "pdf", "name": name, "source": {"bytes": "AA=="}}});
        assert_eq!(written("application/pdf", "AA=="), pdf("document-1"));
        assert_eq!(written("application/pdf", "AA=="), pdf("document-2"));
        let stored =
            json!({"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/v.mp4"}}}});
        assert_eq!(written("video/mp4", "s3://b/v.mp4"), stored);
        let note = |mime: &str| json!({"text": format!("[{mime} is not shown: this model cannot take it here]")});
        assert_eq!(written("image/png", "https://h/a.png"), note("image/png"));
        assert_eq!(written("audio/wav", "AA=="), note("audio/wav"));
    }
}
