//! Which model answers, from flags: a server that is named, a model of the catalog, or the simulated model.

use std::collections::BTreeMap;

use catalog::{Catalog, Overrides};
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
    /// One of the catalog; its provider's name.
    Catalog(String),
    /// Ours, which is no model.
    Simulated,
}

/// How people name the simulated model.
const SIMULATED: &str = "simulated/simulated";

/// The client of providers.
pub(crate) fn client() -> Result<Client, ServeError> {
    Client::new(Options::default())
        .map_err(|error| ServeError::stopped("the client for models cannot be set up", &error))
}

/// Finds the model. Without any it starts the simulated one, in this process.
pub(crate) async fn models(args: &ModelArgs, catalog: &Catalog) -> Result<Models, ServeError> {
    let mut models = find(args, catalog).await?;
    let model = models.configured.default_model().clone();
    models.configured = models.configured.with_facts(model, args.facts());
    Ok(models)
}

/// Whether nothing else is to answer.
pub(crate) fn is_simulated(args: &ModelArgs) -> bool {
    let is_named = args.model.as_deref().is_some_and(|named| !is_ours(named));
    !is_named && args.model_url.is_none() && openai_key(args).is_none()
}

fn is_ours(named: &str) -> bool {
    [simulated_model::MODEL, SIMULATED].contains(&named)
}

fn openai_key(args: &ModelArgs) -> Option<&str> {
    args.openai_api_key.as_deref().filter(|key| !key.trim().is_empty())
}

/// A model that is named must be one that can be called: the simulated model never answers in the place of another.
///
/// # Errors
/// The flags name a model, and nobody who has it.
pub(crate) fn check_named(args: &ModelArgs, catalog: &Catalog) -> Result<(), ServeError> {
    let Some(named) = args.model.as_deref() else { return Ok(()) };
    if args.model_url.is_some() || is_ours(named) || of_catalog(args, catalog).is_some() {
        return Ok(());
    }
    let wrong = |why: &str| Err(ServeError::Usage(format!("--model {named}: {why}")));
    match named.split_once('/') {
        // One that the catalog does not know, such as a tuned one.
        Some(("openai", _)) | None if openai_key(args).is_some() => Ok(()),
        Some((provider, model)) => {
            match catalog::resolve(catalog, &Overrides::default(), (provider, model, None)) {
                Err(error) => {
                    wrong(&format!("{error}; or name a server that has the model with --model-url"))
                }
                Ok(_) => Ok(()),
            }
        }
        None => wrong(
            "name its provider too, as in openai/gpt-5-mini; or a server that has it with --model-url; or set \
             OPENAI_API_KEY for a model of OpenAI",
        ),
    }
}

/// The model of the catalog that the flags name: `--model provider/model`, or any of OpenAI's with its key.
fn of_catalog(args: &ModelArgs, catalog: &Catalog) -> Option<ModelRef> {
    let none = Overrides::default();
    let known = |provider: &str, model: &str| {
        let found = catalog::resolve(catalog, &none, (provider, model, None));
        found.is_ok().then(|| ModelRef::new(provider, model))
    };
    let named = args.model.as_deref();
    let of_provider = named.and_then(|named| named.split_once('/'));
    let of_provider = of_provider.and_then(|(provider, model)| known(provider, model));
    let of_openai = || {
        openai_key(args)?;
        known("openai", named.unwrap_or(OPENAI_MODEL))
    };
    of_provider.or_else(of_openai)
}

async fn find(args: &ModelArgs, catalog: &Catalog) -> Result<Models, ServeError> {
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
    check_named(args, catalog)?;
    if let Some(default) = of_catalog(args, catalog) {
        let provider = catalog.provider(&default.provider);
        let name = provider.map_or(&default.provider, |provider| &provider.name).clone();
        // Nothing is configured by hand: it is called as every other model of the catalog.
        let configured = ConfiguredModels::new(default, BTreeMap::new());
        return Ok(Models { client, configured, kind: ModelKind::Catalog(name), simulated: None });
    }
    if let Some(key) = openai_key(args) {
        // One that the catalog does not know, such as a tuned one.
        let endpoint = Endpoint::new(OPENAI_URL).with_api_key(Secret::new(key));
        let model = args.model.clone().unwrap_or_else(|| OPENAI_MODEL.to_owned());
        tracing::warn!(
            model,
            "the catalog has no such model of OpenAI: all of its models are called by chat completions"
        );
        let (setup, kind) = (endpoint.into(), ModelKind::Catalog("OpenAI".to_owned()));
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        model: ModelArgs,
    }

    fn args(words: &[&str]) -> ModelArgs {
        Probe::try_parse_from([&["probe"], words].concat()).expect("flags").model
    }

    #[test]
    fn a_model_of_the_catalog_is_named_with_its_provider_and_openais_key_alone_means_openai() {
        let shipped = catalog::shipped();
        let found = |words: &[&str]| {
            let found = of_catalog(&args(words), &shipped);
            found.map(|found| format!("{}/{}", found.provider, found.model))
        };
        let key = "--openai-api-key=sk-1";
        assert_eq!(found(&[key]).as_deref(), Some("openai/gpt-5-mini"));
        assert_eq!(found(&[key, "--model=gpt-5.5"]).as_deref(), Some("openai/gpt-5.5"));
        assert_eq!(found(&[key, "--model=openai/gpt-5.5"]).as_deref(), Some("openai/gpt-5.5"));
        let claude = "anthropic/claude-sonnet-4-5";
        for words in [&[key, "--model", claude][..], &["--model", claude]] {
            assert_eq!(found(words).as_deref(), Some(claude));
        }
        assert_eq!(found(&["--model=ollama/qwen3:8b"]).as_deref(), Some("ollama/qwen3:8b"));
        for words in [&[][..], &["--model=gpt-5.5"], &["--model=me/mine"], &["--openai-api-key= "]]
        {
            assert_eq!(found(words), None, "{words:?}");
        }
        for words in [&[][..], &["--openai-api-key= "], &["--model=simulated"]] {
            assert!(is_simulated(&args(words)), "{words:?}");
        }
        let server = "--model-url=http://127.0.0.1:1";
        for words in [&[key][..], &[server], &["--model=gpt-5.5"], &["--model", claude]] {
            assert!(!is_simulated(&args(words)), "{words:?}");
        }
    }

    #[test]
    fn a_model_that_nobody_has_is_refused_and_the_simulated_one_does_not_answer_for_it() {
        let shipped = catalog::shipped();
        let (key, claude) = ("--openai-api-key=sk-1", "anthropic/claude-sonnet-4-5");
        for words in [
            &[key, "--model=ft:gpt-4o:me"][..],
            &[key, "--model=openai/ft:gpt-4o:me"],
            &["--model-url=http://127.0.0.1:1", "--model=me/mine"],
            &["--model=simulated"],
            &["--model=simulated/simulated"],
            &["--model", claude],
            &[],
        ] {
            assert!(check_named(&args(words), &shipped).is_ok(), "{words:?}");
        }
        let refused = |words: &[&str]| {
            let error = check_named(&args(words), &shipped).expect_err("nobody has it");
            error.to_string()
        };
        let typo = refused(&["--model=anthropic/claude-sonet-4-5"]);
        assert!(typo.contains("claude-sonnet-4-5") && typo.contains("--model-url"), "{typo}");
        assert!(refused(&[key, "--model=me/mine"]).contains("no provider `me`"));
        assert!(refused(&["--model=gpt-5.5"]).contains("OPENAI_API_KEY"));
    }
}
