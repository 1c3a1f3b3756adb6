//! Every kind of damage to a directory entry or an attribute record gives its own error, with the
//! byte at which the entry starts, and the walk continues where it can.

use ordo_format::Endian::{self, Big, Little};
use ordo_format::ufs2::dir::{self, CHUNK, EntryError, EntryFault as F};
use ordo_format::ufs2::extattr::{self, AttrError, AttrFault as A};

/// Two chunks: `.`, `..` and `name` in the first, free space in the second.
fn chunks(endian: Endian) -> Vec<u8> {
    let mut bytes = vec![0; 2 * CHUNK];
    dir::write_entry(&mut bytes, endian, 2, 12, dir::DT_DIR, b".");
    dir::write_entry(&mut bytes[12..], endian, 2, 12, dir::DT_DIR, b"..");
    dir::write_entry(&mut bytes[24..], endian, 7, 16, dir::DT_REG, b"name");
    dir::write_entry(&mut bytes[40..], endian, 8, 472, dir::DT_REG, b"after");
    dir::write_free_chunk(&mut bytes[CHUNK..], endian);
    bytes
}

#[test]
fn each_entry_fault_is_named_and_placed() {
    // The change at byte 24, the fault, and the number of entries that are still read.
    type Case = (fn(&mut [u8], Endian), F, usize);
    let cases: &[Case] = &[
        (|b, e| e.put_u16(b, 28, 0), F::TooShort { reclen: 0 }, 3),
        (|b, e| e.put_u16(b, 28, 8), F::TooShort { reclen: 8 }, 3),
        (|b, e| e.put_u16(b, 28, 18), F::Unaligned { reclen: 18 }, 3),
        (|b, e| e.put_u16(b, 28, 492), F::CrossesChunk { reclen: 492, left: 488 }, 3),
        (|b, _| b[31] = 9, F::NameTooLong { namlen: 9, reclen: 16 }, 4),
        (|b, _| b[31] = 8, F::NameTooLong { namlen: 8, reclen: 16 }, 4),
        (|b, _| b[31] = 0, F::NameEmpty, 4),
        (|b, _| b[33] = 0, F::NameHasNul { index: 1 }, 4),
        (|b, _| b[34] = b'/', F::NameHasSlash { index: 2 }, 4),
        (|b, _| b[36] = b'x', F::NotTerminated, 4),
        (|b, _| b[30] = 16, F::BadType { kind: 16 }, 4),
    ];
    for endian in [Little, Big] {
        assert!(dir::entries(&chunks(endian), endian).all(|entry| entry.is_ok()));
        for (change, fault, good) in cases {
            let mut bytes = chunks(endian);
            change(&mut bytes, endian);
            let results: Vec<_> = dir::entries(&bytes, endian).collect();
            let error = EntryError { at: 24, fault: *fault };
            assert_eq!(results[2], Err(error));
            assert_eq!(results.iter().filter(|entry| entry.is_ok()).count(), *good, "{fault}");
            assert_eq!(error.framing_holds(), *good == 4);
            assert!(error.to_string().contains("byte 24"));
        }
        let bytes = chunks(endian);
        let last = dir::entries(&bytes[..CHUNK + 9], endian).last().unwrap();
        assert_eq!(last, Err(EntryError { at: CHUNK, fault: F::PartialChunk { have: 9 } }));
    }
}

#[test]
fn each_attribute_fault_is_named_and_placed() {
    let area = |endian| {
        let mut area = Vec::new();
        extattr::append(&mut area, endian, extattr::NAMESPACE_USER, b"one", b"content");
        extattr::append(&mut area, endian, extattr::NAMESPACE_SYSTEM, b"two", b"");
        area
    };
    type Case = (fn(&mut Vec<u8>, Endian), A);
    let cases: &[Case] = &[
        (|a, _| a.truncate(28), A::CutShort { left: 4 }),
        (|a, e| e.put_u32(a, 24, 8), A::TooShort { length: 8, needs: 16 }),
        (|a, e| e.put_u32(a, 24, 0), A::TooShort { length: 0, needs: 16 }),
        (|a, e| e.put_u32(a, 24, 17), A::Unaligned { length: 17 }),
        (|a, e| e.put_u32(a, 24, 24), A::BeyondArea { length: 24, left: 16 }),
        (|a, _| a[30] = 0, A::NameEmpty),
        (|a, _| a[32] = 0, A::NameHasNul { index: 1 }),
        (|a, _| a[29] = 8, A::BadPadding { padding: 8 }),
    ];
    for endian in [Little, Big] {
        for (change, fault) in cases {
            let mut bytes = area(endian);
            change(&mut bytes, endian);
            let results: Vec<_> = extattr::attrs(&bytes, endian).collect();
            assert_eq!(results.len(), 2);
            assert_eq!(results[0].unwrap().content, b"content");
            assert_eq!(results[1], Err(AttrError { at: 24, fault: *fault }));
        }
    }
}
