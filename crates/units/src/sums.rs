/// Implements addition for types of quantities. A sum saturates at the largest value.
macro_rules! quantities {
    ($($type:ident)+) => {$(
        impl std::ops::Add for $type {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl std::ops::AddAssign for $type {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl std::iter::Sum for $type {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::ZERO, std::ops::Add::add)
            }
        }
    )+};
}

/// Implements addition for a struct of counts. Each field is added separately.
#[macro_export]
macro_rules! sums {
    ($type:ident { $($field:ident),+ }) => {
        impl std::ops::Add for $type {
            type Output = Self;
            fn add(self, more: Self) -> Self {
                Self { $($field: self.$field + more.$field),+ }
            }
        }
    };
}
