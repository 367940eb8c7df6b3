//! Facts of a log that are of the place where a session works: they become those of its place here.

use std::collections::HashMap;

use domain::{Author, ComponentList, Control, FencingToken, SessionEvent};
use store::LocationRow;

use super::contents::Contents;
use crate::act::export::{output_of, trees_of};
use crate::act::metadata;
use crate::error::ApiError;

/// A session's place here. Every Location of the log becomes this one.
pub(super) struct Place {
    pub(super) location: LocationRow,
    /// Who imports it.
    author: Author,
    /// The snapshots of the log in their order, by their places there.
    ordinals: HashMap<(FencingToken, i64), i64>,
    /// Outputs that are named and did not come.
    pub(super) outputs_missing: usize,
}

/// The token of imported snapshots. No worker has it, so each capture here is newer.
const NO_TOKEN: FencingToken = FencingToken(0);

impl Place {
    pub(super) fn new(location: LocationRow, author: Author) -> Self {
        Self { location, author, ordinals: HashMap::new(), outputs_missing: 0 }
    }

    /// Returns the event as it is here. `is_first`: it is the log's first.
    ///
    /// # Errors
    /// 400 when it names something that is not in `contents`.
    pub(super) fn adopt(
        &mut self,
        event: SessionEvent,
        is_first: bool,
        contents: &Contents,
    ) -> Result<SessionEvent, ApiError> {
        if is_first != matches!(event, SessionEvent::SessionCreated(_)) {
            return Err(ApiError::invalid("a log has `session.created` first, and nowhere else"));
        }
        if let Some(tree) = trees_of(&event).into_iter().find(|tree| !contents.has_tree(tree)) {
            return Err(ApiError::Invalid(format!("the files of snapshot {tree} are missing")));
        }
        let LocationRow { id: location, project, directory, .. } = &self.location;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are of no place")]
        Ok(match event {
            SessionEvent::SessionCreated(mut created) => {
                created.project.clone_from(project);
                created.location.clone_from(location);
                created.directory.clone_from(directory);
                // Its parent stays where it is.
                created.parent = None;
                created.by = Some(self.author.clone());
                created.metadata = created.metadata.map(metadata::checked).transpose()?;
                created.into()
            }
            // Keys of another service are nobody's here.
            SessionEvent::PromptAdmitted(mut admitted) => {
                admitted.by = None;
                admitted.into()
            }
            SessionEvent::InterruptRequested(mut requested) => {
                requested.by = None;
                requested.into()
            }
            SessionEvent::SessionDescribed(mut described) => {
                described.metadata = metadata::checked(described.metadata)?;
                described.into()
            }
            SessionEvent::SessionMoved(mut moved) => {
                moved.from.clone_from(location);
                moved.to.clone_from(location);
                moved.project.clone_from(project);
                moved.directory.clone_from(directory);
                moved.into()
            }
            SessionEvent::ControlAdmitted(mut admitted) => {
                if let Control::Move { project: theirs, location: to, directory: at, .. } =
                    &mut admitted.control
                {
                    theirs.clone_from(project);
                    to.clone_from(location);
                    at.clone_from(directory);
                }
                admitted.into()
            }
            SessionEvent::WorkspaceSnapshotted(mut taken) => {
                let next = i64::try_from(self.ordinals.len()).unwrap_or(i64::MAX) + 1;
                let place = (taken.token, taken.ordinal);
                taken.ordinal = *self.ordinals.entry(place).or_insert(next);
                taken.token = NO_TOKEN;
                // One pack has the objects of all.
                taken.pack = None;
                taken.bytes = 0;
                taken.into()
            }
            SessionEvent::WorkspaceRestored(mut restored) => {
                restored.token = NO_TOKEN;
                restored.into()
            }
            SessionEvent::ToolSettled(mut settled) => {
                let named = settled.managed_path.is_some();
                if named && !output_of(&settled).is_some_and(|name| contents.has_output(&name)) {
                    settled.managed_path = None;
                    self.outputs_missing += 1;
                }
                settled.into()
            }
            SessionEvent::AttemptStarted(started) => {
                let missing = missing_component(&started.components, contents);
                if let Some(missing) = missing {
                    return Err(ApiError::Invalid(format!(
                        "component {missing} of attempt {} is missing",
                        started.attempt
                    )));
                }
                started.into()
            }
            other => other,
        })
    }
}

/// Returns a component that an attempt names and that did not come.
fn missing_component(list: &ComponentList, contents: &Contents) -> Option<String> {
    let absent = |hash: &String| contents.component_of(hash).is_none();
    match list {
        ComponentList::Inline(names) => names.values().find(|hash| absent(hash)).cloned(),
        ComponentList::Stored(list) => {
            let Some(bytes) = contents.component_of(list) else { return Some(list.clone()) };
            match serde_json::from_slice::<HashMap<String, String>>(bytes) {
                Ok(names) => names.into_values().find(absent),
                Err(_) => Some(list.clone()),
            }
        }
    }
}
