//! Macro that defines a set of rules: for each a name, the section that states it, and an error text.

macro_rules! rules {
    ($(#[$about:meta])* $name:ident $($variant:ident $section:literal $text:literal,)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!($text, " (", $section, ").")] $variant,)*
        }

        impl $name {
            /// Every rule.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Returns the section that states the rule.
            pub const fn section(self) -> &'static str {
                match self { $($name::$variant => $section,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)* })
            }
        }
    };
}
