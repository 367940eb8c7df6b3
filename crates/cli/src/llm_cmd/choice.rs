//! The choice of a model: by a provider of the catalog, or by a protocol and an address.

use catalog::{Access, Domains, ModelPatch, Overrides, ProviderOverride, ResolveError, Resolved};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llm_client::{Auth, Endpoint, Route, Secret, normalize_base_url, providers};
use llm_protocol::{Dialect, LlmRequest, Protocol};

use crate::CliError;
use crate::output::Screen;

/// The destination of a request.
#[derive(Debug, clap::Args)]
pub(super) struct RouteArgs {
    /// A provider of the catalog, such as `anthropic`: it knows the protocol, the address and the model's options
    #[arg(
        long,
        value_name = "ID",
        conflicts_with = "protocol",
        required_unless_present = "protocol"
    )]
    provider: Option<String>,
    /// The protocol of a server at --base-url
    #[arg(long, value_name = "PROTOCOL", value_parser = protocols())]
    protocol: Option<Protocol>,
    /// The address that paths are added to, such as `http://127.0.0.1:11434/v1`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The provider's own name for the model; otherwise the request's `model`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A variant of the provider's model, such as `high`
    #[arg(long, value_name = "NAME", requires = "provider")]
    variant: Option<String>,
    /// The key; otherwise that of the environment variable which the catalog names (`ANTHROPIC_API_KEY`)
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_LLM_KEY", hide_env_values = true)]
    key: Option<String>,
    /// A header to send, in place of one of the same name; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, Secret)>,
    /// Differences of the server from its protocol's owner, as JSON: `{"instructions":"developer"}`
    #[arg(long, value_name = "JSON", value_parser = dialect, conflicts_with = "provider")]
    dialect: Option<Dialect>,
    /// The region of AWS; otherwise AWS_REGION. Without a key, requests are signed with the AWS_* variables
    #[arg(long, value_name = "REGION")]
    aws_region: Option<String>,
}

fn protocols() -> impl TypedValueParser<Value = Protocol> {
    let ids = Protocol::ALL.iter().map(|protocol| protocol.id());
    PossibleValuesParser::new(ids).map(|id| Protocol::from_id(&id).expect("one of all ids"))
}

fn header(text: &str) -> Result<(String, Secret), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), Secret::new(value)))
}

fn dialect(text: &str) -> Result<Dialect, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Resolves a model of the shipped catalog. An unknown model may be newer than this build: it gets the options that
/// its provider's models share, and a warning.
fn resolve(choice: (&str, &str, Option<&str>), screen: &mut Screen) -> Result<Resolved, CliError> {
    let shipped = catalog::shipped();
    let told = |error: ResolveError| CliError::Usage(error.to_string());
    let error = match catalog::resolve(&shipped, &Overrides::default(), choice) {
        Err(error @ ResolveError::UnknownModel { .. }) => error,
        other => return other.map_err(told),
    };
    screen.err.say(&format!("warning: {error}; asking for it all the same"))?;
    let (provider, model, _) = choice;
    let models = [(model.to_owned(), ModelPatch::default())].into();
    let over = ProviderOverride { models, ..ProviderOverride::default() };
    let providers = [(provider.to_owned(), over)].into();
    catalog::resolve(&shipped, &Overrides { providers, ..Overrides::default() }, choice)
        .map_err(told)
}

/// A request, with its protocol and provider.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) request: LlmRequest,
    protocol: Protocol,
    dialect: Dialect,
    resolved: Option<Box<Resolved>>,
}

impl Choice {
    pub(super) fn encode(&self) -> Vec<u8> {
        self.protocol.encode_for(&self.request, &self.dialect)
    }
}

impl RouteArgs {
    /// Chooses model and provider of the request. The catalog's options for the model apply below the request's own.
    pub(super) fn choose(
        &self,
        mut request: LlmRequest,
        screen: &mut Screen,
    ) -> Result<Choice, CliError> {
        if let Some(model) = &self.model {
            request.model.clone_from(model);
        }
        if request.model.is_empty() {
            let text = "which model? Pass --model NAME, or put `model` in the request";
            return Err(CliError::Usage(text.to_owned()));
        }
        let Some(provider) = &self.provider else {
            let protocol = self.protocol.unwrap_or(Protocol::OpenAiChat); // clap requires one of both
            let dialect = self.dialect.clone().unwrap_or_default();
            return Ok(Choice { request, protocol, dialect, resolved: None });
        };
        let choice = (provider.as_str(), request.model.as_str(), self.variant.as_deref());
        let resolved = resolve(choice, screen)?;
        if let Some(notice) = &resolved.notice {
            screen.err.say(&format!("notice: {notice}"))?;
        }
        resolved.api_id().clone_into(&mut request.model);
        request.generation = resolved.generation(&request.generation);
        let mut domains = resolved.domains.clone();
        let asked = Domains { request_options: request.provider_options, ..Domains::default() };
        domains.lay(&asked);
        request.provider_options = domains.request_options;
        let (protocol, dialect) = (resolved.protocol, resolved.dialect.clone());
        Ok(Choice { request, protocol, dialect, resolved: Some(Box::new(resolved)) })
    }

    /// Returns the route, with credentials.
    pub(super) fn route(
        &self,
        choice: &Choice,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Route, CliError> {
        if let Some(url) = &self.base_url {
            normalize_base_url(url)
                .map_err(|error| CliError::Usage(format!("--base-url: {error}")))?;
        }
        let env = |name: &str| match (name, &self.aws_region) {
            ("AWS_REGION", Some(region)) => Some(region.clone()),
            _ => env(name),
        };
        let mut route = match &choice.resolved {
            Some(resolved) => self.of_provider(resolved, &env)?,
            None => self.of_protocol(choice, &env)?,
        };
        for (name, value) in &self.header {
            route.endpoint = route.endpoint.with_header(name, value.clone());
        }
        Ok(route)
    }

    fn of_provider(
        &self,
        resolved: &Resolved,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Route, CliError> {
        let known = || resolved.key_names.iter().find_map(|name| env(name));
        let key = self.key.clone().or_else(known).filter(|key| !key.trim().is_empty());
        let auth = key.map_or(Auth::None, |key| Auth::Key(Secret::new(&key)));
        let access = Access { base_url: self.base_url.as_deref(), env, auth: &auth };
        let route = resolved.route(&access).map_err(|error| CliError::Usage(error.to_string()))?;
        // An own server may need no key, and a header may be the credential.
        let own = self.base_url.is_some() || !self.header.is_empty();
        match resolved.key_names.first() {
            Some(name) if !own && matches!(route.auth, Auth::None) => Err(CliError::Usage(
                format!("`{}` needs a key: pass --key KEY, or set {name}", resolved.provider),
            )),
            Some(_) | None => Ok(route),
        }
    }

    fn of_protocol(
        &self,
        choice: &Choice,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Route, CliError> {
        let auth = self.key.as_ref().map_or(Auth::None, |key| Auth::Key(Secret::new(key)));
        let Choice { request, protocol, dialect, .. } = choice;
        let route = if self.aws_region.is_some() {
            // Amazon's addresses and signatures, whatever the protocol.
            let bedrock = providers::of("amazon-bedrock").expect("it is in the table");
            let model = providers::Model { id: &request.model, ..providers::Model::default() };
            let mut setup = providers::Setup::new(model, env, &auth);
            setup.base_url = self.base_url.as_deref();
            let route = bedrock.route(&setup);
            Route {
                protocol: *protocol,
                ..route.map_err(|error| CliError::Usage(error.to_string()))?
            }
        } else {
            let url = self.base_url.as_deref().ok_or_else(|| {
                CliError::Usage("where is it? Pass --base-url URL with --protocol".to_owned())
            })?;
            Route::new(*protocol, &request.model, Endpoint::new(url)).with_auth(auth)
        };
        Ok(route.with_dialect(dialect.clone()))
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
