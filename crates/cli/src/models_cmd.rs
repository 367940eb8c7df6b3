//! `opencode-cloud models`: the models that can be chosen, with their limits and prices.

use client::{Client, ClientOptions, parsed};
use serde::Deserialize;
use serde_json::Value;

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::{fitted, local_time};

/// Arguments of `models`.
#[derive(Debug, clap::Args)]
pub struct ModelsArgs {
    /// Only this provider's, whether it is set up or not
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Also those of providers that are not set up; of one PROVIDER, also those that are hidden or not allowed
    #[arg(long)]
    pub all: bool,
    /// Only models with this text in their names, such as `claude`
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

#[derive(Debug, Deserialize)]
struct ModelsView {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    catalog: Option<CatalogView>,
    default: String,
    models: Vec<ModelView>,
}

#[derive(Debug, Deserialize)]
struct CatalogView {
    updated: String,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    seen: Option<i64>,
    #[serde(default)]
    failure: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelView {
    id: String,
    status: String,
    connected: bool,
    #[serde(default = "yes")]
    allowed: bool,
    limits: LimitsView,
    #[serde(default)]
    usd_per_million_tokens: Option<RatesView>,
    #[serde(default)]
    variants: Vec<String>,
}

/// The default of fields that a service omits for an allowed model.
fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct LimitsView {
    #[serde(default)]
    context: Option<u64>,
    #[serde(default)]
    output: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RatesView {
    input: f64,
    output: f64,
}

/// Runs `models` and returns its exit code: 1 if the list is empty.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: ModelsArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let mut answer = client.models_json(args.provider.as_deref(), args.all).await?;
    if let (Some(text), Some(models)) = (&args.search, answer["models"].as_array_mut()) {
        let text = text.to_lowercase();
        let has = |model: &Value| {
            model["id"].as_str().is_some_and(|id| id.to_lowercase().contains(&text))
        };
        models.retain(has);
    }
    let view: ModelsView = parsed(&answer, "the list of models")?;
    if args.json {
        screen.out.line(&answer.to_string())?;
    } else if view.models.is_empty() {
        let told = match &args.provider {
            Some(provider) => {
                let provider = printable::line(provider, 80);
                if args.all {
                    format!(
                        "there is no provider `{provider}` with a list of models; `opencode-cloud models --all` lists every one"
                    )
                } else {
                    format!(
                        "there is no provider `{provider}` with models that may be used; `opencode-cloud models {provider} --all` lists the others too, `opencode-cloud models --all` every provider's"
                    )
                }
            }
            None if args.search.is_some() => {
                "no model has that text in its name; `--all` looks at providers that are not set up too".to_owned()
            }
            None => "no model can be used: none of those that the organisation's settings allow is set up; \
                     `opencode-cloud models --all` lists what there is"
                .to_owned(),
        };
        screen.err.say(&told)?;
    } else {
        let text = list(&view, screen.out.width());
        screen.out.print_paged(&text)?;
        screen.err.say(&origin(&view))?;
    }
    Ok(u8::from(view.models.is_empty()))
}

fn list(view: &ModelsView, width: Option<usize>) -> String {
    let heading = ["MODEL", "CONTEXT", "OUTPUT", "USD/1M IN", "OUT", "VARIANTS", ""];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(view.models.iter().map(|model| {
        let price = |rate: fn(&RatesView) -> f64| {
            model
                .usd_per_million_tokens
                .as_ref()
                .map_or("-".to_owned(), |its| rate(its).to_string())
        };
        let marks = [
            (model.id == view.default, "default"),
            (model.status == "deprecated", "deprecated"),
            (model.status == "hidden", "hidden"),
            (!model.allowed, "not allowed"),
            (!model.connected, "not set up"),
        ];
        let marks = marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark));
        [
            printable::line(&model.id, 80),
            tokens(model.limits.context),
            tokens(model.limits.output),
            price(|its| its.input),
            price(|its| its.output),
            printable::line(&model.variants.join(" "), 60),
            marks.collect::<Vec<_>>().join(", "),
        ]
    }));
    fitted(&rows, width)
}

fn tokens(count: Option<u64>) -> String {
    count.map_or("-".to_owned(), |count| count.to_string())
}

/// Describes the catalog and its freshness.
fn origin(view: &ModelsView) -> String {
    let (Some(version), Some(catalog)) = (&view.version, &view.catalog) else {
        return "no catalog: only the model of the service's flags is listed".to_owned();
    };
    let mut text = format!("catalog {version}");
    let mut add = |words: &str| text.push_str(words);
    if !catalog.updated.is_empty() {
        add(&format!(" of {}", catalog.updated));
    }
    match (&catalog.source, catalog.seen) {
        (Some(source), Some(seen)) => add(&format!(", seen at {source} {}", local_time(seen))),
        _ => add(", shipped with the service"),
    }
    if let Some(failure) = &catalog.failure {
        add(&format!(", and not since: {failure}"));
    }
    printable::line(&text, 1_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(catalog: &serde_json::Value) -> ModelsView {
        let answer = json!({
            "version": "models.dev:ab", "catalog": catalog, "default": "simulated/simulated", "models": [
                { "id": "simulated/simulated", "name": "s", "status": "available", "connected": true, "limits": {} },
                { "id": "p/old", "name": "Old", "status": "deprecated", "connected": false, "limits":
                    { "context": 200_000, "output": 64_000 }, "variants": ["high", "low"],
                  "usdPerMillionTokens": { "input": 1.25, "output": 10.0, "cacheRead": 0.1, "cacheWrite": 0.0 } },
                { "id": "p/image", "name": "I", "status": "hidden", "connected": true, "allowed": false, "limits": {} },
            ],
        });
        parsed(&answer, "the list").expect("a list")
    }

    #[test]
    fn models_are_a_table_of_what_they_take_and_cost() {
        let text = list(&view(&json!({ "updated": "2026-05-12" })), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "MODEL                CONTEXT  OUTPUT  USD/1M IN  OUT  VARIANTS");
        assert_eq!(
            lines[1],
            "simulated/simulated  -        -       -          -              default"
        );
        assert_eq!(
            lines[2],
            "p/old                200000   64000   1.25       10   high low  deprecated, not set up"
        );
        assert_eq!(
            lines[3],
            "p/image              -        -       -          -              hidden, not allowed"
        );
    }

    #[test]
    fn the_catalog_is_told_with_its_age() {
        let shipped = origin(&view(&json!({ "updated": "2026-05-12" })));
        assert_eq!(shipped, "catalog models.dev:ab of 2026-05-12, shipped with the service");
        let failing = json!({ "updated": "", "source": "http://c.example/api.json", "seen": 0, "failure": "status 502" });
        let failing = origin(&view(&failing));
        assert!(failing.starts_with("catalog models.dev:ab, seen at http://c.example/api.json 19"));
        assert!(failing.ends_with(", and not since: status 502"), "{failing}");
    }
}
