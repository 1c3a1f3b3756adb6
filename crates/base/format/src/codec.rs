//! Integers, arrays and structures at byte offsets.

/// The byte order of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first (x86, ARM).
    Little,
    /// Most significant byte first (SPARC, older PowerPC).
    Big,
}

impl Endian {
    /// The byte order of this machine.
    pub const NATIVE: Endian =
        if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
}

macro_rules! endian_helpers {
    ($($get:ident $put:ident $int:ident),+ $(,)?) => {
        impl Endian {
            $(
                #[doc = concat!("The ", stringify!($int), " at byte `at`. Panics beyond the slice.")]
                #[inline]
                pub fn $get(self, bytes: &[u8], at: usize) -> $int {
                    let raw = bytes[at..at + size_of::<$int>()].try_into().expect("exact length");
                    match self {
                        Endian::Little => $int::from_le_bytes(raw),
                        Endian::Big => $int::from_be_bytes(raw),
                    }
                }

                #[doc = concat!("Stores a ", stringify!($int), " at byte `at`. Panics beyond the slice.")]
                #[inline]
                pub fn $put(self, bytes: &mut [u8], at: usize, value: $int) {
                    let raw = match self {
                        Endian::Little => value.to_le_bytes(),
                        Endian::Big => value.to_be_bytes(),
                    };
                    bytes[at..at + size_of::<$int>()].copy_from_slice(&raw);
                }
            )+
        }
    };
}

endian_helpers! {
    get_u8 put_u8 u8, get_u16 put_u16 u16, get_u32 put_u32 u32, get_u64 put_u64 u64,
    get_i8 put_i8 i8, get_i16 put_i16 i16, get_i32 put_i32 i32, get_i64 put_i64 i64,
}

macro_rules! on_disk_integers {
    ($($get:ident $put:ident $int:ty),+ $(,)?) => {
        $(
            impl OnDisk for $int {
                const SIZE: usize = size_of::<$int>();
                #[inline]
                fn get(bytes: &[u8], at: usize, endian: Endian) -> $int {
                    endian.$get(bytes, at)
                }
                #[inline]
                fn put(&self, bytes: &mut [u8], at: usize, endian: Endian) {
                    endian.$put(bytes, at, *self);
                }
            }
        )+
    };
}

on_disk_integers! {
    get_u16 put_u16 u16, get_u32 put_u32 u32, get_u64 put_u64 u64,
    get_i8 put_i8 i8, get_i16 put_i16 i16, get_i32 put_i32 i32, get_i64 put_i64 i64,
}

impl OnDisk for u8 {
    const SIZE: usize = 1;
    #[inline]
    fn get(bytes: &[u8], at: usize, _endian: Endian) -> u8 {
        bytes[at]
    }
    #[inline]
    fn put(&self, bytes: &mut [u8], at: usize, _endian: Endian) {
        bytes[at] = *self;
    }
    // A copy of the bytes is fast, which matters for inodes: hundreds of their bytes have a meaning
    // that depends on the file.
    #[inline]
    fn get_all<const N: usize>(bytes: &[u8], at: usize, _endian: Endian) -> [u8; N] {
        let mut all = [0; N];
        all.copy_from_slice(&bytes[at..at + N]);
        all
    }
}

/// A type with a fixed size on disk.
pub trait OnDisk: Sized {
    /// The size in bytes.
    const SIZE: usize;
    /// Decodes the value at byte `at`. Panics if `bytes` is too short.
    fn get(bytes: &[u8], at: usize, endian: Endian) -> Self;
    /// Encodes to byte `at`; bytes that no field covers stay as they are. Panics if `bytes` is too
    /// short.
    fn put(&self, bytes: &mut [u8], at: usize, endian: Endian);
    /// Decodes several consecutive values. Panics if `bytes` is too short.
    #[inline]
    fn get_all<const N: usize>(bytes: &[u8], at: usize, endian: Endian) -> [Self; N] {
        std::array::from_fn(|i| Self::get(bytes, at + i * Self::SIZE, endian))
    }
}

impl<T: OnDisk, const N: usize> OnDisk for [T; N] {
    const SIZE: usize = N * T::SIZE;
    #[inline]
    fn get(bytes: &[u8], at: usize, endian: Endian) -> [T; N] {
        T::get_all(bytes, at, endian)
    }
    #[inline]
    fn put(&self, bytes: &mut [u8], at: usize, endian: Endian) {
        for (i, item) in self.iter().enumerate() {
            item.put(bytes, at + i * T::SIZE, endian);
        }
    }
}

/// A field of an on-disk structure, as its documentation shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The name in the kernel's sources; empty for a field of Ordo's own.
    pub kernel: &'static str,
    /// The first byte, counted from the start of the structure.
    pub offset: usize,
    /// The size in bytes.
    pub bytes: usize,
    /// The Rust type.
    pub type_name: &'static str,
    /// The meaning, in a line.
    pub doc: &'static str,
}

impl Field {
    /// The field of `fields` called `name`.
    pub fn find(fields: &'static [Field], name: &str) -> Option<&'static Field> {
        fields.iter().find(|field| field.name == name)
    }
}

/// Declares an on-disk structure: native fields, codec and field table from one list.
///
/// A field's name in the kernel's sources stands between its offset and the arrow. Structures of
/// Ordo's own have none.
///
/// ```
/// ordo_format::on_disk! {
///     /// A pair.
///     pub struct Pair: 8 {
///         0 p_first => /** the first */ first: u16,
///         4 => /** the second */ second: [u8; 4],
///     }
/// }
/// let pair = Pair::decode(&[1, 0, 9, 9, 5, 6, 7, 8], ordo_format::Endian::Little);
/// assert_eq!((pair.first, pair.second), (1, [5, 6, 7, 8]));
/// assert_eq!(Pair::FIELDS[1].offset, 4);
/// assert_eq!((Pair::FIELDS[0].kernel, Pair::FIELDS[1].kernel), ("p_first", ""));
/// ```
#[macro_export]
macro_rules! on_disk {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $size:literal {
            $($offset:literal $($kernel:ident)? => #[doc = $doc:literal] $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(#[doc = $doc] pub $field: $type,)+
        }

        impl $name {
            /// The structure's size on disk, in bytes.
            pub const SIZE: usize = $size;

            /// The fields with their places.
            pub const FIELDS: &'static [$crate::Field] = &[
                $($crate::Field {
                    name: stringify!($field),
                    kernel: stringify!($($kernel)?),
                    offset: $offset,
                    bytes: <$type as $crate::OnDisk>::SIZE,
                    type_name: stringify!($type),
                    doc: $doc.trim_ascii(),
                },)+
            ];

            /// Decodes the first [`Self::SIZE`] bytes, which may have any values. Panics if there
            /// are fewer.
            pub fn decode(bytes: &[u8], endian: $crate::Endian) -> $name {
                let bytes = &bytes[..$size];
                $name { $($field: <$type as $crate::OnDisk>::get(bytes, $offset, endian),)+ }
            }

            /// Encodes every field; bytes that no field covers stay as they are. Panics if `bytes`
            /// is shorter than [`Self::SIZE`].
            pub fn encode(&self, bytes: &mut [u8], endian: $crate::Endian) {
                let bytes = &mut bytes[..$size];
                $($crate::OnDisk::put(&self.$field, bytes, $offset, endian);)+
            }

            /// A structure in which every field is zero.
            pub fn zeroed() -> $name {
                Self::decode(&[0; $size], $crate::Endian::Little)
            }
        }

        impl $crate::OnDisk for $name {
            const SIZE: usize = $size;
            fn get(bytes: &[u8], at: usize, endian: $crate::Endian) -> $name {
                $name::decode(&bytes[at..], endian)
            }
            fn put(&self, bytes: &mut [u8], at: usize, endian: $crate::Endian) {
                self.encode(&mut bytes[at..], endian);
            }
        }
    };
}
