use super::*;

const NOW_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 3_600_000;

fn record(name: u64, arrived_ms: u64) -> Record {
    let id = MailId(name << 14);
    let entry = NewEntry {
        id,
        letter: id,
        inboxes: 1,
        location: 0,
        record_bytes: 100,
        mail_bytes: 50,
        arrived_ms,
        parts: None,
    };
    let inbox = Inbox { local: "ann".into(), domain: "example.org".into() };
    let parts = Arc::from([]);
    Record {
        location: Location::from_bits(1 << 20).expect("a location"),
        payload_bytes: 100,
        body_bytes: 0,
        parts,
        entries: vec![(entry, inbox)],
    }
}

#[test]
fn ages_go_by_order_of_arrival() {
    // A clock that was a day ahead dated the second mail; the clock was set right before the third.
    let mut records = [
        record(3, NOW_MS - 1000),
        record(1, NOW_MS - 5000),
        record(2, NOW_MS + DAY_MS),
        record(4, NOW_MS + 1),
    ];
    order_arrivals(&mut records, NOW_MS);
    let arrivals = records.iter().map(|record| record.arrival().0);
    assert_eq!(arrivals.collect::<Vec<_>>(), [NOW_MS - 5000, NOW_MS - 1000, NOW_MS - 1000, NOW_MS]);
}
