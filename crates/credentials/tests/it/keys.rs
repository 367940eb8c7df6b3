//! What people keep, and what turns are given of it.

use credentials::{
    ClientSecret, CredentialKind, CredentialsError, EnvelopeError, MasterKeys, Material, NewSecret,
    ProviderSettings, SecretChange,
};
use domain::OrgId;
use llm_client::{Auth, AwsAccess, Secret};

use crate::world::World;

fn new(owner: &str, label: &str, key: &str) -> NewSecret {
    NewSecret {
        owner: owner.into(),
        provider: "acme".into(),
        label: label.into(),
        material: Material::ApiKey(Secret::new(key)),
    }
}

#[tokio::test]
async fn a_turn_is_given_the_key_of_its_user_or_of_the_organisation() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let key = async |user: Option<&str>| {
        let found = process.auth(org, user, "acme").await.expect("an answer")?;
        let Auth::Key(key) = found.auth else { panic!("{found:?}") };
        Some(key.expose().to_owned())
    };
    assert_eq!(key(None).await, None);
    let row = process.add(org, new("", "team", "sk-team-0123456789")).await.expect("kept");
    assert_eq!((row.kind, row.hint.as_str(), row.active), (CredentialKind::ApiKey, "6789", true));
    process.add(org, new("ann", "own", "sk-ann-0123456789")).await.expect("kept");
    assert_eq!(key(None).await.as_deref(), Some("sk-team-0123456789"));
    assert_eq!(key(Some("ann")).await.as_deref(), Some("sk-ann-0123456789"));
    assert_eq!(key(Some("bob")).await.as_deref(), Some("sk-team-0123456789"));

    let twice = process.add(org, new("", "team", "sk-other")).await;
    assert!(matches!(twice, Err(CredentialsError::Conflict(_))), "{twice:?}");
    let id = || row.id.parse().expect("an id");
    let rotated = Some(Material::ApiKey(Secret::new("sk-rotated-0123456789abcd")));
    let change = SecretChange { material: rotated, label: Some("main".into()), active: None };
    let changed = process.change(org, id(), change).await.expect("changed");
    assert_eq!(
        (changed.label.as_str(), changed.hint.as_str(), changed.version),
        ("main", "abcd", 2)
    );
    assert_eq!(key(None).await.as_deref(), Some("sk-rotated-0123456789abcd"));
    let access = AwsAccess {
        access_key: "AKIAIOSFODNN7EXAMPLE".into(),
        secret_key: Secret::new("the secret"),
        session_token: None,
        region: "eu-west-1".into(),
        service: "bedrock".into(),
    };
    let other =
        SecretChange { material: Some(Material::Aws(access.clone())), ..Default::default() };
    let other = process.change(org, id(), other).await;
    assert!(matches!(other, Err(CredentialsError::Invalid(_))), "{other:?}");

    let aws = NewSecret { material: Material::Aws(access.clone()), ..new("", "aws", "") };
    process.add(org, NewSecret { provider: "bedrock".into(), ..aws }).await.expect("kept");
    let found = process.auth(org, None, "bedrock").await.expect("an answer").expect("a credential");
    assert!(matches!(&found.auth, Auth::SigV4(given) if *given == access), "{found:?}");

    process.remove(org, id()).await.expect("removed");
    assert_eq!(key(None).await, None);
    for name in ["", " padded", "line\nbreak"] {
        let bad = process.add(org, new("", name, "sk-x")).await;
        assert!(matches!(bad, Err(CredentialsError::Invalid(_))), "{name:?}: {bad:?}");
    }
    let stranger = process.change(OrgId::random(), id(), SecretChange::default()).await;
    assert!(matches!(stranger, Err(CredentialsError::NotFound(_))), "{stranger:?}");
}

#[tokio::test]
async fn secrets_need_the_key_that_they_were_sealed_under_until_they_are_rewrapped() {
    let world = World::new().await;
    let org = world.org;
    let none = world.process_with(None);
    let refused = none.add(org, new("", "team", "sk-1")).await;
    assert!(matches!(refused, Err(CredentialsError::NoSecretsKey)), "{refused:?}");
    // What has no secret needs no key.
    let settings = ProviderSettings::default();
    none.set_provider(org, "acme", &settings, &ClientSecret::Keep).await.expect("set");
    world.process().add(org, new("", "team", "sk-1")).await.expect("kept");
    assert!(matches!(none.auth(org, None, "acme").await, Err(CredentialsError::NoSecretsKey)));

    let newer = MasterKeys::generate("k2");
    let alone = world.process_with(Some(&newer));
    let missing = alone.auth(org, None, "acme").await;
    let Err(CredentialsError::Envelope(error)) = missing else { panic!("{missing:?}") };
    assert_eq!(error, EnvelopeError::MissingKey("k1".into()));
    let left = alone.rewrap().await.expect("an answer");
    assert!(left.done == 0 && !left.is_complete(), "{left:?}");
    let why: Vec<_> = left.why.into_iter().collect();
    assert_eq!(why, [(EnvelopeError::MissingKey("k1".into()).to_string(), vec![org])]);
    let both = world.process_with(Some(&format!("{newer},{}", world.keys)));
    // Another organisation's, under a key that is lost for good, holds nobody up.
    let lost = OrgId::random();
    world.store.ensure_organisation(lost, "Lost".into(), 1).await.expect("an organisation");
    let gone = world.process_with(Some(&MasterKeys::generate("k0")));
    gone.add(lost, new("", "team", "sk-0")).await.expect("kept");
    let done = both.rewrap().await.expect("rewrapped");
    assert_eq!((done.key.as_str(), done.done, done.is_complete()), ("k2", 1, false));
    let again = both.rewrap().await.expect("nothing to do");
    assert_eq!((again.done, again.why.len()), (0, 1));
    let found = alone.auth(org, None, "acme").await.expect("an answer").expect("a credential");
    assert!(matches!(&found.auth, Auth::Key(key) if key.expose() == "sk-1"), "{found:?}");
}

#[tokio::test]
async fn the_first_secrets_of_an_organisation_make_one_data_key() {
    let world = World::new().await;
    let processes = [world.process(), world.process()];
    let adds = (0..8).map(|n| {
        let new = new("", &format!("key {n}"), &format!("sk-{n}"));
        processes[n % 2].add(world.org, new)
    });
    for added in futures::future::join_all(adds).await {
        added.expect("kept");
    }
    assert_eq!(
        world.store.newest_secret(world.org).await.expect("a look").map(|key| key.id),
        Some(1)
    );
    let rows = processes[0].list(world.org).await.expect("a list");
    assert_eq!(rows.len(), 8);
    assert_eq!(rows.iter().filter(|row| row.active).count(), 1);
    assert!(processes[1].auth(world.org, None, "acme").await.expect("an answer").is_some());
}

#[tokio::test]
async fn a_clients_secret_stays_until_it_is_removed() {
    let world = World::new().await;
    let process = world.process();
    let settings = crate::world::settings("https://id.example", "c1");
    let set = async |secret| {
        let set = process.set_provider(world.org, "acme", &settings, &secret).await;
        set.expect("set").has_client_secret
    };
    assert!(!set(ClientSecret::Keep).await);
    assert!(set(ClientSecret::Set(Secret::new("the-client-secret"))).await);
    assert!(set(ClientSecret::Keep).await);
    let all = process.providers(world.org).await.expect("a list");
    assert_eq!((all.len(), &all[0].settings), (1, &settings));
    assert!(!set(ClientSecret::Remove).await);
    process.remove_provider(world.org, "acme").await.expect("removed");
    let gone = process.remove_provider(world.org, "acme").await;
    assert!(matches!(gone, Err(CredentialsError::NotFound(_))), "{gone:?}");
}
