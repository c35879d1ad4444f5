//! Selects the part of a mail that a page shows, and the options for its HTML.

use serde::Deserialize;

use crate::render::html::RemoteContent;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Html,
    Headers,
    Source,
    Attachments,
}

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "text" => Self::Text,
            "html" => Self::Html,
            "headers" => Self::Headers,
            "source" => Self::Source,
            "attachments" => Self::Attachments,
            _ => return None,
        })
    }
}

/// Width of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Width {
    Phone,
    Tablet,
    #[default]
    Desk,
}

impl Width {
    pub(super) const ALL: [Self; 3] = [Self::Phone, Self::Tablet, Self::Desk];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Phone => "phone",
            Self::Tablet => "tablet",
            Self::Desk => "desk",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Phone => "Phone",
            Self::Tablet => "Tablet",
            Self::Desk => "Desk",
        }
    }
}

/// Query parameters of a mail's page.
#[derive(Deserialize)]
pub(in crate::web) struct ViewParams {
    /// `load` if the reader asked for remote content.
    remote: Option<String>,
    /// Any value selects dark mode.
    dark: Option<String>,
    width: Option<String>,
    /// Position of the list page that is shown next to the mail.
    #[serde(default)]
    pub(super) skip: usize,
    /// `reading` to get the mail without its list.
    pub(super) part: Option<String>,
}

impl ViewParams {
    pub(super) fn seen(&self) -> HtmlView {
        let width = Width::ALL.into_iter().find(|width| Some(width.name()) == self.width.as_deref());
        HtmlView {
            remote: if self.remote.as_deref() == Some("load") {
                RemoteContent::Loaded
            } else {
                RemoteContent::Blocked
            },
            dark: self.dark.is_some(),
            width: width.unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HtmlView {
    pub(super) remote: RemoteContent,
    pub(super) dark: bool,
    pub(super) width: Width,
}
