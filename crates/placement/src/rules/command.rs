use domain::{FencingToken, Generation, Incarnation, LocationRef};
use placement_api::Worker;
use serde::{Deserialize, Serialize};

/// The version of the commands that this build writes. A command or field more is a new version, written
/// only once every member reads it (decision 0027).
pub const VERSION: u32 = 1;

/// Commands in one Raft entry: bounds what a member applies at once and what one message carries.
pub const MAX_COMMANDS: usize = 500;

/// One Raft entry: commands that are applied together, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The version of its commands.
    pub version: u32,
    /// The proposer's generation. It travels in the entry so that every member makes the same tokens,
    /// also when their settings differ for a moment; the highest one seen counts.
    pub generation: Generation,
    /// What to do.
    pub commands: Commands,
}

impl Batch {
    /// A batch of this build's version.
    #[must_use]
    pub fn new(generation: Generation, commands: Vec<Command>) -> Self {
        Self { version: VERSION, generation, commands: Commands::Known(commands) }
    }
}

/// Commands, or what a newer build wrote: kept in the log as it came, refused when it is applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Commands {
    /// Commands of this build.
    Known(Vec<Command>),
    /// Something else.
    Unknown(serde_json::Value),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// A worker is heard for the first time, or its address or slots changed.
    Register {
        /// The worker.
        worker: Worker,
    },
    /// An incarnation is declared dead: its leases are free and it never comes back.
    Retire {
        /// Which.
        incarnation: Incarnation,
    },
    /// Leases a Location, unless someone alive holds it.
    Assign {
        /// The Location.
        location: LocationRef,
        /// To whom.
        incarnation: Incarnation,
    },
    /// Gives a Location back.
    Release {
        /// The Location.
        location: LocationRef,
        /// Who gives it.
        incarnation: Incarnation,
        /// The lease that ends; a later one is not touched.
        token: FencingToken,
    },
    /// Asks the workers of a node to finish and to take nothing new.
    DrainNode {
        /// The node's name.
        node: String,
    },
    /// Lets a node take Locations again.
    UndrainNode {
        /// The node's name.
        node: String,
    },
}

/// What a command did, for who proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effect {
    /// The worker is known.
    Registered,
    /// The incarnation was retired before: refused.
    Superseded,
    /// The incarnation is retired; these Locations are nobody's now.
    Retired {
        /// What it held.
        freed: Vec<LocationRef>,
    },
    /// The lease is new.
    Assigned {
        /// Its holder.
        incarnation: Incarnation,
        /// Its token.
        token: FencingToken,
    },
    /// Someone alive already holds the Location: nothing changed.
    Held {
        /// The holder.
        incarnation: Incarnation,
        /// The holder's token.
        token: FencingToken,
    },
    /// Not assigned: the incarnation is not alive. Choose again.
    NotLive,
    /// Not assigned: this entry has given the Location away before, and one token has one owner. Ask
    /// again in another entry.
    SameEntry,
    /// Whether there was such a lease to end.
    Released {
        /// It ended with this command.
        ended: bool,
    },
    /// The node's workers drain, or no longer do.
    Drains {
        /// Whether that is news.
        changed: bool,
    },
}
