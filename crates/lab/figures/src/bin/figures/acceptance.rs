//! Workloads beside recordings of the programs that they stand for.

use std::fmt::Write as _;

use ordo_figures::acceptance::{Acceptance, CANDIDATES, DISTANCE, FACTOR, judge};
use ordo_figures::mix::{FileOperation, JoinedCalls};

use crate::Section;

/// The kinds of operations, in the order of the table.
const KINDS: [FileOperation; 9] = [
    FileOperation::Create,
    FileOperation::Open,
    FileOperation::Read,
    FileOperation::Write,
    FileOperation::Sync,
    FileOperation::Truncate,
    FileOperation::Remove,
    FileOperation::Rename,
    FileOperation::Link,
];

/// Judges each workload that has a recording.
pub fn measure(out: &mut Section) {
    out.say(format_args!(
        "Real programs ran under strace, and the calls about files below one directory were counted \
         (`crates/lab/figures/recordings/record.sh`). The workload ran on a file system in memory that counts its operations. A workload is \
         accepted if the shares of the kinds of operations differ by {DISTANCE:.2} at most (half the sum of the differences), and the \
         operations for a unit of work by a factor of {FACTOR} at most; both are judged for all operations, and again for those alone that \
         change something. Calls that read or write count once as long as each goes on where the last one ended; for builds, all calls of a \
         file count once until something else is done to it. Failed calls, positions, names that are only looked up, and files outside of \
         the directory (headers of the system, libraries) are left out. Seed 1."
    ));
    let mut accepted = 0;
    let mut tables = String::new();
    out.line("| program | workload | shares differ by | of changes | operations for a unit, workload / program | changes | bytes read | bytes written | verdict |");
    out.line("|---|---|---:|---:|---:|---:|---:|---:|---|");
    for candidate in CANDIDATES {
        let found = match judge(candidate, 1) {
            Ok(found) => found,
            Err(error) => {
                out.line(format_args!("| {} | {error} | | | | | | | MISSED |", candidate.name));
                continue;
            }
        };
        accepted += usize::from(found.is_accepted());
        out.line(line(&found));
        tables.push_str(&kinds(&found));
    }
    out.end();
    let all = CANDIDATES.len();
    out.target(&format!("workloads accepted of {all}"), accepted as f64, accepted == all);
    out.say(
        "Bytes do not decide. Builds of today read and write more of them: sources are larger, objects hold debugging information, linkers read \
         libraries in pieces, and `configure` reads what it links. Parameters scale a workload to the program of the recording (the \
         headers that a source includes, the part of a kernel that a configuration compiles, a database's own cache); their defaults are \
         those of the papers' programs. Without a recording are: netnews (no news server is recorded, and the paper describes the work), \
         the scripts of sdet-like (the original's commands are not public), filebench's personalities (read from filebench's own \
         language, whose interpreter was not run), sources, micro, create-delete and overwrite (they are their own definition), the \
         reading of mailboxes, and the web server's posts, which nginx only logs.",
    );
    out.say("Operations for a unit of work, the workload's and the program's:");
    out.say(tables.trim_end());
}

fn figure(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn line(found: &Acceptance) -> String {
    let [all, changes] = found.distances();
    let [operations, changing] = found.operations().map(figure);
    let [read, written] = found.bytes().map(figure);
    let verdict = match (found.is_accepted(), found.has_its_bytes()) {
        (true, true) => "accepted",
        (true, false) => "accepted, but for its bytes",
        _ => "MISSED",
    };
    let changes = if changing == "-" { "-".to_owned() } else { format!("{changes:.3}") };
    let (name, workload, program) = (found.name, found.workload, &found.recording.program);
    format!(
        "| {name}: {program} | `{workload}` | {all:.3} | {changes} | {operations} | {changing} | {read} | {written} | {verdict} |"
    )
}

fn kinds(found: &Acceptance) -> String {
    let joined = match found.recording.joined {
        JoinedCalls::Ranges => "ranges",
        JoinedCalls::Files => "files",
    };
    let mut text = format!("- {} ({joined}):", found.name);
    for kind in KINDS {
        let (ours, theirs) = found.each(kind);
        if ours.max(theirs) >= 0.01 {
            let _ = write!(text, " {} {ours:.2} / {theirs:.2},", kind.key());
        }
    }
    format!("{}\n", text.trim_end_matches(','))
}
