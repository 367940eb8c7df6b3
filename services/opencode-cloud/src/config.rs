//! Settings of servers from a file and from secret files: a TOML file < `OPENCODE_CLOUD_*` < flags.
//!
//! A key of the file is a flag without its dashes: `data-dir = "/srv/oc"`. Each becomes that flag, in front of the
//! typed arguments. So only clap knows the valid keys and values: each is tried alone first, so that what it refuses is
//! told with the name of the file.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use toml::{Table, Value};

use cli::CliError;

const PREFIX: &str = "OPENCODE_CLOUD_";
const CONFIG: &str = "--config";

/// Secrets that a file may hold: `OPENCODE_CLOUD_MODEL_KEY_FILE=/run/secrets/model-key`.
const SECRETS: [&str; 10] = [
    "blob-secret-key",
    "bootstrap-key",
    "cluster-secret",
    "database-url",
    "metrics-token",
    "migrate-password",
    "model-key",
    "nats-url",
    "secrets-key",
    "serve-password",
];

/// The subcommands that take settings.
const SERVERS: [&str; 7] =
    ["up", "serve", "gateway", "worker", "placement", "dev-cluster", "migrate"];

/// Adds the settings of `--config FILE` to a server's command line, and the secrets of files to that of each subcommand of
/// `cli` that takes them.
///
/// # Errors
/// [`CliError::Usage`] when a file cannot be read or holds anything but plain settings.
pub(crate) fn expand(
    cli: &Command,
    mut args: Vec<OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>, CliError> {
    let (subcommand, words) = find_subcommand(cli, &args);
    let is_server =
        args.get(1).and_then(|word| word.to_str()).is_some_and(|word| SERVERS.contains(&word));
    let manages = words > 1 && args.get(2).is_some_and(|word| word != "serve");
    let mut settings = Vec::new();
    if is_server && !manages {
        let file = take_config(&mut args)?.or_else(|| env("OPENCODE_CLOUD_CONFIG"));
        if let Some(file) = file {
            let file = Path::new(&file);
            for (key, value) in read(file)? {
                if env(&variable(&key)).is_none() {
                    let flag = flag(&key, &value)
                        .map_err(|why| CliError::Usage(format!("{}: {why}", file.display())))?;
                    check_setting(subcommand, &key, flag.as_ref())
                        .map_err(|why| CliError::Usage(format!("{}: {why}", file.display())))?;
                    settings.extend(flag);
                }
            }
        }
    }
    let takes = |key: &&&str| subcommand.get_arguments().any(|arg| arg.get_long() == Some(**key));
    let keys: Vec<&str> = SECRETS.iter().filter(takes).copied().collect();
    settings.extend(secrets(&keys, &env)?);
    args.splice(words + 1..words + 1, settings);
    Ok(args)
}

/// Returns the innermost subcommand that a command line names, and the number of words that name it.
fn find_subcommand<'c>(cli: &'c Command, args: &[OsString]) -> (&'c Command, usize) {
    let (mut found, mut words) = (cli, 0);
    for word in args.iter().skip(1) {
        let Some(next) = found.find_subcommand(word) else { break };
        found = next;
        words += 1;
    }
    (found, words)
}

/// Returns the secrets that are in files, as flags.
fn secrets(
    keys: &[&str],
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>, CliError> {
    let mut settings = Vec::new();
    for key in keys {
        let variable = variable(key);
        let Some(file) = env(&format!("{variable}_FILE")) else { continue };
        if env(&variable).is_some() {
            return Err(CliError::Usage(format!(
                "{variable} and {variable}_FILE are both set; unset one"
            )));
        }
        let secret = std::fs::read_to_string(&file).map_err(|error| {
            CliError::Usage(format!(
                "{variable}_FILE: {} cannot be read: {error}",
                Path::new(&file).display()
            ))
        })?;
        settings.push(OsString::from(format!("--{key}={}", secret.trim_end())));
    }
    Ok(settings)
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

/// Removes `--config FILE` or `--config=FILE` from the command line.
fn take_config(args: &mut Vec<OsString>) -> Result<Option<OsString>, CliError> {
    let joined = format!("{CONFIG}=");
    let place = args.iter().position(|word| {
        word == CONFIG || word.to_str().is_some_and(|word| word.starts_with(&joined))
    });
    let Some(place) = place else { return Ok(None) };
    let word = args.remove(place);
    if let Some(file) = word.to_str().and_then(|word| word.strip_prefix(&joined)) {
        return Ok(Some(OsString::from(file)));
    }
    if place < args.len() {
        return Ok(Some(args.remove(place)));
    }
    Err(CliError::Usage("--config needs a file".into()))
}

fn read(file: &Path) -> Result<Table, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        CliError::Usage(format!("--config: {} cannot be read: {error}", file.display()))
    })?;
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        CliError::Usage(format!("{}:{line}: {}", file.display(), error.message()))
    })
}

/// Returns a setting as a flag. `true` is a flag without a value, `false` is no flag. An error says why it is none.
fn flag(key: &str, value: &Value) -> Result<Option<OsString>, String> {
    let text = match value {
        Value::Boolean(true) => return Ok(Some(format!("--{key}").into())),
        Value::Boolean(false) => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Array(items) if items.iter().all(Value::is_str) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
            return Err(format!(
                "`{key}` is no plain setting; each key is a flag without its dashes"
            ));
        }
    };
    Ok(Some(format!("--{key}={text}").into()))
}

/// Tries a setting alone, `flag` as its flag if it is not off. An error says what is wrong with it, without the file.
fn check_setting(subcommand: &Command, key: &str, flag: Option<&OsString>) -> Result<(), String> {
    let name = OsString::from(subcommand.get_name());
    let tried = flag.cloned().unwrap_or_else(|| OsString::from(format!("--{key}")));
    let Err(error) = subcommand.clone().try_get_matches_from([name, tried]) else { return Ok(()) };
    let text_of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    // Whatever else is wrong, such as a flag that is missing, may be right on the whole command line.
    let Some(argument) = text_of(ContextKind::InvalidArg) else { return Ok(()) };
    let dashed = format!("--{key}");
    if argument.split([' ', '=', '[']).next() != Some(dashed.as_str()) {
        return Ok(());
    }
    if error.kind() == ErrorKind::UnknownArgument {
        let near = text_of(ContextKind::SuggestedArg).map(|near| near.trim_start_matches('-'));
        let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        return Err(format!("there is no setting '{key}'{near}"));
    }
    let is_wrong = [
        ErrorKind::InvalidValue,
        ErrorKind::NoEquals,
        ErrorKind::TooFewValues,
        ErrorKind::TooManyValues,
        ErrorKind::ValueValidation,
        ErrorKind::WrongNumberOfValues,
    ]
    .contains(&error.kind());
    if flag.is_none() || !is_wrong {
        return Ok(());
    }
    // Its first paragraph is the error, and the others are about the command line.
    let told = error.to_string();
    let told: Vec<&str> = told.lines().map(str::trim).take_while(|it| !it.is_empty()).collect();
    let told = told.join(" ").replace(&format!(" for '{argument}'"), "");
    Err(format!("{key}: {}", told.trim_start_matches("error: ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command_line::Cli;

    fn expanded(line: &str, env: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let args = line.split(' ').map(OsString::from).collect();
        let env = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let words = expand(&Cli::command(), args, env).map_err(|error| error.to_string())?;
        Ok(words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("oc.toml");
        std::fs::write(&path, text).expect("written");
        let path = path.to_string_lossy().into_owned();
        (folder, path)
    }

    #[test]
    fn a_files_settings_come_before_what_was_typed_and_yield_to_the_environment() {
        let (_folder, path) = file("port = 5000\nmodel = \"m\"\nallow-local-paths = true\n");
        let words = expanded(
            &format!("oc up --config {path} --port 6000"),
            &[("OPENCODE_CLOUD_MODEL", "other")],
        );
        let expected = ["oc", "up", "--allow-local-paths", "--port=5000", "--port", "6000"];
        let mut words = words.expect("settings");
        words[2..4].sort();
        assert_eq!(words, expected);
    }

    #[test]
    fn a_secret_may_be_a_file() {
        let (_folder, path) = file("s3cret\n");
        let env = [("OPENCODE_CLOUD_CLUSTER_SECRET_FILE", path.as_str())];
        let words = expanded("oc placement serve --id=1", &env).expect("settings");
        assert_eq!(words, ["oc", "placement", "serve", "--cluster-secret=s3cret", "--id=1"]);
        let both = [env[0], ("OPENCODE_CLOUD_CLUSTER_SECRET", "x")];
        assert!(expanded("oc placement serve", &both).expect_err("both").contains("unset one"));
    }

    #[test]
    fn what_manages_the_secrets_key_takes_it_and_its_database_from_files_too() {
        let (_folder, path) = file("k2:b,k1:a\n");
        let env = [
            ("OPENCODE_CLOUD_SECRETS_KEY_FILE", path.as_str()),
            // The server's variable.
            ("OPENCODE_CLOUD_MODEL_KEY_FILE", path.as_str()),
        ];
        for what in ["rewrap", "reset-key"] {
            let words = expanded(&format!("oc credentials {what} --org=o"), &env);
            let words = words.expect("settings");
            assert_eq!(words, ["oc", "credentials", what, "--secrets-key=k2:b,k1:a", "--org=o"]);
        }
        let database = [("OPENCODE_CLOUD_DATABASE_URL_FILE", path.as_str())];
        let words = expanded("oc credentials rewrap", &database).expect("settings");
        assert_eq!(words[3], "--database-url=k2:b,k1:a");
        let both = [env[0], ("OPENCODE_CLOUD_SECRETS_KEY", "x")];
        let error = expanded("oc credentials rewrap", &both).expect_err("both");
        assert!(error.contains("OPENCODE_CLOUD_SECRETS_KEY_FILE are both set"), "{error}");
        assert_eq!(expanded("oc credentials --help", &env).expect("as typed").len(), 3);
    }

    /// Finding ops-3 B4: in a pod, where secrets are files, no operator's command worked.
    #[test]
    fn each_subcommand_takes_its_secrets_from_files() {
        fn visit(command: &Command, line: &str, env: &[(&str, &str)], seen: &mut usize) {
            for next in command.get_subcommands() {
                visit(next, &format!("{line} {}", next.get_name()), env, seen);
            }
            let longs: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
            let words = expanded(line, env).expect("settings");
            for key in SECRETS {
                let is_added = words.contains(&format!("--{key}=s3cret"));
                assert_eq!(is_added, longs.contains(&key), "{line}: {key}");
                *seen += usize::from(is_added);
            }
        }
        let (_folder, path) = file("s3cret\n");
        let variables = SECRETS.map(|key| format!("{}_FILE", variable(key)));
        let env: Vec<_> = variables.iter().map(|name| (name.as_str(), path.as_str())).collect();
        let mut seen = 0;
        visit(&Cli::command(), "oc", &env, &mut seen);
        assert!(seen > 30, "{seen}");
        for line in
            ["oc placement status", "oc placement drain w", "oc feature-level", "oc owner-link"]
        {
            assert!(
                expanded(line, &env).expect("settings").len() > line.split(' ').count(),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_setting_is_refused_and_clients_take_none() {
        let (_folder, path) = file("[table]\nx = 1\n");
        let error = expanded(&format!("oc up --config={path}"), &[]).expect_err("a table");
        assert!(error.contains("no plain setting") && error.starts_with(&path), "{error}");
        assert_eq!(expanded("oc run hello", &[]).expect("as typed"), ["oc", "run", "hello"]);
    }
    // A newcomer read `unexpected argument '--prot' found` about a file.
    #[test]
    fn an_error_in_the_file_names_the_file() {
        for (text, says) in [
            ("prot = 4097\n", ": there is no setting 'prot'; did you mean 'port'?"),
            ("no-such-thing-at-all = false\n", ": there is no setting 'no-such-thing-at-all'"),
            ("port = \"x\"\n", ": port: invalid value 'x': "),
            ("model-protocol = \"x\"\n", ": model-protocol: invalid value 'x'"),
            ("allow-local-paths = \"x\"\n", ": allow-local-paths: "),
            ("port = 5000\nmodel = m\n", ":2: "),
            ("port = 5000\n\nport = 5001\n", ":3: "),
        ] {
            let (_folder, path) = file(text);
            let error = expanded(&format!("oc up --config={path}"), &[]).expect_err(text);
            assert!(error.starts_with(&format!("{path}{says}")), "{error}");
            assert!(!error.contains("--help") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_setting_that_is_off_needs_no_value() {
        let (_folder, path) = file("allow-local-paths = false\nport = false\n");
        let words = expanded(&format!("oc up --config {path}"), &[]).expect("settings");
        assert_eq!(words, ["oc", "up"]);
    }
}
