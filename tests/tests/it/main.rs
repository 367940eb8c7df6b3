//! Journeys through the real service, as its users take them, with the oracle after each; and the house rules.

mod smoke;
