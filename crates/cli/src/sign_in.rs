//! A sign-in at a model provider: by a browser that comes back to this machine, or by a code on another device.

use std::io::BufRead;
use std::time::Duration;

use client::{Client, ClientError, is_loopback, parsed};
use domain::{Clock, SystemClock};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;

/// How a user signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SignInMethod {
    /// With a browser that comes back with a code
    Code,
    /// By typing a code in on any device
    Device,
}

/// A wanted sign-in.
pub(crate) struct Request {
    pub(crate) provider: String,
    pub(crate) method: Option<SignInMethod>,
    pub(crate) label: String,
    /// Ask for the address that the browser ends at, instead of waiting for the browser.
    pub(crate) paste: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignInView {
    attempt: String,
    status: String,
    expires: i64,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    user_code: Option<String>,
    #[serde(default)]
    verification_url: Option<String>,
    #[serde(default)]
    verification_url_complete: Option<String>,
    #[serde(default)]
    interval_ms: Option<u64>,
    #[serde(default)]
    message: Option<String>,
}

/// The shortest pause between two looks at a device sign-in.
const LEAST_PAUSE: Duration = Duration::from_millis(250);
/// The longest line of a browser's request, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// Signs in and returns the service's answer, which names the credential.
///
/// # Errors
/// When the provider is not set up for it, it fails, or its time is up.
pub(crate) async fn execute(
    client: &Client,
    asked: &Request,
    screen: &mut Screen,
) -> Result<Value, CliError> {
    let provider = &asked.provider;
    if !provider.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        let provider = printable::line(provider, 80);
        return Err(CliError::Usage(format!(
            "{provider}: a provider is letters, digits, `.`, `_` or `-`"
        )));
    }
    let method = match asked.method {
        Some(method) => method,
        None => offered(client, provider).await?,
    };
    let word = match method {
        SignInMethod::Code => "code",
        SignInMethod::Device => "device",
    };
    let path = format!("/platform/oauth/{provider}");
    let body = json!({ "method": word, "label": asked.label });
    let begun = client.call_json(Method::POST, &path, Some(&body), "the sign-in").await?;
    let view: SignInView = parsed(&begun, "the sign-in")?;
    let path = format!("{path}/{}", view.attempt);
    let ended = match method {
        SignInMethod::Device => by_device(client, &path, &view, screen).await?,
        SignInMethod::Code => {
            let back = by_browser(&view, asked.paste, screen).await?;
            let path = format!("{path}/complete");
            client.call_json(Method::POST, &path, Some(&back), "the sign-in").await?
        }
    };
    let view: SignInView = parsed(&ended, "the sign-in")?;
    match view.status.as_str() {
        "complete" => Ok(ended),
        "expired" => Err(failed("its time is up; begin again".to_owned())),
        _ => Err(failed(printable::line(&view.message.unwrap_or_default(), 400))),
    }
}

fn failed(why: String) -> CliError {
    ClientError::SignIn { why }.into()
}

/// Returns the method that the organisation's settings of the provider allow; the device's if both do.
async fn offered(client: &Client, provider: &str) -> Result<SignInMethod, CliError> {
    let path = format!("/platform/provider/{provider}");
    let setup = match client.get_json(&path, provider).await {
        Ok(setup) => setup,
        Err(ClientError::NotFound { .. }) => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let has = |name: &str| setup["oauth"][name].is_string();
    match (has("deviceUrl"), has("authorizeUrl")) {
        (true, _) => Ok(SignInMethod::Device),
        (false, true) => Ok(SignInMethod::Code),
        (false, false) => Err(CliError::Usage(format!(
            "{provider} has no OAuth client here, so nobody can sign in; add a key with `opencode-cloud credential add \
             {provider}`, or set a client up (docs/api.md, \"Providers and their credentials\")"
        ))),
    }
}

/// Shows the code and waits until the user has typed it in.
async fn by_device(
    client: &Client,
    path: &str,
    view: &SignInView,
    screen: &mut Screen,
) -> Result<Value, CliError> {
    let url = view.verification_url.as_deref().unwrap_or_default();
    let code = printable::line(view.user_code.as_deref().unwrap_or_default(), 80);
    screen.err.say(&format!("Open {} and type in: {code}", printable::line(url, 2_000)))?;
    if let Some(complete) = &view.verification_url_complete {
        screen.err.say(&format!("or open {}", printable::line(complete, 2_000)))?;
    }
    screen.err.say("waiting for it; Ctrl-C gives up")?;
    let pause = Duration::from_millis(view.interval_ms.unwrap_or(5_000)).max(LEAST_PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        match client.get_json(path, "the sign-in").await {
            Ok(answer) if answer["status"] == "pending" => {}
            Err(error) if error.is_transient() && SystemClock::new().now_ms() < view.expires => {}
            answer => return Ok(answer?),
        }
    }
}

/// Sends the user to the browser, and returns the code and the state that it comes back with.
async fn by_browser(
    view: &SignInView,
    paste: bool,
    screen: &mut Screen,
) -> Result<Value, CliError> {
    let url = view.url.as_deref().unwrap_or_default();
    let back = Url::parse(url).ok().and_then(|url| {
        let found = url.query_pairs().find(|(name, _)| name == "redirect_uri");
        Url::parse(&found?.1).ok()
    });
    let listener = match &back {
        Some(back) if !paste => listen(back).await,
        Some(_) | None => None,
    };
    screen
        .err
        .say(&format!("Open this address in a browser:\n  {}", printable::line(url, 4_000)))?;
    let left = u64::try_from(view.expires - SystemClock::new().now_ms()).unwrap_or(0);
    let address = match listener {
        Some(listener) => {
            screen.err.say("waiting for the browser to come back; Ctrl-C gives up")?;
            let wait = tokio::time::timeout(Duration::from_millis(left), arrival(&listener));
            wait.await.map_err(|_| failed("its time is up; begin again".to_owned()))?
        }
        None => {
            screen.err.print("Paste the address that the browser ends at: ")?;
            pasted()?
        }
    };
    returned(&address)
}

/// Listens where the browser comes back to, if that is this machine.
async fn listen(back: &Url) -> Option<TcpListener> {
    if back.scheme() != "http" || !is_loopback(back.as_str()) {
        return None;
    }
    let port = back.port_or_known_default()?;
    // A port in use is another program's: the user pastes the address then.
    TcpListener::bind(("127.0.0.1", port)).await.ok()
}

/// Waits for the browser, and returns the address that it asks for.
async fn arrival(listener: &TcpListener) -> String {
    loop {
        if let Ok((stream, _)) = listener.accept().await
            && let Ok(Some(address)) = asked_for(stream).await
        {
            return address;
        }
    }
}

/// Reads a browser's request and answers it. Returns its address if that has a result of the sign-in; browsers also
/// ask for icons.
async fn asked_for(mut stream: TcpStream) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(tokio::io::AsyncReadExt::take(read, MAX_LINE as u64));
    tokio::time::timeout(Duration::from_secs(5), read.read_until(b'\n', &mut line)).await??;
    let line = String::from_utf8_lossy(&line).into_owned();
    let address = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_result = address.contains("code=") || address.contains("error=");
    let (status, text) = if is_result {
        ("200 OK", "You can close this page and go back to the terminal.")
    } else {
        ("404 Not Found", "Nothing is here.")
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    write.write_all(answer.as_bytes()).await?;
    write.shutdown().await?;
    Ok(is_result.then(|| format!("http://localhost{address}")))
}

fn pasted() -> Result<String, CliError> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|source| CliError::Io { doing: "cannot read standard input", source })?;
    Ok(line.trim().to_owned())
}

/// Returns the code and the state in an address that a browser came back to.
fn returned(address: &str) -> Result<Value, CliError> {
    let url = Url::parse(address).map_err(|_| {
        CliError::Usage("that is not an address; it begins with http:// or https://".to_owned())
    })?;
    let value = |wanted: &str| {
        url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    match (value("code"), value("state"), value("error")) {
        (Some(code), Some(state), _) => Ok(json!({ "code": code, "state": state })),
        (_, _, Some(error)) => {
            let why = value("error_description").unwrap_or(error);
            Err(failed(format!("the provider says: {}", printable::line(&why, 400))))
        }
        _ => Err(CliError::Usage(
            "the address has no `code` and `state`; paste the whole address that the browser ends at".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_its_code_or_says_what_is_wrong() {
        let good = returned("http://localhost:1455/callback?code=a%2Fb&state=s").expect("a code");
        assert_eq!(good, json!({ "code": "a/b", "state": "s" }));
        let told = |address: &str| returned(address).expect_err("no code").to_string();
        assert!(told("http://x/?error=access_denied").contains("access_denied"));
        assert!(told("http://x/?code=1").contains("no `code` and `state`"));
        assert!(told("code=1").contains("not an address"));
    }

    #[tokio::test]
    async fn a_browser_comes_back_to_this_machine() {
        let port = boot::free_port().expect("a port");
        let back = Url::parse(&format!("http://localhost:{port}/callback")).expect("a URL");
        let listener = listen(&back).await.expect("it listens");
        let browser = async {
            let get = async |path: &str| {
                let client = reqwest::Client::builder().no_proxy().build().expect("a client");
                let answer = client.get(format!("http://127.0.0.1:{port}{path}")).send().await;
                answer.expect("an answer").status().as_u16()
            };
            (get("/favicon.ico").await, get("/callback?code=c&state=s").await)
        };
        let (address, answers) = tokio::join!(arrival(&listener), browser);
        assert_eq!(returned(&address).expect("a code"), json!({ "code": "c", "state": "s" }));
        assert_eq!(answers, (404, 200));
        let elsewhere = Url::parse("https://oc.example/callback").expect("a URL");
        assert!(listen(&elsewhere).await.is_none());
    }
}
