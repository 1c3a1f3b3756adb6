"""Measures fleets and the recorder in parts, and prints docs/results/fleet.md: `make bench-fleet`.

As root, on a quiet machine. Every figure is measured here, by the program that is given; the estimate for many hosts is
computed from these figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

FLEET = Path(__file__).parent / "ordo_trace" / "fleet.py"
CLUSTER = "local-cluster[2,1,1024]"
HOSTS, PER_SECOND, DAY = 10_000, 100, 86_400
SWEEP = ["--fs", "ffs-soft-updates,lffs-file", "--workload", "random:clients=2,steps=60", "--states", "30000"]

#: Runs in the mount: writes of 4 to 128 KB at random places of eight files, every sixteenth followed by an fdatasync.
WORK = r"""
import os, random, sys, time
most, seconds, random = int(sys.argv[1]), float(sys.argv[2]), random.Random(1)
pool, written, until = os.urandom(32 << 20), 0, time.monotonic() + seconds
files = [os.open(f"f{i}", os.O_RDWR | os.O_CREAT) for i in range(8)]
began, writes = time.monotonic(), 0
while written < most and time.monotonic() < until:
    length = random.choice((4, 4, 4, 16, 64, 128)) << 10
    file = random.choice(files)
    at = random.randrange(len(pool) - length)
    os.pwrite(file, pool[at:at + length], random.randrange(32 << 20) // 4096 * 4096)
    written, writes = written + length, writes + 1
    if writes % 16 == 0:
        os.fdatasync(file)
os.sync()
print(time.monotonic() - began, written, file=sys.stderr)
"""


def spread(values: list[float], digits: int = 1) -> str:
    """The median, the least and the greatest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def machine() -> str:
    """Which machine this is, and its load."""
    model = [line.split(": ")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
    return f"{os.cpu_count()} cores of {model[0] if model else 'an unknown processor'}; load before: {load}"


def numbers(process: int) -> tuple[int, int, float]:
    """The memory now and at most, in KB, and the seconds of the processor, of a process."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":\t" in line)
    stat = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return int(status["VmRSS"].split()[0]), int(status["VmHWM"].split()[0]), ticks


def timed(command: list[str], **more: object) -> float:
    """The seconds that a command takes."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)  # type: ignore[call-overload]
    return time.monotonic() - began


def sweep(ordo: str, folder: Path, runs: int, rounds: int) -> None:
    """One worker, two workers, and Spark on the same tasks, by turns."""
    tasks = folder / "tasks.jsonl"
    subprocess.run([ordo, "crash", "plan", *SWEEP, "--runs", str(runs), "--runs-each", "1", "-o", str(tasks)], check=True)
    count = len(tasks.read_text().splitlines())
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.executor.memory=512m pyspark-shell",
    }
    seconds: dict[str, list[float]] = {"xargs -P1": [], "xargs -P2": [], CLUSTER: [], "one task": []}
    merged: set[bytes] = set()
    for turn in range(rounds):
        for who, times in seconds.items():
            into = folder / f"{turn}-{len(who)}-{who[-1:]}"
            result = folder / "merged.json"
            if who == "one task":
                # Spark's start and end, with next to nothing to do.
                few = folder / "few.jsonl"
                plan = [ordo, "crash", "plan", "--fs", "ffs-sync", "--states", "10", "--runs", "1", "-o", str(few)]
                subprocess.run(plan, check=True)
                alone = timed([ordo, "crash", "task", "--into", str(into)], stdin=few.open())
                whole = timed([sys.executable, str(FLEET), "crash", str(few), "--into", str(folder / f"few{turn}"), "-o",
                               str(result), "--master", CLUSTER, "--ordo", ordo], env=environment)
                times.append(whole - alone)
                continue
            if who == CLUSTER:
                command = [sys.executable, str(FLEET), "crash", str(tasks), "--into", str(into), "-o", str(result)]
                times.append(timed([*command, "--master", CLUSTER, "--ordo", ordo], env=environment))
            else:
                each = ["xargs", "-a", str(tasks), "-d", "\\n", "-n", "1", who.split()[1], ordo, "crash", "task", "--into"]
                merge = [ordo, "crash", "merge", str(into), "-o", str(result)]
                times.append(timed([*each, str(into)]) + timed(merge))
            merged.add(result.read_bytes())
    one, two, spark = (statistics.median(seconds[who]) for who in ("xargs -P1", "xargs -P2", CLUSTER))
    start = statistics.median(seconds["one task"])
    print("## Sweeps of crashes\n")
    print(f"{count} tasks of `ordo crash plan {' '.join(SWEEP)} --runs {runs} --runs-each 1`, {rounds} rounds by turns, seconds "
          "with the merge: median (least to most).\n")
    print("| | seconds |\n|---|---:|")
    for who, times in seconds.items():
        name = f"Spark's start and end ({CLUSTER}, one task, less the task)" if who == "one task" else who
        print(f"| {name} | {spread(times)} |")
    print(f"\nTwo workers against one: {one / two:.2f} times{'' if one / two >= 1.8 else ', MISSED (1.8)'}. "
          f"Spark over `xargs -P2`: {spark - two:.1f} s, of which its start and end are {start:.1f} s.\n")
    print(f"All ways in all rounds gave {len(merged)} merged result, byte for byte.\n" if len(merged) == 1
          else f"FAILED: {len(merged)} different merged results.\n")


def record(ordo: str, folder: Path, how: list[str], most: int, seconds: float) -> tuple[float, int, list[tuple[float, int, int, float]]]:
    """The seconds of the work under a recorder, the bytes written, and the recorder's memory and processor over time."""
    work = folder / "work.py"
    work.write_text(WORK)
    command = [ordo, "trace", "run", "--fs", "ext4", "--size", "512m", *how, "--", sys.executable, str(work), str(most), str(seconds)]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen: list[tuple[float, int, int, float]] = []
    began, over = time.monotonic(), threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            try:
                seen.append((time.monotonic() - began, *numbers(run.pid)))
            except (OSError, KeyError):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    said = run.communicate()[1]
    over.set()
    watcher.join()
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {said}")
    line = next(line for line in said.splitlines() if line.replace(".", "").replace(" ", "").isdigit())
    return float(line.split()[0]), int(line.split()[1]), seen


def recorder(ordo: str, folder: Path, rounds: int, most: int) -> None:
    """The cost of parts against a recording in memory."""
    ways: dict[str, list[str]] = {
        "counts only": [],
        "recorded to memory, then written": ["-o", str(folder / "memory")],
        "in parts of 64 MB": ["-o", str(folder / "parts"), "--rotate", "64m"],
        "in parts, without contents": ["-o", str(folder / "bare"), "--rotate", "64m", "--without-contents"],
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    peaks: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, how in ways.items():
            took, _, seen = record(ordo, folder, how, most, 600)
            times[way].append(took)
            peaks[way].append(max(peak for _, _, peak, _ in seen) / 1024)
            for name in ("memory", "parts", "bare"):
                shutil.rmtree(folder / name, ignore_errors=True)
    print("## The recorder\n")
    print(f"ext4 on a device of 512 MB in memory, {most >> 20} MB written by one process at random places with an fdatasync after "
          f"each 16 writes; {rounds} rounds by turns: median (least to most). Memory has the device's 512 MB.\n")
    print("| | seconds of the work | most memory, MB |\n|---|---:|---:|")
    for way in ways:
        print(f"| {way} | {spread(times[way], 2)} | {spread(peaks[way], 0)} |")
    ratio = statistics.median(times["in parts of 64 MB"]) / statistics.median(times["recorded to memory, then written"])
    print(f"\nIn parts against memory: {ratio:.2f} times as long.\n")


def long_run(ordo: str, folder: Path, seconds: float) -> None:
    """Memory over a long recording in parts, and the estimate for many hosts."""
    parts = folder / "long"
    took, written, seen = record(ordo, folder, ["-o", str(parts), "--rotate", "64m"], 1 << 60, seconds)
    print("## Memory over a long recording\n")
    print(f"The same work without a limit for {took:.0f} s, with contents, `--rotate 64m`: {written / 1e9:.1f} GB of requests in "
          f"{len(list(parts.rglob('requests.parquet')))} parts. The device is in the recorder's memory, 512 MB of it.\n")
    print("| part of the run | recorder's memory, MB, least to most |\n|---|---:|")
    for quarter in range(4):
        some = [rss / 1024 for at, rss, _, _ in seen if quarter <= 4 * at / max(took, 1) < quarter + 1]
        if some:
            print(f"| quarter {quarter + 1} | {min(some):.0f} to {max(some):.0f} |")
    peak = max(peak for _, _, peak, _ in seen) / 1024
    over = peak - 512
    print(f"\nAt most {peak:.0f} MB: {over:.0f} MB beside the device{'' if over <= 512 else ', MISSED (512)'}.\n")
    began = time.monotonic()
    run = subprocess.Popen([ordo, "analyze", str(parts), "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(run.pid, 0)
    memory = usage.ru_maxrss / 1024
    print(f"`ordo analyze` over all parts: {time.monotonic() - began:.2f} s, at most {memory:.0f} MB"
          f"{'' if memory <= 512 else ', MISSED (512)'}{'' if status == 0 else ', FAILED'}.\n")
    shutil.rmtree(parts)

    bare = folder / "bare"
    _, _, seen = record(ordo, folder, ["-o", str(bare), "--rotate", "64m", "--without-contents"], 1 << 60, min(seconds, 60))
    empty = folder / "empty"
    _, _, idle = record(ordo, folder, ["-o", str(empty), "--rotate", "64m"], 0, 1)
    size = sum(path.stat().st_size for path in bare.rglob("*.parquet"))
    files = len(list(bare.rglob("*.parquet"))) / max(1, len(list(bare.rglob("requests.parquet"))))
    import pyarrow.parquet as parquet

    requests = sum(parquet.read_metadata(path).num_rows for path in bare.rglob("requests.parquet"))
    cpu = seen[-1][3] - idle[-1][3]
    began = os.times()
    subprocess.run([ordo, "analyze", str(bare), "--json"], stdout=subprocess.DEVNULL, check=True)
    ended = os.times()
    analysis = ended.children_user + ended.children_system - began.children_user - began.children_system
    estimate(size / requests, cpu / requests, analysis / requests, files)
    shutil.rmtree(bare)


def estimate(size: float, cpu: float, analysis: float, files: float) -> None:
    """What ten thousand hosts cost for a day."""
    all_requests = HOSTS * PER_SECOND * DAY
    print(f"## {HOSTS:,} hosts for a day, on paper\n")
    print(f"From figures of this run: recorded in parts without contents, {size:.0f} bytes a request in all tables, {cpu * 1e6:.1f} µs of "
          f"the processor a request in the recorder (the device, its requests and the writing included), {analysis * 1e9:.0f} ns a "
          f"request in `ordo analyze`. The assumption is {PER_SECOND} requests a second for each host: {all_requests:.2e} in all.\n")
    print("| | each host | all hosts |\n|---|---:|---:|")
    host = PER_SECOND * DAY
    print(f"| bytes kept | {host * size / 1e6:.0f} MB | {all_requests * size / 1e12:.2f} TB |")
    print(f"| recording | {host * cpu:.0f} s of a core ({host * cpu / DAY * 100:.2f} %) | {all_requests * cpu / 3600:.0f} core-hours |")
    print(f"| analysis | {host * analysis:.1f} s of a core | {all_requests * analysis / 3600:.1f} core-hours |")
    for minutes in (10, 60):
        count = DAY // 60 // minutes * files
        print(f"| files, with `--rotate {minutes}min` | {count:.0f} | {count * HOSTS / 1e6:.1f} million |")
    print()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("ordo")
    parser.add_argument("--seconds", type=float, default=3600, help="of the long recording")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=12, help="runs of the sweep for each file system")
    parser.add_argument("--megabytes", type=int, default=600, help="written for the cost of recording")
    parser.add_argument("--ratios", action="store_true", help="only what needs a quiet machine")
    parser.add_argument("--long", action="store_true", help="only what does not")
    args = parser.parse_args()
    ordo = str(Path(args.ordo).absolute())
    if not args.long:
        print("# Fleets, and recording in parts\n")
        print(f"Written by `make bench-fleet SECONDS={args.seconds:.0f} ROUNDS={args.rounds}` on {machine()}.\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not args.long:
            sweep(ordo, folder, args.runs, args.rounds)
            recorder(ordo, folder, args.rounds, args.megabytes << 20)
        if not args.ratios:
            print(f"The load before this: {Path('/proc/loadavg').read_text()[:14]}.\n")
            long_run(ordo, folder, args.seconds)


if __name__ == "__main__":
    main()
