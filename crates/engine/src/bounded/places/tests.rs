use super::*;

fn bounds(places_max: usize, places_per_address_max: usize) -> Bounds {
    Bounds {
        places_max,
        client_budget: None,
        places_per_address_max,
        idle_time_max: Duration::from_millis(1000),
        head_time_max: Duration::from_millis(100),
        body_time_max: Duration::from_millis(500),
        stall_time_max: Duration::from_millis(300),
        answer_time_max: Duration::from_millis(700),
        head_bytes_max: 100,
        long_words: b"",
        late_words: b"",
        refused_words: b"",
    }
}

fn from(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn enter(places: &mut ConnectionSlots, address: IpAddr, now_ms: u64) -> SlotId {
    match places.enter(address, now_ms) {
        AcceptDecision::Taken(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn look(places: &mut ConnectionSlots, ticket: SlotId, now_ms: u64) -> Result<Option<u64>, CloseReason> {
    places.look(ticket, now_ms, Waker::noop())
}

#[test]
fn eviction_takes_idle_then_heads_then_bodies() {
    let mut places = ConnectionSlots::new(bounds(5, 0));
    let all: Vec<SlotId> = (0..5).map(|n| enter(&mut places, from(n), u64::from(n))).collect();
    let [old_head, young_head, working, body, idle] = all[..] else { panic!("five") };
    places.wait(old_head, Phase::Head, 10);
    places.wait(young_head, Phase::Head, 11);
    places.wait(working, Phase::Working, 5);
    places.wait(body, Phase::Body, 6);
    for (gone, end) in [
        (idle, CloseReason::Silent),
        (old_head, CloseReason::WithWords),
        (young_head, CloseReason::WithWords),
        (body, CloseReason::Silent),
    ] {
        let newcomer = enter(&mut places, from(9), 20);
        places.wait(newcomer, Phase::Working, 20);
        assert_eq!(look(&mut places, gone, 21), Err(end));
    }
    assert_eq!(places.enter(from(9), 21), AcceptDecision::Full);
    assert_eq!(places.enter(from(9), 21), AcceptDecision::Full);
    let Counts { idle_evicted, heads_evicted, bodies_evicted, waited, .. } = places.counts;
    assert_eq!((idle_evicted, heads_evicted, bodies_evicted, waited), (1, 2, 1, 1));
    // An answered connection without a further request can be evicted.
    places.wait(working, Phase::Idle, 22);
    enter(&mut places, from(9), 23);
    assert_eq!(look(&mut places, working, 23), Err(CloseReason::Silent));
}

#[test]
fn a_sending_connection_is_evicted_only_when_stalled() {
    let mut places = ConnectionSlots::new(bounds(1, 0));
    let slow = enter(&mut places, from(1), 0);
    places.unsent(slow, Some(0));
    assert_eq!(places.enter(from(2), 1), AcceptDecision::Full);
    places.unsent(slow, Some(250));
    assert_eq!(look(&mut places, slow, 299), Ok(Some(300)), "the stall began with the first refusal");
    places.unsent(slow, None);
    places.unsent(slow, Some(299));
    assert_eq!(look(&mut places, slow, 300), Ok(Some(599)));
    assert_eq!(look(&mut places, slow, 599), Err(CloseReason::Silent));
    assert_eq!(places.counts.stalled, 1);
}

#[test]
fn a_slow_reader_has_a_total_time_limit() {
    let mut places = ConnectionSlots::new(bounds(1, 0));
    let slow = enter(&mut places, from(1), 0);
    places.wait(slow, Phase::Working, 0);
    for now_ms in [100, 300, 500] {
        places.unsent(slow, None);
        places.unsent(slow, Some(now_ms));
        assert!(look(&mut places, slow, now_ms).is_ok());
    }
    assert_eq!(look(&mut places, slow, 600), Ok(Some(800)));
    // The answer is complete, but the peer has still not taken it.
    places.wait(slow, Phase::Idle, 600);
    places.unsent(slow, None);
    places.unsent(slow, Some(790));
    assert_eq!(look(&mut places, slow, 800), Err(CloseReason::Silent));
    assert_eq!((places.counts.stalled, places.counts.slow_answers), (0, 1));
    places.taken(slow);
    places.unsent(slow, None);
    assert_eq!(look(&mut places, slow, 801), Ok(Some(1600)), "another question, another time");
}

#[test]
fn proxied_requests_take_slots_of_their_client() {
    let proxy = IpAddr::from([127, 0, 0, 1]);
    let mut places = ConnectionSlots::new(bounds(10, 2));
    let all: Vec<SlotId> = (0..4).map(|_| enter(&mut places, proxy, 0)).collect();
    for &ticket in &all[..2] {
        places.wait(ticket, Phase::Working, 0);
        assert!(places.asked_by(ticket, from(1)) && places.asked_by(ticket, from(1)));
    }
    places.wait(all[2], Phase::Body, 0);
    assert!(!places.asked_by(all[2], from(1)), "it has its places");
    assert!(places.asked_by(all[2], from(2)), "and another has not");
    assert_eq!(places.enter(from(1), 1), AcceptDecision::Refused, "nor may it come by itself");
    places.wait(all[0], Phase::Idle, 2);
    assert!(places.asked_by(all[3], from(1)));
    places.leave(all[1]);
    places.leave(all[3]);
    assert_eq!(places.of_address.get(&from(1)), None);
    assert_eq!((places.counts.refused, places.counts.idle_evicted), (2, 0));
}

#[test]
fn each_phase_has_its_time() {
    let mut places = ConnectionSlots::new(bounds(3, 0));
    let one = enter(&mut places, from(1), 0);
    assert_eq!(look(&mut places, one, 0), Ok(Some(100)), "who never asked anything has less time");
    places.wait(one, Phase::Head, 10);
    assert_eq!(look(&mut places, one, 109), Ok(Some(110)));
    places.wait(one, Phase::Body, 109);
    assert_eq!(look(&mut places, one, 109), Ok(Some(609)));
    places.wait(one, Phase::Working, 600);
    assert_eq!(look(&mut places, one, 1_000_000), Ok(None));
    places.wait(one, Phase::Idle, 1_000_000);
    assert_eq!(look(&mut places, one, 1_001_000), Err(CloseReason::Silent));
    let two = enter(&mut places, from(1), 0);
    places.wait(two, Phase::Head, 0);
    assert_eq!(look(&mut places, two, 100), Err(CloseReason::WithWords));
    places.wait(two, Phase::Body, 0);
    assert_eq!(look(&mut places, two, 500), Err(CloseReason::Silent));
    let three = enter(&mut places, from(1), 0);
    assert_eq!(look(&mut places, three, 100), Err(CloseReason::Silent));
    let Counts { idle_ended, slow_heads, slow_bodies, .. } = places.counts;
    assert_eq!((idle_ended, slow_heads, slow_bodies), (2, 1, 1));
}

#[test]
fn addresses_are_bounded_and_loopback_is_not() {
    let mut places = ConnectionSlots::new(bounds(10, 2));
    let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
    let first = enter(&mut places, v6("2001:db8::1"), 0);
    let second = enter(&mut places, v6("2001:db8::2"), 1);
    places.wait(first, Phase::Working, 1);
    // The third connection of a /64 takes the slot of its own idle one, not another network's.
    let other = enter(&mut places, v6("2001:db8:0:1::1"), 0);
    let third = enter(&mut places, v6("2001:db8::3"), 2);
    assert_eq!(look(&mut places, second, 2), Err(CloseReason::Silent));
    assert!(look(&mut places, other, 2).is_ok());
    places.wait(third, Phase::Working, 2);
    assert_eq!(places.enter(v6("2001:db8::4"), 3), AcceptDecision::Refused);
    places.leave(first);
    enter(&mut places, v6("2001:db8::4"), 4);
    // Leaving after an eviction does not free the slot twice.
    places.leave(second);
    places.leave(second);
    assert_eq!(
        places.enter(v6("2001:db8::5"), 5),
        AcceptDecision::Taken(SlotId { at: second.at, serial: 6 })
    );
    for _ in 0..7 {
        let here = enter(&mut places, v6("::ffff:127.0.0.1"), 6);
        places.wait(here, Phase::Working, 6);
    }
    assert_eq!((places.counts.refused, places.counts.idle_evicted), (1, 2));
}

#[test]
fn a_ticket_of_who_is_gone_moves_nothing() {
    let mut places = ConnectionSlots::new(bounds(1, 0));
    let gone = enter(&mut places, from(1), 0);
    places.leave(gone);
    let here = enter(&mut places, from(2), 0);
    places.wait(gone, Phase::Working, 0);
    assert_eq!((places.phase(gone), places.phase(here)), (None, Some(Phase::Idle)));
    places.leave(gone);
    assert_eq!(places.counts.open, 1);
}
