//! Rows of the record, of which a run makes more for as long as it lasts.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Where rows go that nobody needs before the end: a world that may run for hours has one, so that its memory does not grow.
pub trait Store: Send + Sync + fmt::Debug {
    /// Puts bytes behind those that are there, and says where.
    ///
    /// # Errors
    /// The system's: there is no room, for one.
    fn put(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Fetches what was put there.
    ///
    /// # Errors
    /// The system's.
    fn get(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// A row that can be stored.
pub trait Row: Sized {
    /// Any row, to be read into.
    fn blank() -> Self;
    /// Passes each field by: to be written, or read.
    fn fields(&mut self, by: &mut Fields<'_>);
}

/// How many rows go to the store at once; as many stay behind.
const BLOCK: usize = 64;

/// Rows, the oldest first. As a slice they are all of them where there is no store, or once they are recalled; before that the latest,
/// [`BLOCK`] at least.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    latest: Vec<T>,
    /// Where the older ones lie, and how many bytes.
    blocks: Vec<(u64, u32)>,
    /// Texts of the program itself that occur in them.
    words: Vec<&'static str>,
    store: Option<Arc<dyn Store>>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { latest: Vec::new(), blocks: Vec::new(), words: Vec::new(), store: None }
    }
}

impl<T: Row> Rows<T> {
    /// None yet; older ones are to go there.
    pub fn stored(store: Option<Arc<dyn Store>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// One row more.
    pub fn push(&mut self, row: T) {
        // Where the store has refused once, all rows stay.
        if self.latest.len() == 2 * BLOCK
            && let Some(store) = &self.store
        {
            let mut bytes = Vec::new();
            let mut fields = Fields { bytes: &mut bytes, at: None, words: &mut self.words };
            self.latest[..BLOCK].iter_mut().for_each(|row| row.fields(&mut fields));
            if let (Ok(at), Ok(len)) = (store.put(&bytes), u32::try_from(bytes.len())) {
                self.blocks.push((at, len));
                self.latest.drain(..BLOCK);
            }
        }
        self.latest.push(row);
    }

    /// All rows.
    ///
    /// # Errors
    /// The store's.
    pub fn whole(mut self) -> io::Result<Vec<T>> {
        self.recall()?;
        Ok(self.latest)
    }
}

impl<T> Deref for Rows<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.latest
    }
}

impl<T> DerefMut for Rows<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.latest
    }
}

impl<'a, T> IntoIterator for &'a Rows<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.latest.iter()
    }
}

impl<T: Row> Extend<T> for Rows<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.push(row));
    }
}

/// Rows of any kind.
pub trait Kept {
    /// Older ones are to go there from now on.
    fn keep_in(&mut self, store: &Arc<dyn Store>);

    /// Fetches those that are in the store.
    ///
    /// # Errors
    /// The store's.
    fn recall(&mut self) -> io::Result<()>;
}

impl<T: Row> Kept for Rows<T> {
    fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.store = Some(Arc::clone(store));
    }

    fn recall(&mut self) -> io::Result<()> {
        let Some(store) = self.store.take() else { return Ok(()) };
        let mut all = Vec::with_capacity(self.blocks.len() * BLOCK + self.latest.len());
        for (at, len) in self.blocks.drain(..) {
            let mut bytes = vec![0; len as usize];
            store.get(at, &mut bytes)?;
            let mut fields = Fields { bytes: &mut bytes, at: Some(0), words: &mut self.words };
            for _ in 0..BLOCK {
                let mut row = T::blank();
                row.fields(&mut fields);
                all.push(row);
            }
        }
        all.append(&mut self.latest);
        self.latest = all;
        Ok(())
    }
}

/// The fields of a row, one after the other: each is written, or read, by the same call.
pub struct Fields<'a> {
    bytes: &'a mut Vec<u8>,
    /// The place of the next that is read; nothing when they are written.
    at: Option<usize>,
    words: &'a mut Vec<&'static str>,
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self, value: [u8; N]) -> [u8; N] {
        let Some(at) = &mut self.at else {
            self.bytes.extend(value);
            return value;
        };
        let read = self.bytes.get(*at..).and_then(|rest| rest.first_chunk()).copied();
        debug_assert!(read.is_some(), "rows are read as they were written");
        *at += N;
        read.unwrap_or(value)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: &mut u32) {
        *value = u32::from_le_bytes(self.array(value.to_le_bytes()));
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, value: &mut u64) {
        *value = u64::from_le_bytes(self.array(value.to_le_bytes()));
    }

    /// A real number.
    pub fn f64(&mut self, value: &mut f64) {
        *value = f64::from_le_bytes(self.array(value.to_le_bytes()));
    }

    /// True or false.
    pub fn flag(&mut self, value: &mut bool) {
        *value = self.array([u8::from(*value)]) != [0];
    }

    /// A time.
    pub fn time(&mut self, value: &mut Time) {
        *value = Time::from_nanos(u64::from_le_bytes(self.array(value.as_nanos().to_le_bytes())));
    }

    /// A span.
    pub fn span(&mut self, value: &mut Span) {
        *value = Span::nanos(u64::from_le_bytes(self.array(value.as_nanos().to_le_bytes())));
    }

    /// A rate.
    pub fn rate(&mut self, value: &mut Rate) {
        *value = Rate::bps(u64::from_le_bytes(self.array(value.as_bps().to_le_bytes())));
    }

    /// An amount of bytes.
    pub fn amount(&mut self, value: &mut Bytes) {
        *value = Bytes::new(u64::from_le_bytes(self.array(value.get().to_le_bytes())));
    }

    /// One of a few values.
    pub fn one_of<T: Copy + PartialEq>(&mut self, value: &mut T, all: &[T]) {
        let place = all.iter().position(|other| other == value).unwrap_or_default();
        let [place] = self.array([place as u8]);
        *value = all.get(usize::from(place)).copied().unwrap_or(*value);
    }

    /// A value that may be missing; `any` is one to be read into.
    pub fn maybe<T>(&mut self, value: &mut Option<T>, any: T, pass: impl FnOnce(&mut Self, &mut T)) {
        let mut there = value.is_some();
        self.flag(&mut there);
        if there {
            pass(self, value.get_or_insert(any));
        }
    }

    /// A text of the program itself, by its place among those that there are.
    pub fn word(&mut self, word: &mut &'static str) {
        let known = self.words.iter().position(|other| other == word);
        let mut place = known.unwrap_or(self.words.len()) as u32;
        if known.is_none() && self.at.is_none() {
            self.words.push(word);
        }
        self.u32(&mut place);
        *word = self.words.get(place as usize).copied().unwrap_or_default();
    }

    /// Any text.
    pub fn text(&mut self, text: &mut Cow<'static, str>) {
        let mut own = matches!(text, Cow::Borrowed(_));
        self.flag(&mut own);
        if own {
            let mut word = if let Cow::Borrowed(word) = text { word } else { "" };
            self.word(&mut word);
            *text = Cow::Borrowed(word);
            return;
        }
        let mut letters = text.clone().into_owned().into_bytes();
        let mut len = letters.len() as u32;
        self.u32(&mut len);
        letters.resize(len as usize, 0);
        letters.iter_mut().for_each(|letter| [*letter] = self.array([*letter]));
        *text = Cow::Owned(String::from_utf8_lossy(&letters).into_owned());
    }
}

impl Row for u64 {
    fn blank() -> Self {
        0
    }
    fn fields(&mut self, by: &mut Fields<'_>) {
        by.u64(self);
    }
}

impl Row for f64 {
    fn blank() -> Self {
        0.0
    }
    fn fields(&mut self, by: &mut Fields<'_>) {
        by.f64(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// A store with room for this many bytes.
    #[derive(Debug)]
    struct Room(usize, Mutex<Vec<u8>>);

    impl Store for Room {
        fn put(&self, bytes: &[u8]) -> io::Result<u64> {
            let mut all = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() + bytes.len() > self.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let at = all.len() as u64;
            all.extend_from_slice(bytes);
            Ok(at)
        }
        fn get(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
            let all = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let found = all.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
            bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn filled<T: Row>(room: usize, count: u64, row: impl Fn(u64) -> T) -> Rows<T> {
        let mut rows = Rows::stored(Some(Arc::new(Room(room, Mutex::default()))));
        rows.extend((0..count).map(row));
        rows
    }

    #[test]
    fn fields_of_every_kind_come_back_from_a_store_as_they_were() {
        let text = |n: u64| -> Cow<'static, str> {
            if n.is_multiple_of(2) { "own".into() } else { format!("größer als {n}").into() }
        };
        let row = |n: u64| Mixed {
            flag: n.is_multiple_of(5),
            at: Time::from_nanos(n),
            rate: Rate::bps(n),
            size: n.is_multiple_of(3).then_some(Bytes::new(n)),
            word: ["", "slow start"][n as usize % 2],
            text: text(n),
            one: [1, 2, 3][n as usize % 3],
        };
        let mut rows = filled(usize::MAX, 1_000, row);
        assert!((BLOCK..=2 * BLOCK).contains(&rows.len()), "{} in memory", rows.len());
        assert_eq!(rows.last(), Some(&row(999)));
        rows.recall().unwrap();
        assert_eq!(*rows, (0..1_000).map(row).collect::<Vec<_>>());
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Mixed {
        flag: bool,
        at: Time,
        rate: Rate,
        size: Option<Bytes>,
        word: &'static str,
        text: Cow<'static, str>,
        one: u8,
    }

    impl Row for Mixed {
        fn blank() -> Self {
            let (at, rate) = (Time::ZERO, Rate::ZERO);
            Self { flag: false, at, rate, size: None, word: "", text: "".into(), one: 1 }
        }
        fn fields(&mut self, by: &mut Fields<'_>) {
            by.flag(&mut self.flag);
            by.time(&mut self.at);
            by.rate(&mut self.rate);
            by.maybe(&mut self.size, Bytes::ZERO, Fields::amount);
            by.word(&mut self.word);
            by.text(&mut self.text);
            by.one_of(&mut self.one, &[1, 2, 3]);
        }
    }

    #[test]
    fn a_store_that_is_full_loses_no_row() {
        // Room for three blocks of eight bytes a row, and a half.
        let mut rows = filled(8 * BLOCK * 7 / 2, 1_000, |n| n);
        assert_eq!(rows.len(), 1_000 - 3 * BLOCK);
        rows.recall().unwrap();
        assert_eq!(*rows, (0..1_000).collect::<Vec<_>>());
    }
}
