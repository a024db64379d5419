//! Source-rooted multicast trees and unicast routes.

use std::collections::VecDeque;

/// For each node, the outgoing links as (link, other end), in order.
pub(crate) struct Graph {
    out: Vec<Vec<(u32, u32)>>,
}

impl Graph {
    pub(crate) fn new(nodes: usize, links: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut out = vec![Vec::new(); nodes];
        for (link, (from, to)) in links.enumerate() {
            out[from as usize].push((link as u32, to));
        }
        Self { out }
    }

    /// Returns each node's next link on a path with the fewest hops to `target`; `None` without a path. Among equal
    /// paths, the order of links decides. `reverse(l)` is the link opposite to `l`.
    pub(crate) fn routes_to(&self, target: u32, reverse: impl Fn(u32) -> u32) -> Vec<Option<u32>> {
        let mut routes = vec![None; self.out.len()];
        let mut seen = vec![false; self.out.len()];
        seen[target as usize] = true;
        let mut queue = VecDeque::from([target]);
        while let Some(node) = queue.pop_front() {
            for &(link, other) in &self.out[node as usize] {
                if !seen[other as usize] {
                    seen[other as usize] = true;
                    routes[other as usize] = Some(reverse(link));
                    queue.push_back(other);
                }
            }
        }
        routes
    }
}

/// A group's links. The tree changes hop by hop from the members.
///
/// A member's packets go up the tree and down all other branches, so that RTCP reaches every member.
pub(crate) struct Tree {
    /// Each node's link towards the source.
    up: Vec<Option<u32>>,
    /// Each node's active branches.
    branches: Vec<Vec<u32>>,
    /// For each node, the number of its own members plus the number of active branches below it.
    below: Vec<u32>,
}

/// The next step of a join or leave, one hop up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The node whose link towards the source changes.
    pub(crate) node: u32,
    pub(crate) join: bool,
}

impl Tree {
    /// `up` is each node's link towards the source.
    pub(crate) fn new(up: Vec<Option<u32>>) -> Self {
        let nodes = up.len();
        Self { up, branches: vec![Vec::new(); nodes], below: vec![0; nodes] }
    }

    pub(crate) fn up(&self, node: u32) -> Option<u32> {
        self.up[node as usize]
    }

    pub(crate) fn branches(&self, node: u32) -> &[u32] {
        &self.branches[node as usize]
    }

    /// Takes out a node's branches; [`Tree::give_branches_back`] returns them.
    pub(crate) fn take_branches(&mut self, node: u32) -> Vec<u32> {
        std::mem::take(&mut self.branches[node as usize])
    }

    pub(crate) fn give_branches_back(&mut self, node: u32, branches: Vec<u32>) {
        self.branches[node as usize] = branches;
    }

    /// Applies one step. Returns the next one further up, if any. `ends` returns a link's other end and opposite
    /// link.
    pub(crate) fn step(&mut self, step: Step, ends: impl Fn(u32) -> (u32, u32)) -> Option<Step> {
        let below = &mut self.below[step.node as usize];
        let (before, after) = if step.join { (*below, *below + 1) } else { (*below, below.saturating_sub(1)) };
        *below = after;
        // Only the first or last member below changes the tree further up.
        if (before == 0) == (after == 0) {
            return None;
        }
        let up = self.up[step.node as usize]?;
        let (parent, down) = ends(up);
        for (node, link) in [(step.node, up), (parent, down)] {
            let branches = &mut self.branches[node as usize];
            // Sorted, so that copies leave in the order of links.
            match branches.binary_search(&link) {
                Err(place) if step.join => branches.insert(place, link),
                Ok(place) if !step.join => drop(branches.remove(place)),
                _ => {}
            }
        }
        Some(Step { node: parent, join: step.join })
    }
}
