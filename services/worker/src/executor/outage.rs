//! A worker gets hundreds of Locations of a dead one while object storage answers 503 (attack 1 of production). Postgres, the
//! storage and the disks are real; placement is scripted. `OUTAGE_LOCATIONS=1000` says how many there are.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use blobs::{BlobSettings, Blobs, Pace};
use futures::{StreamExt, TryStreamExt, stream};
use placement_api::{Heartbeat, HeartbeatReply, Placed, Placement, PlacementError};
use testkit::{BUCKET, S3, S3Fault};

use super::*;
use crate::WorkspaceDisk;
use crate::location::tests::{Setup, World};

/// The Locations, unless the environment has another number.
const LOCATIONS: usize = 300;
/// How long storage is away. Each Location is tried some three times.
const OUTAGE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(90);

/// A placement that gives each Location that comes back to the same worker again, under a higher token.
#[derive(Default)]
struct OneWorker(Mutex<Given>);

#[derive(Default)]
struct Given {
    version: u64,
    leases: HashMap<LocationRef, FencingToken>,
    returned: HashMap<LocationRef, u32>,
}

impl OneWorker {
    fn with<T>(&self, look: impl FnOnce(&mut Given) -> T) -> T {
        look(&mut self.0.lock().expect("no panic under it"))
    }
}

#[async_trait]
impl Placement for OneWorker {
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        Ok(self.with(|given| {
            for Lease { location, token } in beat.released {
                let held = given.leases.get_mut(&location).expect("it was given");
                if *held == token {
                    *held = FencingToken(token.0 + 1);
                    *given.returned.entry(location).or_default() += 1;
                    given.version += 1;
                }
            }
            let leases = given.leases.iter();
            let lease = |(location, token): (&LocationRef, &FencingToken)| Lease {
                location: location.clone(),
                token: *token,
            };
            let news = beat.known != given.version;
            HeartbeatReply {
                leases: news.then(|| leases.map(lease).collect()),
                ..HeartbeatReply::unchanged(given.version)
            }
        }))
    }

    async fn place(&self, _request: PlaceRequest) -> Result<Placed, PlacementError> {
        Err(PlacementError::NoWorker)
    }
}

fn storage(s3: &S3) -> Result<Blobs> {
    let ms = Duration::from_millis;
    let settings = BlobSettings {
        endpoint: Some(format!("http://{}", s3.host())),
        region: Some("us-east-1".into()),
        access_key: Some("id".into()),
        secret_key: Some("secret".into()),
        pace: Pace { first_pause: ms(50), longest_pause: ms(200), ..Pace::default() },
        ..BlobSettings::at(format!("s3://{BUCKET}").parse().map_err(anyhow::Error::msg)?)
    };
    Ok(Blobs::open(&settings)?)
}

/// Makes a session whose files are captured by the worker `dead`, and which has a prompt.
async fn captured(world: &World, dead: &WorkerOptions) -> Result<SessionRef> {
    let session = world.session().await?;
    let workspace = world.take_over(dead, &session, 1).await?;
    let root = workspace.root().context("a root")?;
    std::fs::write(root.join("kept"), session.session.to_string())?;
    world.capture(&session, 1, root).await?;
    world.prompt(&session).await?;
    Ok(session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_locations_outlive_an_outage_of_storage() -> Result<()> {
    let given = std::env::var_os("OUTAGE_LOCATIONS").map(|given| given.to_string_lossy().parse());
    let locations: usize = given.transpose()?.unwrap_or(LOCATIONS);
    let s3 = S3::start()?;
    let mut world = World::with(Setup::default(), |url| url).await?;
    world.runtime.blobs = storage(&s3)?;
    let (dead, next) =
        (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let made = stream::iter(0..locations).map(|_| captured(&world, &dead)).buffer_unordered(16);
    let sessions: Vec<SessionRef> = made.try_collect().await?;
    let of: Vec<_> =
        sessions.iter().map(|session| (session.org, session.session.clone())).collect();
    let seqs = async || {
        let heads = world.runtime.store.heads(&of).await?;
        Ok::<_, StoreError>(heads.into_iter().map(|head| head.seq).collect::<Vec<_>>())
    };
    let before = (seqs().await?, s3.requests().len());

    s3.fault(S3Fault::Unavailable, "", "", u64::MAX >> 1)?;
    let placement = Arc::new(OneWorker::default());
    placement.with(|given| {
        given.version = 1;
        let locations = sessions.iter().map(|session| (session.location_ref(), FencingToken(2)));
        given.leases = locations.collect();
    });
    let tasks = TaskGroup::root("test");
    let options = WorkerOptions {
        sweep: Duration::from_secs(1),
        // Their drains would want a model; files are all that is looked at.
        slots: 1,
        idle_release: Duration::from_hours(24),
        ..next.clone()
    };
    let (runtime, fills) = (world.runtime.clone(), None);
    let parts = WorkerParts { runtime, placement: placement.clone(), fills };
    let begun = Instant::now();
    let worker = crate::start(options, parts, &tasks)?;
    tokio::time::sleep(OUTAGE).await;
    let returned = placement.with(|given| given.returned.clone());
    assert_eq!(returned.len(), locations, "each was given back");
    let tries: u32 = returned.values().sum();
    ensure!(tries <= 6 * u32::try_from(locations)?, "{tries} tries");
    let asked = s3.requests().len() - before.1;
    // 48 at once, each with its repetitions, until the circuit opens; then one a second. Otherwise it were 15 for each Location.
    ensure!((20..600).contains(&asked), "{asked} requests");
    assert_eq!(seqs().await?, before.0, "nothing durable was said, so nothing is parked");

    s3.well()?;
    let well = Instant::now();
    let is_restored = |session: &SessionRef| {
        let at = session.location_ref();
        let token = placement.with(|given| given.leases[&at]);
        let folder = next.workspace_dir.join(at.org.to_string());
        let kept = folder.join(format!("{}.{token}", at.location)).join("kept");
        std::fs::read_to_string(kept).is_ok_and(|kept| kept == session.session.to_string())
    };
    let mut left: HashSet<&SessionRef> = sessions.iter().collect();
    while !left.is_empty() {
        ensure!(well.elapsed() < PATIENCE, "{} are not restored", left.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
        left.retain(|session| !is_restored(session));
    }
    println!(
        "{tries} tries and {asked} requests in {OUTAGE:?}; all restored {:?} after it, {:?} after the lease",
        well.elapsed(),
        begun.elapsed()
    );
    worker.shutdown(Duration::ZERO).await;
    tasks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
