//! A trace's file as it comes: plain, or compressed with gzip or zstd, from a file or a pipe.

use std::cell::Cell;
use std::io::{self, Chain, Cursor, Read};
use std::rc::Rc;

use crate::formats::{self, FormatError, TraceFormat};

/// The bytes from which a file is recognised.
const HEAD: u64 = 1 << 20;
/// Contents up to this length may be of any ratio to their compressed form.
const FREE: u64 = 256 << 20;
/// The greatest ratio of a longer one. Text of tracers has 10 to 30.
const RATIO_MAX: u64 = 150;

/// A file of a trace, unpacked.
#[derive(Debug)]
pub struct UnpackedFile {
    /// The form that the file has.
    pub format: &'static TraceFormat,
    /// The contents.
    pub bytes: Vec<u8>,
    /// Whether the compressed file is cut short.
    pub is_cut: bool,
}

/// A reader that counts what it has read.
struct Counting<R>(R, Rc<Cell<u64>>);

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(into)?;
        self.1.set(self.1.get() + count as u64);
        Ok(count)
    }
}

type Source<R> = Counting<Chain<Cursor<Vec<u8>>, R>>;

fn reader<'a, R: Read + 'a>(magic: &[u8], source: Source<R>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(source)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::new(source)?),
        _ => Box::new(source),
    })
}

/// Reads up to `len` bytes more. Returns whether the compressed form ends too early.
fn fill(from: &mut dyn Read, len: u64, into: &mut Vec<u8>) -> io::Result<bool> {
    match from.take(len).read_to_end(into) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads a file. A file in an unknown form is read no further than its beginning. `first` is the
/// form of the first of several files; a further one may be empty, as that of an idle processor is.
///
/// # Errors
/// The file cannot be read, is in no known form, or its compressed form is damaged or expands out
/// of all proportion.
pub fn unpack(
    mut source: impl Read,
    first: Option<&'static TraceFormat>,
) -> Result<UnpackedFile, FormatError> {
    let mut magic = Vec::new();
    source.by_ref().take(4).read_to_end(&mut magic)?;
    let taken = Rc::new(Cell::new(0));
    let source = Counting(Cursor::new(magic.clone()).chain(source), taken.clone());
    let mut source = reader(&magic, source)?;
    let mut bytes = Vec::new();
    let mut is_cut = fill(&mut *source, HEAD, &mut bytes)?;
    let format = match first {
        Some(first) if bytes.is_empty() => first,
        _ => formats::recognised(&bytes).map_err(|error| match (error, is_cut) {
            (FormatError::Unknown, true) => FormatError::Cut,
            (error, _) => error,
        })?,
    };
    while !is_cut {
        let before = bytes.len();
        is_cut = fill(&mut *source, HEAD.max(before as u64 / 4), &mut bytes)?;
        if bytes.len() == before {
            break;
        }
        let len = bytes.len() as u64;
        if len > FREE && len / RATIO_MAX > taken.get() {
            return Err(FormatError::Expands { len, packed: taken.get() });
        }
    }
    Ok(UnpackedFile { format, bytes, is_cut })
}
