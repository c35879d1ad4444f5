//! List of all routes, from which the router, the OpenAPI document and the page are built; a test checks the
//! access to each.
//!
//! An operation cannot be routed here without documentation, nor documented without a handler. Undocumented
//! routes must be declared as such ([`Routes::unlisted`]).

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, on},
};

use crate::{mailbox::mailboxes::Mailboxes, web::serve::app::App};

/// A group of related operations.
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
    /// Names of the query parameters, separated by blanks.
    pub(super) parameters: &'static str,
}

/// A method, and the filter that selects its requests.
pub(crate) struct RouteMethod {
    method: Method,
    filter: MethodFilter,
}

/// Router with the shared state.
type ApiRouter<M> = Router<Arc<App<M>>>;

/// Builder of the list of routes.
pub(crate) struct Routes<M> {
    router: ApiRouter<M>,
    /// All routes, documented or not.
    all: Vec<(Method, String)>,
    groups: Vec<Group>,
    /// Prefix of each path.
    base: &'static str,
}

impl<M: Mailboxes> Routes<M> {
    /// Creates an empty list whose paths begin with `base`.
    pub(crate) fn at(base: &'static str) -> Self {
        Self { router: Router::new(), all: Vec::new(), groups: Vec::new(), base }
    }

    /// Begins a group, to which the operations that follow belong.
    pub(super) fn group(mut self, name: &'static str, words: &'static str) -> Self {
        self.groups.push(Group { name, words, operations: Vec::new() });
        self
    }

    /// Adds a GET operation, which also serves HEAD.
    pub(super) fn get<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        summary: &'static str,
    ) -> Self {
        self.operation(GET, path, handler, summary)
    }

    pub(super) fn post<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        summary: &'static str,
    ) -> Self {
        self.operation(POST, path, handler, summary)
    }

    pub(super) fn put<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        summary: &'static str,
    ) -> Self {
        self.operation(PUT, path, handler, summary)
    }

    pub(super) fn delete<H: Handler<T, Arc<App<M>>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        summary: &'static str,
    ) -> Self {
        self.operation(DELETE, path, handler, summary)
    }

    fn operation<H: Handler<T, Arc<App<M>>>, T: 'static>(
        mut self,
        route: RouteMethod,
        path: &str,
        handler: H,
        summary: &'static str,
    ) -> Self {
        let method = route.method.clone();
        self = self.unlisted(route, path, handler);
        let path = format!("{}{path}", self.base);
        let Some(group) = self.groups.last_mut() else { unreachable!("an operation belongs to a group") };
        group.operations.push(Operation { method, path, summary, parameters: "" });
        self
    }

    /// Names the query parameters of the last operation, separated by blanks.
    pub(super) fn query(mut self, parameters: &'static str) -> Self {
        let last = self.groups.last_mut().and_then(|group| group.operations.last_mut());
        let Some(operation) = last else { unreachable!("query parameters belong to an operation") };
        operation.parameters = parameters;
        self
    }

    /// Adds an undocumented route: a page, an alternative spelling, or a function that clients request and
    /// that does not exist here.
    pub(crate) fn unlisted<H: Handler<T, Arc<App<M>>>, T: 'static>(
        mut self,
        RouteMethod { method, filter }: RouteMethod,
        path: &str,
        handler: H,
    ) -> Self {
        let path = format!("{}{path}", self.base);
        self.router = self.router.route(&path, on(filter, handler));
        self.all.push((method, path));
        self
    }

    /// Adds operations once more at another base, without documentation.
    pub(super) fn merge_unlisted(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.all.extend(other.all);
        self
    }

    /// Returns the documented operations.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the router and the list of all its routes.
    pub(crate) fn finish(self) -> (ApiRouter<M>, Vec<(Method, String)>) {
        (self.router, self.all)
    }
}

/// GET, with the filter that also accepts HEAD.
pub(crate) const GET: RouteMethod = RouteMethod { method: Method::GET, filter: MethodFilter::GET };
/// POST with its filter.
pub(crate) const POST: RouteMethod = RouteMethod { method: Method::POST, filter: MethodFilter::POST };
/// PUT with its filter.
pub(super) const PUT: RouteMethod = RouteMethod { method: Method::PUT, filter: MethodFilter::PUT };
/// DELETE with its filter.
pub(super) const DELETE: RouteMethod = RouteMethod { method: Method::DELETE, filter: MethodFilter::DELETE };
