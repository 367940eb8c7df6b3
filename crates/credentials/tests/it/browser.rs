//! A minimal browser for the OAuth server: cookies, redirects, and forms submitted unchanged.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, Url, redirect};

pub(crate) struct Browser {
    http: Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let http = Client::builder().redirect(redirect::Policy::none()).build().expect("a client");
        Self { http, cookies: BTreeMap::new() }
    }

    /// Opens a sign-in's address; returns the code and the state that the browser brings back.
    pub(crate) async fn sign_in(&mut self, url: &str) -> (String, String) {
        let back = self.open(url).await.expect_err("no way back to us");
        let of = |name: &str| {
            let found = back.query_pairs().find(|(key, _)| key == name);
            found.unwrap_or_else(|| panic!("no {name}: {back}")).1.into_owned()
        };
        (of("code"), of("state"))
    }

    /// Opens a device's page and submits its forms until none is left.
    pub(crate) async fn confirm(&mut self, url: &str) -> String {
        let mut page = self.open(url).await.expect("a page");
        while let Some((action, fields)) = form(&page) {
            let sent = self.send(self.http.post(action).form(&fields)).await;
            page = self.follow(sent).await.expect("a page");
        }
        page
    }

    /// Returns the page at `url`, or the first address outside the server.
    async fn open(&mut self, url: &str) -> Result<String, Url> {
        let sent = self.send(self.http.get(url)).await;
        self.follow(sent).await
    }

    async fn follow(&mut self, mut answer: Response) -> Result<String, Url> {
        for _ in 0..20 {
            let Some(location) = answer.headers().get(LOCATION) else {
                let status = answer.status();
                let page = answer.text().await.expect("a page");
                assert!(status.is_success(), "{status}: {page}");
                return Ok(page);
            };
            let next = answer.url().join(location.to_str().expect("ASCII")).expect("an address");
            if next.port() != answer.url().port() {
                return Err(next);
            }
            answer = self.send(self.http.get(next)).await;
        }
        panic!("redirected for ever");
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Response {
        let cookies: Vec<_> = self.cookies.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let answer = request.header(COOKIE, cookies.join("; ")).send().await.expect("an answer");
        for set in answer.headers().get_all(SET_COOKIE) {
            let pair = set.to_str().expect("ASCII").split(';').next().expect("a pair");
            let (name, value) = pair.split_once('=').expect("a name and a value");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        answer
    }
}

/// Returns the first form of a page: its target and hidden fields.
fn form(page: &str) -> Option<(String, Vec<(String, String)>)> {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split_once(&format!("{name}=\""))?.1;
        Some(value.split_once('"')?.0.to_owned())
    };
    let form = page.split_once("<form")?.1;
    let action = attribute(form.split_once('>')?.0, "action")?;
    let inputs = form.split("<input").skip(1).filter(|input| input.contains("type=\"hidden\""));
    let fields = inputs.filter_map(|tag| Some((attribute(tag, "name")?, attribute(tag, "value")?)));
    Some((action, fields.collect()))
}
