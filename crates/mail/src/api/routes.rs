//! One list of all routes: the router, the OpenAPI document and the page are made of it, and a test asks each of it who
//! is let in.
//!
//! An operation cannot be routed here without words for the document, nor be in the document without a handler. What is
//! routed and not told is said to be so ([`Routes::unlisted`]).

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, on},
};

use crate::{mailbox::mailboxes::Mailboxes, web::serve::app::App};

/// Operations that belong together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) operations: Vec<Operation>,
}

/// One method on one path.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) summary: &'static str,
    /// Of the query, separated by blanks.
    pub(super) parameters: &'static str,
}

/// What is told of an operation: its summary, and its parameters in the query, separated by blanks.
pub(super) type OperationDoc = (&'static str, &'static str);

/// What answers.
type ApiRouter<M> = Router<Arc<App<M>>>;

/// The list, as it grows.
pub(crate) struct Routes<M> {
    router: ApiRouter<M>,
    /// All of them, told or not.
    all: Vec<(Method, String)>,
    groups: Vec<Group>,
    /// What stands before each path.
    base: &'static str,
}

impl<M: Mailboxes> Routes<M> {
    /// An empty one, whose paths begin with `base`.
    pub(crate) fn at(base: &'static str) -> Self {
        Self { router: Router::new(), all: Vec::new(), groups: Vec::new(), base }
    }

    /// What follows belongs to this group.
    pub(super) fn group(mut self, name: &'static str, words: &'static str) -> Self {
        self.groups.push(Group { name, words, operations: Vec::new() });
        self
    }

    /// HEAD is answered as well.
    pub(super) fn get<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        words: OperationDoc,
    ) -> Self {
        self.operation(GET, path, handler, words)
    }

    pub(super) fn post<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        words: OperationDoc,
    ) -> Self {
        self.operation(POST, path, handler, words)
    }

    pub(super) fn put<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        words: OperationDoc,
    ) -> Self {
        self.operation(PUT, path, handler, words)
    }

    pub(super) fn delete<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        words: OperationDoc,
    ) -> Self {
        self.operation(DELETE, path, handler, words)
    }

    fn operation<H: Handler<T, Arc<App<M>>>, T: 'static>(
        mut self,
        asked: (Method, MethodFilter),
        path: &str,
        handler: H,
        (summary, parameters): OperationDoc,
    ) -> Self {
        let method = asked.0.clone();
        self = self.unlisted(asked, path, handler);
        let path = format!("{}{path}", self.base);
        let Some(group) = self.groups.last_mut() else { unreachable!("an operation belongs to a group") };
        group.operations.push(Operation { method, path, summary, parameters });
        self
    }

    /// Answered, but not told: pages, another spelling of what is told, or what clients ask for and is not done here.
    pub(crate) fn unlisted<H: Handler<T, Arc<App<M>>>, T: 'static>(
        mut self,
        (method, filter): (Method, MethodFilter),
        path: &str,
        handler: H,
    ) -> Self {
        let path = format!("{}{path}", self.base);
        self.router = self.router.route(&path, on(filter, handler));
        self.all.push((method, path));
        self
    }

    /// The same operations once more at another base, not told again.
    pub(super) fn again(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.all.extend(other.all);
        self
    }

    /// What is told.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The router, and all that it answers.
    pub(crate) fn finish(self) -> (ApiRouter<M>, Vec<(Method, String)>) {
        (self.router, self.all)
    }
}

/// A way to ask: GET, which is HEAD as well.
pub(crate) const GET: (Method, MethodFilter) = (Method::GET, MethodFilter::GET);
/// A way to ask.
pub(crate) const POST: (Method, MethodFilter) = (Method::POST, MethodFilter::POST);
/// A way to ask.
pub(super) const PUT: (Method, MethodFilter) = (Method::PUT, MethodFilter::PUT);
/// A way to ask.
pub(super) const DELETE: (Method, MethodFilter) = (Method::DELETE, MethodFilter::DELETE);
