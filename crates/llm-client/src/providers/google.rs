//! Google's Gemini API. <https://ai.google.dev/api/generate-content>

use llm_protocol::Protocol;

use super::{Provider, Reach, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    id: "google",
    npm: &["@ai-sdk/google"],
    url: Some("https://generativelanguage.googleapis.com/v1beta"),
    speaks: |_| Spoken::plain(Protocol::Gemini),
    reach: Reach::at_its_url,
};
