//! The WordPress recipe of `docs/guide/sites.md`, as written there, before Debian's WordPress with its
//! database: rows A34 and A35 of the features. WordPress alone decides which visitors are known and which
//! pages are fresh.

use tests::{
    Accelerator, Request, Response,
    wordpress::{WordPress, password},
};

use crate::site_recipes::{host_of, recipe, with_origin};

/// A post that WordPress' installer writes.
const POST: &str = "/hello-world/";
const STYLE: &str = "/wp-content/themes/twentytwentythree/style.css";
const FORM: &str = "application/x-www-form-urlencoded";

/// WordPress behind the accelerator.
struct Blog {
    wordpress: WordPress,
    running: Accelerator,
    host: String,
}

/// A browser's cookies.
#[derive(Default)]
struct Visitor {
    /// Name, path and value of each cookie.
    cookies: Vec<(String, String, String)>,
}

impl Visitor {
    /// A visitor with no cookie but an analytics cookie.
    fn stranger(number: u32) -> Self {
        Self { cookies: vec![("_ga".to_owned(), "/".to_owned(), format!("GA1.{number}"))] }
    }

    fn cookies_for(&self, target: &str) -> String {
        let of_path = self.cookies.iter().filter(|(_, path, _)| target.starts_with(path.as_str()));
        of_path.map(|(name, _, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// Stores and deletes cookies as an answer says.
    fn keep(&mut self, answer: &Response) {
        for set in answer.head.headers.all("set-cookie") {
            let mut parts = set.split("; ");
            let (name, value) = parts.next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            let path = set.split("; ").find_map(|part| part.strip_prefix("path=")).unwrap_or("/");
            self.cookies.retain(|(known, of, _)| (known.as_str(), of.as_str()) != (name, path));
            if !set.contains("Max-Age=0") {
                self.cookies.push((name.to_owned(), path.to_owned(), value.to_owned()));
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.cookies.iter().any(|(known, _, _)| known.starts_with(name))
    }
}

impl Blog {
    fn ask(&self, visitor: &mut Visitor, request: Request, target: &str) -> Response {
        let cookies = visitor.cookies_for(target);
        let request = request.header("Host", &self.host);
        let request = if cookies.is_empty() { request } else { request.header("Cookie", &cookies) };
        let answer = self.running.fetch(&request).whole();
        visitor.keep(&answer);
        answer
    }

    fn get(&self, visitor: &mut Visitor, target: &str) -> Response {
        self.ask(visitor, Request::get(target), target)
    }

    fn post(&self, visitor: &mut Visitor, target: &str, form: &str) -> Response {
        let request = Request::new("POST", target).header("Content-Type", FORM).body(form.as_bytes());
        self.ask(visitor, request, target)
    }

    /// Requests a page and checks its `Cache-Status`; returns the text.
    #[track_caller]
    fn page(&self, visitor: &mut Visitor, target: &str, status: &str) -> String {
        let page = self.get(visitor, target).expect_status(200);
        let said = page.header("cache-status").unwrap_or_default();
        assert!(said.contains(status), "{target}: {said}");
        page.text()
    }

    /// Logs in like a browser: first the form, which sets the cookie that WordPress expects back.
    #[track_caller]
    fn logged_in(&self, name: &str) -> Visitor {
        let mut visitor = Visitor::stranger(7);
        self.page(&mut visitor, "/wp-login.php", "detail=path-pass");
        assert!(visitor.has("wordpress_test_cookie"));
        let form = format!("log={name}&pwd={}&wp-submit=Log+In&testcookie=1", password(name));
        self.post(&mut visitor, "/wp-login.php", &form).expect_status(302);
        assert!(visitor.has("wordpress_logged_in_"), "{:?}", visitor.cookies);
        visitor
    }

    /// Checks that the first stranger after a change gets a fetched page, and all later strangers get it from
    /// the store.
    #[track_caller]
    fn strangers_see(&self, target: &str, words: &str) {
        let mut first = None;
        for number in 0..4 {
            let status = if number == 0 { "fwd=uri-miss" } else { "; hit" };
            let page = self.page(&mut Visitor::stranger(number), target, status);
            assert!(page.contains(words), "{target}: no {words:?}");
            assert!(!page.contains("wpadminbar"), "{target}: a bar for a stranger");
            assert_eq!(*first.get_or_insert_with(|| page.clone()), page);
        }
        self.page(&mut Visitor::default(), target, "; hit");
        for parameters in ["utm_source=mail&utm_medium=x", "gclid=1", "mc_cid=2"] {
            self.page(&mut Visitor::stranger(9), &format!("{target}?{parameters}"), "; hit");
        }
    }

    #[track_caller]
    fn purge(&self, target: &str) {
        let request = Request::new("PURGE", target).header("Host", &self.host);
        self.running.fetch(&request).expect_status(200);
    }
}

#[test]
fn a34_a35_the_recipe_for_wordpress_serves_debians_wordpress() {
    let text = recipe("WordPress");
    let host = host_of(&text);
    let Some(wordpress) = WordPress::start(&host, "anna") else { return };
    let made = "$post = wp_insert_post(['post_title' => 'Locked', 'post_name' => 'locked', 'post_status' => 'publish',
        'post_content' => 'behind-the-lock', 'post_password' => 'opens']);
        echo is_int(wp_create_user('ben', 'secret-of-ben', 'ben@example.org')) && $post ? 'made' : 'not made';";
    assert_eq!(wordpress.php(made), "made");
    let running = Accelerator::configured(&with_origin(&text, &wordpress.url()))
        .flag("--purge-from", "127.0.0.1")
        .start();
    let blog = Blog { wordpress, running, host };

    blog.strangers_see("/", "Hello world!");
    blog.strangers_see(POST, "Welcome to WordPress");
    let mut known = [("anna", blog.logged_in("anna")), ("ben", blog.logged_in("ben"))];
    visitors_never_see_each_other(&blog, &mut known);
    a_comment_that_waits_is_its_authors(&blog);
    a_password_opens_a_post_for_who_said_it(&blog);
    what_an_author_changes_is_seen(&blog, &mut known[0].1);
    files_are_stored(&blog);
    // A network of blogs keeps a new blog's key in a cookie (wp-activate.php).
    let mut invited =
        Visitor { cookies: vec![("wp-activate-8e1f".to_owned(), "/".to_owned(), "key".to_owned())] };
    let answer = blog.get(&mut invited, "/wp-activate.php");
    let said = answer.header("cache-status").unwrap_or_default();
    assert!(said.contains("detail=bypass-cookie"), "{said}");
}

fn visitors_never_see_each_other(blog: &Blog, known: &mut [(&str, Visitor); 2]) {
    for round in 0..3 {
        for target in ["/", POST] {
            for at in 0..2 {
                let (name, visitor) = &mut known[(at + round) % 2];
                let page = blog.page(visitor, target, "detail=bypass-cookie");
                for (other, word) in [("anna", "anna</span>"), ("ben", "ben</span>")] {
                    let bar = format!("<span class=\"display-name\">{word}");
                    assert_eq!(page.contains(&bar), other == *name, "{target} for {name}: {other}");
                }
                let page = blog.page(&mut Visitor::stranger(1), target, "; hit");
                assert!(!page.contains("display-name"), "{target}: a name for a stranger");
            }
        }
    }
    for (name, visitor) in known {
        let page = blog.page(visitor, "/wp-admin/profile.php", "fwd=bypass");
        assert!(page.contains(&format!("value=\"{name}\"")), "{name}'s profile");
    }
    let locked_out = blog.get(&mut Visitor::stranger(1), "/wp-admin/profile.php").expect_status(302);
    assert!(locked_out.header("location").is_some_and(|to| to.contains("/wp-login.php")));
}

fn a_comment_that_waits_is_its_authors(blog: &Blog) {
    let mut cleo = Visitor::stranger(2);
    let form = "comment=words-that-wait&author=cleo&email=cleo%40example.org&url=&comment_post_ID=1\
                &comment_parent=0&wp-comment-cookies-consent=yes";
    blog.post(&mut cleo, "/wp-comments-post.php", form).expect_status(302);
    assert!(cleo.has("comment_author_"));
    // The answer names the post in `Location`, so the stored post is dropped (RFC 9111 §4.4).
    for status in ["fwd=uri-miss", "; hit", "; hit"] {
        assert!(blog.page(&mut cleo, POST, "detail=bypass-cookie").contains("words-that-wait"));
        assert!(!blog.page(&mut Visitor::stranger(3), POST, status).contains("words-that-wait"));
    }
}

fn a_password_opens_a_post_for_who_said_it(blog: &Blog) {
    let locked = |status: &str| {
        let page = blog.page(&mut Visitor::stranger(4), "/locked/", status);
        assert!(page.contains("post_password") && !page.contains("behind-the-lock"));
    };
    locked("fwd=uri-miss");
    let mut guest = Visitor::stranger(5);
    let target = "/wp-login.php?action=postpass";
    let request = Request::new("POST", target).header("Content-Type", FORM);
    let request = request.header("Referer", &format!("http://{}/locked/", blog.host));
    blog.ask(&mut guest, request.body(b"post_password=opens&Submit=Enter"), target).expect_status(302);
    assert!(guest.has("wp-postpass_"));
    assert!(blog.page(&mut guest, "/locked/", "detail=bypass-cookie").contains("behind-the-lock"));
    // WordPress redirects the guest back there, so the stored page may have been dropped once more.
    locked("nighttrain");
    locked("; hit");
}

/// Edits a post with the requests of WordPress' editor, all through the accelerator.
fn what_an_author_changes_is_seen(blog: &Blog, author: &mut Visitor) {
    let nonce = blog.page(author, "/wp-admin/admin-ajax.php?action=rest-nonce", "fwd=bypass");
    let target = "/wp-json/wp/v2/posts/1";
    let request = Request::new("POST", target).header("X-WP-Nonce", &nonce);
    let request = request.header("Content-Type", "application/json").body(br#"{"content":"changed-words"}"#);
    blog.ask(author, request, target).expect_status(200);
    assert!(blog.page(author, POST, "detail=bypass-cookie").contains("changed-words"));
    assert!(!blog.page(&mut Visitor::stranger(6), POST, "; hit").contains("changed-words"), "not purged");
    blog.purge(POST);
    blog.strangers_see(POST, "changed-words");
    // A change outside the editor, by a program on the blog's own machine, is seen too.
    let said = blog.wordpress.php("echo wp_update_post(['ID' => 1, 'post_content' => 'other-words']);");
    assert_eq!(said, "1");
    blog.purge(POST);
    blog.strangers_see(POST, "other-words");
}

fn files_are_stored(blog: &Blog) {
    let target = format!("{STYLE}?ver=1");
    assert!(blog.page(&mut Visitor::stranger(1), &target, "fwd=uri-miss").contains("Twenty Twenty-Three"));
    for number in 0..3 {
        blog.page(&mut Visitor::stranger(number), &target, "; hit");
    }
    let script = "/wp-includes/js/wp-emoji-release.min.js?ver=1";
    blog.page(&mut Visitor::stranger(1), script, "fwd=uri-miss");
    blog.page(&mut Visitor::stranger(2), script, "; hit");
}
