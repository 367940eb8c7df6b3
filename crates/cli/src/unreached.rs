//! Names the known services that answer, when nobody does at the address of one.

use std::time::Duration;

use client::profile::ProfileFile;
use client::{ClientError, is_loopback};
use futures::future::join_all;

use crate::CliError;

/// How long a service may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most services that are asked.
const MOST: usize = 16;

/// Returns the error of a command. If nobody answered, it names the other services that do.
pub(crate) async fn explain_error(error: ClientError) -> CliError {
    let ClientError::Unreachable { url, .. } = &error else { return error.into() };
    // The profile explains nothing if it cannot be read; the first error counts.
    let profile = ProfileFile::of_caller().and_then(|file| file.read()).unwrap_or_default();
    let known: Vec<String> = profile
        .services()
        .map(|(url, _)| url.to_owned())
        .filter(|its| its != url)
        .take(MOST)
        .collect();
    let asked = known.iter().map(|url| is_answering(url));
    let alive = join_all(asked).await;
    let alive: Vec<&str> =
        known.iter().zip(alive).filter(|(_, alive)| *alive).map(|(url, _)| url.as_str()).collect();
    let own = profile.url.as_deref().map(|url| url.trim_end_matches('/'));
    match name_services(&alive, own) {
        Some(others) => CliError::Elsewhere { source: error, others },
        None => error.into(),
    }
}

async fn is_answering(url: &str) -> bool {
    let mut client = reqwest::Client::builder().timeout(PATIENCE);
    if is_loopback(url) {
        client = client.no_proxy();
    }
    let Ok(client) = client.build() else { return false };
    client
        .get(format!("{url}/healthz"))
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success())
}

/// Returns a sentence about the services that answer. `own` is the service of a command that names none.
fn name_services(alive: &[&str], own: Option<&str>) -> Option<String> {
    if let Some(own) = own.filter(|own| alive.contains(own)) {
        return Some(format!(
            "Leave --url (or OPENCODE_CLOUD_URL) out to use the service of your profile ({own}), which answers"
        ));
    }
    match alive {
        [] => None,
        [one] => {
            Some(format!("The service at {one} answers; use it with: opencode-cloud use {one}"))
        }
        [first, ..] => Some(format!(
            "These services answer: {}; use one of them with: opencode-cloud use {first}",
            alive.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_answer_are_named_with_the_command() {
        assert_eq!(name_services(&[], None), None);
        let one = name_services(&["http://a:1"], None).expect("a sentence");
        assert!(one.ends_with("opencode-cloud use http://a:1"), "{one}");
        let two = name_services(&["http://a:1", "http://b:2"], None).expect("a sentence");
        assert!(two.contains("http://a:1, http://b:2"), "{two}");
    }

    // A newcomer was told to choose the service that the profile names anyway.
    #[test]
    fn the_service_of_the_profile_needs_no_url() {
        let alive = ["http://a:1", "http://b:2"];
        let own = name_services(&alive, Some("http://b:2")).expect("a sentence");
        assert!(own.starts_with("Leave --url ") && own.contains("profile (http://b:2)"), "{own}");
        let other = name_services(&alive, Some("http://c:3")).expect("a sentence");
        assert!(other.ends_with("opencode-cloud use http://a:1"), "{other}");
    }
}
