//! How many of the bytes of file data that programs write get the path of their file, on ext4, XFS
//! and btrfs: the table of `docs/results/named.md`. Needs root, and a user `postgres` with
//! `initdb`, `pg_ctl` and `pgbench`; git; tar. Arguments: seconds of pgbench.

use std::process::Command;

use ordo_annotate::files;
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::kernel::{KernelMount, LiveSystem};
use ordo_recorder::{DeviceSetup, KeepRequests};

/// The workloads, each with its commands in the mounted file system. A database does not run as
/// root, and its user cannot enter the directory of the mount, so that is bound to another one.
fn workloads(seconds: &str) -> Vec<(&'static str, String)> {
    let bound = "b=$(mktemp -d); chmod 755 $b; mount --bind . $b; trap 'cd /; umount $b; rmdir $b' EXIT; mkdir $b/pg; \
                 chown postgres $b/pg; cd /";
    let database = format!(
        "initdb -D $b/pg -A trust && pg_ctl -D $b/pg -o \"-k $b/pg -h ''\" -l $b/pg/log -w start && \
         pgbench -h $b/pg -i -q -s 10 postgres && pgbench -h $b/pg -c 4 -T {seconds} postgres && \
         pg_ctl -D $b/pg -m fast -w stop"
    );
    let database = database.replace('"', "\\\"");
    vec![
        ("pgbench", format!("{bound}; su -s /bin/sh postgres -c \"{database}\"")),
        (
            "git",
            "git init -q r; cd r; git config user.email a@example.org; git config user.name a; \
             for i in 1 2 3; do cp -a /usr/include/linux d$i; git add -A; git commit -qm c$i; done; git gc -q; rm -rf d1; \
             git checkout -q ."
                .to_owned(),
        ),
        (
            "tar",
            "tar cf x.tar -C /usr/include linux; tar xf x.tar; rm -rf linux; tar xf x.tar; sync -f ."
                .to_owned(),
        ),
    ]
}

/// Runs the commands, and returns the bytes of file data written, those whose file has a path, and
/// those of which the owner is certain.
fn measure(name: &str, commands: &str) -> Result<[u64; 3], String> {
    let (name, mkfs, options) = (name.to_owned(), Vec::new(), "defaults".to_owned());
    let system = LiveSystem { name, mkfs, options, bytes: 1 << 30 };
    let setup = DeviceSetup {
        keep: KeepRequests::Requests,
        keep_start: false,
        ..DeviceSetup::in_memory(system.bytes)
    };
    let wanted = WatchOptions { rows: true, ..WatchOptions::default() };
    let mounted = KernelMount::new(&system, wanted, setup).map_err(|e| e.to_string())?;
    let shell = Command::new("sh").arg("-ec").arg(commands).current_dir(mounted.dir()).output();
    let shell = shell.map_err(|e| e.to_string())?;
    let (recording, seen) = mounted.finish().map_err(|e| e.to_string())?;
    if !shell.status.success() {
        let said = String::from_utf8_lossy(&shell.stderr).into_owned();
        return Err(said.lines().last().unwrap_or("it failed").to_owned());
    }
    let files = files::of(&recording.trace, &seen.rows, &seen.shares);
    let all = files.iter().map(|file| file.data.bytes).sum();
    let named = files.iter().filter(|f| f.path.is_some()).map(|f| f.data.bytes).sum();
    let requests = recording.trace.requests();
    let certain = seen.rows.iter().filter(|row| {
        let is_write = requests[row.request as usize].op == ordo_trace::RequestOp::Write;
        let is_data = row.final_kind == ordo_watcher::Class::FileData;
        let is_certain = row.known.is_some_and(|known| known != ordo_annotate::rows::Known::Guess);
        is_write && is_data && is_certain && row.path.is_some()
    });
    Ok([all, named, certain.map(|row| row.len).sum()])
}

fn main() {
    let seconds = std::env::args().nth(1).unwrap_or_else(|| "20".to_owned());
    println!(
        "| workload | file system | file data written | with a path | of these certain | target of 99 % |"
    );
    println!("|---|---|---:|---:|---:|---|");
    for (workload, commands) in workloads(&seconds) {
        for system in ["ext4", "xfs", "btrfs"] {
            match measure(system, &commands) {
                Ok([all, named, certain]) => {
                    let share = |part: u64| part as f64 * 100.0 / all.max(1) as f64;
                    let met = if named * 100 >= all * 99 { "met" } else { "MISSED" };
                    println!(
                        "| {workload} | {system} | {:.1} MB | {:.2} % | {:.2} % | {met} |",
                        all as f64 / 1e6,
                        share(named),
                        share(certain)
                    );
                }
                Err(why) => println!("| {workload} | {system} | not measured: {why} | | | |"),
            }
        }
    }
}
