use std::collections::BTreeSet;

use domain::{LocationRef, OrgId};

use crate::world::{World, organisation};

#[tokio::test]
async fn a_sweep_takes_organisations_and_their_locations_in_turn() {
    let mut world = World::new().await;
    let busy = [world.location.clone(), world.another_location().await];
    for location in busy.iter().chain([&busy[0]; 20]) {
        let session = world.session_at(location).await;
        world.admit(&session, "hello").await;
    }
    let mut held = busy.clone().map(|location| LocationRef { org: world.org, location }).to_vec();
    (world.org, world.project, world.location) = organisation(&world.store).await;
    for _ in 0..2 {
        let session = world.session().await;
        world.admit(&session, "hello").await;
    }
    held.push(world.at());
    let ready = async |limit| -> Vec<(OrgId, String)> {
        let ready = world.store.ready_sessions_at(&held, limit).await.expect("a sweep");
        ready
            .into_iter()
            .map(|ready| (ready.session.org, ready.session.location.to_string()))
            .collect()
    };
    assert_eq!(ready(100).await.len(), 24);
    let four = ready(4).await;
    assert_eq!(four.iter().filter(|(org, _)| *org == world.org).count(), 2);
    let places: BTreeSet<&str> = four.iter().map(|(_, location)| location.as_str()).collect();
    assert_eq!(places.len(), 3, "both Locations of the busy one: {four:?}");
}
