//! Positions in a file's tree of blocks: a block by its level and its first data block.

use ordo_format::lfs::{IndirectPath, NDADDR, lbn};

/// A block of a file: level 0 for data, 1 and up for indirect blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub level: usize,
    /// The first data block below the block.
    pub first: u64,
}

/// The number of data blocks below a block of `level`.
pub fn span(level: usize, nindir: u64) -> u64 {
    nindir.saturating_pow(level as u32)
}

impl Node {
    /// The node of a logical block number, with its path from the inode. `None` if no file can have
    /// such a block.
    pub fn of(number: i64, nindir: u64) -> Option<(Node, IndirectPath)> {
        let path = lbn::path(number, nindir)?;
        if path.slot < NDADDR {
            return Some((Node { level: 0, first: path.slot as u64 }, path));
        }
        let tree = path.slot - NDADDR;
        Some((Node::above(&path, path.depth, nindir), path)).filter(|(n, _)| n.level <= tree + 1)
    }

    /// The block that a path reaches after `steps` steps: 0 for the block to which the inode
    /// points.
    pub fn above(path: &IndirectPath, steps: usize, nindir: u64) -> Node {
        let tree = path.slot - NDADDR;
        let start = lbn::trees(nindir)[tree];
        let offsets = path.offsets[..steps].iter().enumerate();
        let rest: u64 = offsets.map(|(k, i)| *i as u64 * span(tree - k, nindir)).sum();
        Node { level: tree + 1 - steps, first: start + rest }
    }

    /// The block's logical number.
    pub fn number(self) -> i64 {
        if self.level == 0 { self.first as i64 } else { lbn::indirect(self.level, self.first) }
    }

    /// The block to which pointer `index` of this block leads.
    pub fn child(self, index: usize, nindir: u64) -> Node {
        let level = self.level - 1;
        Node { level, first: self.first + index as u64 * span(level, nindir) }
    }
}

/// The indirect blocks on the path to a block, the uppermost first.
pub fn ancestors(path: &IndirectPath, nindir: u64) -> impl Iterator<Item = Node> + '_ {
    (0..path.depth).map(move |steps| Node::above(path, steps, nindir))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a small tree, every block is the child of the last block on its path, at the index that
    /// the path gives. Would catch a node that is taken for its neighbour, or for a node of another
    /// level.
    #[test]
    fn a_block_is_the_child_of_its_parent() {
        let nindir = 8;
        for number in 12..lbn::trees(nindir)[3] as i64 {
            let (node, path) = Node::of(number, nindir).unwrap();
            assert_eq!((node.level, node.first, node.number()), (0, number as u64, number));
            let mut below = None;
            for (steps, above) in ancestors(&path, nindir).enumerate() {
                assert_eq!(Node::of(above.number(), nindir).unwrap().0, above);
                if let Some(below) = below.replace(above.child(path.offsets[steps], nindir)) {
                    assert_eq!(below, above);
                }
            }
            assert_eq!(below, Some(node));
        }
    }
}
