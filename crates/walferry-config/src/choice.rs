//! Properties with a few fixed values.

use crate::nearest::near_value;
use crate::value::ValueError;

/// Declares an enum whose values are written as the given words, without regard to case; further words after `|` are
/// understood too. The variant marked `#[default]` must be the default of the property.
///
/// ```
/// walferry_config::choices! {
///     /// What happens to an event that cannot be processed.
///     pub enum OnFailure {
///         /// Stops.
///         #[default]
///         Fail = "fail",
///         /// Goes on without it.
///         Skip = "skip" | "ignore",
///     }
/// }
/// use walferry_config::Value;
/// assert_eq!(OnFailure::parse("IGNORE"), Ok(OnFailure::Skip));
/// assert_eq!(OnFailure::Skip.as_str(), "skip");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal $(| $alias:literal)*,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// The word that stands for it in a configuration.
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::Value for $name {
            const TYPE: &'static str = "enum";
            const VALUES: &'static [&'static str] = &[$($word),*];
            fn parse(text: &str) -> Result<Self, $crate::ValueError> {
                match text {
                    $(_ if text.eq_ignore_ascii_case($word) $(|| text.eq_ignore_ascii_case($alias))* => Ok(Self::$variant),)*
                    _ => Err($crate::ValueError::not_one_of(text, Self::VALUES)),
                }
            }
        }
    };
}

impl ValueError {
    /// The error of a text that is none of the fixed values, with the nearest of them as a guess.
    pub fn not_one_of(text: &str, values: &[&str]) -> Self {
        let error = Self::new(format!("one of {}", values.join(", ")));
        match near_value(text, values) {
            Some(value) => error.hint(format!("did you mean {value}?")),
            None => error,
        }
    }
}
