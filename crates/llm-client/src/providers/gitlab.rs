//! GitLab Duo: the vendors' own protocols through GitLab's AI gateway. The gateway does not take GitLab's own
//! tokens (personal or from a sign-in), but a token that we exchange them for, with the headers that come
//! with it. GitLab's own command line does the same. <https://docs.gitlab.com/user/gitlab_duo_cli/>
//! <https://gitlab.com/gitlab-org/cli>

use std::sync::Arc;

use super::{Model, Provider, Reach, Setup, SetupError, Spoken, anthropic, openai};
use crate::{Auth, Exchange};

pub(super) const PROVIDER: Provider =
    Provider { id: "gitlab", npm: &["gitlab-ai-provider"], url: None, speaks, reach };

/// Vendors' names that do not follow from GitLab's (`duo-chat-…`).
const DATED: [(&str, &str); 7] = [
    ("opus-4-5", "claude-opus-4-5-20251101"),
    ("sonnet-4-5", "claude-sonnet-4-5-20250929"),
    ("haiku-4-5", "claude-haiku-4-5-20251001"),
    ("gpt-5-mini", "gpt-5-mini-2025-08-07"),
    ("gpt-5-1", "gpt-5.1-2025-11-13"),
    ("gpt-5-2", "gpt-5.2-2025-12-11"),
    ("gpt-5-4", "gpt-5.4-2026-03-05"),
];

fn speaks(model: &Model<'_>) -> Spoken {
    let mut spoken =
        if is_openais(model) { openai::speaks(model) } else { (anthropic::PROVIDER.speaks)(model) };
    spoken.dialect.model = vendors_name(model.id);
    spoken
}

fn is_openais(model: &Model<'_>) -> bool {
    model.id.contains("gpt")
}

/// Returns the vendor's name for a model: `duo-chat-gpt-5-2-codex` is `gpt-5.2-codex`, `duo-chat-opus-4-6` is
/// `claude-opus-4-6`. `None` if the name already is the vendor's.
fn vendors_name(id: &str) -> Option<String> {
    let name = id.strip_prefix("duo-chat-")?;
    if let Some((_, dated)) = DATED.iter().find(|(known, _)| *known == name) {
        return Some((*dated).to_owned());
    }
    let Some(version) = name.strip_prefix("gpt-") else { return Some(format!("claude-{name}")) };
    Some(match version.split_once('-') {
        Some((major, minor)) if minor.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("gpt-{major}.{minor}")
        }
        Some(_) | None => name.to_owned(),
    })
}

/// At the user's own address, the credentials stay as they are, unless the settings name their GitLab.
fn reach(setup: &Setup<'_>) -> Result<Reach, SetupError> {
    let or = |name: &str, otherwise: &str| {
        let url = setup.optional(name).unwrap_or_else(|| otherwise.to_owned());
        url.trim_end_matches('/').to_owned()
    };
    let gateway = or("GITLAB_AI_GATEWAY_URL", "https://cloud.gitlab.com");
    let vendor = if is_openais(&setup.model) { "openai" } else { "anthropic" };
    let mut reach = setup.at(&format!("{gateway}/ai/v1/proxy/{vendor}/v1"))?.with_bearer();
    let instance = or("GITLAB_INSTANCE_URL", "https://gitlab.com");
    let is_gitlabs = setup.base_url.is_none() || setup.optional("GITLAB_INSTANCE_URL").is_some();
    if is_gitlabs && !matches!(reach.auth, Auth::None) {
        let url = format!("{instance}/api/v4/ai/third_party_agents/direct_access");
        reach.auth = Auth::Exchanged(Arc::new(Exchange { url, with: reach.auth }));
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_asked_for_by_its_vendors_name() {
        for (id, name) in [
            ("duo-chat-opus-4-5", "claude-opus-4-5-20251101"),
            ("duo-chat-opus-4-7", "claude-opus-4-7"),
            ("duo-chat-gpt-5-1", "gpt-5.1-2025-11-13"),
            ("duo-chat-gpt-5-3-codex", "gpt-5.3-codex"),
            ("duo-chat-gpt-5-4-mini", "gpt-5.4-mini"),
            ("duo-chat-gpt-5-codex", "gpt-5-codex"),
        ] {
            assert_eq!(vendors_name(id).as_deref(), Some(name));
        }
        assert_eq!(vendors_name("claude-opus-4-6"), None);
    }
}
