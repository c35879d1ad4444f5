use super::{StepLimit, linked};

#[test]
fn text_is_escaped_and_urls_become_links() {
    let html = linked(
        "<b>see</b> https://a.test/?x=1&y=\"2 and https://a.test/?x=1 or javascript:alert(1), httpx",
        &StepLimit::default(),
    );
    assert!(html.starts_with("&lt;b&gt;see&lt;/b&gt; <a href=\"https://a.test/?x=1&amp;y=\""), "{html}");
    assert_eq!(html.matches("<a ").count(), 2);
    assert!(html.ends_with("or javascript:alert(1), httpx"));
}
