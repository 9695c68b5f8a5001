//! Floors: types that own the floor below them, and have its methods as if they were their own.

/// A floor owns the floor below it as `below`, and dereferences to it: it calls down, and never up. With
/// fields in braces the floor gets a `new` that sets them to their defaults.
macro_rules! floor {
    ($above:ident over $below:ident { $($field:ident),* }) => {
        floor!($above over $below);

        impl $above {
            pub(crate) fn new(below: $below) -> $above {
                $above {
                    below,
                    $($field: Default::default(),)*
                }
            }
        }
    };
    ($above:ident over $below:ident) => {
        impl core::ops::Deref for $above {
            type Target = $below;

            #[inline]
            fn deref(&self) -> &$below {
                &self.below
            }
        }

        impl core::ops::DerefMut for $above {
            #[inline]
            fn deref_mut(&mut self) -> &mut $below {
                &mut self.below
            }
        }
    };
}
