//! Declarative settings. A table's keys are declared once. This crate derives from the declaration how the table is
//! read and written, its JSON schema, and messages with line and remedy.
//!
//! | macro | declares | reads into |
//! |---|---|---|
//! | [`settings!`] | a struct whose keys have defaults and ranges | the complete struct |
//! | [`kinds!`] | an enum of settings, whose variant the key `kind` or another key selects | the enum |
//! | [`words!`] | an enum whose values are words | the enum |
//! | [`tables!`] | a table whose keys are read individually | the keys that are present, each with its place |
//!
//! ```
//! use steadycast_units::Span;
//! use steadycast_settings::{Findings, FromToml, Settings, Within, settings, tree};
//!
//! settings! {
//!     /// A queue that keeps packets for a while.
//!     Waiting {
//!         /// The time for which a packet is kept.
//!         target: Span where (Within { least: Span::millis(1), most: Span::secs(1), remedy: "from \"1ms\" to \"1s\"" }) = Span::millis(5),
//!         /// Whether packets are marked instead of dropped.
//!         ecn: bool = false,
//!     }
//! }
//!
//! let mut out = Findings::new("queue.toml");
//! let text = tree::from_toml("target = \"20ms\"", &mut out);
//! let read = Waiting::read(&text, &mut out).unwrap();
//! assert_eq!(read, Waiting { target: Span::millis(20), ecn: false });
//! assert_eq!(tree::Value::Table(read.table()).to_toml(), "{ target = \"20ms\", ecn = false }");
//! ```

mod misplaced;
mod near;
mod problem;
mod settings;
mod table;
pub mod tree;

#[doc(hidden)]
pub use misplaced::Around;
pub use near::nearest;
pub use problem::{Findings, Problem, Problems, remedy};
pub use settings::{
    Kind, Refused, Rule, Settings, Within, entry, field, keep_known, kind_first, kind_schema, of_kind, positive,
    refuse_others, table_schema, with_default,
};
pub use table::{
    Declared, Deferred, FromToml, OneOrMany, OrNone, Packets, Spanned, ToToml, add_keys, described, lengthened,
    not_a_table, not_one_of, packets, plain, quantity,
};

/// Re-exported because the macros expand in other crates.
#[doc(hidden)]
pub use serde_json;
