//! Floors: each owns the one beneath it as `below`, and reads as that one too.

/// Makes the first type a floor above the second.
macro_rules! floor {
    ($floor:ty, $below:ty) => {
        impl ::core::ops::Deref for $floor {
            type Target = $below;

            #[inline]
            fn deref(&self) -> &$below {
                &self.below
            }
        }

        impl ::core::ops::DerefMut for $floor {
            #[inline]
            fn deref_mut(&mut self) -> &mut $below {
                &mut self.below
            }
        }
    };
}
