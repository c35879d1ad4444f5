//! Parameters of a request's path and query.

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use super::fault::Fault;

/// Parameters of the path; a path whose parameters cannot be parsed is not found.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(params)) => Ok(Self(params)),
            Err(_) => Err(Fault::NoSuchPage),
        }
    }
}

/// Parameters of the query. Parameters that cannot be parsed give the same kind of JSON error as any other
/// fault.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(queried)) => Ok(Self(queried)),
            Err(rejection) => {
                let why = std::error::Error::source(&rejection).map_or(String::new(), ToString::to_string);
                Err(Fault::Bad(format!("invalid parameter in the query: {why}")))
            }
        }
    }
}
