//! A visit at an identity provider, as a browser makes it. Tests of several crates include this source file.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Url, redirect};

/// Visits the provider's address with a new browser. Returns the address at which it leaves the provider.
pub(crate) async fn visit(url: &Url) -> Url {
    let http = Client::builder().redirect(redirect::Policy::none()).build().expect("a client");
    let (mut cookies, mut url) = (BTreeMap::new(), url.clone());
    let port = url.port();
    for _ in 0..20 {
        let sent: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = http.get(url.clone()).header(COOKIE, sent.join("; "));
        let answer = request.send().await.expect("an answer");
        for set in answer.headers().get_all(SET_COOKIE) {
            let pair = set.to_str().expect("ASCII").split(';').next().expect("a pair");
            let (name, value) = pair.split_once('=').expect("a name and a value");
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let Some(location) = answer.headers().get(LOCATION) else {
            panic!("{}: {}", answer.status(), answer.text().await.expect("a page"));
        };
        url = url.join(location.to_str().expect("ASCII")).expect("an address");
        if url.port() != port {
            return url;
        }
    }
    panic!("redirected for ever");
}
