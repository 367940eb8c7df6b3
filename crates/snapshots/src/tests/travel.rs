//! Objects on their way to another service.

use bytes::Bytes;

use super::world::World;
use crate::object::{Entry, Kind, ObjectId, TreeBytes};
use crate::travel::{Intake, IntakeError, Object, ObjectKind, ObjectWalk};
use crate::{PackRef, Shadow, ShadowOptions, SnapshotLimits, TreeId, Unsaved};

async fn objects(world: &World, trees: &[TreeId]) -> Vec<Object> {
    let packs = world.options.packs.iter().filter_map(|row| row.pack.clone()).collect();
    let org = world.options.at.org.to_string();
    let blobs = world.options.blobs.clone();
    let mut walk = ObjectWalk::open(blobs, org, packs, trees.to_vec()).await.unwrap();
    let mut objects = Vec::new();
    while let Some(object) = walk.next().await.unwrap() {
        objects.push(object);
    }
    objects
}

fn intake(world: &World) -> Intake {
    Intake::new(world.folder.path(), SnapshotLimits::default()).unwrap()
}

async fn taken(world: &World, objects: &[Object]) -> Result<Intake, IntakeError> {
    let mut intake = intake(world);
    for object in objects {
        intake = intake.take(object.clone()).await?;
    }
    Ok(intake)
}

#[tokio::test]
async fn every_tree_arrives_in_one_pack() {
    let mut here = World::new().await;
    here.file("a/b/c.txt", "one");
    here.file("a/same.txt", "same");
    here.file("d/e/same.txt", "same");
    here.file("empty", "");
    here.link("link", "a/b");
    let first = here.all().await.tree;
    here.file("a/b/c.txt", vec![7; 3_000_000]);
    here.executable("a/same.txt", true);
    let second = here.all().await.tree;
    // No pack has this one: nobody has captured a directory without files.
    let none = TreeId::empty();
    let objects = objects(&here, &[first, second, none]).await;

    let there = World::new().await;
    let intake = taken(&there, &objects).await.unwrap();
    assert!(intake.has(&first) && intake.has(&second) && intake.has(&none));
    let blobs = &there.options.blobs;
    let bytes = intake.store(blobs, &there.options.at.org.to_string(), "arrived").await.unwrap();
    assert!(bytes.is_some());
    let row = PackRef {
        token: domain::FencingToken(0),
        ordinal: 1,
        tree: second,
        pack: Some("arrived".into()),
    };
    let options = ShadowOptions { packs: vec![row], ..there.options.clone() };
    let shadow = Shadow::open(options).await.unwrap();
    shadow.restore(&second, None, Unsaved::Overwrite).await.unwrap();
    assert_eq!(there.files(), here.files());
    shadow.restore(&first, None, Unsaved::Overwrite).await.unwrap();
    assert_eq!(there.files(), here.elsewhere(&first).await);
    shadow.restore(&none, None, Unsaved::Overwrite).await.unwrap();
    assert!(there.files().is_empty());
}

#[tokio::test]
async fn a_tree_without_one_of_its_objects_is_refused() {
    let mut world = World::new().await;
    world.file("a/b/c.txt", "one");
    world.file("d.txt", "two");
    let tree = world.all().await.tree;
    let objects = objects(&world, &[tree]).await;
    assert_eq!(objects.len(), 5);
    for left_out in 0..objects.len() {
        let mut some = objects.clone();
        let gone = some.remove(left_out);
        match taken(&world, &some).await {
            Ok(intake) => assert!(gone.id == tree.to_string() && !intake.has(&tree)),
            Err(error) => assert!(matches!(error, IntakeError::Missing { .. }), "{error}"),
        }
    }
    let mut changed = objects[0].clone();
    changed.bytes = Bytes::from_static(b"other");
    let refused = taken(&world, &[changed]).await.map(drop);
    assert!(matches!(refused, Err(IntakeError::WrongContent(_))));
    let text = Bytes::from_static(b"no list");
    let id = ObjectId::of(&text).to_string();
    let refused = taken(&world, &[Object { id, kind: ObjectKind::Tree, bytes: text }]).await;
    assert!(matches!(refused.map(drop), Err(IntakeError::NoTree(_))));
}

/// Returns a directory whose entries `names` are all the same directory or file.
fn directory(names: &[&str], kind: Kind, of: &Object) -> Object {
    let id: TreeId = of.id.parse().unwrap();
    let mut bytes = TreeBytes::default();
    for name in names {
        bytes.push(name.as_ref(), Entry { kind, id: id.0 });
    }
    let bytes = Bytes::from(bytes.done());
    Object { id: ObjectId::of(&bytes).to_string(), kind: ObjectKind::Tree, bytes }
}

#[tokio::test]
async fn a_tree_that_grows_without_bound_is_refused() {
    let world = World::new().await;
    let bytes = Bytes::from_static(b"x");
    let file = Object { id: ObjectId::of(&bytes).to_string(), kind: ObjectKind::File, bytes };
    // Forty objects that would be 2^40 files.
    for (names, expected) in [(&["a", "b"][..], "200,000"), (&["a"][..], "128 levels")] {
        let mut intake = intake(&world).take(file.clone()).await.unwrap();
        let mut last = directory(names, Kind::File, &file);
        let refused = loop {
            match intake.take(last.clone()).await {
                Ok(next) => intake = next,
                Err(error) => break error.to_string(),
            }
            last = directory(names, Kind::Directory, &last);
        };
        assert!(refused.contains(expected), "{refused}");
    }
}
