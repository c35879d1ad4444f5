//! Fields of a record as filters name them: `status >= 500 and url ~ "^/api"`, `time.first_byte > 0.5`.

use std::{cell::OnceCell, fmt};

use super::{Record, Shape, Tag, Value, show::Hex};
use crate::filter::{self, Field};

/// Identifier of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldId {
    /// Kind of the record.
    Kind,
    /// Id of the record, in hexadecimal.
    Id,
    /// Id of the parent record.
    Parent,
    /// Value of a tag.
    Of(Tag),
}

const TAGS: usize = Tag::ALL.len();

/// All fields that a filter may name.
pub static FIELDS: [Field<FieldId>; TAGS + 3] = {
    const fn field(name: &'static str, id: FieldId, kind: filter::Kind) -> Field<FieldId> {
        Field { name, id, kind, of_request: false }
    }
    let mut fields = [field("kind", FieldId::Kind, filter::Kind::Text); TAGS + 3];
    fields[1] = field("id", FieldId::Id, filter::Kind::Text);
    fields[2] = field("parent", FieldId::Parent, filter::Kind::Text);
    let mut at = 0;
    while at < TAGS {
        let (tag, name, shape, _) = Tag::ALL[at];
        let kind = match shape {
            Shape::Text(_) | Shape::Address | Shape::Id => filter::Kind::Text,
            Shape::Number => filter::Kind::Number,
            Shape::Bytes => filter::Kind::Bytes,
            Shape::Duration => filter::Kind::Duration,
        };
        fields[at + 3] = field(name, FieldId::Of(tag), kind);
        at += 1;
    }
    fields
};

/// A record as the source of a filter's values.
#[derive(Debug)]
pub struct Fields<'a> {
    record: Record<'a>,
    /// Cached text of fields that are not stored as text: id, parent, and the values of three tags.
    written: [OnceCell<String>; 5],
}

impl<'a> Fields<'a> {
    /// Wraps a record.
    #[must_use]
    pub fn of(record: Record<'a>) -> Self {
        Self { record, written: Default::default() }
    }

    fn written(&self, place: usize, value: &dyn fmt::Display) -> &[u8] {
        self.written[place].get_or_init(|| value.to_string()).as_bytes()
    }

    fn text(&self, tag: Tag, value: Value<'a>) -> &[u8] {
        match value {
            Value::Text(text, _) => text,
            Value::Number(id) => self.written(2, &Hex(id)),
            Value::Address(address) => self.written(if tag == Tag::Client { 3 } else { 4 }, &address),
        }
    }
}

impl filter::Record<FieldId> for Fields<'_> {
    fn texts(&self, field: FieldId, _: &str) -> impl Iterator<Item = &[u8]> {
        let (own, tag) = match field {
            FieldId::Kind => (Some(self.record.kind.name().as_bytes()), None),
            FieldId::Id => (Some(self.written(0, &Hex(self.record.id))), None),
            FieldId::Parent => (Some(self.written(1, &Hex(self.record.parent))), None),
            FieldId::Of(tag) => (None, Some(tag)),
        };
        let of_tag = tag.into_iter().flat_map(|wanted| {
            let pairs = self.record.pairs().filter(move |(tag, _)| *tag == wanted);
            pairs.map(|(tag, value)| self.text(tag, value))
        });
        own.into_iter().chain(of_tag)
    }

    fn number(&self, field: FieldId) -> Option<i64> {
        let FieldId::Of(tag) = field else { return None };
        self.record.number(tag).map(|number| i64::try_from(number).unwrap_or(i64::MAX))
    }
}
