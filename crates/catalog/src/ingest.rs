//! Converts models.dev's `api.json` to the catalog.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::model::{Catalog, CatalogModel, Home, Modality, ModelStatus, ProviderEntry};
use crate::patch::ModelPatch;

/// The largest file that is read, in bytes.
pub const MAX_BYTES: usize = 32 << 20;
/// The most models that are kept, about ten times today's number.
const MAX_MODELS: usize = 50_000;
/// The longest id, name or URL, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// The reason why a file is not a catalog.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// It is too large.
    #[error("the catalog has {bytes} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It is not an object of providers.
    #[error("the catalog is no JSON object of providers, as models.dev's api.json is")]
    NotACatalog(#[source] serde_json::Error),
    /// It has no usable provider or model.
    #[error("the catalog has no usable model; the first problem: {first}")]
    Empty {
        /// The first problem found.
        first: String,
    },
}

/// A provider or model that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The provider.
    pub provider: String,
    /// The model; none if the provider is left out with all of its models.
    pub model: Option<String>,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "model `{}/{model}`: {}", self.provider, self.reason),
            None => write!(f, "provider `{}`: {}", self.provider, self.reason),
        }
    }
}

#[derive(Deserialize)]
struct RawProvider<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    npm: Option<String>,
    #[serde(default)]
    api: Option<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(borrow)]
    models: BTreeMap<String, &'a RawValue>,
}

/// Reads models.dev's `api.json`. Unreadable providers and models are left out and listed.
///
/// # Errors
/// The file is not a catalog, is too large, or has nothing usable.
pub fn ingest(json: &[u8]) -> Result<(Catalog, Vec<Skipped>), IngestError> {
    if json.len() > MAX_BYTES {
        return Err(IngestError::TooLarge { bytes: json.len() });
    }
    let raw: BTreeMap<String, &RawValue> =
        serde_json::from_slice(json).map_err(IngestError::NotACatalog)?;
    let mut reader = Reader::default();
    for (id, provider) in raw {
        if let Err(reason) = reader.provider(&id, provider) {
            reader.skipped.push(Skipped { provider: id, model: None, reason });
        }
    }
    if reader.models == 0 {
        let first =
            reader.skipped.first().map_or_else(|| "it is empty".to_owned(), ToString::to_string);
        return Err(IngestError::Empty { first });
    }
    let version = version(&reader.providers);
    let catalog = Catalog { version, updated: reader.updated, providers: reader.providers };
    Ok((catalog, reader.skipped))
}

#[derive(Default)]
struct Reader {
    providers: BTreeMap<String, ProviderEntry>,
    skipped: Vec<Skipped>,
    models: usize,
    updated: String,
}

impl Reader {
    fn provider(&mut self, id: &str, json: &RawValue) -> Result<(), String> {
        if id.contains('/') {
            return Err("its id has a slash: models are named `<provider>/<model>`".to_owned());
        }
        check_text("id", id)?;
        let raw: RawProvider<'_> = read(json)?;
        for text in raw.api.iter().chain(&raw.npm).chain(&raw.env) {
            check_text("a text of it", text)?;
        }
        let mut entry = ProviderEntry {
            id: id.to_owned(),
            name: raw.name.map_or_else(|| id.to_owned(), |name| as_name(&name)),
            npm: raw.npm.unwrap_or_else(|| "@ai-sdk/openai-compatible".to_owned()),
            api: raw.api,
            env: raw.env,
            headers: raw.headers,
            models: BTreeMap::new(),
        };
        for (model, json) in raw.models {
            if let Err(reason) = self.model(&mut entry, &model, json) {
                let provider = id.to_owned();
                self.skipped.push(Skipped { provider, model: Some(model), reason });
            }
        }
        if entry.models.is_empty() {
            return Err("it has no usable model".to_owned());
        }
        self.providers.insert(id.to_owned(), entry);
        Ok(())
    }

    fn model(
        &mut self,
        entry: &mut ProviderEntry,
        id: &str,
        json: &RawValue,
    ) -> Result<(), String> {
        check_text("id", id)?;
        if self.models >= MAX_MODELS {
            return Err(format!("there are more than {MAX_MODELS} models"));
        }
        let patch: ModelPatch = read(json)?;
        if let Some(id) = &patch.id {
            check_text("its own id", id)?;
        }
        if let Some(updated) = &patch.last_updated
            && is_date(updated)
            && *updated > self.updated
        {
            self.updated.clone_from(updated);
        }
        let mut model = new_model(id);
        let home = Home { npm: &entry.npm, has_url: entry.api.is_some() };
        patch.apply(&mut model, home, true);
        model.name = as_name(&model.name);
        if !model.modalities.output.contains(&Modality::Text) {
            model.status = ModelStatus::Hidden;
        }
        let modes = patch.modes(&model);
        for model in std::iter::once(model).chain(modes) {
            // A model in the file wins over a mode of the same name.
            self.models += usize::from(entry.models.insert(model.id.clone(), model).is_none());
        }
        Ok(())
    }
}

/// Makes a model that is only known to handle text.
pub(crate) fn new_model(id: &str) -> CatalogModel {
    let mut model =
        CatalogModel { id: id.to_owned(), name: id.to_owned(), ..CatalogModel::default() };
    model.modalities.input.insert(Modality::Text);
    model.modalities.output.insert(Modality::Text);
    model
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, String> {
    if !json.get().starts_with('{') {
        return Err("it is no JSON object".to_owned());
    }
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}

/// Returns a name on one line: some have tabs at their ends.
fn as_name(text: &str) -> String {
    const MAX_CHARS: usize = 120;
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_control() || letter == ' ')
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").chars().take(MAX_CHARS).collect()
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.contains(char::is_control) {
        return Err(format!(
            "{what} is empty, longer than {MAX_TEXT_BYTES} bytes, or has control characters"
        ));
    }
    Ok(())
}

/// Returns whether the text looks like `2026-04-23`. Such texts compare as dates.
fn is_date(text: &str) -> bool {
    let is_digit =
        |at: usize, byte: u8| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(|(at, byte)| is_digit(at, byte))
}

/// Returns the version of the content. All maps are sorted, so the same content in any order has the same
/// version.
fn version(providers: &BTreeMap<String, ProviderEntry>) -> String {
    let canonical = serde_json::to_vec(providers).expect("maps with text keys are always written");
    format!("models.dev:{}", &hex::encode(Sha256::digest(canonical))[..16])
}
