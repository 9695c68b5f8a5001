//! Macros for tables that code has once: names of options, and offsets of fields.

/// Gives an option its names: `ALL` lists its values in this order, and `name` and `named` lead from each to
/// the other.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $option:ident { $($value:ident = $name:literal),+ $(,)? }) => {
        impl $option {
            $(#[$about])*
            pub const ALL: [$option; [$($name),+].len()] = [$($option::$value),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $($option::$value => $name,)+
                }
            }

            pub fn named(name: &str) -> Option<$option> {
                $option::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

/// Byte offsets of a codec, which tests also get as a list, to compare it with `docs/reference/format.md`.
#[macro_export]
macro_rules! offsets {
    ($(#[$about:meta])* pub mod $module:ident {
        $($(#[$field_about:meta])* pub const $field:ident: usize = $offset:expr;)+
    }) => {
        $(#[$about])*
        pub mod $module {
            $($(#[$field_about])* pub const $field: usize = $offset;)+

            #[cfg(test)]
            pub const ALL: &[(&str, usize)] = &[$((stringify!($field), $field)),+];
        }
    };
}

/// Gives a kind its numbers on members: `code` leads to one, and `of_code` back; it refuses all others.
macro_rules! codes {
    ($what:literal: $kind:ident { $($value:ident = $code:literal),+ $(,)? }) => {
        impl $kind {
            fn code(self) -> u8 {
                match self {
                    $($kind::$value => $code,)+
                }
            }

            fn of_code(code: u8) -> Result<$kind, $crate::meta::MetaError> {
                match code {
                    $($code => Ok($kind::$value),)+
                    other => $crate::meta::field($what, other.into()),
                }
            }
        }
    };
}
