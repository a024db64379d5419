//! Multicast trees whose root is the source, and unicast routes.

use std::collections::VecDeque;

/// For each node, its outgoing links in order. Each entry is the link and the node at its other end.
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

    /// Returns the next link from each node on a path to `target`, or `None` if there is no path. The path has the
    /// fewest hops. Among paths of equal length, the order of links decides. `reverse(l)` is the link opposite to `l`.
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

/// The links of a group. The tree grows and shrinks hop by hop, starting from the members.
///
/// The packets of a member go up the tree and down all other branches, so that RTCP packets reach every member.
pub(crate) struct Tree {
    /// The link from each node towards the source.
    up: Vec<Option<u32>>,
    /// The active branches at each node, as outgoing links.
    branches: Vec<Vec<u32>>,
    /// For each node, the number of members on the node plus the number of active branches below it.
    below: Vec<u32>,
}

/// The next step of a join or leave. It is one hop closer to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The node whose link towards the source changes.
    pub(crate) node: u32,
    pub(crate) join: bool,
}

impl Tree {
    /// Creates an empty tree. `up` has the link from each node towards the source.
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

    /// Takes the branches of a node out of the tree. [`Tree::give_branches_back`] puts them back.
    pub(crate) fn take_branches(&mut self, node: u32) -> Vec<u32> {
        std::mem::take(&mut self.branches[node as usize])
    }

    pub(crate) fn give_branches_back(&mut self, node: u32, branches: Vec<u32>) {
        self.branches[node as usize] = branches;
    }

    /// Applies one step of a join or leave. Returns the next step towards the source, if there is one. `ends` returns
    /// the node at the other end of a link, and the opposite link.
    pub(crate) fn step(&mut self, step: Step, ends: impl Fn(u32) -> (u32, u32)) -> Option<Step> {
        let below = &mut self.below[step.node as usize];
        let (before, after) = if step.join { (*below, *below + 1) } else { (*below, below.saturating_sub(1)) };
        *below = after;
        // Stop here unless this is the first join or the last leave below the node. Only these change the tree further
        // up.
        if (before == 0) == (after == 0) {
            return None;
        }
        let up = self.up[step.node as usize]?;
        let (parent, down) = ends(up);
        for (node, link) in [(step.node, up), (parent, down)] {
            let branches = &mut self.branches[node as usize];
            // Keep the branches sorted, so that copies leave in the order of links.
            match branches.binary_search(&link) {
                Err(place) if step.join => branches.insert(place, link),
                Ok(place) if !step.join => drop(branches.remove(place)),
                _ => {}
            }
        }
        Some(Step { node: parent, join: step.join })
    }
}
