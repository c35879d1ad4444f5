//! Replays the seeds of the fuzz targets through the targets' checks. Targets that need the crate's private
//! names are replayed in `src/fuzzing`.

#[path = "../../../../fuzz/checks/mail_address.rs"]
mod mail_address;
#[path = "../../../../fuzz/checks/mail_render.rs"]
mod mail_render;
#[path = "../../../../fuzz/checks/search_query.rs"]
mod search_query;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;

#[test]
fn mail_address() {
    seeds::replay("mail_address", mail_address::check);
}

#[test]
fn mail_render() {
    seeds::replay("mail_render", mail_render::check);
}

#[test]
fn search_query() {
    seeds::replay("search_query", search_query::check);
}
