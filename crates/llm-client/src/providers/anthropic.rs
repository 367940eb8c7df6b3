//! Anthropic. <https://docs.anthropic.com/en/api/messages>

use llm_protocol::Protocol;

use super::{Provider, Reach, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    id: "anthropic",
    npm: &["@ai-sdk/anthropic"],
    url: Some("https://api.anthropic.com/v1"),
    speaks: |_| Spoken::plain(Protocol::AnthropicMessages),
    reach: Reach::at_its_url,
};
