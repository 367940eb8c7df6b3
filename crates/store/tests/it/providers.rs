//! Settings of organisations for providers, and the rate that their workers share.

use std::time::Duration;

use domain::OrgId;
use sqlx::{Connection, PgConnection, Row};
use store::{
    CatalogSnapshot, CredentialChange, CredentialKind, GRANT_LIFE, Kept, NewCredential, NewSignIn,
    ProviderSetting, RateGrant, RateLimit, Renewed, Sealed, SignInMethod, SignInStatus, Store,
    StoreError, StoreOptions, WrappedKey,
};

use crate::world::{World, organisation};

fn wrapped(id: i32, key_id: &str) -> WrappedKey {
    WrappedKey { id, key_id: key_id.into(), wrapped: vec![7; 60] }
}

fn sealed(text: &str) -> Sealed {
    Sealed { secret: 1, bytes: text.into() }
}

/// With one data key.
async fn world() -> World {
    let world = World::new().await;
    let added = world.store.add_secret(world.org, wrapped(1, "a"), world.tick()).await;
    assert!(added.expect("a data key"));
    world
}

fn credential(owner: &str, label: &str) -> NewCredential {
    NewCredential {
        id: format!("crd_{owner}{label}"),
        owner: owner.into(),
        provider: "acme".into(),
        label: label.into(),
        kind: CredentialKind::OAuth,
        hint: "wxyz".into(),
        sealed: sealed("one"),
        version: 1,
        expires_ms: None,
    }
}

async fn keep(world: &World, new: NewCredential) -> Kept {
    world.store.keep_credential(world.org, new, world.tick()).await.expect("an answer")
}

/// The id of the credential that a turn of `user` uses.
async fn used(world: &World, user: Option<&str>) -> Option<String> {
    let user = user.map(str::to_owned);
    let found = world.store.credential_for(world.org, "acme".into(), user).await.expect("a look");
    found.map(|found| found.row.id)
}

#[tokio::test]
async fn a_turn_uses_the_users_active_credential_else_the_organisations() {
    let world = world().await;
    assert_eq!(used(&world, None).await, None);
    assert_eq!(keep(&world, credential("", "team")).await, Kept::Kept);
    assert_eq!(used(&world, None).await.as_deref(), Some("crd_team"));
    assert_eq!(used(&world, Some("ann")).await.as_deref(), Some("crd_team"));
    assert_eq!(keep(&world, credential("ann", "own")).await, Kept::Kept);
    assert_eq!(used(&world, Some("ann")).await.as_deref(), Some("crd_annown"));
    assert_eq!(used(&world, Some("bob")).await.as_deref(), Some("crd_team"));
    assert_eq!(used(&world, None).await.as_deref(), Some("crd_team"));

    // The newest is the active one; only one of an owner is.
    assert_eq!(keep(&world, credential("", "spare")).await, Kept::Kept);
    assert_eq!(used(&world, None).await.as_deref(), Some("crd_spare"));
    let change = CredentialChange { label: Some("main".into()), active: Some(true) };
    let changed = world.store.change_credential(world.org, "crd_team".into(), change, world.tick());
    let changed = changed.await.expect("changed");
    assert_eq!((changed.label.as_str(), changed.active), ("main", true));
    assert_eq!(used(&world, None).await.as_deref(), Some("crd_team"));
    let rows = world.store.credentials(world.org).await.expect("a list");
    let active = rows.iter().filter(|row| row.active).map(|row| row.id.as_str());
    assert_eq!(active.collect::<Vec<_>>(), ["crd_team", "crd_annown"]);

    let clash = CredentialChange { label: Some("spare".into()), active: None };
    let clash = world.store.change_credential(world.org, "crd_team".into(), clash, world.tick());
    assert!(matches!(clash.await, Err(StoreError::Conflict { .. })));
    world.store.remove_credential(world.org, "crd_annown".into()).await.expect("removed");
    assert_eq!(used(&world, Some("ann")).await.as_deref(), Some("crd_team"));
    let off = CredentialChange { label: None, active: Some(false) };
    let off = world.store.change_credential(world.org, "crd_team".into(), off, world.tick());
    off.await.expect("changed");
    assert_eq!(used(&world, Some("ann")).await, None);
}

#[tokio::test]
async fn a_credential_is_replaced_only_by_who_saw_its_version() {
    let world = world().await;
    assert_eq!(keep(&world, credential("", "team")).await, Kept::Kept);
    // The same label again, as a new one.
    let other = NewCredential { id: "crd_other".into(), ..credential("", "team") };
    assert_eq!(keep(&world, other).await, Kept::Changed);
    let label = ("acme".to_owned(), String::new(), "team".to_owned());
    let seen = world.store.credential_labelled(world.org, label.0, label.1, label.2).await;
    assert_eq!(seen.expect("a look"), Some(("crd_team".into(), 1)));
    let second = |bytes| NewCredential {
        version: 2,
        sealed: sealed(bytes),
        hint: "2222".into(),
        ..credential("", "team")
    };
    assert_eq!(keep(&world, second("two")).await, Kept::Kept);
    assert_eq!(keep(&world, second("late")).await, Kept::Changed);
    let stored = world.store.credential(world.org, "crd_team".into()).await.expect("there");
    assert_eq!((stored.row.version, stored.sealed), (2, sealed("two")));
    assert_eq!(stored.key, wrapped(1, "a"));
}

#[tokio::test]
async fn one_process_refreshes_a_version_and_a_dead_ones_lease_ends() {
    let world = world().await;
    keep(&world, credential("", "team")).await;
    let second = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
    let lease = Duration::from_secs(30);
    let takes = (0..8).map(|n| {
        let store = if n % 2 == 0 { world.store.clone() } else { second.clone() };
        let org = world.org;
        async move { store.take_refresh(org, "crd_team".into(), 1, lease).await.expect("an answer") }
    });
    let taken = futures::future::join_all(takes).await;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");

    // It dies; its lease runs out.
    let past = "UPDATE credential SET refresh_until_ms = clock_ms() - 1";
    sqlx::query(past).execute(&world.root).await.expect("a superuser");
    assert!(second.take_refresh(world.org, "crd_team".into(), 1, lease).await.expect("taken"));
    let renewed = |bytes| Renewed {
        from: 1,
        sealed: sealed(bytes),
        hint: "new.".into(),
        expires_ms: Some(99),
    };
    let renew = async |bytes| {
        let renewing = second.renew_credential(world.org, "crd_team".into(), renewed(bytes), 5);
        renewing.await.expect("an answer")
    };
    assert!(renew("fresh").await);
    assert!(!renew("stale").await, "the first came back");
    let stored = second.credential(world.org, "crd_team".into()).await.expect("there");
    assert_eq!((stored.row.version, stored.row.expires_ms), (2, Some(99)));
    assert_eq!(stored.sealed, sealed("fresh"));
    let take = async |version| {
        let taking = second.take_refresh(world.org, "crd_team".into(), version, lease);
        taking.await.expect("an answer")
    };
    assert!(!take(1).await, "an old version");
    assert!(take(2).await, "the lease ended with the refresh");
    second.end_refresh(world.org, "crd_team".into(), 2, None, 6).await.expect("ended");
    assert!(take(2).await, "a refresh that failed lets the next begin");
    let fault = Some("sign in again".to_owned());
    second.end_refresh(world.org, "crd_team".into(), 2, fault.clone(), 7).await.expect("ended");
    let found = world.store.credential_for(world.org, "acme".into(), None).await.expect("a look");
    assert_eq!(found.expect("still the active one").row.fault, fault);
}

#[tokio::test]
async fn a_sign_in_ends_once_with_its_credential_or_with_why_not() {
    let world = world().await;
    let now = world.tick();
    let new = |id: &str| NewSignIn {
        id: id.into(),
        provider: "acme".into(),
        owner: "ann".into(),
        label: "own".into(),
        method: SignInMethod::Device,
        sealed: sealed("device code"),
        expires_ms: now + 900_000,
    };
    let (store, org) = (&world.store, world.org);
    for id in ["con_a", "con_b"] {
        assert!(store.add_sign_in(org, new(id), now).await.expect("an answer"));
    }
    let take = async |id: &str, ms| {
        let lease = Duration::from_millis(ms);
        store.take_sign_in(org, id.into(), lease).await.expect("an answer")
    };
    assert!(take("con_a", 60_000).await);
    assert!(!take("con_a", 60_000).await, "another asks already");
    let slower = Some(sealed("device code, slower"));
    store
        .defer_sign_in(org, "con_a".into(), Duration::ZERO, slower.clone())
        .await
        .expect("deferred");
    store.defer_sign_in(org, "con_a".into(), Duration::ZERO, None).await.expect("deferred");
    assert_eq!(Some(store.sign_in(org, "con_a".into()).await.expect("there").sealed), slower);
    assert!(take("con_a", 60_000).await, "its time has come");

    let kept = store.complete_sign_in(org, "con_a".into(), credential("ann", "own"), now).await;
    assert_eq!(kept.expect("complete"), Kept::Kept);
    let ended = store.sign_in(org, "con_a".into()).await.expect("there");
    assert_eq!((ended.status, ended.message), (SignInStatus::Complete, None));
    assert_eq!(ended.credential.as_deref(), Some("crd_annown"));
    assert_eq!(ended.sealed, sealed(""), "nothing to steal any more");
    // Not twice, and then no other credential either.
    let again =
        NewCredential { label: "again".into(), id: "crd_x".into(), ..credential("ann", "") };
    let again = store.complete_sign_in(org, "con_a".into(), again, now).await;
    assert!(matches!(again, Err(StoreError::NotFound)), "{again:?}");
    assert_eq!(store.credentials(org).await.expect("a list").len(), 1);

    store.fail_sign_in(org, "con_b".into(), "access denied".into()).await.expect("failed");
    store.fail_sign_in(org, "con_b".into(), "later".into()).await.expect("no change");
    let failed = store.sign_in(org, "con_b".into()).await.expect("there");
    assert_eq!(
        (failed.status, failed.message.as_deref()),
        (SignInStatus::Failed, Some("access denied"))
    );
    assert!(!take("con_b", 1).await);
    store.remove_sign_in(org, "con_b".into()).await.expect("removed");
    assert!(matches!(store.sign_in(org, "con_b".into()).await, Err(StoreError::NotFound)));
    // Old ones go when new ones come.
    let later = now + 900_000 + 25 * 3_600_000;
    assert!(store.add_sign_in(org, new("con_c"), later).await.expect("an answer"));
    assert!(matches!(store.sign_in(org, "con_a".into()).await, Err(StoreError::NotFound)));
}

#[tokio::test]
async fn an_organisation_has_a_bounded_number_of_sign_ins() {
    let world = world().await;
    let new = |n: i64| NewSignIn {
        id: format!("con_{n}"),
        provider: "acme".into(),
        owner: String::new(),
        label: "team".into(),
        method: SignInMethod::Code,
        sealed: sealed("verifier"),
        expires_ms: 1_000,
    };
    for n in 0..store::MAX_SIGN_INS {
        assert!(world.store.add_sign_in(world.org, new(n), 10).await.expect("an answer"));
    }
    assert!(!world.store.add_sign_in(world.org, new(999), 10).await.expect("an answer"));
    assert!(world.store.add_sign_in(world.org, new(999), 1_000).await.expect("they expired"));
}

#[tokio::test]
async fn settings_are_changed_by_who_saw_them() {
    let world = world().await;
    let (store, org) = (&world.store, world.org);
    let setting = |version, text: &str| ProviderSetting {
        provider: "acme".into(),
        settings: text.into(),
        sealed: (version == 2).then(|| sealed("client secret")),
        version,
        updated_ms: 5,
    };
    let put = async |new| store.put_provider_setting(org, new).await.expect("an answer");
    assert!(put(setting(1, "{}")).await);
    assert!(!put(setting(1, "{\"late\":1}")).await);
    assert!(put(setting(2, "{\"baseUrl\":\"x\"}")).await);
    assert!(!put(setting(2, "{\"late\":2}")).await);
    let all = store.provider_settings(org).await.expect("a list");
    assert_eq!(all, [setting(2, "{\"baseUrl\":\"x\"}")]);
    store.remove_provider_setting(org, "acme".into()).await.expect("removed");
    assert_eq!(store.provider_settings(org).await.expect("a list"), []);
    let gone = store.remove_provider_setting(org, "acme".into()).await;
    assert!(matches!(gone, Err(StoreError::NotFound)), "{gone:?}");
}

#[tokio::test]
async fn nothing_of_a_provider_is_seen_by_another_organisation() {
    let world = world().await;
    keep(&world, credential("", "team")).await;
    let setting = ProviderSetting {
        provider: "acme".into(),
        settings: "{}".into(),
        sealed: None,
        version: 1,
        updated_ms: 1,
    };
    assert!(world.store.put_provider_setting(world.org, setting).await.expect("an answer"));
    let (stranger, ..) = organisation(&world.store).await;
    let (store, id) = (&world.store, || "crd_team".to_owned());
    let found = store.credential_for(stranger, "acme".into(), None).await.expect("a look");
    assert_eq!(found, None);
    assert_eq!(store.credentials(stranger).await.expect("a list"), []);
    assert_eq!(store.provider_settings(stranger).await.expect("a list"), []);
    assert_eq!(store.newest_secret(stranger).await.expect("a look"), None);
    let lease = Duration::from_secs(1);
    assert!(!store.take_refresh(stranger, id(), 1, lease).await.expect("an answer"));
    let answers = [
        store.credential(stranger, id()).await.map(drop),
        store.remove_credential(stranger, id()).await,
        store.change_credential(stranger, id(), CredentialChange::default(), 1).await.map(drop),
        store.secret(stranger, 1).await.map(drop),
        store.remove_provider_setting(stranger, "acme".into()).await,
    ];
    for (n, answer) in answers.iter().enumerate() {
        assert!(matches!(answer, Err(StoreError::NotFound)), "{n}: {answer:?}");
    }
    // Nor sealed with a data key of another's.
    let theirs = store.keep_credential(stranger, credential("", "team"), 1).await;
    assert!(matches!(theirs, Err(StoreError::Database(_))), "{theirs:?}");
    assert_eq!(used(&world, None).await.as_deref(), Some("crd_team"));
}

#[tokio::test]
async fn a_data_key_is_made_once_and_rewrapped_once() {
    let world = world().await;
    let (store, org) = (&world.store, world.org);
    assert!(!store.add_secret(org, wrapped(1, "b"), 1).await.expect("an answer"));
    assert_eq!(store.newest_secret(org).await.expect("a look"), Some(wrapped(1, "a")));
    assert_eq!(store.secrets_not_under("b".into(), 10).await.expect("ids"), [(org, 1)]);
    assert!(store.rewrap_secret(org, "a".into(), wrapped(1, "b")).await.expect("an answer"));
    assert!(!store.rewrap_secret(org, "a".into(), wrapped(1, "c")).await.expect("an answer"));
    assert_eq!(store.secret(org, 1).await.expect("there"), wrapped(1, "b"));
    assert_eq!(store.secrets_not_under("b".into(), 10).await.expect("ids"), []);
    // One that seals something stays, and so does the newest.
    assert!(store.add_secret(org, wrapped(2, "b"), 2).await.expect("an answer"));
    assert_eq!(keep(&world, credential("", "team")).await, Kept::Kept);
    let found = store.sealed_credentials(org).await.expect("a list");
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].sealed, &found[0].key), (&sealed("one"), &wrapped(1, "b")));
    let remove = async |id| store.remove_unused_secret(org, id).await.expect("an answer");
    assert!(!remove(1).await);
    let sealed = Sealed { secret: 2, ..sealed("two") };
    let renewed = Renewed { from: 1, sealed, hint: String::new(), expires_ms: None };
    let id = found[0].row.id.clone();
    assert!(store.renew_credential(org, id, renewed, 3).await.expect("an answer"));
    assert!(!store.remove_unused_secret(OrgId::random(), 1).await.expect("an answer"));
    assert!(remove(1).await);
    assert!(!remove(1).await);
    assert!(!remove(2).await);
    // A query across organisations sees no key.
    let mut sched =
        PgConnection::connect(&world.database.url("oc_sched")).await.expect("a connection");
    for sql in [
        "SELECT wrapped FROM organisation_secret",
        "SELECT sealed FROM credential",
        "SELECT settings FROM provider_setting",
        "UPDATE organisation_secret SET key_id = 'x'",
        "SELECT body FROM catalog_snapshot",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut sched).await.expect_err(sql);
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("42501"), "{sql}");
    }
}

/// A request of `tokens` at a time of the test's.
async fn take_at(
    world: &World,
    limit: (Option<i64>, Option<i64>),
    tokens: i64,
    now_ms: i64,
) -> i64 {
    sqlx::query("SELECT take_provider_rate_at($1, 'acme', $2, $3, $4, $5)")
        .bind(world.org.0)
        .bind(limit.0)
        .bind(limit.1)
        .bind(tokens)
        .bind(now_ms)
        .fetch_one(&world.root)
        .await
        .expect("an answer")
        .get(0)
}

#[tokio::test]
async fn a_grant_counts_for_66_seconds_and_the_wait_is_until_one_ends() {
    let world = World::new().await;
    let limit = (Some(3), None);
    let start = 1_795_293_590_250;
    assert_eq!(take_at(&world, limit, 0, start).await, 0);
    assert_eq!(take_at(&world, limit, 0, start + 10_000).await, 0);
    assert_eq!(take_at(&world, limit, 0, start + 10_500).await, 0);
    // The first counts until the end of the 66th second after the one it was in.
    assert_eq!(take_at(&world, limit, 0, start + 20_000).await, 45_750);
    assert_eq!(take_at(&world, limit, 0, start + 65_749).await, 1);
    assert_eq!(take_at(&world, limit, 0, start + 65_750).await, 0);
    assert_eq!(take_at(&world, limit, 0, start + 65_751).await, 9_999);
    // Both of the same second end together.
    assert_eq!(take_at(&world, limit, 0, start + 75_750).await, 0);
    assert_eq!(take_at(&world, limit, 0, start + 75_750).await, 0);
    assert_eq!(take_at(&world, limit, 0, start + 75_750).await, 56_000);
    // After a long time nothing is left.
    for _ in 0..3 {
        assert_eq!(take_at(&world, limit, 0, start + 900_000).await, 0);
    }
    assert!(take_at(&world, limit, 0, start + 900_000).await > 0);
    // A limit that was lowered waits for as many to end.
    assert!(take_at(&world, (Some(1), None), 0, start + 900_001).await > 60_000);
    assert_eq!(take_at(&world, (None, None), 0, start + 900_001).await, 0);
}

#[tokio::test]
async fn tokens_are_limited_too_and_what_exceeds_the_limit_goes_alone() {
    let world = World::new().await;
    let limit = (None, Some(1_000));
    let start = 1_795_293_590_000;
    assert_eq!(take_at(&world, limit, 600, start).await, 0);
    assert_eq!(take_at(&world, limit, 500, start + 1_000).await, 65_000);
    assert_eq!(take_at(&world, limit, 400, start + 1_000).await, 0);
    assert_eq!(take_at(&world, limit, 5_000, start + 2_000).await, 65_000);
    assert_eq!(take_at(&world, limit, 5_000, start + 67_000).await, 0);
    assert_eq!(take_at(&world, limit, 1, start + 67_000).await, 66_000);
}

#[tokio::test]
async fn a_clock_that_went_back_neither_frees_nor_holds_for_long() {
    let world = World::new().await;
    let limit = (Some(1), None);
    let start = 1_795_293_590_000;
    assert_eq!(take_at(&world, limit, 0, start).await, 0);
    // A standby three seconds behind.
    assert_eq!(take_at(&world, limit, 0, start - 3_000).await, 69_000);
    // A primary whose clock was an hour ahead: its grant counts as of now.
    assert_eq!(take_at(&world, limit, 0, start - 3_600_000).await, 66_000);
}

#[tokio::test]
async fn workers_share_a_limit_and_a_wait_that_one_was_told() {
    let world = World::new().await;
    let second = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
    let limit = RateLimit { requests_per_minute: Some(60), tokens_per_minute: None };
    assert!(limit.is_set() && !RateLimit::default().is_set());
    let ask = async |store: &Store, org: OrgId| {
        store.take_provider_rate(org, "acme".into(), limit, 10).await.expect("an answer")
    };
    let asks = (0..8).map(|n| {
        let store = if n % 2 == 0 { &world.store } else { &second };
        let (org, ask) = (world.org, &ask);
        async move {
            let mut granted = 0;
            for _ in 0..20 {
                match ask(store, org).await {
                    RateGrant::Granted => granted += 1,
                    RateGrant::Wait(wait) => {
                        assert!(wait > Duration::from_secs(55), "{wait:?}");
                        assert!(wait <= Duration::from_secs(66), "{wait:?}");
                    }
                }
            }
            granted
        }
    });
    let granted = futures::future::join_all(asks).await;
    assert_eq!(granted.iter().sum::<u32>(), 60, "{granted:?}");
    assert!(GRANT_LIFE < Duration::from_secs(5), "the slots beyond a minute allow for it");

    // Another organisation has a limit of its own; a 429 of one of its requests holds all of them.
    let (other, ..) = organisation(&world.store).await;
    assert_eq!(ask(&second, other).await, RateGrant::Granted);
    second.hold_provider(other, "acme".into(), Duration::from_secs(20)).await.expect("held");
    world.store.hold_provider(other, "acme".into(), Duration::ZERO).await.expect("no change");
    let RateGrant::Wait(wait) = ask(&world.store, other).await else { panic!("not held") };
    assert!((19..=20).contains(&wait.as_secs()), "{wait:?}");
    // However long a provider says.
    let (third, ..) = organisation(&world.store).await;
    second.hold_provider(third, "acme".into(), Duration::MAX).await.expect("held");
    let RateGrant::Wait(wait) = ask(&world.store, third).await else { panic!("not held") };
    assert!(wait <= Duration::from_secs(3_600), "{wait:?}");
}

#[tokio::test]
async fn the_three_newest_catalogs_are_kept_and_read_when_they_are_news() {
    let world = World::new().await;
    let snapshot = |n: i64| CatalogSnapshot {
        version: format!("v{n}"),
        source: "https://models.example/api.json".into(),
        fetched_ms: n,
        body: vec![1, 2, 3],
    };
    let store = &world.store;
    let look = async |source: &str, known: &str| {
        let last = store.last_catalog(source.into(), known.into()).await.expect("a look");
        last.map(|last| (last.version, last.fetched_ms, last.body))
    };
    let source = "https://models.example/api.json";
    assert_eq!(look(source, "").await, None);
    for n in [2, 1, 3, 4] {
        store.put_catalog(snapshot(n)).await.expect("kept");
    }
    assert_eq!(look(source, "v3").await, Some(("v4".into(), 4, Some(vec![1, 2, 3]))));
    assert_eq!(look(source, "v4").await, Some(("v4".into(), 4, None)));
    assert_eq!(look("https://other.example", "v4").await, None);
    let seen = CatalogSnapshot { fetched_ms: 9, ..snapshot(3) };
    store.put_catalog(seen.clone()).await.expect("seen again");
    assert_eq!(look(source, "v4").await, Some(("v3".into(), 9, Some(seen.body))));
    let claim = async |now: i64| {
        let claimed = store.claim_catalog(source, now, Duration::from_millis(100)).await;
        claimed.expect("a claim")
    };
    let claims = (claim(0).await, claim(99).await, claim(100).await, claim(0).await);
    assert_eq!(claims, (true, false, true, true), "a clock that went back is no reason to wait");
    let kept: Vec<String> =
        sqlx::query_scalar("SELECT version FROM catalog_snapshot WHERE body <> '' ORDER BY 1")
            .fetch_all(&world.root)
            .await
            .expect("a superuser");
    assert_eq!(kept, ["v2", "v3", "v4"]);
}
