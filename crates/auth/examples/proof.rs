//! The price of a proof, for `load-tests/README.md`: the key of a request is read and believed, and a need is decided,
//! again and again. It starts a Postgres of its own for the first look-up.

#![expect(clippy::print_stdout, reason = "an example prints its figures")]

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use access::{Decision, Need, decide};
use auth::{Authenticator, Shown};
use domain::{Clock, OrgId, SystemClock};
use http::{HeaderMap, HeaderValue};
use store::{Store, StoreOptions};

const REQUESTS: u32 = 1_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let database = testkit::database().await?;
    let store = Store::connect(&StoreOptions::new(database.store_url()))?;
    let (org, clock) = (OrgId::random(), Arc::new(SystemClock::new()));
    store.ensure_organisation(org, "measured".into(), clock.now_ms()).await?;
    let (key, row) = auth::generate_key("measured");
    store.create_key(org, row, clock.now_ms()).await?;
    let authenticator = Authenticator::new(store, clock);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::try_from(format!("Bearer {key}"))?);
    let peer = Some(IpAddr::from([127, 0, 0, 1]));

    let mut allowed = 0_u32;
    let mut begun = Instant::now();
    for request in 0..=REQUESTS {
        let shown = Shown::read(black_box(&headers), None, "cookie")?;
        let believed = authenticator.authenticate(&shown, peer).await?;
        let decided = decide(believed.principal().standing(), black_box(Need::SessionPrompt));
        allowed += u32::from(matches!(decided, Decision::Yes));
        if request == 0 {
            begun = Instant::now(); // the first one has asked Postgres
        }
    }
    anyhow::ensure!(allowed == REQUESTS + 1, "a request was refused");
    println!("a request is proved and allowed in {:?}", begun.elapsed() / REQUESTS);
    Ok(())
}
