//! The settings that a provider needs before it can be reached.

use std::fmt;

use crate::auth::Auth;
use crate::endpoint::Endpoint;
use crate::providers::{Model, Provider};

/// One user's settings of one provider.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Set by [`Provider::route`].
    pub provider: &'a Provider,
    /// The model.
    pub model: Model<'a>,
    /// A base URL in place of the provider's own; may contain `${NAME}`.
    pub base_url: Option<&'a str>,
    /// Returns account, region, project, resource and the like, by models.dev's names (`AWS_REGION`).
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The credentials. [`Auth::Key`] goes to the header where this provider wants its keys.
    pub auth: &'a Auth,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut setup = f.debug_struct("Setup");
        setup.field("provider", &self.provider.id).field("model", &self.model);
        setup.field("base_url", &self.base_url).field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// A provider's address and credentials.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The address.
    pub endpoint: Endpoint,
    /// The credentials.
    pub auth: Auth,
}

/// The reason why a provider cannot be used with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A setting is missing.
    #[error(
        "the provider `{provider}` needs `{name}`: set it in the provider's settings or the environment"
    )]
    Missing {
        /// The provider.
        provider: String,
        /// The setting, by models.dev's name.
        name: String,
    },
    /// A setting contains characters that cannot be part of an address.
    #[error("the provider `{provider}` has a `{name}` that is no name of anything: correct it")]
    Invalid {
        /// The provider.
        provider: String,
        /// The setting, by models.dev's name.
        name: String,
    },
    /// The provider has no base URL.
    #[error("the provider `{provider}` has no base URL: set one in the provider's settings")]
    NoUrl {
        /// The provider.
        provider: String,
    },
}

impl SetupError {
    /// Replaces the provider's name in the error.
    #[must_use]
    pub fn for_provider(mut self, id: &str) -> Self {
        let (Self::Missing { provider, .. }
        | Self::Invalid { provider, .. }
        | Self::NoUrl { provider }) = &mut self;
        id.clone_into(provider);
        self
    }
}

impl<'a> Setup<'a> {
    /// Makes settings with only the model.
    #[must_use]
    pub fn new(model: Model<'a>, env: &'a dyn Fn(&str) -> Option<String>, auth: &'a Auth) -> Self {
        Self { provider: &super::OPENAI_COMPATIBLE, model, base_url: None, env, auth }
    }

    /// Returns a setting; `None` if it is missing or empty.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<String> {
        let value = (self.env)(name).map(|value| value.trim().to_owned());
        match (value.filter(|value| !value.is_empty()), name) {
            (Some(value), _) => Some(value),
            // models.dev's name for a region's host.
            (None, "GOOGLE_VERTEX_ENDPOINT") => Some(super::google_vertex::host(self)),
            (None, _) => None,
        }
    }

    /// Returns a setting.
    ///
    /// # Errors
    /// It is missing.
    pub fn required(&self, name: &str) -> Result<String, SetupError> {
        let missing =
            || SetupError::Missing { provider: self.provider.id.to_owned(), name: name.to_owned() };
        self.optional(name).ok_or_else(missing)
    }

    /// Returns the user's base URL, or else the provider's, with the credentials.
    ///
    /// # Errors
    /// There is no base URL, or a setting in it is missing.
    pub fn at_its_url(&self) -> Result<Reach, SetupError> {
        let no_url = || SetupError::NoUrl { provider: self.provider.id.to_owned() };
        self.at(self.provider.url.or(self.base_url).ok_or_else(no_url)?)
    }

    /// Returns the user's base URL, or else `url`, with the credentials unchanged.
    ///
    /// # Errors
    /// A setting in the URL is missing.
    pub fn at(&self, url: &str) -> Result<Reach, SetupError> {
        let url = self.fill(self.base_url.unwrap_or(url))?;
        // Some metadata gives the whole address of chat.
        let base = url.trim_end_matches('/').trim_end_matches("/chat/completions");
        Ok(Reach { endpoint: Endpoint::new(base), auth: self.auth.clone() })
    }

    /// Checks that the value of the setting `name` can be part of an address.
    ///
    /// # Errors
    /// It contains a character that is not allowed in an address's names.
    pub(super) fn part(&self, name: &str, value: String) -> Result<String, SetupError> {
        let is_in_names =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | ':');
        if value.chars().all(is_in_names) {
            return Ok(value);
        }
        let (provider, name) = (self.provider.id.to_owned(), name.to_owned());
        Err(SetupError::Invalid { provider, name })
    }

    /// Replaces each `${NAME}` in `template` with that setting. A setting can only be part of a name in an
    /// address, so it cannot redirect the request.
    ///
    /// # Errors
    /// One is missing, or contains a character that is not allowed in an address's names.
    pub fn fill(&self, template: &str) -> Result<String, SetupError> {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            filled.push_str(before);
            let value = self.required(name)?;
            let is_part = filled.contains("://");
            filled.push_str(&if is_part { self.part(name, value)? } else { value });
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

impl Reach {
    /// Returns the user's base URL, or else the provider's, with the credentials.
    ///
    /// # Errors
    /// There is no base URL, or a setting in it is missing.
    pub fn at_its_url(setup: &Setup<'_>) -> Result<Self, SetupError> {
        setup.at_its_url()
    }

    /// Moves a key into the header `name`, as formatted by `value`; other credentials stay as they are.
    #[must_use]
    pub fn with_key_in(mut self, name: &str, value: impl Fn(&str) -> String) -> Self {
        if let Auth::Key(key) = &self.auth {
            let value = crate::Secret::new(&value(key.expose()));
            self.auth = Auth::Header { name: name.to_owned(), value };
        }
        self
    }

    /// Sends a key as `authorization: Bearer …`; other credentials stay as they are.
    #[must_use]
    pub fn with_bearer(mut self) -> Self {
        if let Auth::Key(key) = &self.auth {
            self.auth = Auth::Bearer(key.clone());
        }
        self
    }
}
