//! The model that answers, chosen by flags: a named server's, one of the catalog, or the simulated model.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::DefaultModel;
use catalog::{Access, Catalog, Overrides};
use domain::{ModelRef, OrgId};
use egress::Egress;
use llm_client::providers::{self, Spoken};
use llm_client::{Auth, Client, Endpoint, Options, Secret, normalize_base_url};
use llm_protocol::{Dialect, Instructions, Protocol};
use session::{ConfiguredModels, ProviderSetup};
use simulated_model::{Running, SimulatedModel};
use store::Store;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

use super::ServeError;
use super::args::ModelArgs;

const OPENAI_URL: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-5-mini";

/// The models of this process.
pub(crate) struct Models {
    /// Calls providers of the catalog and of organisations.
    pub(crate) client: Client,
    pub(crate) configured: ConfiguredModels,
    pub(crate) kind: ModelKind,
    /// The simulated model, which runs in this process if no other was chosen.
    pub(crate) simulated: Option<Running>,
    /// The server's models, if it has not listed them yet.
    pub(crate) pending: Option<PendingModels>,
    /// Where the name of its first model will be, if no flag gives it.
    later: Option<Arc<OnceLock<String>>>,
    /// Where the names of all its models are, or will be.
    served: Arc<OnceLock<Vec<String>>>,
}

impl Models {
    /// The default model, as clients are told it.
    pub(crate) fn default_model(&self) -> DefaultModel {
        let model = self.configured.default_model().clone();
        let default = match &self.later {
            Some(name) => DefaultModel::named_later(model, name.clone()),
            None => model.into(),
        };
        default.with_served(self.served.clone())
    }
}

/// The models that their server has not listed yet.
pub(crate) struct PendingModels {
    client: Client,
    endpoint: Endpoint,
    /// Where the name of the first one goes, if no flag gives it.
    name: Option<Arc<OnceLock<String>>>,
    /// Where all names go.
    served: Arc<OnceLock<Vec<String>>>,
}

const NAMING: TaskKind = TaskKind::new("model names", OnError::Log, OnCancel::Abort);
/// The first pause between two looks at a server, and the longest.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

impl PendingModels {
    /// Asks the server until it answers, with a task in `role`'s group.
    pub(crate) fn resolve(self, role: &TaskGroup) {
        role.spawn(NAMING, async move {
            let mut pause = LOOK.0;
            loop {
                tokio::time::sleep(pause).await;
                if let Some(names) = list_names(&self.client, &self.endpoint).await {
                    if let (Some(first), Some(name)) = (names.first(), &self.name) {
                        tracing::info!(name = first, "the model server answers");
                        let _set_once = name.set(first.clone());
                    }
                    let _set_once = self.served.set(names);
                    return Ok::<(), Infallible>(());
                }
                pause = (pause * 2).min(LOOK.1);
            }
        });
    }
}

/// The origin of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// A named server.
    Url(String),
    /// The catalog; the provider's name.
    Catalog(String),
    /// The simulated model.
    Simulated,
}

/// The simulated model's name for people.
const SIMULATED: &str = "simulated/simulated";

/// Finds the model. If no flag chooses one, starts the simulated model in this process.
pub(crate) async fn models(
    args: &ModelArgs,
    catalog: &Catalog,
    egress: &Egress,
) -> Result<Models, ServeError> {
    // A server in a flag is reached wherever it is. Organisations' servers need the operator's permission.
    let own = Client::with_transport(Arc::new(egress.for_operator()), Options::default());
    let client = Client::with_transport(Arc::new(egress.for_organisations()), Options::default());
    let mut models = find(args, catalog, &own, client).await?;
    models.configured = models.configured.with_client(own);
    let model = models.configured.default_model().clone();
    models.configured = models.configured.with_facts(model, args.facts());
    Ok(models)
}

/// Returns whether the simulated model answers.
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

/// Checks that a named model can be called: the simulated model never answers for another.
///
/// # Errors
/// When no configured provider has the named model.
pub(crate) fn check_named(args: &ModelArgs, catalog: &Catalog) -> Result<(), ServeError> {
    let Some(named) = args.model.as_deref() else { return Ok(()) };
    if args.model_url.is_some() || is_ours(named) || of_catalog(args, catalog).is_some() {
        return Ok(());
    }
    let wrong = |why: &str| Err(ServeError::Usage(format!("--model {named}: {why}")));
    match named.split_once('/') {
        // A model that the catalog does not have, such as a fine-tuned one.
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

/// Returns the catalog's model that the flags choose: `--model provider/model`, or OpenAI's default with its key.
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

/// Returns the variables of which the default model's provider needs one, if neither the environment nor the first
/// organisation has a key for it. `None` if it can be called, or nothing is known to be missing.
///
/// # Errors
/// When the database does not answer.
pub(crate) async fn missing_key(
    store: &Store,
    default: &ModelRef,
    catalog: &Catalog,
    env: &BTreeSet<String>,
) -> Result<Option<Vec<String>>, ServeError> {
    let Some(names) = unset_keys(default, catalog, env) else { return Ok(None) };
    let settings = store.provider_settings(OrgId::FIRST).await?;
    let credentials = store.credentials(OrgId::FIRST).await?;
    let is_set = settings.iter().any(|row| row.provider == default.provider)
        || credentials.iter().any(|it| it.active && it.provider == default.provider);
    Ok((!is_set).then_some(names))
}

/// Like [`missing_key`], for the environment alone.
fn unset_keys(
    default: &ModelRef,
    catalog: &Catalog,
    env: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let none = Overrides::default();
    let asked = (default.provider.as_str(), default.model.as_str(), None);
    let found = catalog::resolve(catalog, &none, asked).ok()?;
    let has = |name: &str| env.contains(name).then(|| "set".to_owned());
    // A server on this machine or network may need no key.
    let access = Access { base_url: None, env: &has, auth: &Auth::None };
    let is_near = found
        .route(&access)
        .is_ok_and(|route| !credentials::is_of_internet(&route.endpoint.base_url));
    let is_set = !found.wants_credentials()
        || is_near
        || catalog::is_set_up(catalog, &none, &default.provider, &has);
    (!is_set && !found.key_names.is_empty()).then_some(found.key_names)
}

async fn find(
    args: &ModelArgs,
    catalog: &Catalog,
    own: &Client,
    client: Client,
) -> Result<Models, ServeError> {
    if let Some(url) = &args.model_url {
        normalize_base_url(url)
            .map_err(|error| ServeError::Usage(format!("--model-url: {error}")))?;
        let mut endpoint = Endpoint::new(url.clone());
        if let Some(key) = &args.model_key {
            endpoint = endpoint.with_api_key(Secret::new(key));
        }
        let lists =
            [Protocol::OpenAiChat, Protocol::OpenAiResponses].contains(&args.model_protocol);
        let names = if lists { list_names(own, &endpoint).await } else { None };
        if lists && names.is_none() {
            tracing::warn!(url, "the model server does not answer yet; turns fail until it does");
        }
        let listed = names.as_ref().and_then(|names| names.first().cloned());
        let model = match &args.model {
            Some(model) => model.clone(),
            None if lists => listed.clone().unwrap_or_else(|| PLACEHOLDER.to_owned()),
            None => {
                let protocol = args.model_protocol.id();
                return Err(ServeError::Usage(format!(
                    "--model: say which model is at --model-url; servers of {protocol} are not asked for a list"
                )));
            }
        };
        let kind = ModelKind::Url(url.clone());
        let mut setup = ProviderSetup::new(args.model_protocol, endpoint.clone());
        setup.dialect = dialect_of_unknown(args.model_protocol, &model);
        let mut models = single(client, &args.model_provider, model, setup, kind, None);
        let served = models.served.clone();
        let pending =
            |name| PendingModels { client: own.clone(), endpoint: endpoint.clone(), name, served };
        if args.model.is_some() {
            match names {
                Some(names) => {
                    let _set_once = models.served.set(names);
                }
                None => models.pending = lists.then(|| pending(None)),
            }
        } else {
            // The name stays valid in all processes: a gateway that knew no better may have given it to clients.
            let name = Arc::new(OnceLock::new());
            match listed {
                Some(listed) => {
                    let _set_once = name.set(listed);
                    let _set_once = models.served.set(names.unwrap_or_default());
                }
                None => {
                    models.later = Some(name.clone());
                    models.pending = Some(pending(Some(name.clone())));
                }
            }
            let placeholder = ModelRef::new(args.model_provider.as_str(), PLACEHOLDER);
            models.configured = models.configured.with_placeholder(placeholder, name);
        }
        return Ok(models);
    }
    check_named(args, catalog)?;
    if let Some(default) = of_catalog(args, catalog) {
        let provider = catalog.provider(&default.provider);
        let name = provider.map_or(&default.provider, |provider| &provider.name).clone();
        // Nothing is configured by hand, so it is called like any other model of the catalog.
        let configured = ConfiguredModels::new(default, BTreeMap::new());
        let kind = ModelKind::Catalog(name);
        return Ok(Models {
            client,
            configured,
            kind,
            simulated: None,
            pending: None,
            later: None,
            served: Arc::default(),
        });
    }
    if let Some(key) = openai_key(args) {
        // A model that the catalog does not have, such as a fine-tuned one.
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

/// Returns the dialect of a server of which nothing is known but its protocol and a model.
fn dialect_of_unknown(protocol: Protocol, model: &str) -> Dialect {
    match protocol {
        Protocol::OpenAiChat => {
            let model = providers::Model { id: model, ..providers::Model::default() };
            Spoken::compatible(&model).dialect
        }
        // It may run the same chat templates.
        Protocol::OpenAiResponses => {
            Dialect { instructions: Some(Instructions::Wrapped), ..Dialect::default() }
        }
        Protocol::BedrockConverse | Protocol::AnthropicMessages | Protocol::Gemini => {
            Dialect::default()
        }
    }
}

/// The name of a server's model while the server has not told it.
const PLACEHOLDER: &str = "default";

/// The most models of a server that are listed, and the longest name of one, in bytes.
const MAX_SERVED: (usize, usize) = (1_000, 200);

/// Returns the models that the server lists, at least one; `None` while nobody answers. A server that answers with an
/// empty list usually has one model and accepts any name.
async fn list_names(client: &Client, endpoint: &Endpoint) -> Option<Vec<String>> {
    let placeholder = || vec![PLACEHOLDER.to_owned()];
    match client.list_models(endpoint).await {
        Ok(mut names) => {
            let (most, longest) = MAX_SERVED;
            names.retain(|name| {
                !name.is_empty() && name.len() <= longest && !name.contains(char::is_control)
            });
            names.truncate(most);
            if let Some(at) = names.iter().position(|name| name == PLACEHOLDER) {
                names.swap(0, at);
            }
            Some(if names.is_empty() { placeholder() } else { names })
        }
        Err(error) if error.status.is_some_and(|status| status < 500) => {
            let status = error.status;
            tracing::warn!(
                status,
                "the model server does not list its models; choose one with --model"
            );
            Some(placeholder())
        }
        Err(error) => {
            tracing::debug!(%error, "the model server does not answer");
            None
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
    // People write a choice as "provider/model", but the provider is already known here.
    let prefix = format!("{provider}/");
    let model = model.strip_prefix(&prefix).map(str::to_owned).unwrap_or(model);
    let default = ModelRef::new(provider, model);
    let configured = ConfiguredModels::single(default, setup);
    let served = Arc::default();
    Models { client, configured, kind, simulated, pending: None, later: None, served }
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

    // Finding cluster 7: the server is asked for its model's name until it answers.
    #[tokio::test]
    async fn a_server_that_comes_later_is_asked_for_its_model() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let url = format!("--model-url=http://127.0.0.1:{port}/v1");
        let egress = egress::Egress::new(&egress::EgressOptions::default()).expect("a client");
        let mut models =
            super::models(&args(&[&url]), &catalog::shipped(), &egress).await.expect("it starts");
        assert_eq!(models.configured.default_model().model, PLACEHOLDER);
        let pending = models.pending.take().expect("nobody answers yet");
        let (name, shown) = (pending.name.clone().expect("no flag"), models.default_model());
        let bind = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let options = simulated_model::Options { bind, ..simulated_model::Options::default() };
        let server = SimulatedModel::start(options).await.expect("the port is free still");
        let root = TaskGroup::root("test");
        pending.resolve(&root);
        let known = async {
            while name.get().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), known).await.expect("it is asked again");
        assert_eq!(name.get().map(String::as_str), Some(simulated_model::MODEL));
        assert_eq!(shown.get().model, simulated_model::MODEL, "a gateway shows it");
        root.shutdown(Duration::from_secs(2)).await;
        server.shutdown().await;
    }

    // A newcomer's `up` was ready, without a warning that nothing answers at the port of --model-url.
    #[tokio::test]
    async fn a_server_is_asked_at_the_start_whoever_names_the_model() {
        let options = simulated_model::Options::default();
        let server = SimulatedModel::start(options).await.expect("it starts");
        let there = format!("--model-url={}", server.url());
        let egress = egress::Egress::new(&egress::EgressOptions::default()).expect("a client");
        for (url, answers) in [(there.as_str(), true), ("--model-url=http://127.0.0.1:1/v1", false)]
        {
            for words in [&[url][..], &[url, "--model=mine"]] {
                let models = super::models(&args(words), &catalog::shipped(), &egress).await;
                let models = models.expect("it starts");
                assert_eq!(models.pending.is_none(), answers, "{words:?}");
                assert_eq!(models.served.get().is_some(), answers, "{words:?}");
            }
        }
        server.shutdown().await;
    }

    // Finding trial-3 28: only the first of a server's models was listed.
    #[tokio::test]
    async fn all_models_of_a_server_are_listed() {
        const LIST: &str = r#"{"data":[{"id":"a"},{"id":"b"},{"id":"c\n"},{"id":""}]}"#;
        let app = axum::Router::new().route("/v1/models", axum::routing::get(|| async { LIST }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("--model-url=http://{}/v1", listener.local_addr().expect("an address"));
        let egress = egress::Egress::new(&egress::EgressOptions::default()).expect("a client");
        let root = TaskGroup::root("test");
        let serves = TaskKind::new("model server", OnError::Log, OnCancel::Abort);
        root.spawn(serves, async move { axum::serve(listener, app).await });
        for (words, own, other) in
            [(&[url.as_str()][..], "a", "b"), (&[&url, "--model=b"], "b", "a")]
        {
            let mut models =
                super::models(&args(words), &catalog::shipped(), &egress).await.expect("it starts");
            if let Some(pending) = models.pending.take() {
                pending.resolve(&root);
            }
            let shown = models.default_model();
            let known = async {
                while shown.others().is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), known).await.expect("it is asked");
            assert_eq!((shown.get().model.as_str(), shown.others()), (own, vec![other.to_owned()]));
        }
        root.shutdown(Duration::from_secs(2)).await;
    }

    #[test]
    fn a_provider_of_the_internet_wants_a_key_and_a_local_one_none() {
        let shipped = catalog::shipped();
        let unset = |provider: &str, model: &str, env: &[&str]| {
            let env = env.iter().map(|name| (*name).to_owned()).collect();
            unset_keys(&ModelRef::new(provider, model), &shipped, &env)
        };
        let claude = "claude-sonnet-4-5";
        assert_eq!(unset("anthropic", claude, &[]), Some(vec!["ANTHROPIC_API_KEY".to_owned()]));
        assert_eq!(unset("anthropic", claude, &["ANTHROPIC_API_KEY"]), None);
        assert_eq!(unset("ollama", "qwen3:8b", &[]), None);
        assert_eq!(unset("simulated", "simulated", &[]), None);
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
