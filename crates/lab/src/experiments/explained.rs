//! Explanations of each claim for students: its subject, and why a current machine may give another result.
//!
//! The report's generator ([`crate::report::markdown`]) puts these paragraphs next to the verdicts of a run.
//! The paragraphs contain no measured figures; those come from the run.

/// Paragraphs of a claim.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// Number in the project's list.
    pub claim: &'static str,
    /// Meaning of the claim, and why it should hold.
    pub why: &'static str,
    /// Explanation if the claim does not hold as published: what has changed since, or what else may be the
    /// cause.
    pub otherwise: &'static str,
}

/// Returns the paragraphs of a claim.
#[must_use]
pub fn explained(claim: &str) -> Option<&'static Explanation> {
    ALL.iter().find(|explained| explained.claim == claim)
}

const ALL: &[Explanation] = &[
    Explanation {
        claim: "C1",
        why: "A cache that lets the kernel decide which pages are in memory does not fight with it. One that keeps its \
              own idea of what is in memory and what is on the disk does each transfer twice: the kernel pages a part \
              out, the program reads it back in only to write it to its own file.",
        otherwise: "The published factor compares two particular programs of 2006. The losing design has since been \
                    given up by nearly everybody, so that what is left to measure is how much each request costs, and \
                    there the programs of today lie much closer together.",
    },
    Explanation {
        claim: "C2",
        why: "A mapped file may be many times larger than memory: the kernel keeps what is used. The program needs no \
              code for it, only a layout in which what is used together lies together.",
        otherwise: "With a plain mapping, a thread that touches a page which is not there stops until the disk has \
                    answered, and everything else on that thread stops with it. When the program served each client \
                    from a thread of its own that was one client; in an event loop it is all of them.",
    },
    Explanation {
        claim: "C3",
        why: "A binary heap puts each level of its tree into another part of the array. A walk from the root to a leaf \
              of a large heap touches a page a level, and each page that is not in memory is a transfer. The B-heap \
              puts small trees into pages, so that several levels share one.",
        otherwise: "The simulation has no clock and no noise: where its figure differs, the model differs. The source \
                    of the article's own simulator is lost; what a page's first touch costs, and whether a removal \
                    followed by an insertion counts as one operation or two, are choices that move it.",
    },
    Explanation {
        claim: "C4",
        why: "With nine pages in memory a binary heap of a million items keeps the top of its tree and pages for the \
              rest, once a level. In a B-heap the whole way down is two or three pages.",
        otherwise: "The number of transfers depends on the keys, on which of two equal children is taken, and on how a \
                    page's first touch is counted.",
    },
    Explanation {
        claim: "C5",
        why: "With all of it in memory the B-heap pays for its arithmetic (finding a child needs more steps than \
              doubling an index) and gains nothing.",
        otherwise: "Processors have become faster at arithmetic than memory has at answering. A modern cache line and a \
                    modern translation cache have the same problem as a page of 2010: what lies together costs one \
                    access. So the layout that was made for pages may win where nothing pages at all.",
    },
    Explanation {
        claim: "C6",
        why: "The slower the disk, the less a transfer can be outweighed by anything else: with 10 ms a transfer the \
              B-heap wins from the first missing page on.",
        otherwise: "As in C3 it is a simulation: the difference lies in what is counted as a transfer.",
    },
    Explanation {
        claim: "C7",
        why: "To choose the smaller child one looks at both. If they lie in two pages, each level may cost two \
              transfers. Where a path enters a page, two nodes with one child each keep the siblings together without \
              leaving places empty.",
        otherwise: "The article says five pages more without that trick; counting gives another number for both ways in \
                    which one may leave places empty. The layout is as published; only the sum differs.",
    },
    Explanation {
        claim: "C8",
        why: "The author of the B-heap did not claim that nothing better exists. A queue that sorts what comes into \
              runs, and touches many items of a page whenever it touches a page, needs fewer transfers still.",
        otherwise: "A queue that is best under pressure pays for it somewhere; the table says where.",
    },
    Explanation {
        claim: "C9",
        why: "In the textbook every memory access costs the same. In a computer a cache answers in a few cycles, memory \
              in hundreds, the kernel in thousands, a disk in what used to be many millions. An algorithm's cost is the \
              number of times that it goes far, not the number of its steps.",
        otherwise: "The disk has come nearer. A fault that cost ten to a hundred million instructions on a spinning \
                    disk costs a hundred thousand to a million on flash behind a fast bus. The picture is the same \
                    ladder with a shorter last rung: still the longest by far.",
    },
    Explanation {
        claim: "C10",
        why: "Two threads that hand each other small messages spend their time in waking each other and in moving the \
              same cache lines from core to core. On one core there is nothing to move and nobody to wake.",
        otherwise: "A server that is made of one loop a core, with nothing shared between them, does not have this \
                    sickness and gains nothing from the cure. How many cores the machine has, and whether two of them \
                    are siblings on one, decides the rest.",
    },
    Explanation {
        claim: "C11",
        why: "It is a division: the bits that a link carries in a second by the bits of a message with all its headers.",
        otherwise: "Many messages travel in one packet today, so that the headers are shared: the number of messages a \
                    second may be larger than if each travelled alone.",
    },
    Explanation {
        claim: "C12",
        why: "A store that others must see in order has to wait until this core owns the cache line. With two cores \
              storing to one line, it travels between them for each store. On one core it stays.",
        otherwise: "A relaxed store goes into the core's store buffer and is done with: the line travels later, and \
                    seldom. Where such stores are measured the effect is hidden, not gone; ordered stores show it.",
    },
    Explanation {
        claim: "C13",
        why: "Mail servers are made never to lose a mail: each is written and synced to a disk before the sender is told. \
              A service whose mails may be lost with the machine, and which many people read, can keep them in memory.",
        otherwise: "The published days are what arrived, not what could have: they are a lower bound of what the \
                    machine of that time could do, and no machine of today is near its end there.",
    },
    Explanation {
        claim: "C14",
        why: "The order of growth says who wins for large n. For small n the constants decide, and a simple loop over \
              one cache line has small ones. So libraries sort short runs by a quadratic method.",
        otherwise: "The crossing has moved to much smaller n. The published one was measured in a language that boxes \
                    its numbers and compiles while it runs; a sort that is compiled ahead, specialised for the type and \
                    itself falls back to a simple loop for short runs leaves nothing for bubble sort to win. Insertion \
                    sort, which is as simple but moves less, holds on longer.",
    },
    Explanation {
        claim: "C15",
        why: "An array's next element is in the cache line that is already here, or in the next one, which the processor \
              has fetched ahead. A list's next node is wherever its pointer says, and nothing can be fetched before the \
              pointer is read.",
        otherwise: "A list whose nodes were allocated one after the other lies in memory nearly as an array does, and \
                    is nearly as fast. It is the shuffling that costs, not the pointers.",
    },
    Explanation {
        claim: "C16",
        why: "What the allocator is asked is a count, not an estimate: it can be read before and after a stretch of \
              code, on the thread that ran it.",
        otherwise: "Where it does not hold, the program was built with another allocator, or something that should \
                    allocate nothing does: the table says what.",
    },
    Explanation {
        claim: "C17",
        why: "One byte to a server and back needs four passes through the kernel. What that takes is the same at ten \
              thousand a second as at a hundred thousand, until requests come faster than they are served: then a queue \
              grows for as long as the run lasts, and latency is a matter of patience.",
        otherwise: "The rate at which it breaks is a property of processor, kernel and, on a rented machine, of the \
                    neighbours. The shape stays: flat, flat, flat, cliff.",
    },
    Explanation {
        claim: "C18",
        why: "Whoever waits for an answer before asking again does not ask while the server is slow. The measurement \
              then has one slow request where a thousand would have waited. Counting from when each request *should* \
              have been sent puts them back.",
        otherwise: "Where no rate broke the server down there was nothing to hide.",
    },
    Explanation {
        claim: "C19",
        why: "A server that takes one request at a time and needs S for each does 1/S a second. Make each faster and you \
              have raised the number of them.",
        otherwise: "A server that works on several at once, or that takes many requests in one read, does more than one \
                    over its latency: its latency has waiting in it during which others were served.",
    },
    Explanation {
        claim: "C20",
        why: "A queue that touches ten pages an operation makes ten pages recently used, though nobody will need them \
              soon. They stay, and what is being delivered goes instead.",
        otherwise: "Kernels of today keep apart what was used once from what is used again, and so protect part of what \
                    a plain least-recently-used list would have thrown out.",
    },
    Explanation {
        claim: "C21",
        why: "The more pointers fit into a page, the more levels of the tree do, and the fewer pages lie on a way down.",
        otherwise: "With pages of megabytes a heap of a million items is two or three pages: there is little left to \
                    save.",
    },
    Explanation {
        claim: "C22",
        why: "A program that computes, and shares nothing, does more on more cores. What one core cures is the sharing, \
              not the work.",
        otherwise: "On a machine with few cores, the load generator takes one of them, and the kernel's network code a \
                    part of each.",
    },
    Explanation {
        claim: "C23",
        why: "Once a server is fast enough, something else is the narrowest place: then a faster link is worth more than \
              faster code.",
        otherwise: "Links have grown by a factor of a hundred since, processors by less: on a fast link the processor \
                    is the wall again.",
    },
    Explanation {
        claim: "C24",
        why: "A search that halves what is left at each step makes few steps, and each goes far. A scan makes many, and \
              each goes to the next place, which has been fetched ahead. While the search faults, the scan may win.",
        otherwise: "A faster disk shortens the distance up to which the scan wins; readahead lengthens it.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_that_an_experiment_tests_is_explained() {
        for experiment in super::super::all() {
            for claim in experiment.claims {
                assert!(explained(claim).is_some(), "{claim} of {}", experiment.name);
            }
        }
    }

    #[test]
    fn claims_are_explained_once_in_order() {
        let numbers: Vec<u32> = ALL.iter().map(|one| one.claim[1..].parse().unwrap()).collect();
        assert_eq!(numbers, (1..=24).collect::<Vec<_>>());
    }
}
