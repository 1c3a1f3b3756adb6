//! Nodes: the inodes that own them, and the data to which they lead.

use std::hash::Hasher;

use ordo_format::f2fs::node::{self, File, Footer, Role as Of};
use ordo_format::f2fs::{BLOCK, Geometry};
use rustc_hash::FxHasher;

use super::{F2fs, NODES};
use crate::decoder::DecoderState;
use crate::graph::{Entries, Entry, Reader};
use crate::kind::Class;
use crate::runs::Role;

/// The most inodes that are remembered.
const INODES_MAX: usize = 1 << 20;
/// The most nodes that are kept before their inode is seen.
const WAITING_MAX: usize = 4096;

/// A graph reader without nodes: F2FS finds its nodes by number and not by address, so the graph
/// holds only data.
#[derive(Debug)]
pub(super) struct NoNodes;

impl Reader for NoNodes {
    type Tag = ();
    fn node(&self, (): (), _: &[u8]) -> Vec<Entry<()>> {
        Vec::new()
    }
    fn could_be_node(&self, _: &[u8]) -> bool {
        false
    }
}

/// A node's address and contents.
pub(super) type Waiting = (u64, Box<[u8]>);

/// The facts about an inode as it was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct F2fsKnown {
    file: File,
    pub(super) class: Class,
    hash: u64,
}

pub(super) fn class_of(of: Of) -> Class {
    match of {
        Of::Inode => Class::InodeBlock,
        Of::Direct(_) | Of::Indirect(_) => Class::Indirect,
        Of::Attributes => Class::ExtendedAttributes,
    }
}

/// Entries from addresses; `first` is the logical block of the first one.
fn lead(
    g: &Geometry,
    ino: u32,
    class: Class,
    first: u64,
    addresses: impl Iterator<Item = u32>,
    entries: &mut Entries<()>,
) {
    for (lbn, start) in (first..).zip(addresses.map(u64::from)) {
        // Other addresses are zero, not allocated yet (`NEW_ADDR`), or the mark of compressed
        // blocks (`COMPRESS_ADDR`).
        if g.segment(start).is_some() {
            let (height, node, role) = (0, None, Role::Data { lbn });
            entries.add(Entry { start, len: 1, height, class, ino: ino.into(), role, node });
        }
    }
}

impl F2fs {
    /// Takes in a node that is written in a node segment.
    pub(super) fn node_written(
        &mut self,
        block: u64,
        footer: &Footer,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        self.node_seen(block, footer, bytes, state);
        self.follow(block, footer.next_blkaddr.into(), state);
    }

    /// Takes in a node at an address; its previous address is given up.
    pub(super) fn node_seen(
        &mut self,
        block: u64,
        footer: &Footer,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        let (nid, ino, of) = (footer.nid, footer.ino, footer.role());
        let next = self.version.wrapping_add(1);
        let damaged = of == Of::Inode && node::is_damaged(&self.g, footer, bytes);
        if let Some(transaction) = state.journal.write(next, 0) {
            // A node with the fsync mark was made durable by itself, before the checkpoint, so it
            // counts as a log record.
            transaction.records += u64::from(footer.is_fsynced());
            transaction.bad_checksums += u64::from(damaged);
        }
        if of != Of::Inode && self.files.remove(&nid).is_some() {
            self.take_waiting(nid);
        }
        self.nodes.insert(nid, ino);
        let level = match of {
            Of::Inode | Of::Attributes => 0,
            Of::Direct(_) => 1,
            Of::Indirect(level) => level,
        };
        let role = match of {
            Of::Attributes => Role::Attributes,
            _ => Role::Map { level, extents: false, lbn: 0 },
        };
        let (class, owner) = (class_of(of), u64::from(ino));
        let mut entries = Entries::new();
        entries.add(Entry { start: block, len: 1, height: 1, class, ino: owner, role, node: None });
        match of {
            Of::Inode => {
                if let Some(file) = File::read(&self.g, bytes).filter(|_| !damaged) {
                    let class = self.inode(ino, file, bytes, state);
                    if let (true, Some((dir, name))) = (footer.is_named(), file.own_name(bytes)) {
                        state.names.seen(dir.into(), name, owner);
                    }
                    lead(&self.g, ino, class, 0, file.data(bytes), &mut entries);
                }
            }
            Of::Direct(before) => match self.files.get(&ino) {
                Some(known) => {
                    let first = known.file.first_of(before);
                    lead(&self.g, ino, known.class, first, node::direct(bytes), &mut entries);
                }
                None => self.wait(ino, block, bytes),
            },
            Of::Indirect(_) | Of::Attributes => {}
        }
        self.graph.set_root(nid.into(), entries.into_vec(), state);
        if of == Of::Inode && self.files.contains_key(&ino) {
            self.waited(ino, state);
        }
    }

    /// Takes in an inode, and claims its data. Returns the kind of the file's contents.
    fn inode(&mut self, ino: u32, file: File, bytes: &[u8], state: &mut DecoderState) -> Class {
        let class = match file.mode & 0o170_000 {
            _ if self.g.quotas.contains(&ino) => Class::Quota,
            0o040_000 => Class::Directory,
            0o120_000 => Class::Symlink,
            _ => Class::FileData,
        };
        let mut hash = FxHasher::default();
        hash.write(&bytes[..BLOCK - Footer::SIZE]);
        let hash = hash.finish();
        if self.files.get(&ino).is_none_or(|known| known.hash != hash) {
            state.inodes.push(ino.into());
        }
        if self.files.len() < INODES_MAX || self.files.contains_key(&ino) {
            self.files.insert(ino, F2fsKnown { file, class, hash });
        }
        if class == Class::Directory {
            for (of, name) in file.names(bytes) {
                state.names.seen(ino.into(), name, of.into());
            }
        }
        class
    }

    fn wait(&mut self, ino: u32, block: u64, bytes: &[u8]) {
        if self.waits >= WAITING_MAX {
            self.waiting.clear();
            self.waits = 0;
        }
        self.waits += 1;
        self.waiting.entry(ino).or_default().push((block, bytes.into()));
    }

    fn take_waiting(&mut self, ino: u32) -> Vec<Waiting> {
        let all = self.waiting.remove(&ino).unwrap_or_default();
        self.waits -= all.len();
        all
    }

    /// Takes in nodes that were written before their inode, if they are still at the same address.
    fn waited(&mut self, ino: u32, state: &mut DecoderState) {
        for (block, bytes) in self.take_waiting(ino) {
            let there = self.graph.runs.at(block).is_some_and(|run| run.ino == u64::from(ino));
            if let (true, Some(footer)) = (there, Footer::read(&self.g, &bytes)) {
                let Of::Direct(before) = footer.role() else { continue };
                let Some(known) = self.files.get(&ino) else { continue };
                let (first, class) = (known.file.first_of(before), known.class);
                let mut entries = Entries::new();
                let own = self.graph.root(footer.nid.into());
                own.iter().filter(|e| e.height > 0).for_each(|own| entries.add(*own));
                lead(&self.g, ino, class, first, node::direct(&bytes), &mut entries);
                self.graph.set_root(footer.nid.into(), entries.into_vec(), state);
            }
        }
    }

    /// Follows a node's link to the address of the next node. A segment that had no block in use is
    /// a node segment from now on.
    fn follow(&mut self, block: u64, next: u64, state: &mut DecoderState) {
        let (Some(from), Some(to)) = (self.g.segment(block), self.g.segment(next)) else { return };
        if self.types[to as usize].is_none() {
            self.types[to as usize] = self.types[from as usize];
            self.typed(to, state);
        }
    }

    /// Sets the type of a segment. Nodes in it that were written before are taken in.
    pub(super) fn typed(&mut self, segment: u64, state: &mut DecoderState) {
        let first = self.g.main + segment * ordo_format::f2fs::SEGMENT;
        if self.types[segment as usize].is_none_or(|kind| kind < NODES) {
            return;
        }
        let all = self.early.range(first..first + ordo_format::f2fs::SEGMENT);
        let all: Vec<u64> = all.map(|(block, _)| *block).collect();
        for block in all {
            let Some(bytes) = self.early.remove(&block) else { continue };
            if let Some(footer) = Footer::read(&self.g, &bytes) {
                self.node_written(block, &footer, &bytes, state);
            }
        }
    }

    /// Takes in that a node has no address any more.
    pub(super) fn node_freed(&mut self, nid: u32, state: &mut DecoderState) {
        self.nodes.remove(&nid);
        self.files.remove(&nid);
        self.graph.set_root(nid.into(), Vec::new(), state);
    }
}
