use super::*;
use crate::{head::response_head::BLANK, policy::test_heads::with_request};

fn parse(text: &str) -> Arc<Ban> {
    Ban::parse(text.as_bytes(), &["xkey".into()]).unwrap_or_else(|fault| panic!("{fault}"))
}

/// Evaluates an expression at second 1100 for a page that was born at second 1000 with a lifetime of ten
/// minutes, requested by a client of the group staff.
fn holds(text: &str) -> bool {
    let meta = StoredMeta { born_s: 1000, lifetime_s: 600, status: 404, ..BLANK };
    let mut bans = Bans::default();
    bans.enter(110_000, false, &parse(text));
    with_request("GET /other", "X-Group: staff", |head| {
        let subject = Subject {
            key: b"Sa.example\0/news?1\0variant\0",
            head: b"HTTP/1.1 404 Not: here\r\nX-Type: page\r\nX-Two: a\r\nx-two:  b \r\nX-None:\r\n",
            meta: &meta,
            asker: Some(&head.headers),
        };
        let verdicts = [false, true].map(|are_about_askers| bans.verdict(0, &subject, are_about_askers));
        assert!(!bans.is_walked_down(0, &subject), "nobody walks");
        assert_eq!(
            bans.verdict(110_000, &subject, true).max(bans.verdict(110_000, &subject, false)),
            Verdict::Valid
        );
        verdicts.contains(&Verdict::Hard)
    })
}

#[test]
fn fields_are_those_of_what_is_stored() {
    for text in [
        "req.url == /news?1",
        "req.http.host == a.example && req.http.Host ~ ^a && req.http.HOST == a.example",
        "obj.status == 404",
        "obj.http.x-type == page and obj.http.X-TWO == b and obj.http.x-two == a",
        "obj.http.x-none == \"\"",
        "obj.age == 100s && obj.ttl == 500s",
        "req.http.x-group == staff",
    ] {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("!({text})")), "{text}");
    }
    for text in ["obj.http.http/1.1 == x", "obj.http.not ~ here", "req.http.x-other ~ .", "req.url ~ other"] {
        if Ban::parse(text.as_bytes(), &[]).is_ok() {
            assert!(!holds(text), "{text}");
        }
    }
    // A hit-for-miss entry has an address, and nothing else that a ban can match.
    let subject = Subject { key: b"a\0/x\0N0", head: b"private", meta: &BLANK, asker: None };
    for (text, verdict) in [
        ("req.url == /x", Verdict::Hard),
        ("obj.status == 0", Verdict::Valid),
        ("obj.age >= 0s", Verdict::Valid),
    ] {
        let mut bans = Bans::default();
        bans.enter(7, false, &parse(text));
        assert_eq!(bans.verdict(0, &subject, false), verdict, "{text}");
    }
}

#[test]
fn what_bans_know_nothing_of_is_refused() {
    for text in ["req.url", "obj.hits > 3", "obj.http.xkey == a", "obj.http.XKey ~ a || obj.status == 200"] {
        assert!(Ban::parse(text.as_bytes(), &["xkey".into()]).is_err(), "{text}");
    }
    let tests: Vec<_> = (0..12).map(|at| format!("req.url ~ (a{at}|.*b){{1,40}}[a-z]{{200,400}}c")).collect();
    let large = Ban::parse(tests.join(" or ").as_bytes(), &[]).expect_err("too large");
    assert!(large.to_string().contains("4194304 at most"), "{large}");
}

#[test]
fn an_equal_ban_replaces_an_older_one() {
    let mut bans = Bans::default();
    let numbers = |bans: &Bans| bans.iter().map(|(number, is_soft, _)| (number, is_soft)).collect::<Vec<_>>();
    for (number, is_soft, text, want) in [
        (1, true, "req.url ~ a", &[(1, true)][..]),
        (2, false, "obj.age > 1h", &[(1, true), (2, false)]),
        (3, true, "req.url ~  \"a\"", &[(2, false), (3, true)]),
        (5, false, "req.url ~ a", &[(2, false), (5, false)]),
        // A soft ban covers less than a hard one, and an older ban less than a younger one.
        (6, true, "req.url ~ a", &[(2, false), (5, false), (6, true)]),
        (4, true, "req.url ~ a", &[(2, false), (5, false), (6, true)]),
        // A ban on the age depends on the time at which it was entered, so it replaces no other ban.
        (8, false, "obj.age > 1h", &[(2, false), (5, false), (6, true), (8, false)]),
        // Cores may receive neighbouring numbers in either order.
        (7, false, "req.url ~ b", &[(2, false), (5, false), (6, true), (7, false), (8, false)]),
    ] {
        assert!(bans.enter(number, is_soft, &parse(text)).is_empty());
        assert_eq!(numbers(&bans), want, "{number}");
    }
    bans.forget_until(5, 6);
    assert_eq!(numbers(&bans), [(7, false), (8, false)]);
    assert_eq!(bans.bytes, bans.list.iter().map(|listed| listed.ban.bytes()).sum::<usize>());
}

#[test]
fn there_are_never_more_nor_larger_ones() {
    let mut bans = Bans::default();
    let mut gone = Vec::new();
    for number in 1..=BANS_MAX as u64 + 3 {
        gone.extend(bans.enter(number, number.is_multiple_of(2), &parse(&format!("req.url == /{number}"))));
    }
    assert_eq!(gone, [(1, false), (2, true), (3, false)]);
    assert_eq!(bans.len(), BANS_MAX);
    assert!(bans.bytes < BANS_BYTES_MAX / 2, "so many of the usual size fit: {}", bans.bytes);
    // Too large for a precomputed table: each may grow to a mebibyte.
    for number in 1000..1020 {
        gone.extend(bans.enter(number, false, &parse(&format!("req.url ~ {number}[0-9a-f]{{600}}"))));
        assert!(bans.bytes <= BANS_BYTES_MAX, "{}", bans.bytes);
    }
    assert!((2..4).contains(&bans.len()), "{} are left", bans.len());
}

#[test]
fn a_walk_is_for_what_is_ripe() {
    let mut bans = Bans::default();
    for number in 1..=20 {
        bans.enter(number, false, &parse(&format!("req.url == /{number}")));
    }
    bans.enter(21, true, &parse("req.url ~ soft"));
    bans.enter(22, false, &parse("req.http.cookie ~ who-asks"));
    // A fetch that began when 2 was the latest number is older than the other bans.
    assert_eq!(bans.begin_walk(Some(2), 100), Some(2));
    bans.end_walk(true);
    assert_eq!(bans.begin_walk(Some(2), 100), None);
    assert_eq!(bans.drop_done(2), 0, "another core is not done");
    assert_eq!(bans.drop_done(1), 2);
    // The fetch takes too long, so the walk does not wait for it.
    assert_eq!(bans.begin_walk(Some(2), 6_010), Some(9));
    bans.end_walk(true);
    assert_eq!(bans.begin_walk(None, 100), Some(20), "no more than so many at once");
    bans.end_walk(false);
    assert_eq!(bans.drop_done(1), 7, "what lies elsewhere was not walked through");
    assert_eq!(bans.len(), 13);
    assert!(bans.is_unfinished());
}
