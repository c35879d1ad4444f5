//! Why an instance is not joined.

/// Why the cluster is not what it has to be, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be reached or asked, or does not allow it.
    Cannot(String),
    /// Another instance has our name.
    NameTaken,
    /// The lease ran out before it was renewed.
    Lapsed,
    /// The stream is not the one that it was.
    OtherStream,
}

impl Fault {
    pub(crate) fn of(what: &str, error: &dyn std::error::Error) -> Self {
        Self::Cannot(format!("{what}: {error}"))
    }

    pub(crate) fn words(&self, name: &str) -> String {
        match self {
            Self::Cannot(why) => why.clone(),
            Self::NameTaken => {
                format!("another instance has the name {name}; each needs its own (name in [cluster])")
            }
            Self::Lapsed => "the lease ran out before it was renewed".to_owned(),
            Self::OtherStream => "the stream is not the one that it was".to_owned(),
        }
    }
}
