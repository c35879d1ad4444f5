use super::*;

fn inbox(local: &str) -> Inbox {
    Inbox { local: local.into(), domain: "night.test".into() }
}

fn mail(id: u64, local: &str) -> Summary {
    Summary {
        id: MailId(id),
        letter: MailId(id),
        inboxes: 1,
        inbox: inbox(local),
        envelope_from: "".into(),
        from: Box::default(),
        subject: Box::default(),
        arrived_ms: 0,
        expires_ms: 0,
        size_bytes: 0,
    }
}

fn tag(marks: &FlagTable, id: u64, local: &str, name: &str) -> Result<(), TagFault> {
    let names = marks.names(&[name.to_owned()])?;
    marks.set_tags(here(), &mail(id, local), names)
}

fn here() -> Client {
    Client::of(httpd::Client([127, 0, 0, 1].into()))
}

#[test]
fn one_client_leaves_the_marks_of_others() {
    let marks = FlagTable::new(Arc::new(Counters::new()));
    let client = |n: u8| Client::of(httpd::Client([192, 0, 2, n].into()));
    let is_read = |id| search::FlagLookup::is_read(&marks, MailId(id));
    for id in 0..100 {
        marks.set_read(client(1), &mail(id, "ann"), true);
    }
    let first = 1_000;
    let last = first + 2 * MARKED_MAX as u64;
    for id in first..=last {
        marks.set_read(client(2), &mail(id, "ben"), true);
    }
    assert!((0..100).all(is_read), "the marks of others are there");
    assert!(!is_read(first) && is_read(last), "its own oldest are forgotten");
    assert_eq!(marks.read_count(&Scope::All), (MARKED_MAX as u64 - 100) / 2 + 100);
    assert!(
        marks.state.lock().order.len() <= 2 * MARKED_MAX + 64,
        "what is forgotten is in no order for ever"
    );
    // Dropped entries no longer count towards any share.
    for id in 0..=last {
        marks.forget(MailId(id));
    }
    assert!(marks.state.lock().of_client.is_empty());
}

#[test]
fn flags_over_all_inboxes_come_from_the_first() {
    let marks = FlagTable::new(Arc::new(Counters::new()));
    let first = Summary { inboxes: 2, ..mail(1, "ann") };
    let second = Summary { id: MailId(2), ..mail(1, "ben") };
    let names = marks.names(&["late".to_owned()]).unwrap();
    marks.set_read(here(), &first, true);
    marks.set_read(here(), &second, true);
    marks.set_tags(here(), &second, names.clone()).unwrap();
    marks.set_tags(here(), &first, names).unwrap();
    let of = |local: &str| Scope::Inbox(inbox(local));
    let late = BTreeMap::from([("late".to_owned(), 1)]);
    assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (1, late.clone()));
    marks.let_go(MailId(1));
    assert_eq!((marks.read_count(&of("ann")), marks.all_tags(&of("ann"))), (0, BTreeMap::new()));
    assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (1, late));
    marks.replace_tag(&Scope::All, "late", Some("later")).unwrap();
    assert_eq!(marks.all_tags(&Scope::All).into_keys().collect::<Vec<_>>(), ["later"]);
    marks.forget(MailId(1));
    assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (0, BTreeMap::new()));
    assert_eq!((marks.read_count(&of("ben")), marks.all_tags(&of("ben")).len()), (1, 1));
}

#[test]
fn a_tag_is_replaced_everywhere_or_nowhere() {
    let marks = FlagTable::new(Arc::new(Counters::new()));
    let mails = 2 * (INBOX_TAG_BYTES_MAX / TAG_BYTES_MAX) as u64;
    for id in 0..mails {
        tag(&marks, id, "ann", "x").unwrap();
    }
    let before = marks.all_tags(&Scope::All);
    let long = "y".repeat(TAG_BYTES_MAX);
    assert_eq!(marks.replace_tag(&Scope::All, "x", Some(&long)), Err(TagFault::Inbox));
    assert_eq!(marks.all_tags(&Scope::All), before, "none was changed");
    assert!((0..mails).all(|id| marks.tags(MailId(id)) == ["x"]));
    assert_eq!(marks.replace_tag(&Scope::All, "x", Some("z")).map(|ids| ids.len() as u64), Ok(mails));
}

#[test]
fn tags_are_bounded_and_removed_with_mails() {
    let marks = FlagTable::new(Arc::new(Counters::new()));
    assert_eq!(tag(&marks, 1, "ann", &"x".repeat(TAG_BYTES_MAX + 1)), Err(TagFault::Name));
    let many: Vec<String> = (0..=TAGS_MAX).map(|n| n.to_string()).collect();
    assert_eq!(marks.names(&many), Err(TagFault::TooMany));
    let long = "x".repeat(TAG_BYTES_MAX);
    let of_inbox = INBOX_TAG_BYTES_MAX / TAG_BYTES_MAX;
    let mut last = Ok(());
    for id in 0..=of_inbox as u64 {
        last = tag(&marks, id, "ann", &long);
    }
    assert_eq!(last, Err(TagFault::Inbox));
    assert_eq!(tag(&marks, 900, "ben", &long), Ok(()), "another inbox has its own");
    let mut id = 1000;
    while tag(&marks, id, &(id / of_inbox as u64).to_string(), &long).is_ok() {
        id += 1;
    }
    assert_eq!(tag(&marks, id + 1, "carl", &long), Err(TagFault::Full));
    for id in 0..=id + 1 {
        marks.forget(MailId(id));
    }
    let state = marks.state.lock();
    assert_eq!((state.tag_bytes, state.of.len(), state.inbox_of.len()), (0, 0, 0));
}

#[test]
fn the_number_of_flagged_mails_is_bounded() {
    let marks = FlagTable::new(Arc::new(Counters::new()));
    for id in 0..=MARKED_MAX as u64 {
        marks.set_read(here(), &mail(id, "ann"), true);
    }
    assert_eq!(marks.read_count(&Scope::All), MARKED_MAX as u64);
    assert!(!search::FlagLookup::is_read(&marks, MailId(0)));
}
