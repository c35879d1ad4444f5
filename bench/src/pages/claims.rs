//! The articles' claims on the page: how many hold, and which do not.

use std::collections::BTreeSet;

use lab::report::Verdict;

use crate::pages::markdown::{list, paragraph};
use crate::pages::shelf::Shelf;

pub(crate) fn section(out: &mut String, shelf: &Shelf) {
    let kept = &shelf.lab;
    out.push_str("## The lab\n\n");
    paragraph(
        out,
        &format!(
            "{} [What became of each claim](lab/README.md), in words ([all of it](lab/results.json)). `make lab` repeats it.",
            summary(shelf)
        ),
    );
    out.push_str("### Claims that do not hold here\n\n");
    let judged =
        kept.record.experiments.iter().flat_map(|one| one.verdicts.iter().map(move |judged| (one, judged)));
    list(
        out,
        judged.filter(|(_, judged)| judged.verdict == Verdict::DoesNotHoldHere).map(|(one, judged)| {
            format!(
                "[{claim}](lab/README.md#{anchor}), `{}`: published: {}; here: {}.",
                one.name,
                judged.article,
                judged.ours.trim_end_matches('.'),
                claim = judged.claim,
                anchor = judged.claim.to_lowercase()
            )
        }),
    );
}

/// How many claims, how many verdicts, and which.
pub(crate) fn summary(shelf: &Shelf) -> String {
    let record = &shelf.lab.record;
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
