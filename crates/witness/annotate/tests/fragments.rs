//! Owners of fragments: parts of blocks that a pointer gives to a file.

use ordo_annotate::owners;
use ordo_annotate::rows::Known;
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestOp, RequestSpan, Trace, TraceRequest};
use ordo_watcher::decoder::{Claim, Contents, Decoder, DecoderState, Owner};
use ordo_watcher::kind::Looks;
use ordo_watcher::{BlockMeaning, Class, ClassifiedRange, Watch};

/// A fragment has 1 KiB, a block eight of them.
const FRAGMENT: u64 = 1024;
const BLOCK: u64 = 8 * FRAGMENT;

/// A decoder for tests. A write to block 0 shows that two fragments of block 1, from the third on,
/// are the target of inode 5's symbolic link. All other writes are guesses: directories where the
/// first byte is a 'd'.
struct Fragments;

impl Decoder for Fragments {
    fn system(&self) -> &'static str {
        "fragments"
    }
    fn block_shift(&self) -> u32 {
        BLOCK.ilog2()
    }
    fn claim_shift(&self) -> u32 {
        FRAGMENT.ilog2()
    }
    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let len = data.len() as u64;
        if offset == 0 {
            let owner = Some(Owner { ino: 5, first: Some(3), packed: false });
            let (block, blocks, class) = (10, 2, Class::Symlink);
            state.claims.push(Claim { block, blocks, class, owner, is_old: false });
            let what = BlockMeaning::Inodes { first: 0, count: 32, changed: Vec::new() };
            out.push(ClassifiedRange { class: Class::InodeBlock, offset, len, what });
            return;
        }
        let (class, looks) = match data[0] {
            b'd' => (Class::Directory, Looks::Like(Class::Directory)),
            _ => (Class::FileData, Looks::Plain),
        };
        state.looks.push((offset, looks));
        out.push(ClassifiedRange { class, offset, len, what: BlockMeaning::Unclaimed });
    }
    fn read(
        &mut self,
        _offset: u64,
        _len: u64,
        _data: Option<&[u8]>,
        _out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
    }
    fn contents(&self, _ino: u64) -> Vec<Contents> {
        Vec::new()
    }
}

/// Replays writes: fragment, number of fragments, contents; and then the pointer. Returns, for the
/// last of them, the final kind, and the owner with its logical block.
fn owner(writes: &[(u64, u64, u8)]) -> (Class, Option<(u64, u64, Known)>) {
    let mut trace = Trace::new(512, true);
    for (fragment, fragments, byte) in writes.iter().chain(&[(0, 8, b'i')]) {
        let len = fragments * FRAGMENT;
        let data: RequestSpan = trace.keep(&vec![*byte; len as usize]);
        trace.push(TraceRequest {
            op: RequestOp::Write,
            flags: Flags::empty(),
            offset: fragment * FRAGMENT,
            len,
            issued: Time::ZERO,
            epoch: 0,
            end: None,
            data: Some(data),
        });
    }
    let rows = owners::of_trace(&trace, &Watch::with(Box::new(Fragments)));
    let row = &rows[rows.len() - 2];
    (row.final_kind, row.ino.map(|ino| (ino, row.file_block.unwrap(), row.known.unwrap())))
}

/// A write before its pointer gets its owner by that pointer: the fragments that the pointer gives,
/// and no write that reaches beyond them, lies beside them, or has contents of another kind.
/// Catches claims that are taken for whole blocks.
#[test]
fn a_pointer_gives_its_fragments() {
    let link = (Class::Symlink, Some((5, 3, Known::Later)));
    assert_eq!(owner(&[(10, 2, b'x')]), link);
    assert_eq!(owner(&[(8, 8, b'x'), (10, 2, b'x')]), link);
    assert_eq!(owner(&[(10, 4, b'x')]), (Class::FileData, None));
    assert_eq!(owner(&[(8, 8, b'x')]), (Class::FileData, None));
    assert_eq!(owner(&[(12, 2, b'x')]), (Class::FileData, None));
    assert_eq!(owner(&[(10, 2, b'd')]), (Class::Directory, None));
}
