use super::*;

#[test]
fn names() {
    assert!(parse_name("edge-1").is_ok());
    for wrong in ["", "two words", "a\r\nb", "é", "1st"] {
        assert!(parse_name(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn blocks_begin_somewhere_or_never() {
    assert_eq!(parse_blocks_from("never"), Ok(None));
    assert_eq!(parse_blocks_from("1MiB"), Ok(Some(1 << 20)));
    for wrong in ["", "0", "1023KiB", "Never", "-1"] {
        assert!(parse_blocks_from(wrong).is_err(), "{wrong}");
    }
}

/// Every limit has a setting: a new limit of the accelerator without one breaks the compilation of this test.
#[test]
fn every_limit_can_be_set() {
    let cache::Limits {
        connections_max: _,
        connections_per_client_max: _,
        connections_per_network_max: _,
        client_requests_per_second_max: _,
        client_requests_burst: _,
        network_requests_per_second_max: _,
        network_requests_burst: _,
        request_head_bytes_max: _,
        request_line_bytes_max: _,
        request_headers_max: _,
        requests_per_connection_max: _,
        handshake_time_max: _,
        handshakes_max: _,
        request_body_rate_min: _,
        send_rate_min: _,
        send_rate_grace: _,
        connection_bytes_max: _,
        request_body_bytes_max: _,
        request_head_time_max: _,
        request_body_time_grace: _,
        idle_time_max: _,
        send_stall_max: _,
        pin_grace: _,
        response_head_bytes_max: _,
        origin_connect_time_max: _,
        origin_first_byte_time_max: _,
        origin_between_bytes_time_max: _,
        origin_request_time_max: _,
        origin_stream_bytes_max: _,
        origin_streams_max: _,
        origin_streams_bytes_max: _,
        origin_idle_time_max: _,
        origin_idle_connections_max: _,
        origin_connections_max: _,
        origin_queue_max: _,
        origin_lasting_max: _,
        pipe_idle_time_max: _,
        client_bytes_max: _,
    } = cache::Limits::default();
    assert_eq!(crate::settings::SETTINGS.iter().filter(|setting| LIMITS.has(setting)).count(), 38);
}

/// The guide's page on limits names every limit and its counter in `stat`.
#[test]
fn a30_the_guide_names_every_limit_and_every_count() {
    let page = include_str!("../../../../../../docs/guide/limits.md");
    let limits = crate::settings::SETTINGS.iter().filter(|setting| LIMITS.has(setting));
    let untold: Vec<_> =
        limits.map(|setting| setting.key).filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(untold.is_empty(), "{untold:?}");
    let counted = crate::admin::stat::places_of("limits").filter(|(family, _)| family.starts_with("cache_"));
    let uncounted: Vec<_> =
        counted.map(|(_, name)| name).filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(uncounted.is_empty(), "{uncounted:?}");
}
