//! Changes that were allowed by roles, while somebody else changes those roles; and secrets of login links.

use std::pin::pin;
use std::time::Duration;

use access::{Actor, OrgRole};
use domain::KeyId;
use store::{
    LinkMaker, NewLoginLink, NewOwnedKey, PrincipalChange, PrincipalChanged, SeenRoles,
    ShownSecret, StoreError,
};
use tokio::time::sleep;

use crate::locked::waiting;
use crate::world::{NOW, World};

fn actor(name: &str) -> Actor {
    name.parse().expect("an id")
}

/// An organisation with an owner, an admin, a member and a service account, each with a key.
async fn people() -> World {
    let world = World::new().await;
    for (nth, (name, role)) in [
        ("usr_ada", OrgRole::Owner),
        ("usr_eve", OrgRole::Admin),
        ("usr_bob", OrgRole::Member),
        ("svc_ci", OrgRole::Member),
    ]
    .into_iter()
    .enumerate()
    {
        let made = world.store.create_principal(world.org, actor(name), role, None, NOW).await;
        made.expect("a person");
        let nth = u8::try_from(nth).expect("a small number");
        world.store.create_owned_key(world.org, key(name, nth), None, NOW).await.expect("a key");
    }
    world
}

fn key(owner: &str, nth: u8) -> NewOwnedKey {
    NewOwnedKey {
        id: key_id(nth),
        hash: vec![nth; 32],
        name: "a key".into(),
        scopes: vec!["*".into()],
        owner: actor(owner),
        expires_ms: None,
    }
}

fn key_id(nth: u8) -> KeyId {
    format!("key_{nth:020}").parse().expect("an id")
}

/// An admin's decision about a member.
fn see_roles(target: Option<OrgRole>) -> Option<SeenRoles> {
    let (maker, maker_role) = (actor("usr_eve"), OrgRole::Admin);
    Some(SeenRoles { maker, maker_role, target_role: target })
}

/// Makes a call that was decided on before `sql` is committed, and that comes to its locks before that.
async fn race<T>(
    world: &World,
    sql: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut other = world.root.begin().await.expect("a transaction");
    sqlx::raw_sql(sql).execute(&mut *other).await.expect("a change");
    let mut call = pin!(call);
    let waits = async {
        while waiting(world).await == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        done = &mut call => return done,
        () = waits => {}
    }
    other.commit().await.expect("committed");
    call.await
}

const BOB_IS_OWNER: &str = "UPDATE principal SET role = 'owner' WHERE id = 'usr_bob'";

// Finding look, low (C1): a promotion raced an admin's change.
#[tokio::test]
async fn who_becomes_an_owner_meanwhile_is_not_changed() {
    let world = people().await;
    let change = |change: PrincipalChange, seen| {
        world.store.change_principal(world.org, actor("usr_bob"), change, seen, NOW)
    };
    let disable = PrincipalChange { disabled: Some(true), ..PrincipalChange::default() };
    let refused =
        race(&world, BOB_IS_OWNER, change(disable.clone(), see_roles(Some(OrgRole::Member))));
    let refused = refused.await;
    assert!(matches!(refused, Err(StoreError::RolesChanged)), "{refused:?}");
    let bob = world.store.principal(world.org, actor("usr_bob")).await.expect("a person");
    assert_eq!((bob.role, bob.disabled_ms), (OrgRole::Owner, None));
    // Who has looked again may; and a change that nobody has to allow needs no look.
    let named = PrincipalChange { name: Some("Bob".into()), ..PrincipalChange::default() };
    for (what, seen) in [(named, None), (disable, see_roles(Some(OrgRole::Owner)))] {
        let done = change(what, seen).await.expect("an answer");
        assert!(matches!(done, PrincipalChanged::Done(_)), "{done:?}");
    }
}

// A brother: a role that a sign-in gave was overwritten by a change that had read the one before.
#[tokio::test]
async fn a_change_keeps_a_role_that_a_sign_in_gives() {
    let world = people().await;
    let rename = PrincipalChange { name: Some("Bob".into()), ..PrincipalChange::default() };
    let change = world.store.change_principal(world.org, actor("usr_bob"), rename, None, NOW);
    let admin = "UPDATE principal SET role = 'admin' WHERE id = 'usr_bob'";
    let done = race(&world, admin, change).await.expect("an answer");
    let PrincipalChanged::Done(row) = done else { panic!("{done:?}") };
    assert_eq!(row.role, OrgRole::Admin);
}

// Brothers of look, low (C1): what somebody does whose own role is gone.
#[tokio::test]
async fn who_has_lost_their_role_changes_nothing() {
    for lost in ["role = 'member'", "disabled_ms = 1"] {
        let world = people().await;
        let (store, org) = (&world.store, world.org);
        let lose = format!("UPDATE principal SET {lost} WHERE id = 'usr_eve'");
        world.database.run(lose).await.expect("a change");
        let promote = PrincipalChange { role: Some(OrgRole::Admin), ..PrincipalChange::default() };
        let answers = [
            store
                .change_principal(
                    org,
                    actor("usr_bob"),
                    promote,
                    see_roles(Some(OrgRole::Member)),
                    NOW,
                )
                .await
                .map(drop),
            store
                .revoke_key(org, key_id(2), false, see_roles(Some(OrgRole::Member)), NOW)
                .await
                .map(drop),
            store
                .rotate_key(org, key_id(3), vec![9; 32], NOW + 1, see_roles(None), NOW)
                .await
                .map(drop),
            store.create_owned_key(org, key("svc_ci", 8), see_roles(None), NOW).await.map(drop),
        ];
        for (nth, answer) in answers.iter().enumerate() {
            assert!(matches!(answer, Err(StoreError::RolesChanged)), "{lost}, {nth}: {answer:?}");
        }
        assert_eq!(store.count_keys(org).await.expect("a count"), 4);
        let key = store.key(org, key_id(2)).await.expect("a key");
        assert_eq!(key.revoked_ms, None);
        let secrets = "SELECT count(*) FROM key_secret WHERE until_ms IS NOT NULL";
        let rotated: i64 = sqlx::query_scalar(secrets).fetch_one(&world.root).await.expect("rows");
        assert_eq!(rotated, 0);
    }
}

// A brother of look, low (C1).
#[tokio::test]
async fn a_key_of_who_becomes_an_owner_is_not_revoked() {
    let world = people().await;
    let seen = see_roles(Some(OrgRole::Member));
    let revoke = world.store.revoke_key(world.org, key_id(2), true, seen, NOW);
    let refused = race(&world, BOB_IS_OWNER, revoke).await;
    assert!(matches!(refused, Err(StoreError::RolesChanged)), "{refused:?}");
    let key = world.store.key(world.org, key_id(2)).await.expect("a key");
    assert_eq!(key.revoked_ms, None);
}

// Finding look 8 (H2): login links counted as known by their id alone.
#[tokio::test]
async fn a_link_of_a_known_id_with_another_secret_is_unknown() {
    let world = people().await;
    let link = NewLoginLink {
        id: "a-link".into(),
        user: "usr_bob".parse().expect("an id"),
        hash: vec![1; 32],
        expires_ms: NOW + 1_000,
        maker: LinkMaker::Operator,
    };
    world.store.create_login_link(world.org, link, NOW).await.expect("a link");
    let elsewhere = domain::OrgId::random();
    for (org, id, hash, expected) in [
        (world.org, "a-link", vec![1; 32], true),
        (world.org, "a-link", vec![2; 32], false),
        (world.org, "a-link", Vec::new(), false),
        (world.org, "b-link", vec![1; 32], false),
        (elsewhere, "a-link", vec![1; 32], false),
    ] {
        let shown = ShownSecret::Link(org, id.into(), hash.clone());
        let is_known = world.store.knows_secret(shown).await.expect("an answer");
        assert_eq!(is_known, expected, "{org} {id} {hash:?}");
    }
}
