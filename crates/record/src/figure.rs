use serde_json::{Map, Value, json};
use steadycast_units::{Span, Spread};

/// Declares an enum in which each variant has a name.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// Returns the name of the variant. It is used in the documentation of figures.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}

named! {
    /// The type of the object that a figure describes. It determines where the figure is in `summary.json`.
    Of {
        /// The run. Its figures are at the top level of the summary.
        Run = "run",
        /// A flow. It is an element of `flows`.
        Flow = "flow",
        /// A receiver of a flow. It is an element of the flow's `receivers`.
        Receiver = "receiver",
        /// A direction of a link. It is an element of `links`.
        Link = "link",
        /// A simulcast. It is an element of `simulcasts`.
        Simulcast = "simulcast",
        /// A receiver of a simulcast. It is an element of the simulcast's `receivers`.
        Viewer = "viewer",
        /// An invariant that the run checks. It is an element of `invariants`.
        Invariant = "invariant",
        /// An expectation of the scenario. It is an element of `expect`.
        Expectation = "expectation",
        /// The cost of the run. Its figures are in `cost.json` instead of the summary.
        Cost = "cost",
    }
}

named! {
    /// The unit of a value.
    Unit {
        /// A text.
        Text = "text",
        /// True or false.
        Flag = "true or false",
        /// A list.
        List = "list",
        /// A number without a unit.
        Number = "number",
        /// A count.
        Count = "count",
        /// A rate in bit/s, which counts whole IP packets.
        Rate = "bit/s",
        /// Bytes.
        Bytes = "bytes",
        /// A share from 0 to 1.
        Share = "share of 1",
        /// Milliseconds.
        Millis = "ms",
        /// Seconds.
        Seconds = "s",
        /// Decibels.
        Decibels = "dB",
        /// An opinion score from 1 (bad) to 5 (excellent).
        Opinion = "1 to 5",
    }
}

impl Unit {
    /// Returns whether values with this unit are numbers. Only numbers can have expectations.
    pub const fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Flag | Self::List)
    }
}

/// The direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A higher value is better.
    Higher,
    /// A lower value is better.
    Lower,
    /// Neither direction is better by itself.
    Neither,
}

named! {
    /// Which flows, receivers or runs have a figure.
    When {
        /// All flows, receivers or runs have the figure.
        Always = "",
        /// Video flows.
        Video = "videos",
        /// TCP flows.
        Tcp = "TCP",
        /// TCP flows whose transfers end.
        Transfers = "TCP whose transfers end",
        /// Flows whose source pauses: it has periods without data, or a finite amount of data.
        Pauses = "flows whose source pauses: on/off sources, TCP with transfers",
        /// All flows except TCP flows.
        Datagrams = "all but TCP",
        /// Video flows that consist of frames. These are all media except `greedy`.
        Frames = "videos with frames: all media but \"greedy\"",
        /// Video flows whose lost packets are retransmitted.
        Repaired = "videos whose lost packets are sent again",
        /// Video flows whose controller sends padding in probes.
        Padded = "videos with padding",
        /// Video flows that have audio.
        Audio = "videos with audio",
        /// Video flows whose packets are ECN-capable.
        EcnCapable = "videos sent as ECN-capable",
        /// Video flows that have pixels (media `clip` and `synthetic`), in runs that measure pictures.
        Pictures = "videos with pixels (media \"clip\" or \"synthetic\"), when pictures are measured",
        /// Runs with a simulcast.
        Simulcast = "runs with a simulcast",
        /// Emulated runs.
        Emulated = "emulated runs",
        /// Live sessions.
        Live = "live sessions",
    }
}

/// The keys below the key of a figure in `summary.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// There are no further keys. The figure is a single value.
    One,
    /// The keys are `p50`, `p95`, `p99` and `max` of a distribution.
    Quantiles,
    /// The keys are the opinion scores `1` to `5`.
    Grades,
    /// The keys are the names of flows.
    Flows,
}

impl Parts {
    /// Returns the names of the keys. Returns an empty list if there are none or if they depend on the run.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::One | Self::Flows => &[],
            Self::Quantiles => &["p50", "p95", "p99", "max"],
            Self::Grades => &["1", "2", "3", "4", "5"],
        }
    }
}

named! {
    /// A table of results, which shows figures as columns or rows.
    Shown {
        /// One line per flow, on a terminal and in a notebook.
        Terminal = "terminal",
        /// One line per flow, in a report.
        Flows = "flows",
        /// One line per receiver of a video flow, in a report.
        Receivers = "receivers",
        /// Several runs side by side.
        Compare = "compare",
        /// One line per run, in a comparison of runs. The values are those of the worst flow in the run.
        Runs = "runs",
        /// The results of `steadycast quality`.
        Quality = "quality",
        /// One line per link, in a report.
        Links = "links",
        /// One line per TCP flow, in a report.
        Tcp = "tcp",
        /// One line per flow whose source pauses, on a terminal and in a report.
        Pauses = "pauses",
        /// One line per video session, in a report.
        Sessions = "sessions",
    }
}

/// A figure: a key of the summary, with its meaning. Other crates can't construct a `Figure`, so they can't write
/// undeclared keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figure {
    /// The type of the object that the figure describes.
    pub of: Of,
    /// The path of the figure in the object. Dots separate the keys.
    pub key: &'static str,
    /// The keys below the figure's key.
    pub parts: Parts,
    /// The figure's unit.
    pub unit: Unit,
    /// What the figure means, in one or more sentences.
    pub about: &'static str,
    /// The heading of the figure in tables, and its entry in the glossary.
    pub short: Option<&'static str>,
    /// The direction in which the figure improves.
    pub better: Better,
    /// Which flows, receivers or runs have the figure.
    pub when: When,
    /// The tables that show the figure. For each table, the text is the key of `Figure::parts` that the table shows,
    /// for example "p95". The text is empty for a figure that is a single value.
    pub shown: &'static [(Shown, &'static str)],
}

impl Figure {
    pub(crate) const fn new(key: &'static str, unit: Unit, about: &'static str) -> Self {
        Self {
            of: Of::Run,
            key,
            parts: Parts::One,
            unit,
            about,
            short: None,
            better: Better::Neither,
            when: When::Always,
            shown: &[],
        }
    }
    pub(crate) const fn of(self, of: Of) -> Self {
        Self { of, ..self }
    }
    pub(crate) const fn parts(self, parts: Parts) -> Self {
        Self { parts, ..self }
    }
    pub(crate) const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
    pub(crate) const fn lower(self) -> Self {
        Self { better: Better::Lower, ..self }
    }
    pub(crate) const fn higher(self) -> Self {
        Self { better: Better::Higher, ..self }
    }
    pub(crate) const fn shown(self, short: &'static str, shown: &'static [(Shown, &'static str)]) -> Self {
        Self { short: Some(short), shown, ..self }
    }

    /// Returns whether `path` is the path of this figure or of one of its parts.
    pub fn is_at(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix(self.key) else { return false };
        match (self.parts, rest.strip_prefix('.')) {
            (Parts::One, _) => rest.is_empty(),
            // Accept any name of a flow, because the names depend on the scenario.
            (Parts::Flows, Some(name)) => !name.is_empty(),
            (parts, Some(part)) => parts.names().contains(&part),
            (_, None) => false,
        }
    }

    /// Returns the first key of the figure's path.
    pub fn head(&self) -> &'static str {
        self.key.split('.').next().unwrap_or_default()
    }
}

/// The figures of one object, in the order in which they were written.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    of: Of,
    said: Map<String, Value>,
}

impl Figures {
    /// Creates an empty set of figures for an object of the type `of`.
    pub fn new(of: Of) -> Self {
        Self { of, said: Map::new() }
    }

    /// Writes a figure. `None`, and numbers that are not finite, become null.
    pub fn put(&mut self, figure: &Figure, value: impl Into<Value>) {
        debug_assert_eq!(figure.of, self.of, "{}", figure.key);
        debug_assert_eq!(figure.parts, Parts::One, "{}", figure.key);
        self.put_at(figure.key, value.into());
    }

    /// Writes a time span, in the unit of the figure.
    pub fn put_span(&mut self, figure: &Figure, span: Option<Span>) {
        let seconds = figure.unit == Unit::Seconds;
        self.put(figure, span.map(|span| if seconds { span.as_secs_f64() } else { span.as_millis_f64() }));
    }

    /// Writes the quantiles of a distribution of times, in milliseconds.
    pub fn put_spread(&mut self, figure: &Figure, spread: &Spread) {
        debug_assert_eq!((figure.of, figure.parts), (self.of, Parts::Quantiles), "{}", figure.key);
        let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
        let quantiles = json!({
            "p50": ms(spread.quantile(0.5)), "p95": ms(spread.quantile(0.95)),
            "p99": ms(spread.quantile(0.99)), "max": ms(spread.max()),
        });
        self.put_at(figure.key, quantiles);
    }

    /// Writes a number for each flow.
    pub fn put_by_flow<'a>(&mut self, figure: &Figure, values: impl Iterator<Item = (&'a str, Option<f64>)>) {
        debug_assert_eq!((figure.of, figure.parts), (self.of, Parts::Flows), "{}", figure.key);
        let all: Map<String, Value> = values.map(|(name, value)| (name.to_owned(), value.into())).collect();
        self.put_at(figure.key, Value::Object(all));
    }

    /// Writes a list of objects that have figures.
    pub fn put_list(&mut self, figure: &Figure, all: impl IntoIterator<Item = Self>) {
        self.put(figure, Value::Array(all.into_iter().map(Value::from).collect()));
    }

    /// Appends values to a figure that is a list.
    pub fn append(&mut self, figure: &Figure, more: impl IntoIterator<Item = impl Into<Value>>) {
        debug_assert_eq!(figure.unit, Unit::List, "{}", figure.key);
        let said = self.get(figure).and_then(Value::as_array).into_iter().flatten().cloned();
        let all = said.chain(more.into_iter().map(Into::into)).collect();
        self.put(figure, Value::Array(all));
    }

    /// Writes null for the first key of the figure's path. All figures below this key are then unknown.
    pub fn put_unknown(&mut self, figure: &Figure) {
        debug_assert_eq!(figure.of, self.of, "{}", figure.key);
        self.said.insert(figure.head().to_owned(), Value::Null);
    }

    /// Returns the value that was written for a figure.
    pub fn get(&self, figure: &Figure) -> Option<&Value> {
        figure.key.split('.').enumerate().try_fold(&Value::Null, |at, (n, key)| match n {
            0 => self.said.get(key),
            _ => at.get(key),
        })
    }

    /// Adds the figures of `other`. They replace figures with the same first key.
    pub fn extend(&mut self, other: &Self) {
        debug_assert_eq!(self.of, other.of);
        self.said.extend(other.said.clone());
    }

    fn put_at(&mut self, path: &str, value: Value) {
        let (way, last) = path.rsplit_once('.').map_or(("", path), |(way, last)| (way, last));
        let mut at = &mut self.said;
        for key in way.split('.').filter(|key| !key.is_empty()) {
            let below = at.entry(key).or_insert(Value::Null);
            // Replace a null, which `put_unknown` may have written for this key.
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            match below {
                Value::Object(map) => at = map,
                _ => return,
            }
        }
        at.insert(last.to_owned(), value);
    }
}

impl From<Figures> for Value {
    fn from(figures: Figures) -> Self {
        Self::Object(figures.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{flow, receiver};

    #[test]
    fn what_is_added_to_a_list_stands_behind_what_it_has() {
        let mut said = Figures::new(Of::Run);
        said.append(&crate::run::WARNINGS, ["first"]);
        said.append(&crate::run::WARNINGS, ["second", "third"]);
        assert_eq!(said.get(&crate::run::WARNINGS), Some(&json!(["first", "second", "third"])));
    }

    #[test]
    fn what_is_not_finite_is_null_and_a_path_makes_objects() {
        let mut said = Figures::new(Of::Flow);
        said.put(&flow::THROUGHPUT, f64::NAN);
        said.put(&flow::RAMP_1MBPS, Some(f64::INFINITY));
        said.put(&flow::RAMP_SHARE, 3.5);
        assert_eq!(said.get(&flow::RAMP_SHARE), Some(&json!(3.5)));
        assert_eq!(
            Value::from(said),
            json!({ "throughput_bps": null, "ramp_s": { "1Mbps": null, "share_80pct": 3.5 } })
        );
    }

    #[test]
    fn a_family_that_is_unknown_is_one_null_until_it_is_known() {
        let mut said = Figures::new(Of::Receiver);
        said.put_unknown(&receiver::FRAMES_OK);
        assert_eq!(Value::from(said.clone()), json!({ "frames": null }));
        said.put(&receiver::FRAMES_OK, 7);
        assert_eq!(Value::from(said), json!({ "frames": { "ok": 7 } }));
    }
}
