//! Checks of error pages: each names the status, the failure, the side at fault, and the request's id.

use serde_json::Value;

use crate::{Request, Response};

impl Request {
    /// Asks for errors in JSON.
    #[must_use]
    pub fn accepting_json(self) -> Self {
        self.header("Accept", "application/json")
    }
}

impl Response {
    /// Checks that this answer is one clear error in JSON that no cache may store. `side` is `client`,
    /// `origin` or `accelerator`.
    ///
    /// # Panics
    /// When the answer is anything else.
    #[track_caller]
    pub fn expect_fault(self, status: u16, side: &str, code: &str) -> Self {
        let response = self.expect_status(status);
        assert_eq!(response.header("content-type"), Some("application/json"), "{}", response.text_of_head());
        let page: Value =
            serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{}", response.text()));
        assert_eq!(page["status"], status, "{page:#}");
        assert_eq!((&page["side"], &page["code"]), (&side.into(), &code.into()), "{page:#}");
        for member in ["detail", "advice", "request_id"] {
            let text = page[member].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "the page has no {member}: {page:#}");
        }
        assert_eq!(response.header("cache-control"), Some("no-store"), "{}", response.text_of_head());
        response
    }

    /// Checks the answer to a request that was too broken to choose a format: the status, some text, and that
    /// no cache may store it.
    ///
    /// # Panics
    /// When the answer is anything else.
    #[track_caller]
    pub fn expect_refusal(self, status: u16) -> Self {
        let response = self.expect_status(status);
        assert!(response.body.len() > 20, "an error without words: {}", response.text_of_head());
        assert_eq!(response.header("cache-control"), Some("no-store"), "{}", response.text_of_head());
        response
    }
}
