//! The lines that `up` and `serve` print when they are ready.

use std::path::Path;

use cli::output::Screen;
use cli::program;

use super::ServeError;
use super::bootstrap::{self, FirstKey, KeyPlace};
use super::model::ModelKind;
use super::up::Hints;

/// The facts in the greeting.
pub(crate) struct Greeting<'g> {
    pub(crate) url: String,
    pub(crate) data: &'g Path,
    /// The sentence about the directory of sessions that name none.
    pub(crate) wide_directory: Option<String>,
    pub(crate) key: KeyPlace,
    /// The one-time link that logs the owner in.
    pub(crate) login: String,
    pub(crate) hints: Hints,
    pub(crate) model: &'g ModelKind,
    pub(crate) name: &'g str,
    /// The variables of which the model's provider needs one, if it has no key.
    pub(crate) missing_key: Option<Vec<String>>,
}

/// Returns the place of the owner's key. With hints for people, the caller's profile has it from now on: before anybody
/// can see that the service is ready.
pub(crate) fn key_place(hints: Hints, key: &FirstKey, url: &str) -> KeyPlace {
    match (hints, key) {
        (Hints::Left, FirstKey::Kept { file, .. }) => {
            KeyPlace::outside(format!("in {}", file.display()))
        }
        (Hints::Shown | Hints::Left, key) => bootstrap::note(key, &[url.to_owned()]),
    }
}

impl Greeting<'_> {
    /// Prints the greeting.
    ///
    /// # Errors
    /// When nothing can be printed.
    pub(crate) fn print(&self, screen: &mut Screen) -> Result<(), ServeError> {
        let program = program();
        for line in self.lines(&program) {
            screen.out.say(&line).map_err(|error| {
                ServeError::stopped("cannot print where the service is", &error)
            })?;
        }
        Ok(())
    }

    fn lines(&self, program: &str) -> Vec<String> {
        let mut lines = vec![format!("OpenCode Cloud is ready at {}", self.url)];
        lines.push(format!("Data:  {}", self.data.display()));
        lines.push(format!("Key:   {}", self.key.told));
        lines.push(format!("Login: {} (once, within an hour)", self.login));
        lines.push(format!("Model: {}", model(self.model, self.name)));
        if let Some(names) = &self.missing_key {
            lines.push(format!(
                "Warning: there is no key for this model, so every turn will fail; set {} and start again",
                names.join(" or ")
            ));
        }
        lines.extend(self.wide_directory.clone());
        if self.hints == Hints::Shown {
            lines.push("Try, in another terminal:".into());
            let key = if self.key.is_in_profile { "" } else { "OPENCODE_CLOUD_KEY=KEY " };
            let url =
                if self.key.is_default { String::new() } else { format!(" --url {}", self.url) };
            lines.push(format!("  {key}{program} run \"list the files\"{url}"));
            lines.push(format!("  {key}{program} open{url}    (another link for the browser)"));
            lines.push("Ctrl-C stops it; nothing is lost.".into());
        }
        lines
    }
}

fn model(kind: &ModelKind, name: &str) -> String {
    match kind {
        ModelKind::Url(url) => format!("{name} at {url}"),
        ModelKind::Catalog(provider) => format!("{name} ({provider})"),
        ModelKind::Simulated => {
            "simulated: a small program, not a language model. For a real one set OPENAI_API_KEY, or name one with \
             --model PROVIDER/MODEL and set its provider's key, or use --model-url for Ollama, vLLM or llama.cpp"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(missing_key: Option<Vec<String>>) -> String {
        let url = "http://127.0.0.1:5000";
        let greeting = Greeting {
            url: url.into(),
            data: Path::new("/srv/oc"),
            wide_directory: None,
            key: key_place(Hints::Shown, &FirstKey::Given, url),
            login: "http://127.0.0.1:5000/login#a.b.c".into(),
            hints: Hints::Shown,
            model: &ModelKind::Catalog("Anthropic".into()),
            name: "claude",
            missing_key,
        };
        greeting.lines("/bin/oc").join("\n")
    }

    // Findings trial 8 and 20: the hint could not be pasted and held the key; the data folder was not printed.
    #[test]
    fn the_greeting_names_the_data_folder_and_never_a_key() {
        let told = lines(None);
        assert!(told.contains("Data:  /srv/oc\n"), "{told}");
        assert!(
            told.contains("OPENCODE_CLOUD_KEY=KEY /bin/oc run \"list the files\" --url http"),
            "{told}"
        );
        assert!(told.contains("Login: http://127.0.0.1:5000/login#a.b.c (once"), "{told}");
        assert!(!told.contains("Warning") && !told.contains("--key"), "{told}");
    }

    // Finding trial 14: a model without its provider's key started without a warning.
    #[test]
    fn a_model_without_a_key_is_warned_of() {
        let told = lines(Some(vec!["ANTHROPIC_API_KEY".into()]));
        assert!(told.contains("Warning: there is no key for this model"), "{told}");
        assert!(told.contains("set ANTHROPIC_API_KEY and start again"), "{told}");
    }
}
