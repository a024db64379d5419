//! Source-rooted multicast trees, and the unicast ways they are made of.

use std::collections::VecDeque;

/// Which link leads where: for each node the links out of it, as (link, other end), in the order of links.
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

    /// For each node the link to take towards `target` by the fewest hops, ties by the first link; `None` at the target
    /// itself and where no way leads there. `reverse[l]` is the link opposite to `l`.
    pub(crate) fn ways_to(&self, target: u32, reverse: impl Fn(u32) -> u32) -> Vec<Option<u32>> {
        let mut ways = vec![None; self.out.len()];
        let mut seen = vec![false; self.out.len()];
        seen[target as usize] = true;
        let mut queue = VecDeque::from([target]);
        while let Some(node) = queue.pop_front() {
            for &(link, other) in &self.out[node as usize] {
                if !seen[other as usize] {
                    seen[other as usize] = true;
                    ways[other as usize] = Some(reverse(link));
                    queue.push_back(other);
                }
            }
        }
        ways
    }
}

/// The links along which a group's packets go, grown and cut hop by hop from the members' side.
///
/// Packets of the source go down; what a member sends goes up and down all other branches, so that a group's RTCP
/// reaches all.
pub(crate) struct Tree {
    /// For each node the link towards the source.
    up: Vec<Option<u32>>,
    /// For each node its branches in use, towards members and towards the source.
    branches: Vec<Vec<u32>>,
    /// For each node how many members and used branches are below it.
    below: Vec<u32>,
}

/// What remains to be done of a join or a leave, one hop further up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The node whose link towards the source is to be added or taken away.
    pub(crate) node: u32,
    pub(crate) join: bool,
}

impl Tree {
    /// The tree of a source to which `up` leads from each node, without members.
    pub(crate) fn new(up: Vec<Option<u32>>) -> Self {
        let nodes = up.len();
        Self { up, branches: vec![Vec::new(); nodes], below: vec![0; nodes] }
    }

    /// The link towards the source.
    pub(crate) fn up(&self, node: u32) -> Option<u32> {
        self.up[node as usize]
    }

    /// The branches at a node.
    pub(crate) fn branches(&self, node: u32) -> &[u32] {
        &self.branches[node as usize]
    }

    /// The branches at a node, until they are given back.
    pub(crate) fn take_branches(&mut self, node: u32) -> Vec<u32> {
        std::mem::take(&mut self.branches[node as usize])
    }

    pub(crate) fn give_branches_back(&mut self, node: u32, branches: Vec<u32>) {
        self.branches[node as usize] = branches;
    }

    /// Takes one step of a join or leave; returns the next one, if the tree changes further up. `ends` gives a link's
    /// other end and the link opposite to it.
    pub(crate) fn step(&mut self, step: Step, ends: impl Fn(u32) -> (u32, u32)) -> Option<Step> {
        let below = &mut self.below[step.node as usize];
        let (before, after) = if step.join { (*below, *below + 1) } else { (*below, below.saturating_sub(1)) };
        *below = after;
        if (before == 0) == (after == 0) {
            return None;
        }
        let up = self.up[step.node as usize]?;
        let (parent, down) = ends(up);
        for (node, link) in [(step.node, up), (parent, down)] {
            let branches = &mut self.branches[node as usize];
            match branches.binary_search(&link) {
                Err(place) if step.join => branches.insert(place, link),
                Ok(place) if !step.join => drop(branches.remove(place)),
                _ => {}
            }
        }
        Some(Step { node: parent, join: step.join })
    }
}
