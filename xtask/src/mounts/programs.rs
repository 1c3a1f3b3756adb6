//! The measurements that are made by programs: cp, SQLite and fio.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A measurement by a shell script. `$M` is the mount point.
pub struct Program {
    pub name: &'static str,
    /// The unit of the number that the script prints; where that is seconds, its time is taken
    /// instead.
    pub unit: &'static str,
    /// The command that the machine must have.
    needs: &'static str,
    script: &'static str,
}

impl Program {
    /// Whether less is better.
    pub fn less(&self) -> bool {
        self.unit == "s"
    }
}

/// Random I/O: a file of 256 MiB that exists, 16 requests at a time, three seconds.
macro_rules! fio {
    ($words:literal, $field:literal) => {
        concat!(
            "[ -f $M/fio ] || { head -c 268435456 /dev/zero >$M/fio; sync $M/fio; }\n",
            "fio --name=x --filename=$M/fio --size=256m --bs=4k --ioengine=libaio --iodepth=16 ",
            "--runtime=3 --time_based --randseed=1 --minimal ",
            $words,
            " | cut -d';' -f",
            $field
        )
    };
}

pub const PROGRAMS: [Program; 7] = [
    Program {
        name: "copy that tree with cp -r",
        unit: "s",
        needs: "cp",
        script: "cp -r $M/tree $M/tree-copy",
    },
    Program {
        name: "SQLite with a rollback journal, 200 transactions",
        unit: "s",
        needs: "sqlite3",
        script: "{ echo 'pragma synchronous=full; create table t(a, b);'; for i in $(seq 200); do \
                 echo \"insert into t values($i, randomblob(500));\"; done; } | sqlite3 $M/rollback.db",
    },
    Program {
        name: "SQLite with a WAL, 200 transactions",
        unit: "s",
        needs: "sqlite3",
        script: "{ echo 'pragma journal_mode=wal; pragma synchronous=full; create table t(a, b);'; \
                 for i in $(seq 200); do echo \"insert into t values($i, randomblob(500));\"; done; } | \
                 sqlite3 $M/wal.db",
    },
    Program {
        name: "fio, random writes of 4 KB, direct",
        unit: "iops",
        needs: "fio",
        script: fio!("--rw=randwrite --direct=1", "49"),
    },
    Program {
        name: "fio, random writes of 4 KB, buffered",
        unit: "iops",
        needs: "fio",
        script: fio!("--rw=randwrite", "49"),
    },
    Program {
        name: "fio, random reads of 4 KB, direct",
        unit: "iops",
        needs: "fio",
        script: fio!("--rw=randread --direct=1", "8"),
    },
    Program {
        name: "fio, random reads of 4 KB, buffered",
        unit: "iops",
        needs: "fio",
        script: fio!("--rw=randread", "8"),
    },
];

/// Runs a program. Returns `None` if the machine does not have it.
pub fn measure(program: &Program, mounted: &Path) -> Result<Option<f64>, String> {
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-ec", script]).env("M", mounted);
        command.output().map_err(|e| e.to_string())
    };
    if !shell(&format!("command -v {}", program.needs))?.status.success() {
        return Ok(None);
    }
    let start = Instant::now();
    let out = shell(program.script)?;
    let seconds = start.elapsed().as_secs_f64();
    if !out.status.success() {
        return Err(format!("{}: {}", program.name, String::from_utf8_lossy(&out.stderr)));
    }
    if program.less() {
        return Ok(Some(seconds));
    }
    let printed = String::from_utf8_lossy(&out.stdout);
    let number = printed.trim().parse();
    number.map(Some).map_err(|e| format!("{}: it printed {printed:?}: {e}", program.name))
}
