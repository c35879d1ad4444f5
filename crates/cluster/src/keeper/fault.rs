//! Reasons why an instance has not joined the cluster.

/// Reason why the cluster cannot be used at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The cluster cannot be reached, does not answer, or refuses.
    Cannot(String),
    /// Another instance uses this instance's name.
    NameTaken,
    /// The lease ran out before it was renewed.
    Lapsed,
    /// The stream is not the one that this instance knew.
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
            Self::Lapsed => "the lease expired before it was renewed".to_owned(),
            Self::OtherStream => "the stream was replaced by another".to_owned(),
        }
    }
}
