//! Stored secrets, and the credentials that turns get.

use credentials::{
    ClientSecret, CredentialKind, CredentialsError, EnvelopeError, MasterKeys, Material, NewSecret,
    ProviderSettings, SecretChange,
};
use domain::{ErrorCode, OrgId};
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
    let Err(CredentialsError::Conflict(told)) = twice else { panic!("{twice:?}") };
    let removal = format!("credential remove {}", row.id);
    for says in [removal.as_str(), "acme --label 'team' --replace`", "--label NAME"] {
        assert!(told.contains(says), "{says}: {told}");
    }
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
    // Settings without a secret need no key.
    let settings = ProviderSettings::default();
    none.set_provider(org, "acme", &settings, &ClientSecret::Keep).await.expect("set");
    world.process().add(org, new("", "team", "sk-1")).await.expect("kept");
    assert!(matches!(none.auth(org, None, "acme").await, Err(CredentialsError::NoSecretsKey)));

    let newer = MasterKeys::generate("k2");
    let alone = world.process_with(Some(&newer));
    let missing = alone.auth(org, None, "acme").await;
    let Err(CredentialsError::Unreadable { why, .. }) = missing else { panic!("{missing:?}") };
    assert_eq!(why, EnvelopeError::MissingKey("k1".into()));
    let left = alone.rewrap().await.expect("an answer");
    assert!(left.done == 0 && !left.is_complete(), "{left:?}");
    let why: Vec<_> = left.why.into_iter().collect();
    assert_eq!(why, [(EnvelopeError::MissingKey("k1".into()).to_string(), vec![org])]);
    let both = world.process_with(Some(&format!("{newer},{}", world.keys)));
    // Another organisation's data key, under a lost master key, does not block the rest.
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

#[tokio::test]
async fn an_organisation_whose_master_key_is_lost_goes_on_with_another_data_key() {
    let world = World::new().await;
    let (before, org) = (world.process(), world.org);
    let empty = before.secrets_state(org).await.expect("an answer");
    assert_eq!(empty, None, "nothing was kept yet");
    assert!(matches!(before.reset_key(org).await, Err(CredentialsError::NotFound(_))));
    let team = before.add(org, new("", "team", "sk-team-0123456789")).await.expect("kept");
    let ann = before.add(org, new("ann", "own", "sk-ann-0123456789")).await.expect("kept");
    let settings = crate::world::settings("https://id.example", "c1");
    let secret = ClientSecret::Set(Secret::new("the-client-secret"));
    before.set_provider(org, "acme", &settings, &secret).await.expect("set");

    // Only another key is left. Nothing opens, nothing new can be sealed, and both errors say what to do.
    let newer = MasterKeys::generate("k2");
    let after = world.process_with(Some(&newer));
    let stuck = after.add(org, new("", "second", "sk-2")).await.expect_err("sealed");
    assert_eq!(stuck.code(), Some(ErrorCode::ProviderSecretUnreadable));
    for part in ["`k1` is missing", &format!("credentials reset-key --org {org}")] {
        assert!(stuck.to_string().contains(part), "{stuck}");
    }
    let kept = after.set_provider(org, "acme", &settings, &ClientSecret::Keep).await;
    let says = kept.expect_err("opened").to_string();
    assert!(
        says.contains("OAuth client") && says.contains("PUT /platform/provider/acme"),
        "{says}"
    );
    let missing = EnvelopeError::MissingKey("k1".into());
    let state = after.secrets_state(org).await.expect("an answer").expect("a data key");
    assert_eq!(
        (state.key.as_str(), state.data_key, &state.stuck),
        ("k2", 1, &Some(missing.clone()))
    );
    assert!(state.unreadable.iter().all(|(_, why)| *why == missing), "{state:?}");
    let labels: Vec<_> = state.unreadable.iter().map(|(secret, _)| secret.label()).collect();
    assert_eq!(labels, [None, Some("team"), Some("own")]);
    let told: Vec<String> = state
        .unreadable
        .iter()
        .map(|(secret, _)| format!("{secret}: {}", secret.again()))
        .collect();
    let (team_id, ann_id) = (&team.id, &ann.id);
    let expected = [
        "the secret of the OAuth client at `acme`: set it again (PUT /platform/provider/acme)"
            .to_owned(),
        format!(
            "the organisation's credential {team_id} for `acme`: set it again (PATCH /platform/credential/{team_id})"
        ),
        format!(
            "the credential {ann_id} of ann for `acme`: set it again (PATCH /platform/credential/{ann_id})"
        ),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        after.secrets_state(org).await.expect("an answer"),
        Some(state),
        "a look changes nothing"
    );

    after.reset_key(org).await.expect("reset");
    after.reset_key(org).await.expect("nothing to do");
    let state = after.secrets_state(org).await.expect("an answer").expect("a data key");
    assert_eq!((state.data_key, &state.stuck, state.unreadable.len()), (2, &None, 3));
    // New secrets can be sealed and opened. Old ones stay, and an unreadable one is never skipped in favour
    // of another.
    let second = NewSecret { provider: "other".into(), ..new("", "second", "sk-2-0123456789") };
    after.add(org, second).await.expect("kept");
    assert!(after.auth(org, None, "other").await.expect("an answer").is_some());
    let old = after.auth(org, None, "acme").await.expect_err("opened");
    assert!(old.to_string().contains(&format!("PATCH /platform/credential/{team_id}")), "{old}");

    // If the old key is found and given again, everything opens.
    let both = world.process_with(Some(&format!("{newer},{}", world.keys)));
    let whole = both.secrets_state(org).await.expect("an answer").expect("a data key");
    assert_eq!((whole.data_key, whole.stuck, whole.unreadable), (2, None, Vec::new()));
    assert!(both.auth(org, Some("ann"), "acme").await.expect("an answer").is_some());

    // If it stays lost, people set the secrets again, one by one.
    let material = Some(Material::ApiKey(Secret::new("sk-team-9876543210")));
    let change = SecretChange { material, ..SecretChange::default() };
    after.change(org, team.id.parse().expect("an id"), change).await.expect("set again");
    let found = after.auth(org, None, "acme").await.expect("an answer").expect("a credential");
    assert!(matches!(&found.auth, Auth::Key(key) if key.expose() == "sk-team-9876543210"));
    after.set_provider(org, "acme", &settings, &secret).await.expect("set again");
    let left = after.rewrap().await.expect("an answer");
    assert_eq!((left.removed, left.is_complete()), (0, false), "ann's is still there: {left:?}");
    after.remove(org, ann.id.parse().expect("an id")).await.expect("removed");
    let state = after.secrets_state(org).await.expect("an answer").expect("a data key");
    assert_eq!(state.unreadable, []);
    // The lost key is no longer needed or mentioned.
    let done = after.rewrap().await.expect("an answer");
    assert_eq!((done.removed, done.is_complete()), (1, true), "{done:?}");
    let found = after.auth(org, None, "acme").await.expect("an answer");
    assert!(found.is_some());
}

#[tokio::test]
async fn two_who_reset_at_once_make_one_data_key() {
    let world = World::new().await;
    world.process().add(world.org, new("", "team", "sk-team")).await.expect("kept");
    let keys = MasterKeys::generate("k2");
    let processes = [world.process_with(Some(&keys)), world.process_with(Some(&keys))];
    let resets = processes.iter().map(|process| process.reset_key(world.org));
    for reset in futures::future::join_all(resets).await {
        // The later one either finds a key that opens, or gets an error that asks for another look.
        assert!(matches!(reset, Ok(()) | Err(CredentialsError::Conflict(_))), "{reset:?}");
    }
    let state = processes[0].secrets_state(world.org).await.expect("an answer");
    let state = state.expect("a data key");
    assert_eq!((state.data_key, state.stuck), (2, None));
}
