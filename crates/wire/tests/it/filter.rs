//! Tests of filter expressions: their meaning, their printed form, and the errors of invalid ones.

use std::fmt::Write as _;

use allocations::{Allocations, CountingAllocator};
use wire::filter::{DEPTH_MAX, EXPRESSION_BYTES_MAX, Expression, Fault, Field, Kind, QuotedValue, TESTS_MAX};

use crate::{
    fuzz_seeds::filter::check,
    naive_filter::{FIELDS, Thing},
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

pub(crate) fn parse(text: &str) -> Expression<&'static str> {
    Expression::parse(text.as_bytes(), &FIELDS)
        .unwrap_or_else(|fault| panic!("{}", fault.marked(text.as_bytes())))
}

fn fault(text: &str) -> Fault {
    Expression::parse(text.as_bytes(), &FIELDS).expect_err(text)
}

/// A news page with two lines of tags, a header that is not UTF-8, and no `x-none`.
pub(crate) fn page() -> Thing {
    let texts: [(&str, &[u8]); 7] = [
        ("req.url", b"/news/1.png"),
        ("req.http.host", b"example.com"),
        ("obj.http.x-type", b"page"),
        ("obj.http.x-tags", b"cat_p_1,FPC"),
        ("obj.http.x-tags", b"store 2"),
        ("obj.http.x-bytes", b"gr\xfc\xdfe"),
        ("obj.http.x-empty", b""),
    ];
    let numbers =
        [("obj.status", 200), ("obj.age", 5_400_000_000), ("obj.ttl", -500_000), ("obj.size", 65_536)];
    Thing {
        texts: texts.map(|(name, text)| (name.to_owned(), text.to_vec())).into(),
        numbers: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
    }
}

fn holds(text: &str) -> bool {
    let bytes = text.as_bytes();
    check(bytes);
    parse(text).matches(&page())
}

#[test]
fn tests_hold_of_what_they_say() {
    for text in [
        r"req.url == /news/1.png",
        r#"req.url == "/news/1.png""#,
        r#"req.url ~ "^/news""#,
        r"req.url ~ \.png$",
        r"req.url !~ ^/shop",
        r"req.url ~ (?i)NEWS",
        r"obj.http.X-Type == page",
        r"obj.http.x-type != Page",
        r"obj.status == 200",
        r"obj.status ~ ^2",
        r"obj.status !~ ^[45]",
        r"obj.status < 201 && obj.status <= 200 && obj.status > 199 && obj.status >= 200 && obj.status != 404",
        r"obj.age == 1.5h and obj.age == 90m and obj.age == 5400 and obj.age > 1h",
        r"obj.ttl == -0.5 and obj.ttl == -500ms and obj.ttl < 0s and obj.ttl > -1",
        r"obj.size == 64KiB and obj.size == 65536 and obj.size == 65536B and obj.size < 1GiB",
        "obj.http.x-empty == \"\"",
        r#"obj.http.x-tags == "store 2""#,
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        "req.url == /news",
        "req.url ~ ^news",
        "req.url == /NEWS/1.png",
        "obj.status == 20",
        "obj.age > 90m",
        "obj.size > 64KiB",
    ] {
        assert!(!holds(text), "{text}");
    }
}

/// A quoted value stays one value, whatever characters a purge request puts into its tag.
#[test]
fn what_is_quoted_is_one_value() {
    for text in ["", "a", "\"", "\"\"", "a\" || obj.status ~ \"", " && ", "\\", "\\\"", "a)"] {
        let expression = parse(&format!("(obj.http.x-tags == {})", QuotedValue(text)));
        let thing = Thing { texts: vec![("obj.http.x-tags".into(), text.into())], ..Thing::default() };
        assert!(expression.matches(&thing) && !expression.matches(&page()), "{text}");
    }
}

/// For a missing field only `!=` is true, as in Varnish since 7.0.
#[test]
fn a_missing_field_matches_only_unequal() {
    let nothing = Thing::default();
    for field in FIELDS {
        let (name, value) = (field.name.replace('*', "x-none"), "1");
        for operator in ["==", "!=", "<", "<=", ">", ">=", "~", "!~"] {
            let text = format!("{name} {operator} {value}");
            if let Ok(expression) = Expression::parse(text.as_bytes(), &FIELDS) {
                assert_eq!(expression.matches(&nothing), operator == "!=", "{text}");
                assert_eq!(parse(&format!("not {text}")).matches(&nothing), operator != "!=", "not {text}");
            }
        }
    }
}

#[test]
fn each_line_of_a_header_counts() {
    for text in ["obj.http.x-tags ~ FPC$", "obj.http.x-tags ~ ^store", "obj.http.x-tags != store"] {
        assert!(holds(text), "{text}");
    }
    for text in ["obj.http.x-tags !~ FPC", "obj.http.x-tags !~ store", r#"obj.http.x-tags != "store 2""#] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn and_binds_tighter_than_or() {
    let (yes, no) = ("obj.status == 200", "obj.status == 404");
    for (text, expected) in [
        (format!("{yes} or {no} and {no}"), true),
        (format!("({yes} or {no}) and {no}"), false),
        (format!("{no} && {no} || {yes}"), true),
        (format!("{no} and ({no} or {yes})"), false),
        (format!("not {no} and {no}"), false),
        (format!("!({no} and {no})"), true),
        (format!("! {yes} || {yes}"), true),
        (format!("not({yes} or {yes})"), false),
        (format!("not not {yes} && !!{yes}"), true),
        (format!("(({yes}\n\tand(!({no}))))"), true),
    ] {
        assert_eq!(holds(&text), expected, "{text}");
    }
}

/// Bans as `std.ban()` and Varnish's command line accept them, with the unquoted patterns that shops send.
#[test]
fn bans_of_varnish_are_read_as_varnish_does() {
    for text in [
        "obj.http.x-tags ~ ((^|,)cat_p_1(,|$))",
        "obj.http.x-tags ~ ((^|,)cat_c_9(,|$))|((^|,)FPC(,|$))",
        "obj.http.x-tags ~ (^|,)(cat_c_9|cat_p_1)(,|$) && req.http.host ~ ^(?i)EXAMPLE\\.com$",
        "req.http.host == example.com && req.url ~ \\.png$",
        "obj.age > 1h && obj.status == 200 && obj.ttl <= 2m",
        "req.url != /a)b",
        "req.url !~ /?a=1&&b=(2",
    ] {
        if !text.ends_with("(2") {
            assert!(holds(text), "{text}");
        }
    }
    assert_eq!(parse("req.url == /?a=1&&b=2)").to_string(), r#"req.url == "/?a=1&&b=2)""#);
    // A group's end also ends a word, unless the word contains the matching parenthesis.
    let grouped = r"(obj.http.x-tags ~ ((^|,)FPC(,|$)) and (req.url ~ 1\.png) and req.url !~ \))";
    assert!(holds(grouped));
    assert_eq!(
        parse(grouped).to_string(),
        r#"obj.http.x-tags ~ "((^|,)FPC(,|$))" && req.url ~ "1\.png" && req.url !~ "\)""#
    );
}

#[test]
fn patterns_are_over_bytes() {
    for text in [
        r"obj.http.x-bytes ~ ^gr..e$",
        r"obj.http.x-bytes ~ \xFC\xDF",
        r"obj.http.x-bytes ~ ^gr[^a-z]+e",
        r"obj.http.x-bytes !~ grü",
        r"obj.http.x-empty ~ ^$",
    ] {
        assert!(holds(text), "{text}");
    }
    let thing = Thing { texts: vec![("req.url".into(), "/grüße".into())], ..Thing::default() };
    assert!(parse("req.url ~ ü(ß)?e$").matches(&thing));
    assert!(parse("req.url == /grüße").matches(&thing));
    assert!(!parse(r"req.url ~ gr\w").matches(&thing));
}

/// Backtracking would take 2^100,000 steps for the first pattern; the test would never end.
#[test]
fn patterns_take_linear_time() {
    let long = Thing { texts: vec![("req.url".into(), vec![b'a'; 100_000])], ..Thing::default() };
    for pattern in ["(a|a)*b", "(a*)*b", "(a|aa)+$b", "a{1,60}a{1,60}b"] {
        assert!(!parse(&format!("req.url ~ {pattern}")).matches(&long), "{pattern}");
    }
}

#[test]
fn printed_expressions_are_canonical() {
    for (text, printed) in [
        ("req.url==\"/a\"", "req.url == \"/a\""),
        ("req.url ~ ^/a and obj.status >= 500", "req.url ~ \"^/a\" && obj.status >= 500"),
        ("not not req.url == a", "req.url == \"a\""),
        ("not req.url == a", "!(req.url == \"a\")"),
        ("!(!(req.url == a)) or (((req.url == b)))", "req.url == \"a\" || req.url == \"b\""),
        (
            "(obj.age > 90m or obj.age < 0s) and (obj.ttl > 7d and obj.ttl != 365d)",
            "(obj.age > 90m || obj.age < 0s) && obj.ttl > 1w && obj.ttl != 1y",
        ),
        (
            "obj.ttl == 0.000001 or (obj.ttl == 61s or obj.ttl == 1.5s)",
            "obj.ttl == 1us || obj.ttl == 61s || obj.ttl == 1500ms",
        ),
        ("obj.size > 1048576 or obj.size == 0", "obj.size > 1MiB || obj.size == 0B"),
        ("obj.status == 0404", "obj.status == 404"),
        (r#"req.url == a"b"#, r#"req.url == "a""b""#),
        (r#"obj.http.ETag == """abc""""#, r#"obj.http.etag == """abc""""#),
        (r"req.url ~ \\", r#"req.url ~ "\\""#),
    ] {
        check(text.as_bytes());
        assert_eq!(parse(text).to_string(), printed, "{text}");
    }
}

fn refused(text: &str, at: usize, found: &str, expected: &str) {
    check(text.as_bytes());
    let fault = fault(text);
    assert_eq!((fault.at, &fault.found[..], &fault.expected[..]), (at, found, expected), "{text}");
    assert_eq!(fault.to_string(), format!("byte {at}: found {found}, expected {expected}"));
}

#[test]
fn mistakes_of_grammar_have_their_place() {
    let text_operators = "`==`, `!=`, `~` or `!~`";
    let number_operators = "`==`, `!=`, `<`, `<=`, `>`, `>=`, `~` or `!~`";
    let duration_operators = "`==`, `!=`, `<`, `<=`, `>` or `>=`";
    let fields = "one of the fields req.url, req.http.*, obj.http.*, obj.status, obj.age, obj.ttl, obj.size";
    for (text, at, found, expected) in [
        ("", 0, "the end", "a field, `!` or `(`"),
        ("  ", 2, "the end", "a field, `!` or `(`"),
        ("&& req.url == a", 0, "`&&`", "a field, `!` or `(`"),
        ("foo == bar", 0, "`foo`", fields),
        ("req.ur == a", 0, "`req.ur`", fields),
        ("obj.ageYY < 1d", 0, "`obj.ageYY`", fields),
        ("req.url == a and or == b", 17, "`or`", fields),
        ("obj.http. ~ a", 0, "`obj.http.`", "a name in place of `*` in `obj.http.*`"),
        ("req.url", 7, "the end", text_operators),
        ("req.url // a", 8, "`//`", text_operators),
        ("req.url = a", 8, "`=`", text_operators),
        ("req.url < a", 8, "`<`", text_operators),
        ("req.url && a", 8, "`&&`", text_operators),
        ("obj.status === 200", 11, "`===`", number_operators),
        ("obj.age // 4d", 8, "`//`", duration_operators),
        ("obj.age ~ 4", 8, "`~`", duration_operators),
        ("req.url ==", 10, "the end", "a value"),
        ("req.url == ", 11, "the end", "a value"),
        ("req.url == && obj.status == 1", 11, "`&&`", "a value"),
        ("(req.url == )", 12, "`)`", "a value"),
        ("req.url ==/a&&obj.status == 1", 10, "`/a&&obj.status`", "a blank after `==`"),
        ("obj.status >=5", 13, "`5`", "a blank after `>=`"),
        ("req.url == \"a", 11, "a quote that is not closed", "another `\"` behind it"),
        ("req.url == \"a\"\"", 11, "a quote that is not closed", "another `\"` behind it"),
        ("req.url == a b", 13, "`b`", "`&&`, `||` or the end"),
        ("req.url == \"a\"b", 14, "`b`", "`&&`, `||` or the end"),
        ("req.url == a & obj.status == 1", 13, "`&`", "`&&`, `||` or the end"),
        ("(req.url == a) )", 15, "`)`", "`&&`, `||` or the end"),
        ("req.url == a &&", 15, "the end", "a field, `!` or `(`"),
        ("req.url == a or ()", 17, "`)`", "a field, `!` or `(`"),
        ("not", 3, "the end", "a field, `!` or `(`"),
        ("(req.url == a", 13, "the end", "`&&`, `||` or the `)` of the `(` at byte 0"),
        ("! (req.url == a b)", 16, "`b)`", "`&&`, `||` or the `)` of the `(` at byte 2"),
    ] {
        refused(text, at, found, expected);
    }
    let fault = Expression::parse(b"req.url == \xff", &FIELDS).expect_err("no text");
    assert_eq!(fault.to_string(), "byte 11: found a byte that is no UTF-8, expected text in UTF-8");
}

#[test]
fn mistakes_in_numbers_have_their_place() {
    let duration = "a duration such as 0.5, 90s or 3h, in us, ms, s, m, h, d, w or y";
    let size = "a size such as 512, 64KiB or 1.5MiB, in B, KiB, MiB or GiB";
    for (text, at, found, expected) in [
        ("obj.status == 2OO", 14, "`2OO`", "a whole number"),
        ("obj.status == 1.5", 14, "`1.5`", "a whole number"),
        ("obj.status == \"\"", 15, "``", "a whole number"),
        ("obj.status == 99999999999999999999", 14, "`99999999999999999999`", "a whole number"),
        ("obj.status == 9999999999999999999", 14, "`9999999999999999999`", "a whole number"),
        ("obj.age == 4x", 11, "`4x`", duration),
        ("obj.age == -", 11, "`-`", duration),
        ("obj.age == .5", 11, "`.5`", duration),
        ("obj.age == 5.s", 11, "`5.s`", duration),
        ("obj.age == 1e3", 11, "`1e3`", duration),
        ("obj.age == 0.0000001", 11, "`0.0000001`", duration),
        ("obj.age == 300000y", 11, "`300000y`", duration),
        ("obj.size == 1.0001KiB", 12, "`1.0001KiB`", size),
        ("obj.size == 1k", 12, "`1k`", size),
    ] {
        refused(text, at, found, expected);
    }
}

#[test]
fn mistakes_in_patterns_have_their_place() {
    let pattern = "a regular expression over bytes, without look-around and back-references";
    for (text, at, found, expected) in [
        ("req.url ~ a(b", 11, "a mistake in the pattern (unclosed group)", pattern),
        ("req.url ~ \"a \"\" (b\"", 16, "a mistake in the pattern (unclosed group)", pattern),
        ("req.url ~ ü[ü]", 13, "a mistake in the pattern (Unicode not allowed here)", pattern),
        ("obj.status ~ 2**+{", 17, "a mistake in the pattern (unclosed counted repetition)", pattern),
        (
            "req.url ~ a(?=b)",
            11,
            "a mistake in the pattern (look-around, including look-ahead and look-behind, is not supported)",
            pattern,
        ),
        ("req.url ~ (a)\\1", 13, "a mistake in the pattern (backreferences are not supported)", pattern),
    ] {
        refused(text, at, found, expected);
    }
}

#[test]
fn a_field_table_with_invalid_names_panics() {
    for (name, kind) in
        [("or", Kind::Text), ("*", Kind::Text), ("a b", Kind::Text), ("time.*", Kind::Duration)]
    {
        let table = [Field { name, id: (), kind, of_request: false }];
        let result = std::panic::catch_unwind(|| Expression::parse(b"obj.age > 1s", &table));
        assert!(result.is_err(), "{name}");
    }
}

#[test]
fn a_mistake_is_shown_where_it_is() {
    let marked = |text: &str| fault(text).marked(text.as_bytes());
    assert_eq!(
        marked("req.url == ü\n&& obj.status = 1"),
        "req.url == ü && obj.status = 1\n                           ^ found `=`, expected \
         `==`, `!=`, `<`, `<=`, `>`, `>=`, `~` or `!~`"
    );
    let url = "a".repeat(200);
    assert_eq!(
        marked(&format!("req.url == {url} {url}")),
        format!(
            "…{} {}…\n{}^ found `{}…`, expected `&&`, `||` or the end",
            &url[..59],
            &url[..30],
            " ".repeat(61),
            &url[..24]
        )
    );
    assert_eq!(marked("\x1b[31m"), "\u{fffd}[31m\n^ found `\u{fffd}[31m`, expected a field, `!` or `(`");
    let text = b"req.url == \xff\xff";
    let fault = Expression::parse(text, &FIELDS).expect_err("no text");
    assert_eq!(
        fault.marked(text),
        "req.url == \u{fffd}\u{fffd}\n           ^ found a byte that is no UTF-8, expected text in UTF-8"
    );
}

#[test]
fn bounds_are_kept_and_named() {
    let long = |bytes: usize| format!("req.url == \"{}\"", "a".repeat(bytes - "req.url == \"\"".len()));
    check(long(EXPRESSION_BYTES_MAX).as_bytes());
    parse(&long(EXPRESSION_BYTES_MAX));
    assert_eq!(
        fault(&long(EXPRESSION_BYTES_MAX + 1)).to_string(),
        "byte 16384: found an expression of 16385 bytes, expected 16384 at most"
    );
    // The printed form would be too long to be parsed again.
    let quotes = format!("req.url == a{}", "\"".repeat(9_000));
    assert_eq!(
        fault(&quotes).to_string(),
        "byte 9012: found an expression of 18014 bytes, expected 16384 at most"
    );

    let many = |tests: usize| vec!["obj.status == 1"; tests].join(" or ");
    check(many(TESTS_MAX).as_bytes());
    parse(&many(TESTS_MAX));
    let fault_of_many = fault(&many(TESTS_MAX + 1));
    assert_eq!(fault_of_many.found, "a 65th test");
    assert_eq!((fault_of_many.at, &fault_of_many.expected[..]), (64 * 19, "64 at most"));

    let deep = |groups: usize, inside: &str| format!("{}{inside}{}", "(".repeat(groups), ")".repeat(groups));
    check(deep(DEPTH_MAX, "obj.status == 1").as_bytes());
    parse(&deep(DEPTH_MAX, "obj.status == 1"));
    for text in [deep(DEPTH_MAX + 1, "obj.status == 1"), deep(DEPTH_MAX, "not obj.status == 1")] {
        assert_eq!(fault(&text).expected, "16 groups within each other at most", "{text}");
    }
    // The deepest nesting allowed, which prints with the same depth.
    let (mut alternating, mut inside) = (String::new(), "!obj.status == 1".to_owned());
    for depth in 1..DEPTH_MAX {
        let connective = if depth % 2 == 0 { "and" } else { "or" };
        alternating = format!("(obj.age > 1 {connective} {inside})");
        inside.clone_from(&alternating);
    }
    check(alternating.as_bytes());
    parse(&alternating);
}

#[test]
fn patterns_are_bounded_compiled() {
    let fault_of = |pattern: &str| fault(&format!("req.url ~ {pattern}"));
    for pattern in ["(a{1000}){1000}", "((a{100}){100}){100}", "[a-z]{0,99999}"] {
        let fault = fault_of(pattern);
        assert_eq!(fault.found, "a pattern that takes more than 262144 bytes compiled", "{pattern}");
        assert_eq!((fault.at, &fault.expected[..]), (10, "a smaller one"));
    }
    assert_eq!(
        fault_of(&format!("{}a{}", "(".repeat(65), ")".repeat(65))).found,
        "a mistake in the pattern (exceed the maximum number of nested parentheses/brackets (64))"
    );
    let many = vec!["req.url ~ a{5000}"; TESTS_MAX].join(" or ");
    let fault = fault(&many);
    assert!(fault.found.starts_with("patterns that take "), "{fault}");
    assert_eq!(fault.expected, "4194304 at most");
    assert_eq!(&many[fault.at..][..7], "a{5000}");
}

/// Magento and FOSHttpCache cut their headers below the 8 KiB that Varnish accepts.
#[test]
fn a_shops_longest_pattern_fits() {
    let mut pattern = String::new();
    for product in 0..330 {
        let _ = write!(pattern, "{}((^|,)cat_p_{}(,|$))", if product > 0 { "|" } else { "" }, product * 37);
    }
    assert!((7_000..8_000).contains(&pattern.len()), "{}", pattern.len());
    let expression = parse(&format!("obj.http.x-tags ~ {pattern}"));
    let thing =
        |tags: &str| Thing { texts: vec![("obj.http.x-tags".into(), tags.into())], ..Thing::default() };
    assert!(expression.matches(&thing("cms_b_1,cat_p_370,FPC")));
    assert!(!expression.matches(&thing("cms_b_1,cat_p_371,xcat_p_37,FPC")));
}

#[test]
fn only_request_fields_need_the_request() {
    for (text, needed) in [
        ("obj.age > 1h and obj.status == 404", false),
        ("not (obj.http.x-tags ~ a or obj.http.url ~ req.url)", false),
        ("obj.age > 1h or not req.url ~ a", true),
        ("req.http.host == a", true),
    ] {
        assert_eq!(parse(text).needs_request(), needed, "{text}");
    }
}

/// Evaluating an expression does not allocate after its first run, even for a new text. A clone, which may go
/// to another core, has working memory of its own.
#[test]
fn evaluating_does_not_allocate() {
    fn to_another_core<T: Send>(it: &T) -> &T {
        it
    }
    let expression = parse(
        "req.url ~ ^/(news|sport)/[0-9]+ and not obj.status ~ ^[45] and (obj.http.x-tags ~ ((^|,)cat_p_1(,|$)) \
         or obj.http.x-type == page or obj.age > 3h) or obj.http.x-bytes !~ \\xfe",
    );
    let pages: Vec<Thing> = (0..100_u8)
        .map(|at| {
            let mut page = page();
            page.texts[0].1 = format!("/sport/{at}/{}", "x".repeat(usize::from(at))).into();
            page.texts[3].1 = (0..=255).map(|byte: u8| byte ^ at).collect();
            page
        })
        .collect();
    let mut allocations = Allocations::new().expect("the allocator above");
    for expression in [&expression, to_another_core(&expression.clone())] {
        let _ = expression.matches(&page());
        allocations.mark().expect("this thread");
        let matched = pages.iter().filter(|page| expression.matches(*page)).count();
        allocations.assert_none("evaluating an expression");
        assert_eq!(matched, 100);
    }
}
