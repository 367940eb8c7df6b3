use domain::{FencingToken, Generation, Incarnation, LocationRef};
use placement_api::Worker;
use serde::{Deserialize, Serialize};

/// The version of the commands that this build writes. A new command or field needs a new version, which is
/// written only once every member can read it (decision 0027).
pub const VERSION: u32 = 1;

/// The most commands in one Raft entry. Bounds the work of one application and the size of one message.
pub const MAX_COMMANDS: usize = 500;

/// One Raft entry: commands that are applied together, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The version of its commands.
    pub version: u32,
    /// The proposer's generation. It is part of the entry, so that every member makes the same tokens even if
    /// their settings differ for a moment. The highest generation seen so far counts.
    pub generation: Generation,
    /// The commands.
    pub commands: Commands,
}

impl Batch {
    /// Makes a batch of this build's version.
    #[must_use]
    pub fn new(generation: Generation, commands: Vec<Command>) -> Self {
        Self { version: VERSION, generation, commands: Commands::Known(commands) }
    }
}

/// Commands, or the output of a newer build, which stays in the log unchanged and is refused when applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Commands {
    /// Commands of this build.
    Known(Vec<Command>),
    /// JSON that this build does not know.
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
    /// An incarnation is declared dead. Its leases are free, and it never comes back.
    Retire {
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// Leases a Location, unless a live worker holds it.
    Assign {
        /// The Location.
        location: LocationRef,
        /// The new holder.
        incarnation: Incarnation,
    },
    /// Returns a Location.
    Release {
        /// The Location.
        location: LocationRef,
        /// The worker that returns it.
        incarnation: Incarnation,
        /// The lease that ends. A later lease stays.
        token: FencingToken,
    },
    /// Makes a node's workers finish and take nothing new.
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

/// The result of a command, for its proposer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effect {
    /// The worker is known.
    Registered,
    /// Refused: the incarnation was retired before.
    Superseded,
    /// The incarnation is retired, and these Locations are free.
    Retired {
        /// Its former Locations.
        freed: Vec<LocationRef>,
    },
    /// The lease is new.
    Assigned {
        /// Its holder.
        incarnation: Incarnation,
        /// Its token.
        token: FencingToken,
    },
    /// A live worker already holds the Location; nothing changed.
    Held {
        /// The holder.
        incarnation: Incarnation,
        /// The holder's token.
        token: FencingToken,
    },
    /// Not assigned: the incarnation is not alive. Choose again.
    NotLive,
    /// Not assigned: this entry already gave the Location away, and a token has only one owner. Ask again in
    /// another entry.
    SameEntry,
    /// The lease's end.
    Released {
        /// The lease existed and ended with this command.
        ended: bool,
    },
    /// The node drains, or no longer does.
    Drains {
        /// The command changed the state.
        changed: bool,
    },
}
