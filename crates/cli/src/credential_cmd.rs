//! `opencode-cloud credential list|add|remove|login`: keys and sign-ins at model providers, kept by the service.

use std::path::PathBuf;

use catalog::ResolveError;
use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::{Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::secret_input;
use crate::sign_in::{self, SignInMethod};
use crate::table::{ago, fitted, local_time};

/// Arguments of `credential`.
#[derive(Debug, clap::Args)]
pub struct CredentialArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CredentialCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `credential`.
#[derive(Debug, Subcommand)]
pub enum CredentialCommand {
    /// The credentials of the organisation; their secrets never come out
    List,
    /// Keep a key for a provider; turns use it from the next request on
    Add(AddArgs),
    /// Forget a credential
    Remove {
        /// Its id, as `credential list` shows it
        #[arg(value_name = "CREDENTIAL")]
        credential: String,
    },
    /// Sign in at a provider whose OAuth client is set up
    Login {
        /// The provider
        #[arg(value_name = "PROVIDER")]
        provider: String,
        /// How to sign in [default: `device` if the provider has it]
        #[arg(long, value_enum)]
        method: Option<SignInMethod>,
        /// Name of the credential; one of that name is replaced
        #[arg(long, value_name = "NAME", default_value = "default")]
        label: String,
        /// Do not wait for the browser on this machine: ask for the address that it ends at
        #[arg(long)]
        paste: bool,
    },
}

/// Arguments of `credential add`.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// The provider, as in `opencode-cloud provider list --all`
    #[arg(value_name = "PROVIDER")]
    pub provider: String,
    /// Name of the credential
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub label: String,
    /// Replace the secret of the organisation's credential of that name, if there is one
    #[arg(long)]
    pub replace: bool,
    /// File with the secret; `-` is standard input [default: standard input; at a terminal, it asks]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The secret is the JSON file of a Google service account
    #[arg(long, conflicts_with_all = ["aws_access_key", "region"])]
    pub service_account: bool,
    /// Id of an AWS access key, whose secret half is the secret
    #[arg(long, value_name = "ID", requires = "region")]
    pub aws_access_key: Option<String>,
    /// AWS region
    #[arg(long, value_name = "REGION", requires = "aws_access_key")]
    pub region: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CredentialView {
    id: String,
    provider: String,
    /// Empty for the organisation.
    #[serde(default)]
    owner: String,
    label: String,
    kind: String,
    #[serde(default)]
    hint: String,
    active: bool,
    #[serde(default)]
    fault: Option<String>,
    updated: i64,
}

const LIST: &str = "/platform/credential";

/// Runs `credential …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: CredentialArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let (answer, told) = match args.command {
        CredentialCommand::List => {
            let answer = client.get_json(LIST, "the list of credentials").await?;
            let views: Vec<CredentialView> = parsed(&answer, "the list of credentials")?;
            let now = screen.out.is_terminal().then(|| SystemClock::new().now_ms());
            let text = list(&views, now, screen.out.width());
            (answer, text)
        }
        CredentialCommand::Add(add) => store_secret(&client, &add, screen).await?,
        CredentialCommand::Remove { credential } => {
            if !credential.starts_with("crd_") || !credential.chars().all(is_plain) {
                let usage = format!(
                    "{}: a credential's id begins with crd_; `opencode-cloud credential list` shows it",
                    printable::line(&credential, 80)
                );
                return Err(CliError::Usage(usage));
            }
            let path = format!("{LIST}/{credential}");
            client.call_json(Method::DELETE, &path, None, &credential).await?;
            (json!({ "removed": credential }), format!("{credential} is forgotten\n"))
        }
        CredentialCommand::Login { provider, method, label, paste } => {
            let asked = sign_in::Request { provider, method, label, paste };
            let answer = sign_in::execute(&client, &asked, screen).await?;
            let id = answer["credential"].as_str().unwrap_or_default();
            let told = format!(
                "signed in; {} keeps it, and turns use it from now on\n",
                printable::line(id, 80)
            );
            (answer, told)
        }
    };
    if args.json {
        screen.out.line(&answer.to_string())?;
    } else {
        screen.out.prose(&told)?;
    }
    Ok(0)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Keeps a secret for a provider. Says at once if nothing is known about the provider.
async fn store_secret(
    client: &Client,
    add: &AddArgs,
    screen: &mut Screen,
) -> Result<(Value, String), CliError> {
    let warning = check_provider(client, &add.provider).await?;
    if let Some(warning) = &warning {
        screen.err.say(warning)?;
    }
    let prompt = match (add.service_account, &add.aws_access_key) {
        (false, None) => format!("API key for {}: ", add.provider),
        (false, Some(id)) => format!("Secret access key of {id}: "),
        (true, _) if add.key_file.is_none() && secret_input::is_typed() => {
            let usage =
                "the JSON of a service account has many lines: name its file with --key-file";
            return Err(CliError::Usage(usage.to_owned()));
        }
        (true, _) => String::new(),
    };
    let secret = secret_input::read(add.key_file.as_deref(), &prompt, screen)?;
    let mut body = body(add, &secret)?;
    let old = if add.replace { find_credential(client, add).await? } else { None };
    let answer = match old {
        Some(id) => {
            prepare_replacement(&mut body);
            let path = format!("{LIST}/{id}");
            client.call_json(Method::PATCH, &path, Some(&body), &id).await?
        }
        None => client.call_json(Method::POST, LIST, Some(&body), "the credential").await?,
    };
    let view: CredentialView = parsed(&answer, "the credential")?;
    let (id, hint) = (printable::line(&view.id, 80), ending(&view.hint));
    let provider = printable::line(&view.provider, 80);
    let told = if warning.is_some() {
        format!(
            "{id} keeps {hint} for {provider}; turns use it once that provider is set up, and `opencode-cloud credential remove {id}` forgets it\n"
        )
    } else {
        format!("{id} keeps {hint} for {provider}; turns use it from now on\n")
    };
    Ok((answer, told))
}

/// Returns the id of the organisation's credential that has the name already.
async fn find_credential(client: &Client, add: &AddArgs) -> Result<Option<String>, CliError> {
    let answer = client.get_json(LIST, "the list of credentials").await?;
    let views: Vec<CredentialView> = parsed(&answer, "the list of credentials")?;
    Ok(find_labelled(views, add))
}

fn find_labelled(views: Vec<CredentialView>, add: &AddArgs) -> Option<String> {
    let mut views = views.into_iter();
    let found = views.find(|view| {
        view.owner.is_empty() && view.provider == add.provider && view.label == add.label
    });
    found.map(|view| view.id)
}

/// Makes the request for a new credential one for a new secret, which turns use. A credential keeps its provider.
fn prepare_replacement(body: &mut Value) {
    if let Some(members) = body.as_object_mut() {
        members.remove("provider");
        members.insert("active".to_owned(), json!(true));
    }
}

/// Returns a warning if neither the catalog nor the organisation's settings have the provider.
async fn check_provider(client: &Client, provider: &str) -> Result<Option<String>, CliError> {
    let answer = match client.get_json("/provider", "the list of providers").await {
        Ok(answer) => answer,
        // Whoever may keep credentials need not see the providers.
        Err(error) if error.is_refusal() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let listed = answer["all"].as_array().into_iter().flatten();
    let ids: Vec<&str> = listed.filter_map(|entry| entry["id"].as_str()).collect();
    // A service without a catalog lists its own provider alone, and knows nothing of others.
    if ids.len() < 2 || ids.contains(&provider) {
        return Ok(None);
    }
    // The list leaves out what the organisation does not allow.
    let answer = client.models_json(Some(provider), true).await?;
    let mut models = answer["models"].as_array().into_iter().flatten();
    let begin = format!("{provider}/");
    if models.any(|model| model["id"].as_str().is_some_and(|id| id.starts_with(&begin))) {
        return Ok(None);
    }
    Ok(Some(describe_unknown(provider, &ids)))
}

/// Says that no provider has this name, and which ones have a similar one.
fn describe_unknown(provider: &str, ids: &[&str]) -> String {
    let near = catalog::find_nearest(provider, ids.iter().copied());
    let provider = printable::line(provider, 80);
    let unknown = ResolveError::UnknownProvider { provider, near }.to_string();
    let end = if unknown.ends_with('?') { "" } else { "." };
    format!("{unknown}{end} Turns use the secret once a provider of that name is set up.")
}

/// Returns the request for a new credential.
fn body(add: &AddArgs, secret: &str) -> Result<Value, CliError> {
    let mut body = json!({ "provider": add.provider, "label": add.label });
    match (&add.aws_access_key, &add.region) {
        (Some(id), Some(region)) => {
            body["aws"] = json!({ "accessKeyId": id, "secretAccessKey": secret, "region": region });
        }
        _ if add.service_account => {
            // The parser's message may quote the secret.
            body["serviceAccount"] = serde_json::from_str(secret).map_err(|_| {
                CliError::Usage("the service account's file is not JSON".to_owned())
            })?;
        }
        _ => body["key"] = json!(secret),
    }
    Ok(body)
}

fn ending(hint: &str) -> String {
    if hint.is_empty() {
        "a secret".to_owned()
    } else {
        format!("a secret that ends with `{}`", printable::line(hint, 10))
    }
}

fn list(views: &[CredentialView], now: Option<i64>, width: Option<usize>) -> String {
    if views.is_empty() {
        return "no credentials; add one with: opencode-cloud credential add PROVIDER\n".to_owned();
    }
    let heading = ["CREDENTIAL", "PROVIDER", "LABEL", "STATE", "UPDATED", "KIND", "ENDS WITH"];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(views.iter().map(|view| {
        let state = match (&view.fault, view.active) {
            (Some(fault), _) => fault.as_str(),
            (None, true) => "used",
            (None, false) => "not used",
        };
        [
            printable::line(&view.id, 80),
            printable::line(&view.provider, 60),
            printable::line(&view.label, 60),
            printable::line(state, 200),
            now.map_or_else(|| local_time(view.updated), |now| ago(view.updated, now)),
            printable::line(&view.kind, 20),
            printable::line(&view.hint, 10),
        ]
    }));
    fitted(&rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(words: &[&str]) -> AddArgs {
        #[derive(clap::Parser)]
        struct Probe {
            #[command(flatten)]
            add: AddArgs,
        }
        let words = [&["probe", "acme"], words].concat();
        <Probe as clap::Parser>::try_parse_from(words).expect("flags").add
    }

    #[test]
    fn each_kind_of_secret_has_its_own_shape() {
        let key = body(&add(&[]), "sk-1").expect("a body");
        assert_eq!(key, json!({ "provider": "acme", "label": "default", "key": "sk-1" }));
        let aws = add(&["--aws-access-key", "AK", "--region", "eu-1", "--label", "x"]);
        let aws = body(&aws, "s").expect("a body");
        let expected = json!({ "accessKeyId": "AK", "secretAccessKey": "s", "region": "eu-1" });
        assert_eq!((&aws["aws"], &aws["label"]), (&expected, &json!("x")));
        let account = body(&add(&["--service-account"]), r#"{"type":"service_account"}"#);
        assert_eq!(account.expect("a body")["serviceAccount"]["type"], "service_account");
        let error = body(&add(&["--service-account"]), "sk-secret").expect_err("not JSON");
        assert!(!error.to_string().contains("sk-secret"), "{error}");
    }

    #[test]
    fn only_the_organisations_secret_of_that_name_is_replaced() {
        let views = || -> Vec<CredentialView> {
            let view = |id: &str, provider: &str, owner: &str, label: &str| {
                json!({ "id": id, "provider": provider, "owner": owner, "label": label,
                    "kind": "api-key", "active": true, "updated": 0 })
            };
            let answer = json!([
                view("crd_1", "other", "", "default"),
                view("crd_2", "acme", "ann", "default"),
                view("crd_3", "acme", "", "team"),
                view("crd_4", "acme", "", "default"),
            ]);
            parsed(&answer, "the list").expect("a list")
        };
        let found = |words: &[&str]| find_labelled(views(), &add(words));
        assert_eq!(found(&["--replace"]).as_deref(), Some("crd_4"));
        assert_eq!(found(&["--label", "team"]).as_deref(), Some("crd_3"));
        assert_eq!(found(&["--label", "new"]), None);
        let mut request = body(&add(&["--replace"]), "sk-1").expect("a body");
        prepare_replacement(&mut request);
        assert_eq!(request, json!({ "label": "default", "active": true, "key": "sk-1" }));
    }

    #[test]
    fn an_unknown_provider_is_named_with_similar_ones() {
        let ids = ["anthropic", "openai", "groq"];
        let text = describe_unknown("antropic", &ids);
        assert!(text.contains("did you mean `anthropic`? Turns use"), "{text}");
        let text = describe_unknown("a-server-of-ours", &ids);
        assert!(text.contains("organisation's settings. Turns use"), "{text}");
    }

    #[test]
    fn credentials_are_listed_with_what_is_wrong_with_them() {
        let answer = json!([
            { "id": "crd_1", "provider": "acme", "owner": "", "label": "team", "kind": "api-key", "hint": "f3Qa",
              "active": true, "created": 0, "updated": 1_000 },
            { "id": "crd_2", "provider": "acme", "owner": "", "label": "old", "kind": "oauth", "hint": "",
              "active": true, "fault": "sign in again", "created": 0, "updated": 0 },
        ]);
        let views: Vec<CredentialView> = parsed(&answer, "the list").expect("a list");
        let text = list(&views, Some(61_000), None);
        let lines: Vec<&str> = text.lines().collect();
        let first = "crd_1       acme      team   used           1 min ago  api-key  f3Qa";
        assert_eq!(lines[1], first, "{text}");
        assert!(lines[2].contains("  sign in again  "), "{text}");
        assert!(list(&[], None, None).contains("credential add PROVIDER"));
    }
}
