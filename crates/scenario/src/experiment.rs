//! Experiment files. An experiment is a question, the runs that answer it, the measures of each run, and the bounds on
//! the measures.
//!
//! The function [`experiment`] checks a file, draws the random values, and returns the content as JSON.

use crate::expect;
use crate::file::FORMAT;
use crate::tree::give_paths;
use serde_json::{Value as Json, json};
use steadycast_settings::tree::{Item, Place, Value, from_toml, quoted};
use steadycast_settings::{Declared, Findings, FromToml, OneOrMany, Problems, Spanned, described, tables, words};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span};

const MOST: u64 = 100_000;

tables! {
    /// An experiment: a question, the runs that answer it, and bounds on the answer.
    ExperimentFile {
        /// The version of the file format, now 1. The program refuses files with a higher number.
        format: u64,
        /// The question in one sentence.
        question: String,
        /// The seeds of the runs: a range such as "1-10", or a list of numbers; default "1-5".
        seeds: Seeds,
        /// The world of the runs: simulated (default), or emulated in real time with the kernel's TCP (as root).
        world: World,
        /// The scenarios in which the question is asked.
        scenario: Vec<Spanned<ScenarioTable>>,
        /// Variables of all scenarios, each NAME = VALUE. A value can contain expressions over other variables, as
        /// `${EXPRESSION}`.
        variables: Changes,
        /// Changes of the scenarios that apply at some points only.
        change: Vec<Spanned<ChangeTable>>,
        /// Values drawn at random: each scenario runs once per draw, with the values of that draw.
        draw: DrawTable,
        /// The axes of the experiment. Each combination of their values is a point, at which all variants run.
        axis: Vec<Spanned<AxisTable>>,
        /// The variants that are compared at each point, for example one per controller.
        variant: Vec<Spanned<VariantTable>>,
        /// The same runs without the event under test. A bound that also holds in the placebo does not test the event.
        placebo: PlaceboTable,
        /// Classes of points, which tables can use in `by`.
        class: Vec<Spanned<ClassTable>>,
        /// The measures: the numbers that are computed from each run.
        measure: Vec<Spanned<MeasureTable>>,
        /// The bounds on the measures, written before the run.
        bound: Vec<Spanned<BoundTable>>,
        /// The value of `over` in bounds that do not set it: mean (default), each or interval.
        over: Over,
        /// The tables of results.
        table: Vec<Spanned<TableTable>>,
        /// The figures that are drawn from the results.
        figure: Vec<Spanned<FigureTable>>,
        /// The path of a CSV file for the means of all measures at all points, relative to this file.
        write: String,
    }
    /// A scenario of an experiment.
    ScenarioTable {
        /// The scenario's name in tables.
        name: String,
        /// The path of a scenario file, relative to this file, or the name of a built-in scenario.
        file: String,
        /// The scenario's text, instead of `file`.
        text: String,
        /// Changes of the scenario's keys, each "PATH" = VALUE as in `--set`. A value can contain expressions over axes
        /// and drawn variables, as `${EXPRESSION}`.
        set: Changes,
        /// Variables of this scenario, each NAME = VALUE. Other values can use a variable as `${NAME}`.
        variables: Changes,
        /// Texts that describe the scenario in tables, each COLUMN = TEXT.
        about: Changes,
        /// The variants that run this scenario; default: all.
        variant: OneOrMany<String>,
        /// Bounds that apply to this scenario only.
        bound: Vec<Spanned<BoundTable>>,
    }
    /// Changes of a scenario that apply at some points only. A point is a combination of a scenario, axis values and a
    /// draw. The changes are made after the changes of scenarios, draws, axes and variants, in the file's order.
    ChangeTable {
        /// A formula over variables and axes. The changes are made at the points where the formula is not 0; default:
        /// at all points.
        when: String,
        /// The scenarios that are changed; default: all.
        scenario: OneOrMany<String>,
        /// The variants that are changed; default: all.
        variant: OneOrMany<String>,
        /// Changes of the scenario's keys, each "PATH" = VALUE as in `--set`.
        set: Changes,
    }
    /// A set of changes that is compared with others.
    VariantTable {
        /// The variant's name in tables and as `${variant}`. A list of names makes one variant for each.
        name: OneOrMany<String>,
        /// Whether the variant's runs are simulated, or emulated in real time with the kernel's TCP (as root). Default:
        /// the file's `world`.
        world: World,
        /// Whether all bounds apply to the variant; default true. With false it is a reference, and only bounds that
        /// name it apply.
        judged: bool,
        /// Changes of the scenario's keys, each "PATH" = VALUE as in `--set`.
        set: Changes,
    }
    /// A key of the scenario with several values, or a list of changes.
    AxisTable {
        /// The axis's name in tables and as `${NAME}`; default: the last part of `path`.
        name: String,
        /// The path of the scenario's key that the axis varies, as in `--set`. Without a path, the values are only used
        /// as `${NAME}`.
        path: String,
        /// The values of the axis: a list, or a table of LABEL = VALUE.
        values: Labelled,
        /// Sets of changes instead of `values`, each LABEL = { "PATH" = VALUE, … }.
        sets: LabelledChanges,
        /// The names of several variables that change together, instead of `name` and `values`.
        columns: Vec<String>,
        /// The values of `columns`: a list for each point, with one value per column.
        rows: Vec<Vec<Literal>>,
        /// The scenarios that have this axis; default: all.
        scenario: OneOrMany<String>,
    }
    /// Distributions from which scenarios are drawn.
    DrawTable {
        /// The number of draws.
        count: u64,
        /// The seed of the draws. It is independent of the seeds of the runs.
        seed: u64,
        /// The scenario's keys whose values are drawn, each "PATH" = { from, to, scale } or { among }.
        values: Distributions,
        /// Variables whose values are drawn, each NAME = { from, to, scale } or { among }. Other values can use a
        /// variable as `${NAME}`.
        variables: Distributions,
        /// Decks: groups of variables whose values are drawn together.
        deck: Vec<Spanned<DeckTable>>,
    }
    /// A deck of cards, each with the values of several variables.
    DeckTable {
        /// The names of the variables. The first name, with the draw's seed, determines the deck's random numbers.
        columns: Vec<String>,
        /// The cards: a list for each card, with one value per column.
        rows: Vec<Vec<Literal>>,
        /// The weight of each card: how often it occurs in a cycle of draws whose length is the sum of all weights.
        /// Default: once per cycle.
        weights: Vec<u64>,
    }
    /// The distribution of one key.
    DistributionTable {
        /// The lower end of the range.
        from: Literal,
        /// The upper end of the range.
        to: Literal,
        /// linear (default): the value is uniform over the range. log: its logarithm is uniform.
        scale: Scale,
        /// A list of values from which one is drawn, instead of a range.
        among: Vec<Literal>,
        /// The weight of each value of `among`: how often it occurs in a cycle of draws whose length is the sum of all
        /// weights. Without weights, each draw is independent and all values are equally likely.
        weights: Vec<u64>,
    }
    /// The same runs without their event.
    PlaceboTable {
        /// Changes of the scenario's keys that remove the event.
        set: Changes,
        /// The event that the placebo leaves out, in one sentence.
        why: String,
    }
    /// A class of points.
    ClassTable {
        /// The class's name, which tables use in `by`.
        name: String,
        /// The labels, each LABEL = FORMULA over variables and axes. A point gets the first label whose formula is not
        /// 0.
        labels: Changes,
    }
    /// A number of a run.
    MeasureTable {
        /// The measure's name in tables.
        name: String,
        /// The path of a figure in summary.json, or an expression over several figures with + - * / ( ), mean, min,
        /// max, sum and jain. In a path, * stands for any name and `${NAME}` for a variable.
        value: String,
        /// The unit that tables show; default: that of the figure.
        unit: String,
        /// The number of digits after the decimal point; default 2.
        digits: u64,
        /// A formula over variables and axes. At points where it is 0, the measure does not exist and its bounds do not
        /// apply. Default: the measure exists at all points.
        when: String,
    }
    /// A bound on a measure.
    BoundTable {
        /// The name of the measure that is bounded.
        measure: String,
        /// The path or expression of a measure that only this bound uses, as `value` of a [[measure]].
        value: String,
        /// The unit of the measure in `value`.
        unit: String,
        /// The number of digits after the decimal point of the measure in `value`; default 2.
        digits: u64,
        /// The lowest value that meets the bound.
        min: f64,
        /// The highest value that meets the bound.
        max: f64,
        /// The values that have to meet the bound. mean (default): the mean over the seeds. each: the value of every
        /// seed. interval: both ends of the mean's 95 % confidence interval.
        over: Over,
        /// The variants to which the bound applies; default: all.
        variant: OneOrMany<String>,
        /// The scenarios to which the bound applies; default: all.
        scenario: OneOrMany<String>,
        /// The points to which the bound applies, by the axes' values: each NAME = VALUE or NAME = [VALUES]; default:
        /// all.
        at: Changes,
        /// A formula over variables and axes. The bound applies at points where it is not 0, for example "packets >=
        /// 12".
        when: String,
        /// The share of the points at which the bound has to hold; default 1. Each draw is a point.
        fraction: f64,
        /// The reason for the bound, in one sentence.
        why: String,
        /// The source of the bound's value: an RFC, a paper or an earlier measurement; default: the experiment's
        /// author.
        source: String,
    }
    /// A table.
    TableTable {
        /// The table's title, in one line.
        title: String,
        /// The table's content. points (default): a row per point, with the mean of each measure. bounds: a row per
        /// bound. counts: the number of points at which all bounds hold. held: the number of bounds that hold with
        /// every seed, for each variant. choice: the variants for which all bounds hold.
        kind: TableKind,
        /// points: the measures that are columns; default: all. choice: the measure by which the variants are sorted.
        measure: OneOrMany<String>,
        /// choice: adds a column with the variants that fail only bounds of these measures.
        but: OneOrMany<String>,
        /// Names of axes, columns of `about`, variables or classes. The table has a row for each of their values. With
        /// [] it has one row for all points. points: each row then has means over its points. counts: without this key,
        /// the table has a row per scenario. held: a single name. The table has a column for each value of this name.
        by: OneOrMany<String>,
        /// points: the name of a variant. The table then has mean differences instead of means. Each difference is from
        /// this variant at the same point.
        against: String,
        /// counts: whether the table has additional columns; default false. One column has the number of undecided
        /// points, at which the bounds hold with some seeds only. One has the number of unknown points. For each
        /// measure, one has the number of points at which the bounds on the measure hold.
        bounds: bool,
        /// A formula over variables and axes. The table contains the points where it is not 0; default: all.
        when: String,
        /// points: what the table shows after each mean. range (default): the lowest and the highest value over the
        /// seeds. interval: half of the width of the 95 % confidence interval. none: nothing. With `by` or `against`,
        /// the values are those of the points instead of the seeds, and the default is interval.
        spread: TableSpread,
        /// The scenarios in the table; default: all.
        scenario: OneOrMany<String>,
        /// The variants in the table; default: all.
        variant: OneOrMany<String>,
        /// The path of a CSV file for the table, relative to this file.
        write: String,
    }
    /// A figure.
    FigureTable {
        /// The figure's content. measure (default): a measure over an axis, against another measure, or as bars. time:
        /// the rates and delays of all flows over time, for each scenario and variant, with the first seed.
        kind: FigureKind,
        /// The measure on the vertical axis.
        measure: String,
        /// The name of the experiment's axis on the horizontal axis. Without it, the figure has a bar per variant.
        over: String,
        /// A measure on the horizontal axis, instead of `over`. The figure then has a dot per point and a panel per
        /// variant.
        against: String,
        /// The scenarios in the figure; default: all.
        scenario: OneOrMany<String>,
        /// The figure's caption.
        caption: String,
        /// The path of a file for the figure (.svg, .png or .pdf), relative to this file.
        write: String,
    }
}

words! {
    /// The world of a run.
    pub(crate) enum World {
        Simulated = "simulated",
        Emulated = "emulated",
    }
    /// How values are distributed over a range.
    pub(crate) enum Scale {
        Linear = "linear",
        Log = "log",
    }
    /// The values to which a bound applies: the mean over the seeds, the value of each seed, or the confidence interval
    /// of the mean.
    pub(crate) enum Over {
        Mean = "mean",
        Each = "each",
        Interval = "interval",
    }
}

words! {
    /// What the rows of a table are.
    pub(crate) enum TableKind {
        Points = "points",
        Bounds = "bounds",
        Counts = "counts",
        Held = "held",
        Choice = "choice",
    }
    /// What a figure shows.
    pub(crate) enum FigureKind {
        Measure = "measure",
        Time = "time",
    }
    /// The spread that is shown after a mean.
    pub(crate) enum TableSpread {
        Range = "range",
        Interval = "interval",
        None = "none",
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Seeds(Vec<u64>);

impl Declared for Seeds {
    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "string", "pattern": r"^\d+(-\d+)?$", "examples": ["1-10"] },
            { "type": "array", "items": { "type": "integer", "minimum": 0 } },
        ] })
    }
}

impl FromToml for Seeds {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let remedy = format!("write for example \"1-10\", or a list of up to {MOST} numbers");
        let seeds: Vec<u64> = match &item.value {
            Value::List(_) => Vec::read(item, out)?,
            Value::Text(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
                    // Limit the length of a range, so that a mistyped range can't fill the memory.
                    (Ok(first), Ok(last)) if first <= last && last - first < MOST => (first..=last).collect(),
                    _ => return out.refuse(&item.at, format!("{} is no range of seeds", quoted(text)), remedy),
                }
            }
            _ => return out.refuse(&item.at, format!("{} is no range of seeds", item.shown()), remedy),
        };
        let mut unique = seeds.clone();
        unique.sort_unstable();
        unique.dedup();
        // Refuse a repeated seed. It would narrow the confidence interval of the mean without new evidence.
        if seeds.is_empty() || unique.len() < seeds.len() || seeds.len() as u64 > MOST {
            return out.refuse(&item.at, "the seeds are none, too many, or one of them stands twice", remedy);
        }
        Some(Self(seeds))
    }
}

/// Changes of a scenario, as `--set` accepts them. Each is a path and a value. The value is TOML or plain text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Vec<(String, Item)>);

impl Declared for Changes {
    fn schema() -> Json {
        json!({ "type": "object" })
    }
}

impl FromToml for Changes {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.table() {
            Some(table) => Some(Self(table.to_vec())),
            None => {
                let what = format!("{} is not a table", item.shown());
                out.refuse(&item.at, what, "write { \"flow.video.controller\" = \"tfrc\" }")
            }
        }
    }
}

impl Changes {
    fn json(&self) -> Json {
        self.0.iter().map(|(path, item)| Json::from(format!("{path}={}", literal(&item.value)))).collect()
    }
}

/// A single value, as `--set` accepts it.
#[derive(Clone, Debug)]
pub(crate) struct Literal(Value);

impl Declared for Literal {
    fn schema() -> Json {
        json!({})
    }
}

impl FromToml for Literal {
    fn read(item: &Item, _: &mut Findings) -> Option<Self> {
        Some(Self(item.value.clone()))
    }
}

/// Returns a value as text. A string is returned unchanged, and other values are returned as TOML.
fn literal(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.to_toml(),
    }
}

/// The values of an axis. Each has a label, which comes first.
#[derive(Clone, Debug)]
pub(crate) struct Labelled(Vec<(String, String)>);

impl Declared for Labelled {
    fn schema() -> Json {
        json!({ "type": ["array", "object"] })
    }
}

impl FromToml for Labelled {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let all = match (&item.value, item.table()) {
            (Value::List(list), _) => list.iter().map(|one| (literal(&one.value), literal(&one.value))).collect(),
            (_, Some(table)) => table.iter().map(|(label, one)| (label.clone(), literal(&one.value))).collect(),
            _ => return out.refuse(&item.at, "it is neither a list nor a table", "write [ … ] or { LABEL = VALUE }"),
        };
        Some(Self(all))
    }
}

/// The sets of changes of an axis. Each has a label, which comes first.
#[derive(Clone, Debug)]
pub(crate) struct LabelledChanges(Vec<(String, Changes)>);

impl Declared for LabelledChanges {
    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": Changes::schema() })
    }
}

impl FromToml for LabelledChanges {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let Some(table) = item.table() else {
            return out.refuse(&item.at, "it is not a table", "write { LABEL = { \"PATH\" = VALUE } }");
        };
        let all: Option<Vec<_>> =
            table.iter().map(|(label, one)| Some((label.clone(), Changes::read(one, out)?))).collect();
        all.map(Self)
    }
}

/// The distributions of drawn keys. Each element has the path of a key, and the distribution of its values.
#[derive(Clone, Debug)]
pub(crate) struct Distributions(Vec<(String, Distribution)>);

impl Declared for Distributions {
    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": DistributionTable::schema() })
    }
}

impl FromToml for Distributions {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let Some(table) = item.table() else {
            let what = format!("{} is not a table", item.shown());
            return out.refuse(&item.at, what, "write { \"PATH\" = { from = \"1Mbps\", to = \"20Mbps\" } }");
        };
        let mut all = Vec::new();
        for (path, item) in table {
            all.push((path.clone(), Distribution::of(DistributionTable::read(item, out)?, out)?));
        }
        Some(Self(all))
    }
}

/// What the limits of a range measure: a rate, a time, a size, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    Rate,
    Time,
    Size,
    Whole,
    Number,
}

impl Quantity {
    /// Returns what `value` measures, and its number in bit/s, seconds, bytes or without a unit.
    fn of(value: &Value) -> Option<(Self, f64)> {
        match value {
            Value::Whole(n) => Some((Self::Whole, *n as f64)),
            Value::Real(x) if x.is_finite() => Some((Self::Number, *x)),
            Value::Text(text) => {
                // Try all types, because each unit belongs to only one of them.
                let rate = text.parse::<Rate>().ok().map(|rate| (Self::Rate, rate.as_bps() as f64));
                let time = || text.parse::<Span>().ok().map(|span| (Self::Time, span.as_secs_f64()));
                let size = || text.parse::<Bytes>().ok().map(|size| (Self::Size, size.get() as f64));
                rate.or_else(time).or_else(size)
            }
            _ => None,
        }
    }

    fn text(self, number: f64) -> String {
        match self {
            Self::Rate => format!("{}bps", number.round()),
            Self::Time => format!("{}us", (number * 1e6).round()),
            Self::Size => format!("{}B", number.round()),
            Self::Whole => format!("{}", number.round()),
            // Use the debug format, which writes 5.0 instead of 5. TOML then reads a number with a fraction again.
            Self::Number => format!("{number:?}"),
        }
    }
}

#[derive(Clone, Debug)]
enum Distribution {
    /// The value, or its logarithm, is uniformly distributed between two numbers.
    Range { quantity: Quantity, from: f64, to: f64, scale: Scale },
    /// One of these values is drawn. All values have the same probability.
    Among(Vec<String>),
    /// The values are drawn from a deck of cards without replacement. The deck is refilled when it is empty.
    Deck(Deck, Vec<String>),
}

/// A deck of cards. A card is the index of a value. `left` contains the cards that were not drawn yet.
#[derive(Clone, Debug)]
struct Deck {
    cards: Vec<usize>,
    left: Vec<usize>,
}

impl Deck {
    fn new(values: usize, weights: Option<&Spanned<Vec<u64>>>, out: &mut Findings) -> Option<Self> {
        let cards = match weights {
            None => (0..values).collect(),
            Some(weights) => {
                // Use a saturating sum, because the check below refuses a sum that is too large.
                let count: u64 = weights.value.iter().fold(0, |sum, weight| sum.saturating_add(*weight));
                if weights.value.len() != values || count == 0 || count > MOST {
                    let what = "it is not one whole number for each value";
                    return out.refuse(&weights.at, what, "write weights = [3, 1]");
                }
                let each = weights.value.iter().enumerate();
                each.flat_map(|(value, weight)| std::iter::repeat_n(value, *weight as usize)).collect()
            }
        };
        Some(Self { cards, left: Vec::new() })
    }

    fn draw(&mut self, chance: &mut Chance) -> usize {
        if self.left.is_empty() {
            self.left.clone_from(&self.cards);
        }
        let at = (chance.unit() * self.left.len() as f64) as usize;
        self.left.swap_remove(at.min(self.left.len() - 1))
    }
}

impl Distribution {
    fn of(table: DistributionTable, out: &mut Findings) -> Option<Self> {
        let DistributionTable { here, from, to, scale, among, weights } = table;
        let remedy = "write { from = \"1Mbps\", to = \"20Mbps\", scale = \"log\" }, or { among = [ … ] }";
        let (from, to) = match (from, to, among) {
            (None, None, Some(among)) if scale.is_none() && !among.value.is_empty() => {
                let values: Vec<String> = among.value.iter().map(|value| literal(&value.0)).collect();
                return match weights {
                    None => Some(Self::Among(values)),
                    Some(weights) => Some(Self::Deck(Deck::new(values.len(), Some(&weights), out)?, values)),
                };
            }
            (Some(from), Some(to), None) if weights.is_none() => (from, to),
            _ => return out.refuse(&here, "neither a range nor a list of values", remedy),
        };
        let scale = scale.map_or(Scale::Linear, |scale| scale.value);
        match (Quantity::of(&from.value.0), Quantity::of(&to.value.0)) {
            (Some((quantity, low)), Some((other, high))) if quantity == other && low <= high => {
                if scale == Scale::Log && low <= 0.0 {
                    return out.refuse(&from.at, "a logarithmic range begins above 0", "write a larger value");
                }
                Some(Self::Range { quantity, from: low, to: high, scale })
            }
            _ => out.refuse(&to.at, "the two ends are no range of one quantity", remedy),
        }
    }

    fn draw(&mut self, chance: &mut Chance) -> String {
        match self {
            Self::Deck(deck, values) => values[deck.draw(chance)].clone(),
            Self::Among(values) => {
                let at = (chance.unit() * values.len() as f64) as usize;
                values.get(at).or(values.last()).cloned().unwrap_or_default()
            }
            // Extend the range by 1 before rounding down, so that the last whole number is as likely as the others.
            Self::Range { quantity: Quantity::Whole, from, to, scale: Scale::Linear } => {
                Quantity::Whole.text(chance.between(*from, *to + 1.0).floor().min(*to))
            }
            Self::Range { quantity, from, to, scale: Scale::Linear } => quantity.text(chance.between(*from, *to)),
            Self::Range { quantity, from, to, scale: Scale::Log } => {
                quantity.text(libm::exp(chance.between(libm::log(*from), libm::log(*to))))
            }
        }
    }
}

/// Returns the JSON Schema of an experiment file.
pub fn experiment_schema() -> Json {
    let mut schema = ExperimentFile::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Steadycast experiment");
    schema["required"] = json!(["question", "scenario"]);
    described(schema, &["A question, the runs that answer it, and the bounds that the answer is held to."])
}

/// Values that replace the values in the `[draw]` table of an experiment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redraw {
    /// The seed of the draws.
    pub seed: Option<u64>,
    /// The number of draws.
    pub count: Option<u64>,
}

/// Reads and checks an experiment file. `file` is the name of the file in messages. Returns the content as JSON. In it,
/// all defaults are filled in, changes are texts of the form PATH=VALUE, and the random values are drawn.
///
/// # Errors
/// Returns the problems if the text is not TOML, or if a key is unknown, missing or wrong.
pub fn experiment(text: &str, file: &str, redraw: Redraw) -> Result<Json, Problems> {
    let mut out = Findings::new(file);
    let mut root = from_toml(text, &mut out);
    let read = if out.problems.is_empty() {
        // Give each key its path, which problems use as the name of the key.
        give_paths(&mut root, "");
        ExperimentFile::read(&root, &mut out)
    } else {
        None
    };
    let content = read.map(|read| Checked { file: read, redraw }.json(&mut out));
    match content {
        Some(content) if out.problems.is_empty() => Ok(content),
        _ => Err(Problems(out.problems)),
    }
}

struct Checked {
    file: ExperimentFile,
    redraw: Redraw,
}

impl Checked {
    fn json(&self, out: &mut Findings) -> Json {
        let file = &self.file;
        if let Some(format) = file.format.as_ref().filter(|format| format.value != FORMAT) {
            out.problem(&format.at, format!("format {} is not known", format.value), format!("write {FORMAT}"));
        }
        let question = text(&file.question, "question", &file.here, "write the question in one sentence", out);
        let scenarios = named(&file.scenario, "scenario", &file.here, |table| &table.name, out);
        let own = list(&file.scenario).iter().flat_map(|table| list(&table.bound)).chain(list(&file.bound));
        let measures = match &file.measure {
            // Allow a file without measures if a bound has the key `value`, because such a bound defines its own
            // measure.
            None if own.clone().any(|bound| bound.value.value.is_some()) => Vec::new(),
            _ => named(&file.measure, "measure", &file.here, |table| &table.name, out),
        };
        let variants = variants(file, out);
        let variant_names: Vec<String> = variants.iter().map(|one| one.name.clone()).collect();
        let axes: Vec<_> = list(&file.axis).iter().filter_map(|table| axis(table, &scenarios, out)).collect();
        let names = Names {
            measures: &measures,
            variants: &variant_names,
            judged: &variants.iter().filter(|one| one.judged).map(|one| one.name.as_str()).collect::<Vec<_>>(),
            scenarios: &scenarios,
            axes: &axes,
            over: file.over.as_ref().map_or(Over::Mean, |over| over.value),
        };
        let inner = list(&file.scenario).iter().flat_map(|table| {
            list(&table.bound).iter().map(|bound| (bound, Some(optional(&table.name).to_owned()))).collect::<Vec<_>>()
        });
        let bounds: Vec<_> = list(&file.bound).iter().map(|bound| (bound, None)).chain(inner).collect();
        json!({
            "question": question,
            "seeds": file.seeds.as_ref().map_or_else(|| (1..=5).collect(), |seeds| seeds.value.0.clone()),
            "scenarios": list(&file.scenario).iter().map(|table| scenario(table, &names, out)).collect::<Vec<_>>(),
            "draws": self.draws(out),
            "variables": texts(&file.variables),
            "changes": list(&file.change).iter().map(|table| change(table, &names, out)).collect::<Vec<_>>(),
            "classes": classes(&file.class, out),
            "axes": axes,
            "variants": variants.iter().map(|one| &one.json).collect::<Vec<_>>(),
            "world": file.world.as_ref().map_or(World::Simulated, |world| world.value).word(),
            "placebo": file.placebo.as_ref().map(|placebo| {
                if placebo.set.is_none() {
                    out.missing(&placebo.at, "set", "write the changes that take the event away");
                }
                let why = text(&placebo.why, "why", &placebo.at, "say what the placebo leaves out", out);
                json!({ "sets": changes(&placebo.set), "why": why })
            }),
            "measures": list(&file.measure).iter().map(|table| json!({
                "name": optional(&table.name),
                "value": text(&table.value.value, "value", &table.at, "name a figure, as \"fairness.jain\"", out),
                "unit": optional(&table.unit),
                "digits": digits(&table.digits),
                "when": optional(&table.when),
                // Pass the line on. The caller parses the expression, and reports errors at this line.
                "line": table.at.line,
            })).collect::<Vec<_>>(),
            "bounds": bounds.iter().map(|(table, of)| bound(table, of.as_deref(), &names, out)).collect::<Vec<_>>(),
            "tables": list(&file.table).iter().map(|one| table(one, &names, out)).collect::<Vec<_>>(),
            "figures": list(&file.figure).iter().map(|table| figure(table, &names, out)).collect::<Vec<_>>(),
            "write": optional(&file.write),
        })
    }
}

impl Checked {
    fn draws(&self, out: &mut Findings) -> Vec<Json> {
        match &self.file.draw {
            Some(draw) => draws(draw, self.redraw, out),
            None if self.redraw.seed.or(self.redraw.count).is_some() => {
                out.problem(&self.file.here, "it draws nothing", "leave out --draw and --count, or write a [draw]");
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}

struct Variant {
    name: String,
    /// Whether the variant is subject to bounds that do not mention it.
    judged: bool,
    json: Json,
}

fn variants(file: &ExperimentFile, out: &mut Findings) -> Vec<Variant> {
    let default = file.world.as_ref().map_or(World::Simulated, |world| world.value);
    let mut all: Vec<Variant> = Vec::new();
    for (place, table) in list(&file.variant).iter().enumerate() {
        let names = table.name.as_ref().map_or(&[][..], |name| &name.value.all);
        if names.is_empty() || names.iter().any(|name| name.value.trim().is_empty()) {
            out.missing(&table.at, "name", "give it a name");
        }
        for name in names {
            if all.iter().any(|one| one.name == name.value) {
                let what = format!("the name {} stands twice", quoted(&name.value));
                out.problem(&name.at, what, "give each its own name");
            }
            let world = table.world.as_ref().map_or(default, |world| world.value).word();
            let judged = table.judged.as_ref().is_none_or(|judged| judged.value);
            let sets = changes(&table.set);
            // Put variants into a group if they can be compared. The variants of one table form a group if the table
            // has several names, or if its changes contain `${variant}`.
            let is_group = names.len() > 1 || sets.to_string().contains("${variant}");
            let group = is_group.then_some(place);
            let json = json!({ "name": name.value, "sets": sets, "world": world, "group": group });
            all.push(Variant { name: name.value.clone(), judged, json });
        }
    }
    all
}

fn list<T>(all: &Option<Spanned<Vec<T>>>) -> &[T] {
    all.as_ref().map_or(&[], |all| &all.value)
}

fn optional(said: &Option<Spanned<String>>) -> &str {
    said.as_ref().map_or("", |said| &said.value)
}

fn digits(said: &Option<Spanned<u64>>) -> u64 {
    said.as_ref().map_or(2, |digits| digits.value.min(9))
}

fn changes(set: &Option<Spanned<Changes>>) -> Json {
    set.as_ref().map_or_else(|| json!([]), |set| set.value.json())
}

fn text(said: &Option<Spanned<String>>, key: &str, at: &Place, remedy: &str, out: &mut Findings) -> String {
    match said.as_ref().filter(|said| !said.value.trim().is_empty()) {
        Some(said) => said.value.trim().to_owned(),
        None => {
            out.missing(at, key, remedy);
            String::new()
        }
    }
}

/// Returns the names of the tables in a list. Adds a problem to `out` if the list is empty, or if a name is missing or
/// occurs twice.
fn named<T>(
    all: &Option<Spanned<Vec<Spanned<T>>>>,
    what: &str,
    at: &Place,
    name: impl Fn(&T) -> &Option<Spanned<String>>,
    out: &mut Findings,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for table in list(all) {
        let found = text(name(&table.value), "name", &table.at, "give it a name", out);
        // Skip empty names, because they have been reported as missing.
        if names.contains(&found) && !found.is_empty() {
            out.problem(&table.at, format!("the name {} stands twice", quoted(&found)), "give each its own name");
        }
        names.push(found);
    }
    if names.is_empty() {
        out.missing(at, what, &format!("write at least one [[{what}]]"));
    }
    names
}

/// The names to which the tables of an experiment may refer.
struct Names<'a> {
    measures: &'a [String],
    variants: &'a [String],
    /// The variants to which a bound applies if it has no key `variant`.
    judged: &'a [&'a str],
    scenarios: &'a [String],
    axes: &'a [Json],
    over: Over,
}

impl Names<'_> {
    /// Returns the labels of all axes that have this name. Several scenarios may have an axis of the same name.
    fn labels(&self, axis: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for one in self.axes {
            let names = one["names"].as_array().into_iter().flatten();
            // An axis that has `columns` has several names. Its labels are in the same order.
            for (at, _) in names.enumerate().filter(|(_, name)| *name == axis) {
                let values = one["values"].as_array().into_iter().flatten();
                found.extend(values.filter_map(|value| value["labels"][at].as_str()));
            }
        }
        found
    }

    fn axis_names(&self) -> Vec<String> {
        let names = self.axes.iter().filter_map(|axis| axis["names"].as_array()).flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }
}

/// Returns the names in `said`, or all names if the key is absent. Adds a problem to `out` for each unknown name.
fn among(said: &Option<Spanned<OneOrMany<String>>>, what: &str, all: &[String], out: &mut Findings) -> Json {
    let Some(said) = said else { return json!(all) };
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    for name in said.value.all.iter().filter(|name| !all.contains(&name.value)) {
        out.unknown_name(&name.at, what, &name.value, &names);
    }
    said.value.all.iter().map(|name| name.value.clone()).collect()
}

fn scenario(table: &Spanned<ScenarioTable>, names: &Names<'_>, out: &mut Findings) -> Json {
    if table.file.is_some() == table.text.is_some() {
        out.problem(&table.at, "it needs a file or a text, and not both", "write file = \"home\"");
    }
    json!({
        "name": optional(&table.name),
        "file": table.file.as_ref().map(|file| file.value.clone()),
        "text": table.text.as_ref().map(|text| text.value.clone()),
        "sets": changes(&table.set),
        "variables": texts(&table.variables),
        "about": texts(&table.about),
        "variants": among(&table.variant, "variant", names.variants, out),
    })
}

fn texts(said: &Option<Spanned<Changes>>) -> Json {
    let all = said.as_ref().map_or(&[][..], |said| &said.value.0);
    let each = all.iter().map(|(name, item)| (name.clone(), Json::from(literal(&item.value))));
    each.collect::<serde_json::Map<_, _>>().into()
}

fn change(table: &Spanned<ChangeTable>, names: &Names<'_>, out: &mut Findings) -> Json {
    if table.set.is_none() {
        out.missing(&table.at, "set", "write set = { \"flow.video.media\" = \"greedy\" }");
    }
    json!({
        "when": optional(&table.when),
        "scenarios": among(&table.scenario, "scenario", names.scenarios, out),
        "variants": table.variant.as_ref().map(|_| among(&table.variant, "variant", names.variants, out)),
        "sets": changes(&table.set),
        "line": table.at.line,
    })
}

fn classes(all: &Option<Spanned<Vec<Spanned<ClassTable>>>>, out: &mut Findings) -> Vec<Json> {
    let each = list(all).iter().map(|table| {
        if table.labels.is_none() {
            out.missing(&table.at, "labels", "write labels = { slow = \"rate < 2\", fast = \"1\" }");
        }
        json!({
            "name": text(&table.name, "name", &table.at, "give it a name", out),
            // Use a list, because the labels are tried in the order of the file.
            "labels": table.labels.as_ref().map_or_else(Vec::new, |labels| {
                labels.value.0.iter().map(|(label, item)| json!([label, literal(&item.value)])).collect()
            }),
            "line": table.at.line,
        })
    });
    each.collect()
}

/// Returns all rows, with their values as texts. Returns `None` and adds a problem to `out` unless there are columns
/// and rows, and each row has one value per column.
fn rows(
    columns: &Option<Spanned<Vec<String>>>,
    rows: &Spanned<Vec<Vec<Literal>>>,
    out: &mut Findings,
) -> Option<Vec<Vec<String>>> {
    let count = columns.as_ref().map_or(0, |columns| columns.value.len());
    if count == 0 || rows.value.is_empty() || rows.value.iter().any(|row| row.len() != count) {
        let remedy = "write columns = [\"a\", \"b\"] and rows = [[1, 2], [3, 4]]";
        return out.refuse(&rows.at, "a row has not one value for each column", remedy);
    }
    Some(rows.value.iter().map(|row| row.iter().map(|one| literal(&one.0)).collect()).collect())
}

fn axis(table: &Spanned<AxisTable>, scenarios: &[String], out: &mut Findings) -> Option<Json> {
    let path = optional(&table.path);
    let of = |labels: &[&str], values: &[&str], sets: Json| json!({ "labels": labels, "values": values, "sets": sets });
    let values: Vec<Json> = match (&table.values, &table.sets, &table.rows) {
        (Some(values), None, None) => values
            .value
            .0
            .iter()
            .map(|(label, value)| {
                // If there is no path, set no key. The values are then only used as `${NAME}`.
                let sets = if path.is_empty() { json!([]) } else { json!([format!("{path}={value}")]) };
                of(&[label], &[value], sets)
            })
            .collect(),
        (None, Some(sets), None) if path.is_empty() => {
            sets.value.0.iter().map(|(label, changes)| of(&[label], &[label], changes.json())).collect()
        }
        (None, None, Some(all)) if path.is_empty() && table.name.is_none() => {
            // Set no keys, because the values of rows are only used as `${NAME}`.
            let each = rows(&table.columns, all, out)?.into_iter();
            each.map(|row| json!({ "labels": row, "values": row, "sets": [] })).collect()
        }
        _ => return out.refuse(&table.at, "it needs a path and values, sets, or rows", "write values = [ … ]"),
    };
    if values.is_empty() {
        return out.refuse(&table.at, "it has no values", "write values = [ … ]");
    }
    let end = path.rsplit('.').next().unwrap_or_default().replace('_', " ");
    let name = table.name.as_ref().map_or(end, |name| name.value.clone());
    let names = table.columns.as_ref().map_or_else(|| vec![name], |columns| columns.value.clone());
    if names.iter().any(|name| name.is_empty()) {
        return out.refuse(&table.at, "it has neither a name nor a path", "give it a name");
    }
    let scenarios = among(&table.scenario, "scenario", scenarios, out);
    Some(json!({ "names": names, "path": path, "values": values, "scenarios": scenarios }))
}

/// Draws the random values. Returns the changes and the variables of each draw. Every key and every deck has its own
/// random number generator, so that an additional key changes no other value.
fn draws(table: &Spanned<DrawTable>, redraw: Redraw, out: &mut Findings) -> Vec<Json> {
    let is_empty = table.values.is_none() && table.variables.is_none() && table.deck.is_none();
    let said = table.count.as_ref().map(|count| count.value);
    let Some(count) = redraw.count.or(said).filter(|_| !is_empty) else {
        out.problem(&table.at, "it needs a count and values", "write count = 30 and [draw.values]");
        return Vec::new();
    };
    if count == 0 || count > MOST {
        // A count from the command line has no position in the file. Report the position of the table instead.
        let at = table.count.as_ref().map_or(&table.at, |count| &count.at);
        out.problem(at, format!("{count} is out of range"), format!("write a number from 1 to {MOST}"));
        return Vec::new();
    }
    let seed = Seed(redraw.seed.or(table.seed.as_ref().map(|seed| seed.value)).unwrap_or(1));
    let drawn = |all: &Option<Spanned<Distributions>>| -> Vec<(String, Distribution, Chance)> {
        let all = all.as_ref().map_or(&[][..], |all| &all.value.0);
        all.iter().map(|(name, of)| (name.clone(), of.clone(), seed.part(&format!("draw.{name}")))).collect()
    };
    let (mut paths, mut variables) = (drawn(&table.values), drawn(&table.variables));
    let mut names: Vec<String> = variables.iter().map(|(name, ..)| name.clone()).collect();
    let mut decks = Vec::new();
    for one in list(&table.deck) {
        let Some(cards) = &one.rows else {
            out.missing(&one.at, "rows", "write columns = [\"a\", \"b\"] and rows = [[1, 2], [3, 4]]");
            continue;
        };
        let columns = one.columns.as_ref().map_or(&[][..], |columns| &columns.value);
        for name in columns {
            if names.contains(name) {
                let what = format!("the variable {} is drawn twice", quoted(name));
                out.problem(&one.at, what, "give each variable its own name");
            }
            names.push(name.clone());
        }
        let deck = Deck::new(cards.value.len(), one.weights.as_ref(), out);
        if let (Some(rows), Some(deck)) = (rows(&one.columns, cards, out), deck) {
            let chance = seed.part(&format!("draw.{}", columns.first().map_or("", String::as_str)));
            decks.push((columns, rows, deck, chance));
        }
    }
    let one = |_| {
        let sets: Vec<_> = paths.iter_mut().map(|(path, of, chance)| format!("{path}={}", of.draw(chance))).collect();
        let mut values: serde_json::Map<_, _> =
            variables.iter_mut().map(|(name, of, chance)| (name.clone(), Json::from(of.draw(chance)))).collect();
        for (columns, rows, deck, chance) in &mut decks {
            let card = &rows[deck.draw(chance)];
            values.extend(columns.iter().zip(card).map(|(name, value)| (name.clone(), Json::from(value.clone()))));
        }
        json!({ "sets": sets, "variables": values })
    };
    (0..count).map(one).collect()
}

/// Returns a bound as JSON. `of` is the scenario whose table contains the bound, if there is one.
fn bound(table: &Spanned<BoundTable>, of: Option<&str>, names: &Names<'_>, out: &mut Findings) -> Json {
    let (measure, own) = match &table.value.value {
        Some(value) => {
            let name = text(&table.measure, "measure", &table.at, "give the measure a name", out);
            // A bound that has a `value` defines a new measure. Its name must not be in use.
            if names.measures.contains(&name) {
                out.problem(&value.at, format!("the measure {} has a value", quoted(&name)), "leave one value out");
            }
            let own = json!({
                "value": value.value,
                "unit": optional(&table.unit),
                "digits": digits(&table.digits),
                "when": "",
                "line": value.at.line,
            });
            (name, own)
        }
        None => (known(&table.measure, "measure", names.measures, &table.at, out), Json::Null),
    };
    if table.min.is_none() && table.max.is_none() {
        out.problem(&table.at, "it bounds nothing", "write min, max or both");
    }
    expect::check_limits(table.min.as_ref(), table.max.as_ref(), out);
    if let Some(fraction) = table.fraction.as_ref().filter(|fraction| !(0.0..=1.0).contains(&fraction.value)) {
        out.problem(&fraction.at, format!("{} is out of range", fraction.value), "write a share from 0 to 1");
    }
    if let (Some(_), Some(said)) = (of, &table.scenario) {
        out.problem(&said.at, "it stands in its scenario", "leave the key out");
    }
    let mut at = serde_json::Map::new();
    let axis_names = names.axis_names();
    for (name, item) in table.at_points() {
        if !axis_names.contains(name) {
            let known: Vec<&str> = axis_names.iter().map(String::as_str).collect();
            out.unknown_name(&item.at, "axis", name, &known);
            continue;
        }
        let wanted: Vec<String> = match &item.value {
            Value::List(all) => all.iter().map(|one| literal(&one.value)).collect(),
            one => vec![literal(one)],
        };
        let values = names.labels(name);
        for value in wanted.iter().filter(|value| !values.contains(&value.as_str())) {
            out.unknown_name(&item.at, &format!("value of {name}"), value, &values);
        }
        at.insert(name.clone(), json!(wanted));
    }
    json!({
        "measure": measure,
        "own": own,
        "min": table.min.as_ref().map(|min| min.value),
        "max": table.max.as_ref().map(|max| max.value),
        "over": table.over.as_ref().map_or(names.over, |over| over.value).word(),
        "variants": match table.variant {
            Some(_) => among(&table.variant, "variant", names.variants, out),
            // Use all judged variants. A reference variant (`judged = false`) is subject only to bounds that mention
            // it.
            None => json!(names.judged),
        },
        "scenarios": of.map_or_else(|| among(&table.scenario, "scenario", names.scenarios, out), |of| json!([of])),
        "at": at,
        "when": optional(&table.when),
        "line": table.at.line,
        "fraction": table.fraction.as_ref().map_or(1.0, |fraction| fraction.value),
        "why": text(&table.why, "why", &table.at, "say what the bound stands for", out),
        "source": optional(&table.source),
    })
}

impl BoundTable {
    fn at_points(&self) -> &[(String, Item)] {
        self.at.as_ref().map_or(&[], |at| &at.value.0)
    }
}

fn table(table: &Spanned<TableTable>, names: &Names<'_>, out: &mut Findings) -> Json {
    let kind = table.kind.as_ref().map_or(TableKind::Points, |kind| kind.value);
    let measures = among(&table.measure, "measure", names.measures, out);
    if kind == TableKind::Choice && table.measure.as_ref().is_none_or(|said| said.value.all.len() != 1) {
        out.problem(&table.at, "a choice is ordered by one measure", "write measure = \"delay\"");
    }
    if kind != TableKind::Choice && table.but.is_some() {
        out.problem(&table.at, "only a choice has `but`", "leave the key out");
    }
    if kind != TableKind::Points && table.against.is_some() {
        out.problem(&table.at, "only a table of points has `against`", "leave the key out");
    }
    if kind != TableKind::Counts && table.bounds.is_some() {
        out.problem(&table.at, "only counts have `bounds`", "leave the key out");
    }
    let by = table.by.as_ref().map(|by| by.value.all.iter().map(|name| name.value.clone()).collect::<Vec<_>>());
    if kind == TableKind::Held && by.as_ref().is_some_and(|by| by.len() != 1) {
        out.problem(&table.at, "the columns of `held` are the values of one name", "write by = \"group\"");
    }
    // With `by` or `against`, the means are over points. The table then shows their spread over the points instead of
    // the seeds, and the default is an interval.
    let over_points = kind == TableKind::Points && (by.is_some() || table.against.is_some());
    let spread = if over_points { TableSpread::Interval } else { TableSpread::Range };
    json!({
        // Handle an absent key here, because `among` would return all measures.
        "but": table.but.as_ref().map_or_else(|| json!([]), |_| among(&table.but, "measure", names.measures, out)),
        "title": text(&table.title, "title", &table.at, "say what it shows", out),
        "kind": kind.word(),
        "measures": measures,
        "by": by,
        "against": table.against.as_ref().map(|_| known(&table.against, "variant", names.variants, &table.at, out)),
        "by_bound": table.bounds.as_ref().is_some_and(|bounds| bounds.value),
        "when": optional(&table.when),
        "line": table.at.line,
        "spread": table.spread.as_ref().map_or(spread, |spread| spread.value).word(),
        "scenarios": among(&table.scenario, "scenario", names.scenarios, out),
        "variants": among(&table.variant, "variant", names.variants, out),
        "write": optional(&table.write),
    })
}

fn figure(table: &Spanned<FigureTable>, names: &Names<'_>, out: &mut Findings) -> Json {
    let kind = table.kind.as_ref().map_or(FigureKind::Measure, |kind| kind.value);
    // Call `known` only if the key is present, because it would report an absent key.
    let over = table.over.as_ref().map(|_| known(&table.over, "over", &names.axis_names(), &table.at, out));
    let against = table.against.as_ref().map(|_| known(&table.against, "against", names.measures, &table.at, out));
    if let (Some(_), Some(said)) = (&over, &table.against) {
        out.problem(&said.at, "it has an axis and a measure on its abscissa", "leave out over or against");
    }
    let measure = match (kind, &table.measure) {
        (FigureKind::Measure, _) => json!(known(&table.measure, "measure", names.measures, &table.at, out)),
        (FigureKind::Time, None) if over.is_none() && against.is_none() => Json::Null,
        (FigureKind::Time, _) => {
            out.problem(&table.at, "a figure over time has no measure and no axis", "leave the keys out");
            Json::Null
        }
    };
    json!({
        "kind": kind.word(),
        "measure": measure,
        "over": over,
        "against": against,
        "scenarios": among(&table.scenario, "scenario", names.scenarios, out),
        "caption": text(&table.caption, "caption", &table.at, "write a caption", out),
        "write": optional(&table.write),
    })
}

fn known(said: &Option<Spanned<String>>, key: &str, all: &[String], at: &Place, out: &mut Findings) -> String {
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let name = text(said, key, at, "name one of the file's", out);
    if let Some(said) = said.as_ref().filter(|said| !all.contains(&said.value)) {
        out.unknown_name(&said.at, if key == "over" { "axis" } else { key }, &said.value, &names);
    }
    name
}
