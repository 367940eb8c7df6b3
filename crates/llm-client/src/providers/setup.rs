//! What a provider needs to know before it can be reached.

use std::fmt;

use crate::auth::Auth;
use crate::endpoint::Endpoint;
use crate::providers::{Model, Provider};

/// Settings of one provider, as its user has them.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Set by [`Provider::route`].
    pub provider: &'a Provider,
    /// The model.
    pub model: Model<'a>,
    /// In place of the provider's own; may hold `${NAME}`.
    pub base_url: Option<&'a str>,
    /// Account, region, project, resource and the like, by the names that models.dev has for them (`AWS_REGION`).
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The credentials. [`Auth::Key`] is put where this provider wants its keys.
    pub auth: &'a Auth,
}

impl fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut setup = f.debug_struct("Setup");
        setup.field("provider", &self.provider.id).field("model", &self.model);
        setup.field("base_url", &self.base_url).field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// Where a provider is, and how it knows us.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Where.
    pub endpoint: Endpoint,
    /// How.
    pub auth: Auth,
}

/// A provider that cannot be reached as it is set up.
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
    /// A setting is no part of an address.
    #[error("the provider `{provider}` has a `{name}` that is no name of anything: correct it")]
    Invalid {
        /// The provider.
        provider: String,
        /// The setting, by models.dev's name.
        name: String,
    },
    /// Nobody knows where it is.
    #[error("the provider `{provider}` has no base URL: set one in the provider's settings")]
    NoUrl {
        /// The provider.
        provider: String,
    },
}

impl SetupError {
    /// The error of a provider that goes by another name.
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
    /// Settings with nothing but the model.
    #[must_use]
    pub fn new(model: Model<'a>, env: &'a dyn Fn(&str) -> Option<String>, auth: &'a Auth) -> Self {
        Self { provider: &super::OPENAI_COMPATIBLE, model, base_url: None, env, auth }
    }

    /// A setting, if it is there; empty ones are not.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<String> {
        let value = (self.env)(name).map(|value| value.trim().to_owned());
        match (value.filter(|value| !value.is_empty()), name) {
            (Some(value), _) => Some(value),
            // models.dev's name for the host of a region.
            (None, "GOOGLE_VERTEX_ENDPOINT") => Some(super::google_vertex::host(self)),
            (None, _) => None,
        }
    }

    /// A setting.
    ///
    /// # Errors
    /// It is not there.
    pub fn required(&self, name: &str) -> Result<String, SetupError> {
        let missing =
            || SetupError::Missing { provider: self.provider.id.to_owned(), name: name.to_owned() };
        self.optional(name).ok_or_else(missing)
    }

    /// At the user's base URL, else at the provider's.
    ///
    /// # Errors
    /// There is none, or a setting in it is missing.
    pub fn at_its_url(&self) -> Result<Reach, SetupError> {
        let no_url = || SetupError::NoUrl { provider: self.provider.id.to_owned() };
        self.at(self.provider.url.or(self.base_url).ok_or_else(no_url)?)
    }

    /// At the user's base URL, else at `url`, with the credentials as they are.
    ///
    /// # Errors
    /// A setting in it is missing.
    pub fn at(&self, url: &str) -> Result<Reach, SetupError> {
        let url = self.fill(self.base_url.unwrap_or(url))?;
        // Some metadata names the whole address of chat.
        let base = url.trim_end_matches('/').trim_end_matches("/chat/completions");
        Ok(Reach { endpoint: Endpoint::new(base), auth: self.auth.clone() })
    }

    /// The value of the setting `name`, as a part of an address.
    ///
    /// # Errors
    /// It has a character that no name in an address has.
    pub(super) fn part(&self, name: &str, value: String) -> Result<String, SetupError> {
        let is_in_names =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | ':');
        if value.chars().all(is_in_names) {
            return Ok(value);
        }
        let (provider, name) = (self.provider.id.to_owned(), name.to_owned());
        Err(SetupError::Invalid { provider, name })
    }

    /// `template` with each `${NAME}` replaced by the setting of this name. Within an address it is a part of a name: it
    /// cannot lead elsewhere.
    ///
    /// # Errors
    /// One is missing, or has a character that no name in an address has.
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
    /// At the user's base URL, else at the provider's.
    ///
    /// # Errors
    /// There is none, or a setting in it is missing.
    pub fn at_its_url(setup: &Setup<'_>) -> Result<Self, SetupError> {
        setup.at_its_url()
    }

    /// With a key in a header of this name, as `value` makes it; other credentials stay as they are.
    #[must_use]
    pub fn with_key_in(mut self, name: &str, value: impl Fn(&str) -> String) -> Self {
        if let Auth::Key(key) = &self.auth {
            let value = crate::Secret::new(&value(key.expose()));
            self.auth = Auth::Header { name: name.to_owned(), value };
        }
        self
    }

    /// With a key as `authorization: Bearer …`; other credentials stay as they are.
    #[must_use]
    pub fn with_bearer(mut self) -> Self {
        if let Auth::Key(key) = &self.auth {
            self.auth = Auth::Bearer(key.clone());
        }
        self
    }
}
