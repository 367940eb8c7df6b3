//! The only SQL of the service: durable transitions as functions over a transaction, one module per
//! aggregate.
//!
//! ```text
//! gateway ─admit, interrupt─▶ session_head ◀─start, prove, append─ drain
//!                                  │
//!                            session_event ──project_events─▶ projections
//! ```
//!
//! Invariants: every write for a drain proves its [`Claim`](domain::Claim) in the statement that locks
//! the head (I3, I4); the log of a session is 1..n without holes (I5); a projection holds only what the
//! events hold (I7). A [`Store`] method owns begin and commit, and runs to its end even when its caller
//! goes away. Absent on purpose: any decision about a session; that is `session`.

mod admission;
mod alert;
mod asks;
mod base;
mod batch;
mod catalog_snapshot;
mod cluster;
mod collection;
mod component;
mod connections;
mod control;
mod counts;
mod credential;
mod deletion;
mod drain;
mod entries;
mod error;
mod events;
mod fork;
mod functions;
mod give_up;
mod idp;
mod idp_login;
mod import;
mod inbox;
mod input_fate;
mod instructions;
mod interrupt;
mod kept_output;
mod keys;
mod lane;
mod locked;
mod login;
mod login_link;
mod look;
mod migrate;
mod movement;
mod oauth_attempt;
mod oracle;
mod org_heads;
mod organisation_secret;
mod origin;
mod page;
mod people;
mod pool;
mod pooler;
mod principal;
mod project;
mod provider_rate;
mod provider_setting;
mod provision;
mod rebuild;
mod recovery;
mod repository;
mod rests;
mod revert;
mod revocation;
mod schedule;
mod seen_roles;
mod sent;
mod session;
mod session_changes;
mod session_edit;
mod session_list;
mod session_out;
mod settings;
mod shown_secret;
mod spending;
mod tenant;
mod todo;
mod transaction;
mod transcript;
mod tree;
mod turn;
mod turns;
mod unanswered;
mod unnamed_blob;
mod upload;
mod usage;
mod usage_check;
mod usage_counter;
mod usage_read;
mod went_back;
mod workspace;
mod write;

pub use admission::{Admission, AdmittedPrompt, NewPrompt};
pub use alert::{AlertKind, AlertRow, MAX_ALERTS, NewAlert};
pub use asks::{Answering, AskRow, KeptPermission, MAX_ASKS};
pub use catalog_snapshot::{CatalogSnapshot, LastCatalog};
pub use cluster::ClusterRow;
pub use collection::Collected;
pub use control::{AdmittedControl, ControlAdmission, NewControl};
pub use counts::CountedChange;
pub use credential::{
    CredentialChange, CredentialKind, CredentialRow, Kept, MAX_CREDENTIALS, NewCredential, Renewed,
    SealedCredential,
};
pub use domain::{DrainEnd, Taken};
pub use drain::{Append, DrainWrite, Head, Hold, KnownLog, Started, Written};
pub use entries::{EntryChange, MAX_ENTRIES};
pub use error::StoreError;
pub use fork::NewFork;
pub use give_up::GivenUp;
pub use idp::{IdpChange, IdpOffer, IdpRefused, IdpRow, MAX_IDPS};
pub use idp_login::{Joined, KnownPerson, Linked, LoginAttempt, Purpose, VouchedPerson};
pub use import::{Arrival, EventPages, ImportedEvent, ImportedFiles, NewImport};
pub use inbox::{InboxChange, InboxItem, InboxRow, MAX_INBOX_BYTES, MAX_INBOX_INPUTS};
pub use input_fate::InputFate;
pub use instructions::OrganisationInstructions;
pub use interrupt::{Interrupted, Resumed};
pub use keys::{KeyRow, MAX_KEYS, NewKey, NewOwnedKey};
pub use login::{BeganBy, LoginRow, NewLogin};
pub use login_link::{FollowedLink, LinkMaker, LinkTaken, NewLoginLink};
pub use migrate::{
    FIRST_SCHEMA, SCHEMA_VERSION, migrate, migrate_noting, refuse_older, schema_version,
};
pub use oauth_attempt::{MAX_SIGN_INS, NewSignIn, SignIn, SignInMethod, SignInStatus};
pub use oracle::Violation;
pub use org_heads::OrgHead;
pub use organisation_secret::{Sealed, WrappedKey};
pub use origin::{FillNote, OriginFault, OriginRow};
pub use page::Page;
pub use people::{OrganisationRow, PrincipalChange, PrincipalChanged, PrincipalRow};
pub use pool::{Store, StoreOptions};
pub use principal::{
    CredentialInUse, FORMER_COOKIE, LOGIN_IDLE, Principal, Proof, ProvingSecret, Via,
};
pub use project::{LocationKind, LocationRow, ProjectRow};
pub use provider_rate::{GRANT_LIFE, RateGrant, RateLimit};
pub use provider_setting::{MAX_PROVIDER_SETTINGS, ProviderSetting};
pub use provision::{RolePasswords, provision, role_url, url_password};
pub use rebuild::RebuildReport;
pub use recovery::{CodeTaken, RecoveryCodes};
pub use repository::{NewRepositoryPack, RepositoryPack, RepositoryRow};
pub use revocation::{AdmittedWork, Revocation, STILL_ADMITTED};
pub use schedule::{HeadState, ReadySession};
pub use seen_roles::SeenRoles;
pub use sent::{NewSent, SentChanges, SentRow};
pub use session::{Creation, ModelNotice, NewSession, SessionRow};
pub use session_changes::{ChangePosition, SessionChange, SessionChanges};
pub use session_edit::SessionEdit;
pub use session_list::{LOOKED_AT, SessionFilter, SessionPage, SessionsOf};
pub use session_out::{OutMade, OutRow};
pub use settings::{KnownSettings, SettingsOf, SettingsSeen, SettingsText, StoredSettings};
pub use shown_secret::ShownSecret;
pub use spending::{EACH_PERSON, MAX_LIMITS, Month, ORGANISATION, Spent};
pub use transcript::{CallRow, MessageRow, Messages, PartRow, Transcript};
pub use tree::{Expected, MAX_CHILDREN, MAX_DEPTH, TreeUsage};
pub use turn::{AttemptRow, TurnKind, TurnRow};
pub use unanswered::UnansweredWrite;
pub use unnamed_blob::{BlobUse, NamedBlob};
pub use upload::{NewUpload, UploadNote};
pub use usage::UsageDue;
pub use usage_counter::UsageCounter;
pub use usage_read::{
    MAX_USAGE_ROWS, UsageAnswer, UsageKey, UsageNames, UsageOf, UsageQuery, UsageRow, UsageStep,
    UsageTable,
};
pub use workspace::{ChangeRow, PackRow, Seed};
