//! Which model answers, from flags: a server that is named, OpenAI, or the simulated model.

use domain::ModelRef;
use llm_client::{Client, Endpoint, Options, Secret, normalize_base_url};
use llm_protocol::Protocol;
use session::{ConfiguredModels, ProviderSetup};
use simulated_model::{Running, SimulatedModel};

use super::ServeError;
use super::args::ModelArgs;

const OPENAI_URL: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-5-mini";

/// The models of this process, and what people are told of them.
pub(crate) struct Models {
    pub(crate) client: Client,
    pub(crate) configured: ConfiguredModels,
    pub(crate) kind: ModelKind,
    /// Runs in this process when nothing else was given.
    pub(crate) simulated: Option<Running>,
}

/// Whose model it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// A server that was named.
    Url(String),
    /// OpenAI.
    OpenAi,
    /// Ours, which is no model.
    Simulated,
}

/// The client of providers.
pub(crate) fn client() -> Result<Client, ServeError> {
    Client::new(Options::default())
        .map_err(|error| ServeError::stopped("the client for models cannot be set up", &error))
}

/// Finds the model. Without any it starts the simulated one, in this process.
pub(crate) async fn models(args: &ModelArgs) -> Result<Models, ServeError> {
    let mut models = find(args).await?;
    let model = models.configured.default_model().clone();
    models.configured = models.configured.with_facts(model, args.facts());
    Ok(models)
}

async fn find(args: &ModelArgs) -> Result<Models, ServeError> {
    let client = client()?;
    if let Some(url) = &args.model_url {
        normalize_base_url(url)
            .map_err(|error| ServeError::Usage(format!("--model-url: {error}")))?;
        let mut endpoint = Endpoint::new(url.clone());
        if let Some(key) = &args.model_key {
            endpoint = endpoint.with_api_key(Secret::new(key));
        }
        let lists =
            [Protocol::OpenAiChat, Protocol::OpenAiResponses].contains(&args.model_protocol);
        let model = match &args.model {
            Some(model) => model.clone(),
            None if lists => first_listed(&client, &endpoint).await,
            None => {
                let protocol = args.model_protocol.id();
                return Err(ServeError::Usage(format!(
                    "--model: say which model is at --model-url; servers of {protocol} are not asked for a list"
                )));
            }
        };
        let kind = ModelKind::Url(url.clone());
        let setup = ProviderSetup::new(args.model_protocol, endpoint);
        return Ok(single(client, &args.model_provider, model, setup, kind, None));
    }
    if let Some(key) = args.openai_api_key.as_ref().filter(|key| !key.trim().is_empty()) {
        let endpoint = Endpoint::new(OPENAI_URL).with_api_key(Secret::new(key));
        let model = args.model.clone().unwrap_or_else(|| OPENAI_MODEL.to_owned());
        let (setup, kind) = (endpoint.into(), ModelKind::OpenAi);
        return Ok(single(client, "openai", model, setup, kind, None));
    }
    let options =
        simulated_model::Options { log_bodies: false, ..simulated_model::Options::default() };
    let running = SimulatedModel::start(options)
        .await
        .map_err(|error| ServeError::stopped("the simulated model cannot start", &error))?;
    let endpoint = Endpoint::new(running.url());
    let model = simulated_model::MODEL.to_owned();
    let kind = ModelKind::Simulated;
    Ok(single(client, "simulated", model, endpoint.into(), kind, Some(running)))
}

/// The first model that the server lists. Servers that do not list theirs usually have one only, and
/// take any name.
async fn first_listed(client: &Client, endpoint: &Endpoint) -> String {
    match client.list_models(endpoint).await {
        Ok(models) => models.into_iter().next().unwrap_or_else(|| "default".to_owned()),
        Err(error) => {
            tracing::warn!(%error, "the model server does not list its models; choose one with --model");
            "default".to_owned()
        }
    }
}

fn single(
    client: Client,
    provider: &str,
    model: String,
    setup: ProviderSetup,
    kind: ModelKind,
    simulated: Option<Running>,
) -> Models {
    // "provider/model" is how people write a choice; the provider is ours to know here.
    let prefix = format!("{provider}/");
    let model = model.strip_prefix(&prefix).map(str::to_owned).unwrap_or(model);
    let default = ModelRef::new(provider, model);
    let configured = ConfiguredModels::single(default, setup);
    Models { client, configured, kind, simulated }
}
