//! What all wire structures share: checked access to bytes, and a size fixed at compile time.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The little-endian integers that the structures' fields are.
pub use zerocopy::little_endian::{U16, U32, U64, U128};

/// Bytes that are no valid structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the structure has.
    #[error("decoding {what}: {have} bytes, {need} needed")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Its size in bytes.
        need: usize,
        /// Bytes given.
        have: usize,
    },
    /// A field holds a value that the specification does not define.
    #[error("decoding {what}: field {field} has the undefined value {value:#x}")]
    Undefined {
        /// The structure.
        what: &'static str,
        /// The field's name in the specification.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A little-endian structure without padding or alignment: any bytes of its size are a value of it.
pub trait Wire: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Sized {
    /// The specification's name of the structure, for messages.
    const NAME: &'static str;
    /// Size in bytes.
    const SIZE: usize = size_of::<Self>();

    /// The structure at the start of `bytes`, in place.
    fn ref_from(bytes: &[u8]) -> Result<&Self, DecodeError> {
        Self::ref_from_prefix(bytes).map(|(v, _)| v).map_err(|_| Self::truncated(bytes.len()))
    }

    /// The structure at the start of `bytes` and what follows it.
    fn split_from(bytes: &[u8]) -> Result<(&Self, &[u8]), DecodeError> {
        Self::ref_from_prefix(bytes).map_err(|_| Self::truncated(bytes.len()))
    }

    /// A copy of the structure at the start of `bytes`.
    fn read_from(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::read_from_prefix(bytes).map(|(v, _)| v).map_err(|_| Self::truncated(bytes.len()))
    }

    /// The structure at the start of `bytes`, to be filled in place. Old bytes stay until written.
    fn mut_from(bytes: &mut [u8]) -> Result<&mut Self, DecodeError> {
        let have = bytes.len();
        Self::mut_from_prefix(bytes).map(|(v, _)| v).map_err(|_| Self::truncated(have))
    }

    /// The structure's bytes as they travel.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Writes the structure at the start of `out`; returns its size.
    fn put(&self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let have = out.len();
        self.write_to_prefix(out).map_err(|_| Self::truncated(have))?;
        Ok(Self::SIZE)
    }

    /// All fields zero, as reserved fields must be.
    fn zeroed() -> Self {
        <Self as FromZeros>::new_zeroed()
    }

    /// The error for too few bytes.
    fn truncated(have: usize) -> DecodeError {
        DecodeError::Truncated { what: Self::NAME, need: Self::SIZE, have }
    }
}

/// Implements [`Wire`] and proves the size at compile time.
macro_rules! wire {
    ($($ty:ty = $size:expr, $name:literal;)+) => {
        $(
            const _: () = assert!(size_of::<$ty>() == $size);
            impl $crate::wire::Wire for $ty {
                const NAME: &'static str = $name;
            }
        )+
    };
}
pub(crate) use wire;

/// A C-like enum with its codes: `TryFrom` the code type, `code()`.
macro_rules! coded {
    ($(#[$meta:meta])* $name:ident: $int:ty, $field:literal {
        $($(#[$vmeta:meta])* $variant:ident = $code:expr,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($int)]
        pub enum $name { $($(#[$vmeta])* $variant = $code,)+ }

        impl $name {
            /// Every defined value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The value on the wire.
            #[must_use]
            pub const fn code(self) -> $int {
                self as $int
            }
        }

        impl TryFrom<$int> for $name {
            type Error = $crate::wire::DecodeError;

            fn try_from(code: $int) -> Result<Self, $crate::wire::DecodeError> {
                match code {
                    $($code => Ok($name::$variant),)+
                    other => Err($crate::wire::DecodeError::Undefined {
                        what: stringify!($name),
                        field: $field,
                        value: u64::from(other),
                    }),
                }
            }
        }
    };
}
pub(crate) use coded;

/// A newtype over an integer register or dword with bit accessors and `with_` builders.
macro_rules! bits {
    ($(#[$meta:meta])* $name:ident: $int:ty {
        $($(#[$fmeta:meta])* $get:ident, $with:ident: $low:literal .. $width:literal as $ty:tt;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $(
                $(#[$fmeta])*
                #[must_use]
                pub const fn $get(self) -> $ty {
                    $crate::wire::bits!(@get self.0, $low, $width, $int, $ty)
                }

                /// The same with this field replaced; excess high bits of `value` are dropped.
                #[must_use]
                pub const fn $with(self, value: $ty) -> Self {
                    let mask: $int = ((1 as $int) << ($width - 1)) | (((1 as $int) << ($width - 1)) - 1);
                    Self((self.0 & !(mask << $low)) | (((value as $int) & mask) << $low))
                }
            )*
        }
    };
    (@get $v:expr, $low:literal, $width:literal, $int:ty, bool) => { ($v >> $low) & 1 == 1 };
    (@get $v:expr, $low:literal, $width:literal, $int:ty, $ty:tt) => {
        (($v >> $low) & (((1 as $int) << ($width - 1)) | (((1 as $int) << ($width - 1)) - 1))) as $ty
    };
}
pub(crate) use bits;
