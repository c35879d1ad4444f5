//! INFO of a hub.

use serde::Deserialize;

use crate::leaf::rules::SubjectRules;

/// INFO as hubs send it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    pub(crate) server_id: String,
    pub(crate) server_name: String,
    pub(crate) version: String,
    pub(crate) cluster: String,
    pub(crate) domain: String,
    pub(super) client_id: u64,
    pub(super) nonce: String,
    pub(crate) headers: bool,
    pub(crate) max_payload: usize,
    pub(super) tls_required: bool,
    pub(crate) jetstream: bool,
    pub(crate) info_on_connect: bool,
    pub(crate) connect_info: bool,
    pub(crate) remote_account: String,
    pub(crate) leafnode_urls: Option<Vec<String>>,
    pub(crate) ws_connect_urls: Option<Vec<String>>,
    pub(crate) import: Option<SubjectRules>,
    pub(crate) export: Option<SubjectRules>,
}
