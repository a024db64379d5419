//! Source-rooted multicast trees, and the unicast routes from which they are built.

use std::collections::VecDeque;

/// The links of a network. For each node it has the outgoing links, each as (link, other end), in the order of links.
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

    /// Returns for each node the next link towards `target`. The route has the fewest hops; among equal routes, the
    /// first link is used. The link is `None` at the target, and at nodes from which no path leads to the target.
    /// `reverse(l)` is the link opposite to `l`.
    pub(crate) fn routes_to(&self, target: u32, reverse: impl Fn(u32) -> u32) -> Vec<Option<u32>> {
        let mut routes = vec![None; self.out.len()];
        let mut seen = vec![false; self.out.len()];
        seen[target as usize] = true;
        let mut queue = VecDeque::from([target]);
        // A breadth-first search from the target finds the fewest hops.
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

/// The links on which a group's packets are forwarded. The tree grows and shrinks hop by hop, starting at the members.
///
/// Packets of the source are forwarded down the tree. A member's packets are forwarded up the tree and down all other
/// branches, so that the group's RTCP reaches every member.
pub(crate) struct Tree {
    /// For each node, the link towards the source.
    up: Vec<Option<u32>>,
    /// For each node, its active branches towards members and towards the source.
    branches: Vec<Vec<u32>>,
    /// For each node, the number of members at it plus the number of active branches below it.
    below: Vec<u32>,
}

/// The next step of a join or leave, one hop further up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The node whose link towards the source is added or removed.
    pub(crate) node: u32,
    pub(crate) join: bool,
}

impl Tree {
    /// Creates a tree without members. For each node, `up` contains the link towards the source.
    pub(crate) fn new(up: Vec<Option<u32>>) -> Self {
        let nodes = up.len();
        Self { up, branches: vec![Vec::new(); nodes], below: vec![0; nodes] }
    }

    /// Returns the link towards the source.
    pub(crate) fn up(&self, node: u32) -> Option<u32> {
        self.up[node as usize]
    }

    /// Returns the active branches at a node.
    pub(crate) fn branches(&self, node: u32) -> &[u32] {
        &self.branches[node as usize]
    }

    /// Takes out the branches of a node. The caller must put them back by [`Tree::give_branches_back`].
    pub(crate) fn take_branches(&mut self, node: u32) -> Vec<u32> {
        std::mem::take(&mut self.branches[node as usize])
    }

    pub(crate) fn give_branches_back(&mut self, node: u32, branches: Vec<u32>) {
        self.branches[node as usize] = branches;
    }

    /// Applies one step of a join or leave. Returns the next step if the tree also changes further up. `ends` returns a
    /// link's other end and the link opposite to it.
    pub(crate) fn step(&mut self, step: Step, ends: impl Fn(u32) -> (u32, u32)) -> Option<Step> {
        let below = &mut self.below[step.node as usize];
        let (before, after) = if step.join { (*below, *below + 1) } else { (*below, below.saturating_sub(1)) };
        *below = after;
        // The tree further up changes only if this is the first member below the node, or the last one that leaves.
        if (before == 0) == (after == 0) {
            return None;
        }
        let up = self.up[step.node as usize]?;
        let (parent, down) = ends(up);
        for (node, link) in [(step.node, up), (parent, down)] {
            let branches = &mut self.branches[node as usize];
            // The branches are sorted, so that copies leave in the order of links.
            match branches.binary_search(&link) {
                Err(place) if step.join => branches.insert(place, link),
                Ok(place) if !step.join => drop(branches.remove(place)),
                _ => {}
            }
        }
        Some(Step { node: parent, join: step.join })
    }
}
