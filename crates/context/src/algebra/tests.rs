use serde_json::json;

use super::*;
use crate::SourceState;

const A: SourceKey = SourceKey::fixed("test/a");
const B: SourceKey = SourceKey::fixed("test/b");
const C: SourceKey = SourceKey::fixed("test/c");

/// A word, which can disappear.
#[derive(Debug, Clone)]
struct Word(&'static str);

impl ContextSource for Word {
    type Told = String;

    fn told(&self) -> String {
        self.0.to_owned()
    }

    fn baseline(&self) -> String {
        format!("it is {}", self.0)
    }

    fn update(&self, told: &String) -> String {
        format!("it was {told} and is now {}", self.0)
    }

    fn removal(&self) -> Option<String> {
        Some(format!("{} is gone", self.0))
    }
}

/// A number that never decreases and cannot disappear.
#[derive(Debug, Clone)]
struct Height(u32);

impl ContextSource for Height {
    type Told = u32;

    fn told(&self) -> u32 {
        self.0
    }

    fn baseline(&self) -> String {
        format!("height {}", self.0)
    }

    fn update(&self, _told: &u32) -> String {
        format!("height now {}", self.0)
    }

    fn follow(self, told: &u32) -> Self {
        Self(self.0.max(*told))
    }
}

fn word(key: SourceKey, word: &'static str) -> SystemContext {
    SystemContext::make(key, Loaded::Value(Word(word)))
}

fn absent(key: SourceKey) -> SystemContext {
    SystemContext::make::<Word>(key, Loaded::Absent)
}

fn unavailable(key: SourceKey) -> SystemContext {
    SystemContext::make::<Word>(key, Loaded::Unavailable("the disk is asleep".into()))
}

fn all(contexts: impl IntoIterator<Item = SystemContext>) -> SystemContext {
    SystemContext::combine(contexts).expect("distinct keys")
}

fn told(contexts: impl IntoIterator<Item = SystemContext>) -> ContextSnapshot {
    all(contexts).initialize().expect("available").snapshot
}

fn blocked(key: SourceKey) -> Blocked {
    Blocked { sources: vec![(key, "the disk is asleep".into())] }
}

/// Returns the text of an update, and checks that no change remains after it.
fn updated(context: &SystemContext, told: &ContextSnapshot) -> String {
    let reconciled = context.reconcile(told);
    let Reconciled::Updated { rendered, snapshot } = reconciled else { panic!("{reconciled:?}") };
    assert_eq!(context.reconcile(&snapshot), Reconciled::Unchanged);
    rendered
}

#[test]
fn a_baseline_keeps_the_callers_order() {
    let context = all([word(C, "last"), word(A, "first")]);
    assert_eq!(context.initialize().expect("available").baseline, "it is last\n\nit is first");
}

#[test]
fn one_key_twice_is_refused() {
    let error = SystemContext::combine([word(A, "x"), word(B, "x"), absent(A)]).expect_err("twice");
    assert_eq!(error, DuplicateKey(A));
}

#[test]
fn values_of_several_types_make_one_baseline() {
    let context = all([word(A, "red"), SystemContext::make(B, Loaded::Value(Height(3)))]);
    let first = context.initialize().expect("available");
    assert_eq!(first.baseline, "it is red\n\nheight 3");
    assert_eq!(
        first.snapshot.text(),
        r#"{"test/a":{"value":"red","removal":"red is gone"},"test/b":{"value":3}}"#
    );
}

#[test]
fn initialize_waits_for_the_unavailable_and_leaves_the_absent_out() {
    let first = all([word(A, "red"), absent(B)]).initialize().expect("nothing is missing");
    assert_eq!((first.baseline.as_str(), first.snapshot), ("it is red", told([word(A, "red")])));
    let waits = all([word(A, "red"), unavailable(B)]).initialize().expect_err("B is not there");
    assert_eq!(waits, blocked(B));
    assert!(waits.to_string().ends_with(": test/b (the disk is asleep)"), "{waits}");
}

#[test]
fn reconcile_of_one_source_is_a_table() {
    let before = told([word(A, "red")]);
    let never = ContextSnapshot::default();
    assert_eq!(word(A, "red").reconcile(&before), Reconciled::Unchanged);
    assert_eq!(updated(&word(A, "blue"), &before), "it was red and is now blue");
    assert_eq!(updated(&absent(A), &before), "red is gone");
    assert_eq!(unavailable(A).reconcile(&before), Reconciled::Unchanged);
    assert_eq!(updated(&word(A, "red"), &never), "it is red");
    assert_eq!(absent(A).reconcile(&never), Reconciled::Unchanged);
    assert_eq!(unavailable(A).reconcile(&never), Reconciled::Unchanged);
    // Its contributor is gone, including its code.
    assert_eq!(updated(&SystemContext::default(), &before), "red is gone");
}

#[test]
fn changes_appearances_and_removals_make_one_message() {
    let before = told([word(A, "red"), word(B, "round")]);
    let now = all([word(C, "new"), word(A, "blue")]);
    assert_eq!(updated(&now, &before), "it is new\n\nit was red and is now blue\n\nround is gone");
}

#[test]
fn what_was_unavailable_and_did_not_change_is_not_told_again() {
    let before = told([word(A, "red"), word(B, "round")]);
    let Reconciled::Updated { rendered, snapshot } =
        all([word(A, "blue"), unavailable(B)]).reconcile(&before)
    else {
        panic!("A has changed")
    };
    assert_eq!(rendered, "it was red and is now blue");
    assert_eq!(
        all([word(A, "blue"), word(B, "round")]).reconcile(&snapshot),
        Reconciled::Unchanged
    );
}

#[test]
fn a_value_that_never_falls_follows_what_was_told() {
    let height = |height| SystemContext::make(A, Loaded::Value(Height(height)));
    let before = told([height(3)]);
    assert_eq!(height(2).reconcile(&before), Reconciled::Unchanged);
    assert_eq!(updated(&height(4), &before), "height now 4");
    assert_eq!(height(2).replace(&before).expect("ready").baseline, "height 3");
}

#[test]
fn a_source_can_be_taken_for_unavailable_afterwards() {
    let before = told([word(A, "red"), word(B, "round")]);
    let now = all([word(A, "blue"), word(B, "square")]).unavailable(&A, "it is too old");
    assert_eq!(updated(&now, &before), "it was round and is now square");
    assert_eq!(
        word(B, "round").unavailable(&A, "it is too old").reconcile(&told([word(B, "round")])),
        Reconciled::Unchanged
    );
}

#[test]
fn what_no_message_can_tell_starts_a_new_epoch() {
    let height = SystemContext::make(A, Loaded::Value(Height(3)));
    let mut unreadable = told([height.clone(), word(B, "round")]);
    unreadable.0.insert("test/a".into(), SourceState { value: json!("high"), removal: None });
    let now = all([height.clone(), word(B, "square")]);
    let fresh = now.initialize().expect("available");
    assert_eq!(now.reconcile(&unreadable), Reconciled::ReplacementReady(fresh));
    let waits = all([height.clone(), unavailable(B)]);
    assert_eq!(waits.reconcile(&unreadable), Reconciled::ReplacementBlocked(blocked(B)));
    // It cannot disappear within an epoch.
    let before = told([height, word(B, "round")]);
    let fresh = word(B, "round").initialize().expect("available");
    assert_eq!(word(B, "round").reconcile(&before), Reconciled::ReplacementReady(fresh));
    assert_eq!(unavailable(B).reconcile(&before), Reconciled::ReplacementBlocked(blocked(B)));
}

#[test]
fn replace_waits_only_for_what_was_admitted() {
    let before = told([word(A, "red")]);
    let fresh = all([word(A, "red"), unavailable(B), absent(C)]).replace(&before);
    assert_eq!(fresh, word(A, "red").initialize());
    assert_eq!(unavailable(A).replace(&before), Err(blocked(A)));
    let gone = all([absent(A), word(B, "new")]).replace(&before).expect("A is known to be gone");
    assert_eq!((gone.baseline.as_str(), gone.snapshot), ("it is new", told([word(B, "new")])));
}

#[test]
fn a_snapshot_reads_back_as_it_was_stored() {
    let snapshot = told([word(A, "red"), word(B, "round")]);
    assert_eq!(ContextSnapshot::read(&snapshot.text()).expect("ours"), snapshot);
    assert!(ContextSnapshot::read("[]").is_err());
}
