//! Cloudflare: its AI gateway, a proxy for other providers, and Workers AI, which runs models.
//! <https://developers.cloudflare.com/ai-gateway/usage/chat-completion>

use super::{COMPATIBLE, Provider};

/// The AI gateway. Its keys are Cloudflare's, so they use another header than a vendor's key.
pub(super) const GATEWAY: Provider = Provider {
    reach: |setup| {
        Ok(setup.at_its_url()?.with_key_in("cf-aig-authorization", |key| format!("Bearer {key}")))
    },
    ..Provider::chat(
        "cloudflare-ai-gateway",
        &["ai-gateway-provider"],
        "https://gateway.ai.cloudflare.com/v1/${CLOUDFLARE_ACCOUNT_ID}/${CLOUDFLARE_GATEWAY_ID}/compat",
    )
};

pub(super) const WORKERS_AI: Provider = Provider::chat(
    "cloudflare-workers-ai",
    &["workers-ai-provider", COMPATIBLE],
    "https://api.cloudflare.com/client/v4/accounts/${CLOUDFLARE_ACCOUNT_ID}/ai/v1",
);
