//! Prints the recording of a real program from its calls: `recording FILE DIRECTORY ranges|files UNITS PROGRAM`. FILE is what strace(1) wrote, DIRECTORY
//! the directory whose files count, UNITS the number of transactions, messages or the like, PROGRAM what ran. `recordings/record.sh` makes
//! such files.

use ordo_bench::acceptance::ProgramRecording;
use ordo_bench::mix::JoinedCalls;
use ordo_trace::strace::parse;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, directory, joined, units, program] = &arguments[..] else {
        eprintln!("recording FILE DIRECTORY ranges|files UNITS PROGRAM");
        std::process::exit(2);
    };
    let units = units.parse().expect("UNITS is a number");
    let joined = if joined == "files" { JoinedCalls::Files } else { JoinedCalls::Ranges };
    let text = std::fs::read(file).expect("FILE can be read");
    let calls = parse(&String::from_utf8_lossy(&text), directory);
    print!("{}", ProgramRecording::of_calls(program.clone(), units, &calls, joined).text());
}
