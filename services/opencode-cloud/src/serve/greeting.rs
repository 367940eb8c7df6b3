//! The lines that `up` and `serve` print when they are ready.

use std::ffi::OsStr;
use std::path::Path;

use super::ServeError;
use super::bootstrap::{self, FirstKey};
use super::model::ModelKind;
use super::up::Hints;
use crate::output::Screen;

/// The facts in the greeting.
pub(crate) struct Greeting<'g> {
    pub(crate) url: String,
    pub(crate) data: &'g Path,
    pub(crate) key: &'g FirstKey,
    /// The one-time link that logs the owner in.
    pub(crate) login: String,
    pub(crate) hints: Hints,
    pub(crate) model: &'g ModelKind,
    pub(crate) name: &'g str,
    /// The variables of which the model's provider needs one, if it has no key.
    pub(crate) missing_key: Option<Vec<String>>,
}

impl Greeting<'_> {
    /// Prints the greeting.
    ///
    /// # Errors
    /// When nothing can be printed.
    pub(crate) fn print(&self, screen: &mut Screen) -> Result<(), ServeError> {
        let program = program();
        for line in self.lines(&program) {
            screen.out.line(&line).map_err(|error| {
                ServeError::stopped("cannot print where the service is", &error)
            })?;
        }
        Ok(())
    }

    fn lines(&self, program: &str) -> Vec<String> {
        let mut lines = vec![format!("OpenCode Cloud is ready at {}", self.url)];
        lines.push(format!("Data:  {}", self.data.display()));
        let (is_in_profile, is_default) = match (self.hints, self.key) {
            (Hints::Left, FirstKey::Kept { file, .. }) => {
                lines.push(format!("Key:   in {}", file.display()));
                (false, false)
            }
            (Hints::Shown | Hints::Left, key) => {
                let place = bootstrap::note(key, std::slice::from_ref(&self.url));
                lines.push(format!("Key:   {}", place.told));
                (place.is_in_profile, place.is_default)
            }
        };
        lines.push(format!("Login: {} (once, within an hour)", self.login));
        lines.push(format!("Model: {}", model(self.model, self.name)));
        if let Some(names) = &self.missing_key {
            lines.push(format!(
                "Warning: there is no key for this model, so every turn will fail; set {} and start again",
                names.join(" or ")
            ));
        }
        if self.hints == Hints::Shown {
            lines.push("Try, in another terminal:".into());
            let key = if is_in_profile { "" } else { "OPENCODE_CLOUD_KEY=KEY " };
            let url = if is_default { String::new() } else { format!(" --url {}", self.url) };
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

/// Returns a word with which a shell runs this executable from any directory: its name if PATH leads to it, otherwise
/// its path.
pub(crate) fn program() -> String {
    let Ok(this) = std::env::current_exe() else { return "opencode-cloud".to_owned() };
    program_for(&this, std::env::var_os("PATH").as_deref())
}

fn program_for(this: &Path, path: Option<&OsStr>) -> String {
    let name = this.file_name().unwrap_or(this.as_os_str());
    let real = this.canonicalize().ok();
    let mut folders = path.map(std::env::split_paths).into_iter().flatten();
    let first = folders.find_map(|folder| folder.join(name).canonicalize().ok());
    let is_on_path = first.is_some() && first == real;
    let word = if is_on_path { name.to_string_lossy() } else { this.to_string_lossy() };
    quoted(&word)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%=:,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn lines(key: &FirstKey, missing_key: Option<Vec<String>>) -> String {
        let greeting = Greeting {
            url: "http://127.0.0.1:5000".into(),
            data: Path::new("/srv/oc"),
            key,
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
        let told = lines(&FirstKey::Given, None);
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
        let told = lines(&FirstKey::Given, Some(vec!["ANTHROPIC_API_KEY".into()]));
        assert!(told.contains("Warning: there is no key for this model"), "{told}");
        assert!(told.contains("set ANTHROPIC_API_KEY and start again"), "{told}");
    }

    #[test]
    fn the_program_of_a_hint_runs_from_any_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let this: PathBuf = folder.path().join("opencode-cloud");
        std::fs::write(&this, "").expect("a file");
        let path = folder.path().as_os_str();
        assert_eq!(program_for(&this, Some(path)), "opencode-cloud");
        assert_eq!(program_for(&this, Some(OsStr::new("/nowhere"))), this.display().to_string());
        assert_eq!(program_for(&this, None), this.display().to_string());
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
