//! Rows of the record. Their number grows with the duration of a run.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time};

/// A store for rows that are not needed before the end of a run. It keeps the memory of a long run small.
pub trait Store: Send + Sync + fmt::Debug {
    /// Appends bytes to the store. Returns their position.
    ///
    /// # Errors
    /// Returns the system's error, for example if the disk is full.
    fn put(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Reads bytes from the position `at`, until the slice `bytes` is full.
    ///
    /// # Errors
    /// Returns the system's error.
    fn get(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// A row that can be stored.
pub trait Row: Default {
    /// Passes each field to `by`. `by` writes the field, or replaces it by the value that it reads.
    fn pass(&mut self, by: &mut Fields<'_>);
}

/// Declares the fields of a row, in the order in which they are stored. A field of a field is declared as a path.
#[macro_export]
macro_rules! row {
    ($type:ty { $($($field:tt).+),+ }) => {
        impl $crate::Row for $type {
            fn pass(&mut self, by: &mut $crate::Fields<'_>) {
                $($crate::Row::pass(&mut self.$($field).+, by);)+
            }
        }
    };
}

/// The number of rows that are written to the store together. At least this number of rows stays in memory.
const BLOCK: usize = 64;
/// The number of rows that are packed at a time. At least this number of rows stays unpacked.
const PACK: usize = 1;
/// The space in bytes that is reserved for a packed row. Most packed rows are smaller.
const PACKED: usize = 32;

/// A growing list of rows, in which the oldest row is first. As a slice, the list contains only the latest rows:
/// - if the rows are stored, at least the last `BLOCK` rows,
/// - if the rows are packed, at least the last `PACK` rows,
/// - otherwise, and after [`StoredRows::recall`], all rows.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    latest: Vec<T>,
    older: Older,
    /// Static texts, to which the rows refer by index.
    words: Vec<&'static str>,
}

#[derive(Clone, Debug)]
enum Older {
    /// The older rows are in the same list as the latest ones.
    InMemory,
    /// The older rows are packed in memory, field by field.
    Packed(Vec<u8>),
    /// The store, the number of blocks, and the position of the last block. Each block contains the position of the
    /// previous block, so that the positions need no memory.
    Stored(Arc<dyn Store>, usize, u64),
}

/// The start of a block: the position of the previous block, and the length of this block's rows in bytes.
type Head = [[u8; 8]; 2];

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { latest: Vec::new(), older: Older::InMemory, words: Vec::new() }
    }
}

impl<T: Row> Rows<T> {
    /// Creates an empty list. If there is a store, older rows are written to it.
    pub fn stored(store: Option<Arc<dyn Store>>) -> Self {
        Self { older: store.map_or(Older::InMemory, |store| Older::Stored(store, 0, 0)), ..Self::default() }
    }

    /// Creates an empty list whose older rows are packed. This is for callers that have many lists.
    pub fn packed() -> Self {
        Self { older: Older::Packed(Vec::new()), ..Self::default() }
    }

    /// Appends a row.
    pub fn push(&mut self, row: T) {
        match &mut self.older {
            Older::Packed(bytes) if self.latest.len() == 2 * PACK => {
                // Reserve memory in small steps. `Vec` would double its capacity, and half of it would stay unused.
                if bytes.capacity() - bytes.len() < PACKED {
                    bytes.reserve_exact(PACKED + bytes.len() / 8);
                }
                write(bytes, &mut self.words, &mut self.latest[..PACK]);
                self.latest.drain(..PACK);
            }
            // Reserve room for two packs. `Vec` itself would start with a capacity of four rows.
            Older::Packed(_) if self.latest.is_empty() => self.latest.reserve_exact(2 * PACK),
            // Keep one block in `latest`, because callers read the latest rows. If the store refuses a block, `latest`
            // grows beyond this length, so that all further rows stay in memory.
            Older::Stored(store, blocks, last) if self.latest.len() == 2 * BLOCK => {
                let mut bytes = Vec::new();
                write(&mut bytes, &mut self.words, &mut self.latest[..BLOCK]);
                let head: Head = [last.to_le_bytes(), (bytes.len() as u64).to_le_bytes()];
                // Insert the head last, because it contains the length of the rows.
                bytes.splice(..0, head.into_iter().flatten());
                if let Ok(at) = store.put(&bytes) {
                    (*blocks, *last) = (*blocks + 1, at);
                    self.latest.drain(..BLOCK);
                }
            }
            _ => {}
        }
        self.latest.push(row);
    }

    /// Returns the rows in memory. Stored rows are included only after [`StoredRows::recall`].
    pub fn all(&self) -> Cow<'_, [T]>
    where
        T: Clone,
    {
        match &self.older {
            Older::Packed(bytes) if !bytes.is_empty() => {
                let mut all = Vec::new();
                // Copy the bytes and words, because `read` takes mutable references. It needs them because reading and
                // writing share the code of `Row::pass`.
                read(&mut bytes.clone(), &mut self.words.clone(), &mut all);
                all.extend_from_slice(&self.latest);
                Cow::Owned(all)
            }
            _ => Cow::Borrowed(&self.latest),
        }
    }

    /// Returns all rows, including stored rows.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn whole(mut self) -> io::Result<Vec<T>> {
        self.recall()?;
        Ok(self.latest)
    }
}

fn write<T: Row>(bytes: &mut Vec<u8>, words: &mut Vec<&'static str>, rows: &mut [T]) {
    let mut fields = Fields { bytes, at: None, words };
    rows.iter_mut().for_each(|row| row.pass(&mut fields));
}

fn read<T: Row>(bytes: &mut Vec<u8>, words: &mut Vec<&'static str>, into: &mut Vec<T>) {
    let end = bytes.len();
    let mut fields = Fields { bytes, at: Some(0), words };
    while fields.at.is_some_and(|at| at < end) {
        let mut row = T::default();
        row.pass(&mut fields);
        into.push(row);
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

/// A list of rows whose type does not matter.
pub trait StoredRows {
    /// Writes older rows to `store` from now on.
    fn keep_in(&mut self, store: &Arc<dyn Store>);

    /// Reads the stored rows back into memory.
    ///
    /// # Errors
    /// Returns the store's error.
    fn recall(&mut self) -> io::Result<()>;
}

impl<T: Row> StoredRows for Rows<T> {
    fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.unpack();
        self.older = Older::Stored(Arc::clone(store), 0, 0);
    }

    fn recall(&mut self) -> io::Result<()> {
        self.unpack();
        let Older::Stored(store, blocks, last) = &self.older else { return Ok(()) };
        let (mut places, mut at) = (vec![(0, 0); *blocks], *last);
        // Find the positions of the blocks, from the last block to the first.
        for place in places.iter_mut().rev() {
            let mut head = Head::default();
            store.get(at, head.as_flattened_mut())?;
            *place = (at + size_of::<Head>() as u64, u64::from_le_bytes(head[1]));
            at = u64::from_le_bytes(head[0]);
        }
        let mut all = Vec::with_capacity(blocks * BLOCK + self.latest.len());
        for (at, len) in places {
            let mut bytes = vec![0; len as usize];
            store.get(at, &mut bytes)?;
            read(&mut bytes, &mut self.words, &mut all);
        }
        all.append(&mut self.latest);
        (self.latest, self.older) = (all, Older::InMemory);
        Ok(())
    }
}

impl<T: Row> Rows<T> {
    fn unpack(&mut self) {
        if let Older::Packed(bytes) = &mut self.older {
            let mut all = Vec::new();
            read(bytes, &mut self.words, &mut all);
            all.append(&mut self.latest);
            (self.latest, self.older) = (all, Older::InMemory);
        }
    }
}

/// Writes or reads the fields of a row. The same calls do both.
pub struct Fields<'a> {
    bytes: &'a mut Vec<u8>,
    /// The position of the next field to read. `None` while rows are written.
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
        // The bytes can't be missing, because the same program has written the rows.
        debug_assert!(read.is_some(), "rows are read as they were written");
        *at += N;
        read.unwrap_or(value)
    }

    /// Writes or reads a number. Each byte has seven bits of the number, and the lowest bits come first. This saves
    /// space, because most numbers are small.
    fn number(&mut self, value: u64) -> u64 {
        let (mut rest, mut all) = (value, 0);
        for shift in (0..u64::BITS).step_by(7) {
            let last = rest < 0x80;
            let [byte] = self.array([rest as u8 & 0x7f | if last { 0 } else { 0x80 }]);
            all |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            rest >>= 7;
        }
        all
    }

    /// Writes or reads a value that is one of a few values. Stores the index of the value in `all`.
    pub fn one_of<T: Copy + PartialEq>(&mut self, value: &mut T, all: &[T]) {
        let place = all.iter().position(|other| other == value).unwrap_or_default();
        let [place] = self.array([place as u8]);
        *value = all.get(usize::from(place)).copied().unwrap_or(*value);
    }
}

/// Implements [`Row`] for types that are stored as a number.
macro_rules! numbers {
    ($($type:ty: $to:expr, $of:expr;)*) => {$(
        impl Row for $type {
            fn pass(&mut self, by: &mut Fields<'_>) {
                let (to, of): (fn(Self) -> u64, fn(u64) -> Self) = ($to, $of);
                *self = of(by.number(to(*self)));
            }
        }
    )*};
}

numbers! {
    u32: u64::from, |n| n as u32;
    u64: |n| n, |n| n;
    i64: i64::cast_unsigned, u64::cast_signed;
    Time: Time::as_nanos, Time::from_nanos;
    Span: Span::as_nanos, Span::nanos;
    Rate: Rate::as_bps, Rate::bps;
    Bytes: Bytes::get, Bytes::new;
}

impl Row for f64 {
    fn pass(&mut self, by: &mut Fields<'_>) {
        *self = Self::from_le_bytes(by.array(self.to_le_bytes()));
    }
}

impl Row for bool {
    fn pass(&mut self, by: &mut Fields<'_>) {
        *self = by.array([u8::from(*self)]) != [0];
    }
}

impl<T: Row> Row for Option<T> {
    fn pass(&mut self, by: &mut Fields<'_>) {
        let mut there = self.is_some();
        there.pass(by);
        if there {
            self.get_or_insert_default().pass(by);
        }
    }
}

/// A static text is stored as its index in the list of all static texts.
impl Row for &'static str {
    fn pass(&mut self, by: &mut Fields<'_>) {
        let known = by.words.iter().position(|other| other == self);
        let mut place = known.unwrap_or(by.words.len()) as u32;
        // Do not add the text while a row is read, because `self` is then a default value.
        if known.is_none() && by.at.is_none() {
            by.words.push(self);
        }
        place.pass(by);
        *self = by.words.get(place as usize).copied().unwrap_or_default();
    }
}

impl Row for Cow<'static, str> {
    fn pass(&mut self, by: &mut Fields<'_>) {
        // Store only a static text by its index. Other texts are stored as bytes.
        let mut own = matches!(self, Cow::Borrowed(_));
        own.pass(by);
        if own {
            let mut word = if let Cow::Borrowed(word) = self { word } else { "" };
            word.pass(by);
            *self = Cow::Borrowed(word);
            return;
        }
        let mut letters = self.clone().into_owned().into_bytes();
        let mut len = letters.len() as u32;
        len.pass(by);
        // While a row is read, make room for the letters.
        letters.resize(len as usize, 0);
        letters.iter_mut().for_each(|letter| [*letter] = by.array([*letter]));
        *self = Cow::Owned(String::from_utf8_lossy(&letters).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// A store whose capacity is the given number of bytes.
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

    #[derive(Clone, Debug, Default, PartialEq)]
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
        fn pass(&mut self, by: &mut Fields<'_>) {
            self.flag.pass(by);
            self.at.pass(by);
            self.rate.pass(by);
            self.size.pass(by);
            self.word.pass(by);
            self.text.pass(by);
            by.one_of(&mut self.one, &[1, 2, 3]);
        }
    }

    #[test]
    fn a_store_that_is_full_loses_no_row() {
        // The store has room for three and a half blocks, because each row has ten bytes.
        let mut rows = filled(10 * BLOCK * 7 / 2, 1_000, |n| u64::MAX - n);
        assert_eq!(rows.len(), 1_000 - 3 * BLOCK);
        rows.recall().unwrap();
        assert_eq!(*rows, (0..1_000).map(|n| u64::MAX - n).collect::<Vec<_>>());
    }

    /// A store that accepts all bytes and discards them.
    #[derive(Debug)]
    struct Nothing;

    impl Store for Nothing {
        fn put(&self, _: &[u8]) -> io::Result<u64> {
            Ok(0)
        }
        fn get(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    #[test]
    fn rows_in_a_store_take_no_more_memory_the_more_there_are() {
        let mut rows = Rows::stored(Some(Arc::new(Nothing)));
        rows.extend(0..2 * BLOCK as u64);
        let more = allocation_counter::measure(|| rows.extend(0..1_000 * BLOCK as u64));
        assert_eq!((more.count_current, more.bytes_current), (0, 0), "{more:?}");
    }

    #[test]
    fn packed_rows_are_all_there_in_a_fraction_of_the_memory() {
        let row = |n: u64| n * 1_000;
        let mut rows = Rows::packed();
        for n in 0..1_000 {
            rows.push(row(n));
            assert_eq!(rows.last(), Some(&row(n)));
        }
        let Older::Packed(bytes) = &rows.older else { panic!("{rows:?}") };
        assert!(bytes.capacity() < 4_000 && rows.len() <= 2 * PACK, "{} bytes, {} rows", bytes.capacity(), rows.len());
        let all: Vec<u64> = (0..1_000).map(row).collect();
        assert_eq!(*rows.all(), all);
        rows.keep_in(&(Arc::new(Room(usize::MAX, Mutex::default())) as Arc<dyn Store>));
        assert_eq!(rows.whole().unwrap(), all);
    }
}
