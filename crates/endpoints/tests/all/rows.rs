//! Agents' rows are moved to a store and recalled.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use steadycast_control::{Decision, Limit, ReceiverId, View, Why, Window};
use steadycast_endpoints::{DecisionRow, Point, Row, Rows, Store, StoredRows, ViewRow};
use steadycast_units::{Bytes, Rate, Span, Time};

#[derive(Debug, Default)]
struct Room(Mutex<Vec<u8>>);

impl Store for Room {
    fn put(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.len() as u64;
        all.extend_from_slice(bytes);
        Ok(at)
    }
    fn get(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

fn filled<T: Row>(count: u64, row: impl Fn(u64) -> T) -> Rows<T> {
    let mut rows = Rows::stored(Some(Arc::new(Room::default())));
    rows.extend((0..count).map(row));
    rows
}

fn decision(n: u64) -> DecisionRow {
    let some = !n.is_multiple_of(3);
    let why = Why {
        rule: if n.is_multiple_of(2) { "throughput equation".into() } else { format!("größer als {n}").into() },
        loss: some.then_some(n as f64 / 7.0),
        rtt: some.then_some(Span::nanos(n)),
        by: some.then_some(ReceiverId(n as u32)),
    };
    let limit = [Limit::Start, Limit::Network, Limit::Cap, Limit::Floor][n as usize % 4];
    let window = some.then_some(Window::Packets(n as u32));
    let decision = Decision { target: Rate::bps(n), pacing: Rate::bps(2 * n), window, limit, why };
    DecisionRow { at: Time::from_nanos(n), decision, by_encoder: n.is_multiple_of(5) }
}

#[test]
fn decisions_come_back_from_a_store_as_they_were_made() {
    let mut rows = filled(1_000, decision);
    assert!(rows.len() < 200, "{} in memory", rows.len());
    assert_eq!(rows.last(), Some(&decision(999)));
    rows.recall().unwrap();
    assert_eq!(*rows, (0..1_000).map(decision).collect::<Vec<_>>());
}

#[test]
fn views_and_points_come_back_from_a_store_as_they_were() {
    let state = |n: u64| [None, Some("slow start"), Some("")][n as usize % 3];
    let view = |n: u64| View { rate: Some(Rate::bps(n)), loss: None, rtt: None, state: state(n) };
    let views = filled(500, |n| ViewRow { at: Time::from_nanos(n), view: view(n) }).whole().unwrap();
    assert_eq!(views, (0..500).map(|n| ViewRow { at: Time::from_nanos(n), view: view(n) }).collect::<Vec<_>>());
    let point = |n: u64| Point {
        bytes: n,
        packets: 1,
        expected: n as u32,
        delay: n.is_multiple_of(2).then_some(Span::nanos(n)),
        buffer: n.is_multiple_of(3).then_some(Bytes::new(n)),
        playout: n.is_multiple_of(5).then_some(Span::nanos(n)),
    };
    assert_eq!(filled(500, point).whole().unwrap(), (0..500).map(point).collect::<Vec<_>>());
}
