//! The results of a run. This crate contains the only list of figures, the only list of the tables' columns, and the
//! code that writes them.
//!
//! [`Figures::put`] and [`Table`] accept only constants of these lists, so that an undeclared key can't be written.
//! Expectations, reports, the glossary and `docs/record.md` are derived from the lists.
//!
//! ```
//! use steadycast_record::{Figures, Of, flow};
//!
//! let mut said = Figures::new(Of::Flow);
//! said.put(&flow::THROUGHPUT, 1_500_000.0);
//! said.put(&flow::RAMP_1MBPS, Some(2.5));
//! let summary = serde_json::Value::from(said);
//! assert_eq!(summary["throughput_bps"], 1_500_000.0);
//! assert_eq!(summary["ramp_s"]["1Mbps"], 2.5);
//! ```

mod column;
mod figure;
mod figures;
mod flat;
mod number;
mod rows;
mod share;
mod tree;

pub use column::{
    COLUMNS, Column, Table, Values, audio, decisions, frames, links, missing, moves, packets, rates, tcp, wire,
};
pub use figure::{Better, Figure, Figures, Of, Parts, Shown, Unit, When};
pub use figures::{FIGURES, cost, expectation, find, flow, invariant, link, receiver, run, simulcast, viewer};
pub use flat::flat;
pub use number::{median, variation};
pub use rows::{Fields, Row, Rows, Store, StoredRows};
pub use share::{ChangingClaims, Claims, Demand, Path, Shares, jain};
pub use tree::Tree;
