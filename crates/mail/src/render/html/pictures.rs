//! The mail's own pictures: which parts a browser shows as pictures, and under which paths.

use std::collections::HashMap;

use crate::render::Attachment;

/// Returns whether a browser shows a type as a picture and never runs it; SVG is not included.
#[must_use]
pub fn is_image(content_type: &str) -> bool {
    matches!(
        content_type,
        "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "image/bmp" | "image/avif"
    )
}

/// Returns the media type under which a part is served when the mail uses it as a picture: the part's own
/// type or, if that is unknown, the type of its file extension. An `<img>` shows an SVG without running
/// scripts or fetching anything (SVG 2, 2.5).
pub(crate) fn picture_type(attachment: &Attachment) -> Option<&str> {
    match &*attachment.content_type {
        kind if is_image(kind) || kind == "image/svg+xml" => Some(kind),
        "application/octet-stream" => {
            let (_, end) = attachment.filename.rsplit_once('.')?;
            Some(match &*end.to_ascii_lowercase() {
                "png" => "image/png",
                "jpg" | "jpeg" => "image/jpeg",
                "gif" => "image/gif",
                "webp" => "image/webp",
                "bmp" => "image/bmp",
                "avif" => "image/avif",
                "svg" => "image/svg+xml",
                _ => return None,
            })
        }
        _ => None,
    }
}

/// Returns the paths of the mail's own pictures, by Content-ID.
pub(in crate::render) fn pictures<'a>(
    attachments: impl Iterator<Item = &'a Attachment>,
    below: &str,
) -> HashMap<String, String> {
    let named = attachments.filter(|attachment| picture_type(attachment).is_some());
    let path = |attachment: &Attachment| {
        let name =
            percent_encoding::utf8_percent_encode(&attachment.filename, percent_encoding::NON_ALPHANUMERIC);
        // A browser shows a picture only if it is sent with an image type.
        let as_picture = if is_image(&attachment.content_type) { "" } else { "?picture=1" };
        format!("{below}/{}/{name}{as_picture}", attachment.part)
    };
    let mut pictures = HashMap::new();
    for attachment in named {
        if let Some(id) = &attachment.content_id {
            // The first of several pictures with the same Content-ID is used.
            pictures.entry(id.clone()).or_insert_with(|| path(attachment));
        }
    }
    pictures
}
