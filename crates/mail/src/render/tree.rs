//! HTML parsed into a tree by the browser's own rules (html5ever), within the limits of [`super::cost`].
//!
//! ```text
//!  source, a piece at a time ─▶ html5ever ─▶ nodes: Vec<Node>, linked by number: parent, first, last, next, previous
//!                                                  └▶ elements, attributes, depth, looks: counted while it grows
//! ```
//! All nodes are in one vector, so that a tree of any shape is dropped at once and none of our functions
//! recurses. Comments and processing instructions have a node without content, because the parser asks for
//! one.

use std::cell::{Cell, RefCell};

use html5ever::{
    Attribute, LocalName, Namespace, ParseOpts, QualName,
    interface::{ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink},
    local_name, ns, parse_document,
    tendril::{StrTendril, TendrilSink},
    tree_builder::TreeBuilderOpts,
};

use super::{
    StepLimit,
    cost::{ATTRIBUTES_MAX, DEPTH_MAX, ELEMENTS_MAX, HtmlLimit, LOOKS_MAX, pieces},
};

/// Steps charged for an element.
const STEPS_AN_ELEMENT: usize = 64;

/// Index of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u32);

/// Index that links to no node.
const NONE: Id = Id(u32::MAX);
/// The document node, which is created first.
const DOCUMENT: Id = Id(0);

/// Content of a node.
pub(super) enum Content {
    /// A document or a comment.
    Nothing,
    Element {
        name: QualName,
        attributes: Vec<Attribute>,
        /// True for an `annotation-xml` of MathML that contains HTML.
        integration_point: bool,
    },
    Text(StrTendril),
}

pub(super) struct Node {
    pub(super) content: Content,
    parent: Id,
    first: Id,
    last: Id,
    next: Id,
    previous: Id,
    depth: usize,
}

/// A parsed document.
pub(super) struct Tree {
    nodes: Vec<Node>,
    pub(super) quirks: QuirksMode,
}

/// A step of a walk over the nodes.
pub(super) enum Step<'t> {
    /// A node, before its children.
    Into(Id, &'t Node),
    /// An element, after its children.
    OutOf(&'t Node),
}

impl Tree {
    /// Parses a document, or returns the limit that it exceeds.
    pub(super) fn parse(source: &str, until: &StepLimit) -> Result<Self, HtmlLimit> {
        let opts = ParseOpts {
            // The frame runs no scripts, so `noscript` content is shown.
            tree_builder: TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() },
            ..ParseOpts::default()
        };
        let mut parser = parse_document(NodeSink::new(), opts);
        let (mut elements, mut looks) = (0, 0);
        for piece in pieces(source) {
            // Cost of the previous piece in addition to its bytes.
            let sink = &parser.tokenizer.sink.sink;
            let more = (sink.elements.get() - elements) * STEPS_AN_ELEMENT + (sink.looks.get() - looks);
            (elements, looks) = (sink.elements.get(), sink.looks.get());
            until.pay(piece.len() + more)?;
            parser.process(StrTendril::from(piece));
            if let Some(over) = parser.tokenizer.sink.sink.over.get() {
                return Err(over);
            }
        }
        parser.finish()
    }

    /// Visits all nodes in document order. `step` returns at each [`Step::Into`] whether to visit the
    /// children; if not, there is no [`Step::OutOf`] for the node either.
    pub(super) fn walk(
        &self,
        mut step: impl FnMut(Step<'_>) -> Result<bool, HtmlLimit>,
    ) -> Result<(), HtmlLimit> {
        let mut at = DOCUMENT;
        loop {
            let node = &self[at];
            if step(Step::Into(at, node))? {
                if node.first != NONE {
                    at = node.first;
                    continue;
                }
                step(Step::OutOf(node))?;
            }
            loop {
                let node = &self[at];
                if node.next != NONE {
                    at = node.next;
                    break;
                }
                at = node.parent;
                if at == NONE {
                    return Ok(());
                }
                step(Step::OutOf(&self[at]))?;
            }
        }
    }

    /// Returns the concatenated texts of an element's children.
    pub(super) fn text_of(&self, element: Id) -> String {
        let mut text = String::new();
        let mut at = self[element].first;
        while at != NONE {
            if let Content::Text(piece) = &self[at].content {
                text.push_str(piece);
            }
            at = self[at].next;
        }
        text
    }

    /// Returns the length of [`Self::text_of`].
    pub(super) fn text_bytes_of(&self, element: Id) -> usize {
        let (mut bytes, mut at) = (0, self[element].first);
        while at != NONE {
            if let Content::Text(piece) = &self[at].content {
                bytes += piece.len();
            }
            at = self[at].next;
        }
        bytes
    }

    /// Returns whether an element's first child is a text node that begins with `sign`.
    pub(super) fn begins_with(&self, element: Id, sign: char) -> bool {
        let first = self[element].first;
        first != NONE && matches!(&self[first].content, Content::Text(text) if text.starts_with(sign))
    }
}

impl std::ops::Index<Id> for Tree {
    type Output = Node;

    fn index(&self, id: Id) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

/// A tree under construction by the parser.
struct NodeSink {
    nodes: RefCell<Vec<Node>>,
    quirks: Cell<QuirksMode>,
    over: Cell<Option<HtmlLimit>>,
    elements: Cell<usize>,
    attributes: Cell<usize>,
    looks: Cell<usize>,
}

impl NodeSink {
    fn new() -> Self {
        let growing = Self {
            nodes: RefCell::default(),
            quirks: Cell::new(QuirksMode::NoQuirks),
            over: Cell::new(None),
            elements: 0.into(),
            attributes: 0.into(),
            looks: 0.into(),
        };
        growing.node(Content::Nothing);
        growing
    }

    fn node(&self, content: Content) -> Id {
        let mut nodes = self.nodes.borrow_mut();
        let node =
            Node { content, parent: NONE, first: NONE, last: NONE, next: NONE, previous: NONE, depth: 0 };
        nodes.push(node);
        Id((nodes.len() - 1) as u32)
    }

    fn add(&self, counter: &Cell<usize>, n: usize, most: usize, over: HtmlLimit) {
        counter.set(counter.get().saturating_add(n));
        if counter.get() > most {
            self.over.set(Some(over));
        }
    }

    fn charge_lookups(&self, n: usize) {
        self.add(&self.looks, n, LOOKS_MAX, HtmlLimit::Looks);
    }

    /// Inserts a node without a parent before a sibling, or at the end.
    fn link(&self, parent: Id, child: Id, before: Id) {
        let mut nodes = self.nodes.borrow_mut();
        let previous = if before == NONE { nodes[parent.at()].last } else { nodes[before.at()].previous };
        let depth = nodes[parent.at()].depth + 1;
        let node = &mut nodes[child.at()];
        (node.parent, node.previous, node.next, node.depth) = (parent, previous, before, depth);
        let is_element = matches!(node.content, Content::Element { .. });
        match previous {
            NONE => nodes[parent.at()].first = child,
            previous => nodes[previous.at()].next = child,
        }
        match before {
            NONE => nodes[parent.at()].last = child,
            before => nodes[before.at()].previous = child,
        }
        if is_element && depth > DEPTH_MAX {
            self.over.set(Some(HtmlLimit::Depth));
        }
    }

    fn unlink(&self, child: Id) {
        let mut nodes = self.nodes.borrow_mut();
        let Node { parent, previous, next, .. } = nodes[child.at()];
        if parent == NONE {
            return;
        }
        match previous {
            NONE => nodes[parent.at()].first = next,
            previous => nodes[previous.at()].next = next,
        }
        match next {
            NONE => nodes[parent.at()].last = previous,
            next => nodes[next.at()].previous = previous,
        }
        let node = &mut nodes[child.at()];
        (node.parent, node.previous, node.next) = (NONE, NONE, NONE);
    }

    /// Inserts a node or a text; a text is merged with a text before it (HTML, 13.2.6.1).
    fn insert(&self, parent: Id, child: NodeOrText<Id>, before: Id) {
        match child {
            NodeOrText::AppendNode(child) => {
                self.unlink(child);
                self.link(parent, child, before);
            }
            NodeOrText::AppendText(text) => {
                let mut nodes = self.nodes.borrow_mut();
                let previous =
                    if before == NONE { nodes[parent.at()].last } else { nodes[before.at()].previous };
                if previous != NONE
                    && let Content::Text(own) = &mut nodes[previous.at()].content
                {
                    own.push_tendril(&text);
                    return;
                }
                drop(nodes);
                let text = self.node(Content::Text(text));
                self.link(parent, text, before);
            }
        }
    }

    fn parent_of(&self, node: Id) -> Id {
        self.nodes.borrow()[node.at()].parent
    }
}

impl Id {
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// An owned copy of an element's name, as the parser may change the tree while it holds the name.
#[derive(Debug)]
struct Name(QualName);

impl ElemName for Name {
    fn ns(&self) -> &Namespace {
        &self.0.ns
    }

    fn local_name(&self) -> &LocalName {
        &self.0.local
    }
}

impl TreeSink for NodeSink {
    type Handle = Id;
    type Output = Result<Tree, HtmlLimit>;
    type ElemName<'a> = Name;

    fn finish(self) -> Result<Tree, HtmlLimit> {
        match self.over.get() {
            Some(over) => Err(over),
            None => Ok(Tree { nodes: self.nodes.into_inner(), quirks: self.quirks.get() }),
        }
    }

    fn parse_error(&self, _: std::borrow::Cow<'static, str>) {}

    fn get_document(&self) -> Id {
        DOCUMENT
    }

    fn elem_name(&self, target: &Id) -> Name {
        self.charge_lookups(1);
        match &self.nodes.borrow()[target.at()].content {
            Content::Element { name, .. } => Name(name.clone()),
            Content::Nothing | Content::Text(_) => Name(QualName::new(None, ns!(), local_name!(""))),
        }
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, flags: ElementFlags) -> Id {
        self.add(&self.elements, 1, ELEMENTS_MAX, HtmlLimit::Elements);
        self.add(&self.attributes, attributes.len(), ATTRIBUTES_MAX, HtmlLimit::Attributes);
        // A tree that exceeds a limit is discarded after the current piece, and is kept small until then.
        let attributes = if self.over.get().is_some() { Vec::new() } else { attributes };
        let integration_point = flags.mathml_annotation_xml_integration_point;
        self.node(Content::Element { name, attributes, integration_point })
    }

    fn create_comment(&self, _: StrTendril) -> Id {
        self.node(Content::Nothing)
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> Id {
        self.node(Content::Nothing)
    }

    fn append(&self, parent: &Id, child: NodeOrText<Id>) {
        self.insert(*parent, child, NONE);
    }

    fn append_based_on_parent_node(&self, element: &Id, previous: &Id, child: NodeOrText<Id>) {
        match self.parent_of(*element) {
            NONE => self.append(previous, child),
            parent => self.insert(parent, child, *element),
        }
    }

    fn append_before_sibling(&self, sibling: &Id, child: NodeOrText<Id>) {
        match self.parent_of(*sibling) {
            NONE => {}
            parent => self.insert(parent, child, *sibling),
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    /// Returns the template itself: only scripts show a template's content, and it is dropped with the
    /// element.
    fn get_template_contents(&self, target: &Id) -> Id {
        *target
    }

    fn same_node(&self, one: &Id, other: &Id) -> bool {
        self.charge_lookups(1);
        one == other
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.quirks.set(mode);
    }

    fn add_attrs_if_missing(&self, target: &Id, attributes: Vec<Attribute>) {
        let mut nodes = self.nodes.borrow_mut();
        let Content::Element { attributes: own, .. } = &mut nodes[target.at()].content else { return };
        // Each new attribute is compared with all existing ones.
        self.charge_lookups(own.len() * attributes.len());
        self.add(&self.attributes, attributes.len(), ATTRIBUTES_MAX, HtmlLimit::Attributes);
        for attribute in attributes {
            if !own.iter().any(|known| known.name == attribute.name) {
                own.push(attribute);
            }
        }
    }

    fn remove_from_parent(&self, target: &Id) {
        self.unlink(*target);
    }

    fn reparent_children(&self, node: &Id, new_parent: &Id) {
        loop {
            let child = self.nodes.borrow()[node.at()].first;
            if child == NONE {
                return;
            }
            self.charge_lookups(1);
            self.unlink(child);
            self.link(*new_parent, child, NONE);
        }
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Id) -> bool {
        matches!(self.nodes.borrow()[target.at()].content, Content::Element { integration_point: true, .. })
    }
}
