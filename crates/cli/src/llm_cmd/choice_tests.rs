use clap::Parser;
use llm_protocol::Message;
use serde_json::{Value, json};

use super::*;
use crate::output::Output;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: RouteArgs,
}

fn args(line: &str) -> RouteArgs {
    let words = ["llm"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).expect("a good line").args
}

fn nowhere() -> Screen {
    let sink = || Output::new(Box::new(std::io::sink()), false);
    Screen { out: sink(), err: sink() }
}

fn chosen(line: &str, request: Value) -> Result<Choice, CliError> {
    args(line).choose(serde_json::from_value(request).expect("a request"), &mut nowhere())
}

fn refused<T>(result: Result<T, CliError>) -> String {
    match result {
        Err(error) if error.exit_code() == 2 => error.to_string(),
        Err(error) => panic!("no usage error: {error}"),
        Ok(_) => panic!("it was taken"),
    }
}

fn request(model: &str) -> Value {
    serde_json::to_value(LlmRequest::new(model, vec![Message::user("hi")])).expect("JSON")
}

#[test]
fn a_server_is_named_by_its_protocol_and_address() {
    let line = "--protocol anthropic-messages --base-url http://h:1 --model m --key k-12345678 --header x-a=b=c";
    let choice = chosen(line, request("other")).expect("taken");
    assert_eq!(choice.request.model, "m");
    let route = args(line).route(&choice, &|_| None).expect("a route");
    assert_eq!(route.protocol.id(), "anthropic-messages");
    assert_eq!(route.endpoint.base_url, "http://h:1");
    assert_eq!(route.endpoint.headers, [("x-a".to_owned(), Secret::new("b=c"))]);
    assert!(matches!(&route.auth, Auth::Key(key) if key.expose() == "k-12345678"));
    assert!(!format!("{:?}", args(line)).contains("b=c"));
}

#[test]
fn what_is_missing_is_said() {
    let protocol = "--protocol openai-chat";
    assert!(refused(chosen(protocol, request(""))).contains("--model"));
    let choice = chosen(protocol, request("m")).expect("the request names it");
    assert!(refused(args(protocol).route(&choice, &|_| None)).contains("--base-url"));
    let bad = "--protocol openai-chat --base-url ftp://h";
    assert!(refused(args(bad).route(&choice, &|_| None)).contains("--base-url"));
    let words = ["llm", "--protocol", "smoke-signals"];
    assert_eq!(Line::try_parse_from(words).expect_err("none").exit_code(), 2);
    assert_eq!(Line::try_parse_from(["llm"]).expect_err("neither").exit_code(), 2);
    let both = ["llm", "--provider", "openai", "--protocol", "openai-chat"];
    assert_eq!(Line::try_parse_from(both).expect_err("both").exit_code(), 2);
}

#[test]
fn a_provider_of_the_catalog_knows_the_rest() {
    let line = "--provider openai --model gpt-5 --variant high";
    let mut asked = request("");
    asked["providerOptions"] = json!({"openai": {"store": true}});
    let choice = chosen(line, asked).expect("in the catalog");
    let body: Value = serde_json::from_slice(&choice.encode()).expect("JSON");
    assert_eq!(body["model"], "gpt-5");
    assert_eq!(body["reasoning"]["effort"], "high");
    assert_eq!(body["store"], true, "what is asked is above the catalog's");
    let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "k-12345678".to_owned());
    let route = args(line).route(&choice, &key).expect("a route");
    assert_eq!(route.protocol, Protocol::OpenAiResponses);
    assert!(route.endpoint.base_url.starts_with("https://api.openai.com"));
    assert!(
        matches!(&route.auth, Auth::Key(key) if key.expose() == "k-12345678"),
        "{:?}",
        route.auth
    );
    let without = refused(args(line).route(&choice, &|_| None));
    assert_eq!(without, "`openai` needs a key: pass --key KEY, or set OPENAI_API_KEY");
    let own = "--provider openai --model gpt-5 --base-url http://127.0.0.1:1";
    assert!(args(own).route(&choice, &|_| None).is_ok(), "a server of one's own may want none");
    assert!(refused(chosen("--provider nobody --model m", request(""))).contains("no provider"));
}

#[test]
fn a_region_means_addresses_and_signatures_of_aws() {
    let line = "--protocol bedrock-converse --model m --aws-region eu-west-1";
    let choice = chosen(line, request("")).expect("taken");
    let env = |name: &str| {
        name.starts_with("AWS_")
            .then(|| "value".to_owned())
            .filter(|_| name != "AWS_BEARER_TOKEN_BEDROCK")
    };
    let route = args(line).route(&choice, &env).expect("a route");
    assert_eq!(route.endpoint.base_url, "https://bedrock-runtime.eu-west-1.amazonaws.com");
    assert!(matches!(&route.auth, Auth::SigV4(access) if access.region == "eu-west-1"));
    assert!(refused(args(line).route(&choice, &|_| None)).contains("AWS_ACCESS_KEY_ID"));
}

// Finding llm 11: a model that the catalog lacks may be newer than this build.
#[test]
fn a_model_that_the_catalog_lacks_is_asked_for() {
    let choice =
        chosen("--provider anthropic --model claude-of-tomorrow", request("")).expect("taken");
    assert_eq!(choice.protocol, Protocol::AnthropicMessages);
    assert_eq!(choice.request.model, "claude-of-tomorrow");
    let unknown = chosen("--provider anthropi --model claude-of-tomorrow", request(""));
    assert!(refused(unknown).contains("anthropi"));
}
