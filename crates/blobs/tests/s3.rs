//! Blobs at a real S3 server, moto's, that fails in all the ways in which one can.

use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use blobs::{BlobError, BlobKey, BlobPlace, BlobSettings, Blobs, Pace, Probed};
use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::join_all;
use testkit::{BUCKET, Proxy, S3, S3Fault};

const MIB: usize = 1024 * 1024;

/// Short pauses, so that a store that stays away is known to be away soon.
fn pace() -> Pace {
    let ms = Duration::from_millis;
    Pace {
        connect: ms(500),
        request: ms(2_000),
        silence: ms(1_000),
        retries: 4,
        first_pause: ms(10),
        longest_pause: ms(50),
        patience: ms(1_500),
    }
}

fn settings(host: &str, bucket: &str) -> Result<BlobSettings> {
    let place: BlobPlace = format!("s3://{bucket}/a/prefix").parse().map_err(anyhow::Error::msg)?;
    Ok(BlobSettings {
        endpoint: Some(format!("http://{host}")),
        region: Some("us-east-1".into()),
        access_key: Some("test-id".into()),
        secret_key: Some("CANARY-secret".into()),
        pace: pace(),
        ..BlobSettings::at(place)
    })
}

fn at(host: &str) -> Result<Blobs> {
    Ok(Blobs::open(&settings(host, BUCKET)?)?)
}

fn key(name: &str) -> BlobKey {
    BlobKey::new("org-1", "snapshot", name).expect("a plain name")
}

/// Returns an error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_bucket_does_what_a_folder_does() -> Result<()> {
    let s3 = S3::start()?;
    let blobs = at(&s3.host())?;
    ensure!(blobs.probe().await? == Probed::Fit);
    ensure!(s3.requests().iter().any(|line| line.ends_with("412")), "a second create is refused");
    blobs.put(&key("one"), Bytes::from_static(b"0123456789")).await?;
    blobs.put(&key("one"), Bytes::from_static(b"0123456789")).await?;
    let other = blobs.put(&key("one"), Bytes::from_static(b"012345678X")).await;
    ensure!(matches!(other, Err(BlobError::Taken(_))), "{other:?}");
    ensure!(blobs.get(&key("one")).await? == "0123456789");
    for (range, expected) in [(2..5, "234"), (8..99, "89"), (99..100, ""), (4..4, "")] {
        ensure!(blobs.get_range(&key("one"), range.clone()).await? == expected, "{range:?}");
    }
    let asked = s3.requests().len();
    blobs.get_range(&key("one"), 0..3).await?;
    ensure!(s3.requests().len() == asked + 1, "one request a range");
    let large: Vec<u8> = (0..17 * MIB).map(|index| (index % 251) as u8).collect();
    let mut file = tempfile::tempfile()?;
    file.write_all(&large)?;
    file.rewind()?;
    ensure!(blobs.put_file(&key("large"), file).await? == large.len() as u64);
    ensure!(blobs.get(&key("large")).await? == large);
    let mut names: Vec<_> = blobs.list("org-1", "snapshot").try_collect().await?;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    ensure!(names.iter().map(|it| it.name.as_str()).eq(["large", "one"]), "{names:?}");
    ensure!(blobs.organisations().await? == ["org-1"]);
    for _ in 0..2 {
        blobs.delete(&key("one")).await?;
    }
    let gone = blobs.get(&key("one")).await;
    ensure!(matches!(gone, Err(BlobError::NotFound(_))), "{gone:?}");
    ensure!(
        !s3.requests().iter().any(|line| line.contains("/o/") && !line.contains("/a/prefix/o/"))
    );
    Ok(())
}

#[tokio::test]
async fn faults_of_a_moment_are_not_noticed() -> Result<()> {
    let s3 = S3::start()?;
    let blobs = at(&s3.host())?;
    let faults = [
        S3Fault::Unavailable,
        S3Fault::UnavailableAfter, // the repetition is answered with 412
        S3Fault::Cut,
        S3Fault::CutAfter,
    ];
    for (nth, fault) in faults.into_iter().enumerate() {
        let (name, text) = (key(&format!("blob-{nth}")), Bytes::from(format!("{nth}")));
        for (method, done) in [("PUT", "stored"), ("GET", "read"), ("DELETE", "deleted")] {
            s3.fault(fault, method, "/o/", 1)?;
            let result = match method {
                "PUT" => blobs.put(&name, text.clone()).await,
                "GET" => blobs.get(&name).await.map(|got| assert_eq!(got, text)),
                _ => blobs.delete(&name).await,
            };
            result.with_context(|| format!("{fault:?}: {done}"))?;
        }
    }
    let lost =
        s3.requests().iter().filter(|line| line.contains("PUT") && line.ends_with("412")).count();
    ensure!(lost >= 2, "the store had what it said that it had not: {:#?}", s3.requests());
    // A part of a large file, and its completion.
    for (fault, method) in [(S3Fault::Unavailable, "PUT"), (S3Fault::UnavailableAfter, "POST")] {
        let mut file = tempfile::tempfile()?;
        file.write_all(&vec![7; 9 * MIB])?;
        file.rewind()?;
        s3.fault(fault, method, "/o/", 1)?;
        let name = key(&format!("large-{method}"));
        let stored = blobs.put_file(&name, file).await;
        match stored {
            Ok(bytes) => ensure!(blobs.size(&name).await? == bytes),
            Err(error) => bail!("{fault:?}: {}", told(&error)),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_away_is_said_soon_and_asked_rarely() -> Result<()> {
    let s3 = S3::start()?;
    let network = Proxy::to(s3.host()).await?;
    let blobs = at(&network.address().to_string())?;
    blobs.put(&key("before"), Bytes::from_static(b"x")).await?;
    s3.fault(S3Fault::Unavailable, "", "/o/", 100_000)?;
    let error = blobs.put(&key("away"), Bytes::new()).await.err().context("it is away")?;
    let text = told(&error);
    ensure!(
        text.contains("cannot store blob o/org-1/snapshot/away in s3://blobs/a/prefix"),
        "{text}"
    );
    ensure!(text.contains("503") && text.contains("SlowDown: Reduce your request rate."), "{text}");
    let before = key("before");
    let failed = join_all((0..25).map(|_| blobs.get(&before))).await;
    ensure!(failed.iter().all(Result::is_err), "it is away");
    let (asked, begun) = (s3.requests().len(), Instant::now());
    let mut refused = 0;
    for _ in 0..50 {
        let text = told(&blobs.get(&key("before")).await.err().context("it is away")?);
        refused += usize::from(text.contains("tried once a second"));
    }
    // A trial a second, with its repetitions, and not fifty.
    let (trials, made) = (begun.elapsed().as_secs() as usize + 2, s3.requests().len() - asked);
    ensure!(made <= 5 * trials, "{made} requests in {trials} s");
    ensure!(refused >= 30, "{refused} of 50 were refused at once");
    s3.well()?;
    let until = Instant::now() + Duration::from_secs(20);
    while blobs.get(&key("before")).await.is_err() {
        ensure!(Instant::now() < until, "it answers again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Connections that break, and a server that says nothing.
    network.cut_flows();
    ensure!(blobs.get(&key("before")).await? == "x");
    network.still(true);
    let text = told(&blobs.get(&key("before")).await.err().context("it says nothing")?);
    ensure!(text.contains("did not answer in time"), "{text}");
    network.still(false);
    ensure!(blobs.get(&key("before")).await? == "x");
    Ok(())
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_refused_with_the_reason() -> Result<()> {
    let s3 = S3::start()?;
    s3.fault(S3Fault::NoConditions, "PUT", "/probe-", 1_000)?;
    let ignores = at(&s3.host())?.probe().await.err().context("it overwrites")?;
    ensure!(told(&ignores).contains("ignores conditional puts"), "{}", told(&ignores));
    s3.well()?;
    let none = Blobs::open(&settings(&s3.host(), "nothing-here")?)?.probe().await;
    let text = told(&none.err().context("there is no bucket")?);
    ensure!(
        text.contains("s3://nothing-here/a/prefix") && text.contains("no such bucket"),
        "{text}"
    );
    drop(s3);
    let nobody = format!("127.0.0.1:{}", boot::free_port()?);
    let away = at(&nobody)?.probe().await?;
    let Probed::Away(why) = away else { bail!("{away:?}") };
    ensure!(why.contains("cannot be reached") && why.contains("--blob-endpoint"), "{why}");
    let shown = format!("{:?} {:?}", settings(&nobody, BUCKET)?, at(&nobody)?);
    for text in [&shown, &text, &why] {
        ensure!(!text.contains("CANARY"), "{text}");
    }
    Ok(())
}
