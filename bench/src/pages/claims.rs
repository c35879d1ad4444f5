//! The section about the articles' claims: how many hold, and which do not.

use std::collections::BTreeSet;

use askama::Template;
use lab::report::Verdict;

use crate::pages::markdown::list;
use crate::pages::record_set::RecordSet;

/// Template of the lab's section.
#[derive(Debug, Template)]
#[template(path = "lab.md", escape = "none")]
struct Section {
    summary: String,
    claims: String,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let experiments = set.lab.record.experiments.iter();
    let judged = experiments.flat_map(|one| one.verdicts.iter().map(move |judged| (one, judged)));
    let claims =
        judged.filter(|(_, judged)| judged.verdict == Verdict::DoesNotHoldHere).map(|(one, judged)| {
            format!(
                "[{claim}](lab/README.md#{anchor}), `{}`: published: {}; here: {}.",
                one.name,
                judged.article,
                judged.ours.trim_end_matches('.'),
                claim = judged.claim,
                anchor = judged.claim.to_lowercase()
            )
        });
    Section { summary: summary(set), claims: list(claims) }.render().map_err(|why| why.to_string())
}

/// Summarises the number of claims and the number of verdicts of each kind.
pub(crate) fn summary(set: &RecordSet) -> String {
    let record = &set.lab.record;
    let verdicts: Vec<_> = record.experiments.iter().flat_map(|one| &one.verdicts).collect();
    let claims: BTreeSet<&str> = verdicts.iter().map(|judged| judged.claim.as_str()).collect();
    let of = |kind: Verdict| verdicts.iter().filter(|judged| judged.verdict == kind).count();
    let seconds: f64 = record.experiments.iter().map(|one| one.seconds).sum();
    format!(
        "{} claims of the articles, {} verdicts of a full run on {} ({:.0} minutes): {} hold, {} hold with another figure, \
         {} do not hold, {} were too noisy to say or could not be tested.",
        claims.len(),
        verdicts.len(),
        record.date.split('T').next().unwrap_or_default(),
        seconds / 60.0,
        of(Verdict::Holds),
        of(Verdict::HoldsWithAnotherFigure),
        of(Verdict::DoesNotHoldHere),
        of(Verdict::TooNoisyToSay) + of(Verdict::CannotBeTestedHere),
    )
}
