//! Hidden values of provider settings: sealed in their row, opened for a request.

use credentials::{
    ClientSecret, Credentials, CredentialsError, EnvelopeError, HIDDEN, MasterKeys, OpenedSettings,
    ProviderSettings, StoredSecret,
};
use domain::OrgId;
use llm_client::Secret;
use serde_json::{Value, json};
use store::ProviderSetting;

use crate::world::World;

const VALUE: &str = "a-value-of-a-header";

fn settings(api: &str, header: &str) -> ProviderSettings {
    let overrides = json!({ "api": api, "headers": { "X-Team": header },
        "models": { "m": { "headers": { "x-model": "another-value" } } } });
    serde_json::from_value(json!({ "overrides": overrides })).expect("settings")
}

async fn set(process: &Credentials, org: OrgId, new: &ProviderSettings) -> Result<(), String> {
    let set = process.set_provider(org, "acme", new, &ClientSecret::Keep).await;
    let set = set.map_err(|error| error.to_string())?;
    assert_eq!(set.settings.overrides["headers"]["X-Team"], HIDDEN);
    Ok(())
}

async fn row(world: &World) -> ProviderSetting {
    let rows = world.store.provider_settings(world.org).await.expect("rows");
    rows.into_iter().find(|row| row.provider == "acme").expect("a row")
}

/// Returns the header's value as a request would get it.
fn header(opened: Option<OpenedSettings>) -> String {
    let opened = opened.expect("sealed");
    assert!(!format!("{opened:?}").contains("value"), "it is shown");
    let text: Value = serde_json::from_str(&opened.text).expect("JSON");
    assert_eq!(text["overrides"]["models"]["m"]["headers"]["x-model"], "another-value");
    text["overrides"]["headers"]["X-Team"].as_str().expect("a text").to_owned()
}

fn refused(result: Result<Option<OpenedSettings>, CredentialsError>) -> EnvelopeError {
    let Err(CredentialsError::Unreadable { secret, why }) = result else { panic!("{result:?}") };
    assert_eq!(*secret, StoredSecret::Settings { provider: "acme".into() });
    why
}

// Finding security 17.
#[tokio::test]
async fn hidden_values_are_sealed_and_open_only_in_their_row() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    set(&process, org, &settings("https://a.example", VALUE)).await.expect("set");
    let stored = row(&world).await;
    assert!(!stored.settings.contains("-value") && stored.settings.contains("X-Team"));
    let open = async |org, row: &ProviderSetting| process.opened_settings(org, row).await;
    assert_eq!(header(open(org, &stored).await.expect("opened")), VALUE);

    let changed = |change: &dyn Fn(&mut ProviderSetting)| {
        let mut row = stored.clone();
        change(&mut row);
        row
    };
    for row in [
        changed(&|row| row.version += 1),
        changed(&|row| row.settings = row.settings.replace("X-Team", "X-Other")),
        changed(&|row| row.settings = row.settings.replace("X-Team\":", "X-Team\":\"\",\"x\":")),
        changed(&|row| row.sealed.as_mut().expect("sealed").bytes[20] ^= 1),
        changed(&|row| row.sealed = None),
    ] {
        assert_eq!(refused(open(org, &row).await), EnvelopeError::Refused, "{row:?}");
    }
    let other = changed(&|row| row.provider = "acme2".into());
    assert!(matches!(open(org, &other).await, Err(CredentialsError::Unreadable { .. })));
    let stranger = OrgId::random();
    world.store.ensure_organisation(stranger, "Else".into(), 1).await.expect("an organisation");
    set(&process, stranger, &settings("https://a.example", "else")).await.expect("set");
    assert_eq!(refused(open(stranger, &stored).await), EnvelopeError::Refused);
    // Without its mark the row has the older form, in which these bytes are nothing.
    let mark = r#""hidden":{"client":false},"#;
    let unmarked = changed(&|row| row.settings = row.settings.replacen(mark, "", 1));
    assert_ne!(unmarked.settings, stored.settings, "{}", stored.settings);
    assert!(
        open(org, &unmarked).await.expect("a text").is_none(),
        "the placeholder is all there is"
    );
}

#[tokio::test]
async fn hidden_values_stay_for_their_hosts_until_they_are_replaced() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let refused = set(&process, org, &settings("https://a.example", HIDDEN)).await;
    let says = refused.expect_err("kept nothing");
    assert!(
        says.contains("overrides/headers/X-Team") && says.contains("no stored value"),
        "{says}"
    );
    set(&process, org, &settings("https://a.example/v1", VALUE)).await.expect("set");
    let mut kept = settings("https://a.example/v2", HIDDEN);
    set(&process, org, &kept).await.expect("set");
    let opened = process.opened_settings(org, &row(&world).await).await.expect("opened");
    assert_eq!(header(opened), VALUE);
    let elsewhere = settings("https://b.example", HIDDEN);
    let says = set(&process, org, &elsewhere).await.expect_err("another host");
    assert!(says.contains("https://a.example") && says.contains("send the value again"), "{says}");

    // The secret of a client is sealed beside them, and both are kept.
    kept.oauth = crate::world::settings("https://id.example", "c1").oauth;
    let client = ClientSecret::Set(Secret::new("of-the-client"));
    process.set_provider(org, "acme", &kept, &client).await.expect("set");
    set(&process, org, &kept).await.expect("set");
    let all = process.providers(org).await.expect("a list");
    assert!(all[0].has_client_secret);
    let opened = process.opened_settings(org, &row(&world).await).await.expect("opened");
    assert_eq!(header(opened), VALUE);
    let new = settings("https://b.example", "new-value");
    process.set_provider(org, "acme", &new, &ClientSecret::Remove).await.expect("set");
    assert!(!process.providers(org).await.expect("a list")[0].has_client_secret);
}

#[tokio::test]
async fn hidden_values_of_older_rows_are_sealed_by_the_next_write() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let text = serde_json::to_string(&settings("https://a.example", VALUE)).expect("a text");
    let provider = "acme".to_owned();
    let old = ProviderSetting { provider, settings: text, sealed: None, version: 1, updated_ms: 1 };
    assert!(world.store.put_provider_setting(org, old.clone()).await.expect("an answer"));
    let read = process.opened_settings(org, &row(&world).await).await.expect("read");
    assert!(read.is_none(), "the text has all");
    let shown = format!("{:?}", process.providers(org).await.expect("a list"));
    assert!(!shown.contains(VALUE), "{shown}");
    let says = set(&process, org, &settings("https://b.example", HIDDEN)).await;
    assert!(says.expect_err("another host").contains("https://a.example"));
    let mut kept = settings("https://a.example", HIDDEN);
    kept.overrides["models"] = json!({ "m": { "headers": { "x-model": HIDDEN } } });
    set(&process, org, &kept).await.expect("set");
    let stored = row(&world).await;
    assert!(!stored.settings.contains("-value"), "{}", stored.settings);
    assert_eq!(header(process.opened_settings(org, &stored).await.expect("opened")), VALUE);
}

#[tokio::test]
async fn hidden_values_follow_a_new_master_key() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let new = settings("https://a.example", VALUE);
    let none = set(&world.process_with(None), org, &new).await.expect_err("sealed without a key");
    assert!(none.contains("--secrets-key"), "{none}");
    set(&process, org, &new).await.expect("set");
    let newer = MasterKeys::generate("k2");
    let alone = world.process_with(Some(&newer));
    let missing = alone.opened_settings(org, &row(&world).await).await;
    let says = missing.as_ref().expect_err("no key").to_string();
    assert!(says.contains("set it again (PUT /platform/provider/acme)"), "{says}");
    assert_eq!(refused(missing), EnvelopeError::MissingKey("k1".into()));
    let state = alone.secrets_state(org).await.expect("an answer").expect("a data key");
    let lost = StoredSecret::Settings { provider: "acme".into() };
    assert_eq!(state.unreadable, [(lost, EnvelopeError::MissingKey("k1".into()))]);
    // The data key seals them, so it is not removed as unused.
    alone.reset_key(org).await.expect("reset");
    assert_eq!(alone.rewrap().await.expect("an answer").removed, 0);
    let both = world.process_with(Some(&format!("{newer},{}", world.keys)));
    assert!(both.rewrap().await.expect("rewrapped").is_complete());
    let opened = alone.opened_settings(org, &row(&world).await).await.expect("opened");
    assert_eq!(header(opened), VALUE);
}
