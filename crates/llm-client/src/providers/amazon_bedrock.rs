//! Amazon Bedrock. <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>

use llm_protocol::Protocol;

use super::{Provider, Reach, Setup, SetupError, Spoken};
use crate::{Auth, AwsAccess, Secret};

pub(super) const PROVIDER: Provider = Provider {
    id: "amazon-bedrock",
    npm: &["@ai-sdk/amazon-bedrock"],
    url: Some("https://bedrock-runtime.${AWS_REGION}.amazonaws.com"),
    speaks: |_| Spoken::plain(Protocol::BedrockConverse),
    reach,
};

/// Uses the given credentials (a Bedrock API key or a signature), or else those in the settings.
fn reach(setup: &Setup<'_>) -> Result<Reach, SetupError> {
    let mut reach = setup.at_its_url()?;
    if !matches!(setup.auth, Auth::None) {
        return Ok(reach);
    }
    reach.auth = match setup.optional("AWS_BEARER_TOKEN_BEDROCK") {
        Some(key) => Auth::Bearer(Secret::new(&key)),
        None => Auth::SigV4(AwsAccess {
            access_key: setup.required("AWS_ACCESS_KEY_ID")?,
            secret_key: Secret::new(&setup.required("AWS_SECRET_ACCESS_KEY")?),
            session_token: setup.optional("AWS_SESSION_TOKEN").map(|token| Secret::new(&token)),
            region: setup.required("AWS_REGION")?,
            service: "bedrock".to_owned(),
        }),
    };
    Ok(reach)
}
