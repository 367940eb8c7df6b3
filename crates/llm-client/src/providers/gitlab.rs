//! GitLab Duo: the vendors' own protocols, through GitLab's AI gateway, with a token of GitLab.

use super::{Model, Provider, Spoken, anthropic, openai};

pub(super) const PROVIDER: Provider = Provider {
    id: "gitlab",
    npm: &["gitlab-ai-provider"],
    url: None,
    speaks,
    reach: |setup| {
        let gateway = setup.optional("GITLAB_AI_GATEWAY_URL");
        let gateway = gateway.unwrap_or_else(|| "https://cloud.gitlab.com".to_owned());
        let vendor = if is_openais(&setup.model) { "openai" } else { "anthropic" };
        let gateway = gateway.trim_end_matches('/');
        Ok(setup.at(&format!("{gateway}/ai/v1/proxy/{vendor}/v1"))?.with_bearer())
    },
};

fn speaks(model: &Model<'_>) -> Spoken {
    if is_openais(model) { openai::speaks(model) } else { (anthropic::PROVIDER.speaks)(model) }
}

fn is_openais(model: &Model<'_>) -> bool {
    model.id.contains("gpt")
}
