"""Servers, started in each state and stopped: PostgreSQL, etcd, rsyslogd."""
import glob
import os
import shutil
import socket
import subprocess
import tempfile
import time

from rounds import ROUNDS, acked, fail, in_order, mark


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for(what, server, name, answers, seconds=20):
    """Until it answers; a server that ends instead cannot use its files."""
    until = time.monotonic() + seconds
    while not answers():
        if server.poll() is not None:
            fail(f"{name} does not start: {what()}")
        if time.monotonic() > until:
            raise OSError(f"{name} does not answer: {what()}")
        time.sleep(0.05)


class Postgres:
    """PostgreSQL: all balances change in a transaction, and a row tells of it; a checkpoint after every other one."""
    package = "postgresql"
    # A server for each state: the processors are what it waits for.
    threads = "4"
    rows = 60

    def __init__(self, *settings, rule=None):
        self.settings = settings
        if rule:
            self.rule = rule

    def words(self, name, *words):
        # The server refuses root; the folder above belongs to root.
        binary = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))[-1]
        caps = "+dac_override"
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"--inh-caps={caps}",
                f"--ambient-caps={caps}", binary, *words]

    def start(self):
        at = tempfile.mkdtemp(prefix="ordo-pg-")
        os.chmod(at, 0o777)
        settings = ["listen_addresses=", f"unix_socket_directories={at}", "shared_buffers=2MB", "max_connections=8",
                    "autovacuum=off", "jit=off", *self.settings]
        words = self.words("postgres", "-D", "pg", *[word for one in settings for word in ("-c", one)])
        log = open(f"{at}/log", "w")
        server = subprocess.Popen(words, stdout=log, stderr=log)

        def said():
            with open(f"{at}/log") as file:
                lines = [line for line in file if "FATAL" in line or "PANIC" in line or "ERROR" in line]
            return lines[0].strip() if lines else "nothing said"
        try:
            wait_for(said, server, "postgres", lambda: self.sql(at, "select 1").returncode == 0)
        except BaseException:  # the end of this process too
            shutil.rmtree(at)
            raise
        return server, at

    def stop(self, server, at):
        server.send_signal(3)  # immediate
        server.wait()
        shutil.rmtree(at)

    def sql(self, at, text):
        words = ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", at, "-U", "postgres", "-d", "postgres",
                 "-c", text]
        return subprocess.run(words, capture_output=True, text=True)

    def done(self, at, text):
        done = self.sql(at, text)
        if done.returncode:
            raise OSError(done.stderr)

    def setup(self):
        os.mkdir("pg", 0o700)
        shutil.chown("pg", "postgres", "postgres")
        subprocess.run(self.words("initdb", "-D", "pg", "-U", "postgres", "-A", "trust", "--data-checksums",
                                  "--wal-segsize=1", "--locale=C", "-E", "UTF8", "--no-sync"),
                       check=True, stdout=subprocess.DEVNULL)
        server, at = self.start()
        self.done(at, "create table history (n int primary key)")
        self.done(at, "create table account (id int primary key, balance int, filler text) with (fillfactor = 45)")
        self.done(at, f"insert into account select i, 0, repeat('x', 300) from generate_series(1, {self.rows}) i")
        server.send_signal(2)  # fast: with a checkpoint
        server.wait()
        shutil.rmtree(at)

    def run(self):
        server, at = self.start()
        for n in range(1, ROUNDS + 1):
            self.done(at, f"begin; update account set balance = balance + {n}; insert into history values ({n}); commit")
            mark(f"committed {n}")
            if n % 2 == 0:
                self.done(at, "checkpoint")
        self.stop(server, at)

    def check(self):
        # As after a start of the machine: the process of this number is another one.
        if os.path.exists("pg/postmaster.pid"):
            os.unlink("pg/postmaster.pid")
        server, at = self.start()
        try:
            said = self.sql(at, "select n from history order by n")
            balances = self.sql(at, "select balance, count(*) from account group by balance")
        finally:
            self.stop(server, at)
        for one in (said, balances):
            if one.returncode:
                fail(f"postgres: {one.stderr.strip().splitlines()[:1]}")
        found = [int(n) for n in said.stdout.split()]
        if balances.stdout.split() != [f"{sum(found)}|{self.rows}"]:
            fail(f"history has {found}, the balances are {balances.stdout.split()}")
        in_order(found)


class Etcd:
    """etcd: a key a round."""
    package = "etcd-server"
    # Its log is 64 MB from the beginning, and the next one is ready beside it.
    size = "640m"
    threads = "4"

    def __init__(self, *flags):
        self.flags = flags

    def start(self):
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        words = ["etcd", "--data-dir", "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                 f"default={peer}", "--heartbeat-interval", "20", "--election-timeout", "200", *self.flags]
        log = tempfile.TemporaryFile("w+")
        server = subprocess.Popen(words, stdout=log, stderr=log)

        def ctl(*words):
            env = dict(os.environ, ETCDCTL_API="3")
            return subprocess.run(["etcdctl", f"--endpoints={client}", "--command-timeout=10s", *words],
                                  capture_output=True, text=True, env=env)

        def said():
            log.seek(0)
            return log.read().strip()[-200:]
        wait_for(said, server, "etcd", lambda: ctl("get", "none").returncode == 0)
        return server, ctl

    def setup(self):
        server, _ = self.start()
        server.terminate()
        server.wait()

    def run(self):
        server, ctl = self.start()
        for n in range(1, ROUNDS + 1):
            done = ctl("put", f"key{n}", str(n))
            if done.returncode:
                raise OSError(done.stderr)
            mark(f"committed {n}")
        server.kill()
        server.wait()

    def check(self):
        server, ctl = self.start()
        said = ctl("get", "--prefix", "key", "--print-value-only")
        server.kill()
        server.wait()
        if said.returncode:
            fail(f"etcd: {said.stderr.strip()}")
        in_order(sorted(int(n) for n in said.stdout.split()))


class Rsyslogd:
    """rsyslogd, which appends lines to a file. When its next action, a file elsewhere, has the line, it is a promise."""
    package = "rsyslog"

    def __init__(self, sync):
        self.sync = sync

    def run(self):
        at = tempfile.mkdtemp(prefix="ordo-rsyslog-")
        with open(f"{at}/conf", "w") as conf:
            conf.write('module(load="imuxsock" SysSock.Use="off")\n'
                       f'input(type="imuxsock" Socket="{at}/socket" RateLimit.Interval="0")\n'
                       'template(name="line" type="string" string="%msg%\\n")\n'
                       'main_queue(queue.dequeueBatchSize="1")\n'
                       f'action(type="omfile" file="{os.getcwd()}/log" template="line" sync="{self.sync}")\n'
                       f'action(type="omfile" file="{at}/done" template="line")\n')
        server = subprocess.Popen(["rsyslogd", "-n", "-f", f"{at}/conf", "-i", f"{at}/pid"], stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: "", server, "rsyslogd", lambda: os.path.exists(f"{at}/socket"))
            for n in range(1, ROUNDS + 1):
                subprocess.run(["logger", "-u", f"{at}/socket", f"line {n} {'x' * 600}"], check=True)
                wait_for(lambda: "", server, "rsyslogd", lambda: self.lines(f"{at}/done") >= n)
                mark(f"logged {n}")
        finally:
            server.kill()
            server.wait()
            shutil.rmtree(at)

    def lines(self, path):
        if not os.path.exists(path):
            return 0
        with open(path) as file:
            return file.read().count("\n")

    def check(self):
        found = []
        if os.path.exists("log"):
            with open("log", errors="replace") as file:
                found = file.read().split("\n")
        # A promised line is whole; what follows the last of them was promised by nobody.
        for n in acked():
            if n > len(found) or found[n - 1].strip() != f"line {n} {'x' * 600}":
                fail(f"line {n} was logged, and is missing or has other contents")
