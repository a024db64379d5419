//! The figures of an object and of the objects in it, which are computed while the summary is written.

use crate::{Figure, Figures, Parts};
use serde_json::{Map, Value};
use std::io::{self, Write};

type List<'a> = Box<dyn Iterator<Item = Tree<'a>> + 'a>;

/// The figures of an object, and lists of the objects in it. To save memory, the objects in a list are computed one at
/// a time while they are written. A [`Value`] of 100,000 receivers would need several times the memory of its text.
pub struct Tree<'a> {
    /// The figures of the object itself.
    pub figures: Figures,
    lists: Vec<(&'static str, List<'a>)>,
}

impl<'a> Tree<'a> {
    /// Sets the value of `figure` to a list of objects that have figures.
    pub fn list<T: Into<Self> + 'a>(&mut self, figure: &Figure, things: impl IntoIterator<Item = T> + 'a) {
        debug_assert_eq!(figure.parts, Parts::One, "{}", figure.key);
        // Write a null, which reserves the position of the list among the keys.
        self.figures.put(figure, Value::Null);
        self.lists.retain(|(key, _)| *key != figure.key);
        self.lists.push((figure.key, Box::new(things.into_iter().map(Into::into))));
    }

    /// Returns the tree as JSON. The text is the same as the text of its [`Value`].
    pub fn into_json(self) -> String {
        let mut text = Vec::new();
        // Ignore errors, because writing to memory never fails and JSON is UTF-8.
        let _ = self.write_json(&mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Writes the tree as JSON.
    ///
    /// # Errors
    /// Returns the error of `into`.
    pub fn write_json(self, into: &mut dyn Write) -> io::Result<()> {
        let (said, mut lists) = self.parts();
        into.write_all(b"{")?;
        for (n, (key, value)) in said.into_iter().enumerate() {
            into.write_all(if n == 0 { b"" } else { b"," })?;
            let list = take(&mut lists, &key, &value);
            serde_json::to_writer(&mut *into, &key)?;
            into.write_all(b":")?;
            match list {
                Some(things) => write_list(things, into)?,
                None => serde_json::to_writer(&mut *into, &value)?,
            }
        }
        into.write_all(b"}")
    }

    fn parts(self) -> (Map<String, Value>, Vec<(&'static str, List<'a>)>) {
        match Value::from(self.figures) {
            Value::Object(said) => (said, self.lists),
            _ => (Map::new(), self.lists),
        }
    }
}

/// Removes the list that belongs to `key` from `lists` and returns it. `value` is the value of the key. Returns `None`
/// if there is no such list. Also returns `None` if `value` is not null, because then a value was written to the key
/// after the list.
fn take<'a>(lists: &mut Vec<(&'static str, List<'a>)>, key: &str, value: &Value) -> Option<List<'a>> {
    let place = lists.iter().position(|(name, _)| *name == key && value.is_null())?;
    Some(lists.swap_remove(place).1)
}

fn write_list(things: List<'_>, into: &mut dyn Write) -> io::Result<()> {
    into.write_all(b"[")?;
    for (n, thing) in things.enumerate() {
        into.write_all(if n == 0 { b"" } else { b"," })?;
        thing.write_json(into)?;
    }
    into.write_all(b"]")
}

impl From<Figures> for Tree<'_> {
    fn from(figures: Figures) -> Self {
        Self { figures, lists: Vec::new() }
    }
}

impl From<Tree<'_>> for Value {
    fn from(tree: Tree<'_>) -> Self {
        let (mut said, mut lists) = tree.parts();
        for (key, value) in &mut said {
            if let Some(things) = take(&mut lists, key, value) {
                *value = things.map(Self::from).collect();
            }
        }
        Self::Object(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Of, flow, receiver, run};
    use serde_json::json;

    fn tree(flows: usize) -> Tree<'static> {
        let mut tree = Tree::from(Figures::new(Of::Run));
        tree.figures.put(&run::WORLD, "a \"world\"\n");
        tree.list(
            &run::FLOWS,
            (0..flows).map(|n| {
                let mut each = Tree::from(Figures::new(Of::Flow));
                each.figures.put(&flow::THROUGHPUT, [0.1, f64::NAN, 1e300][n]);
                each.figures.put(&flow::RAMP_1MBPS, n as u64);
                each.list(&flow::RECEIVERS, (0..n).map(|_| Figures::new(Of::Receiver)));
                each
            }),
        );
        tree.figures.put(&run::COMPLETE, true);
        tree
    }

    #[test]
    fn the_text_is_that_of_the_value_with_lists_in_their_keys_places() {
        for flows in [0, 1, 3] {
            let value = Value::from(tree(flows));
            assert_eq!(value["flows"].as_array().map(Vec::len), Some(flows));
            assert_eq!(tree(flows).into_json(), value.to_string());
        }
        assert_eq!(Value::from(tree(3))["flows"][1]["receivers"], json!([{}]));
    }

    #[test]
    fn what_is_said_last_of_a_key_holds() {
        let named = |name: &str| {
            let mut said = Figures::new(Of::Receiver);
            said.put(&receiver::NAME, name);
            said
        };
        let mut tree = Tree::from(Figures::new(Of::Flow));
        tree.figures.put_list(&flow::RECEIVERS, [named("first")]);
        tree.list(&flow::RECEIVERS, [named("second")]);
        tree.list(&flow::RECEIVERS, [named("third")]);
        assert_eq!(tree.into_json(), r#"{"receivers":[{"name":"third"}]}"#);
        let mut tree = Tree::from(Figures::new(Of::Flow));
        tree.list(&flow::RECEIVERS, [named("first")]);
        tree.figures.put_list(&flow::RECEIVERS, [named("last")]);
        assert_eq!(Value::from(tree), json!({ "receivers": [{ "name": "last" }] }));
    }
}
