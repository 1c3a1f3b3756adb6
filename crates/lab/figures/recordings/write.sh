#!/bin/sh
# Writes NAME.toml of every recording that record.sh left in the directories WORK...: write.sh RECORDING WORK..., where RECORDING is
# a command that prints the counts of an strace file as TOML (`ordo_figures::mix`); the tree has none now.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
recording=$1
shift
for work in "$@"; do
    while IFS='|' read -r name joined units program; do
        [ ! -e "$work/$name.strace" ] ||
            "$recording" "$work/$name.strace" "$(cd "$work" && pwd)/files" "$joined" "$units" "$program" >"$here/$name.toml"
    done <<LIST
postmark|ranges|2000|postmark 1.53: 500 files of 512 bytes to 16 KB in 10 directories, 2,000 transactions
pgbench|ranges|4000|PostgreSQL 15.18 and pgbench: TPC-B-like, scale 8, 4,000 transactions of one client, shared buffers of 4 MB, until its end
tpcc|ranges|2000|PostgreSQL 15.18 and pgbench: TPC-C's transactions as scripts, 2 warehouses, 2,000 transactions of 10 clients, shared buffers of 8 MB, until its end
nginx|ranges|15362|nginx 1.22.1 and wrk: SPECweb's classes, 20 directories, 20 clients, 15,362 requests
sendmail|ranges|1000|sendmail 8.17.1 and procmail 3.22: 1,000 messages, of which 30 percent go to another host
openssh-unpack|files|885|GNU tar 1.34: the sources of OpenSSH (commit 0ef0f5a8)
openssh-config|files|533|the configure of OpenSSH (commit 0ef0f5a8), 533 tests, with gcc 12.2
openssh-build|files|239|make of OpenSSH (commit 0ef0f5a8), 239 objects, with gcc 12.2
kernel|files|448|make of Linux 6.1.192, tinyconfig, 448 objects, with gcc 12.2
andrew|files|238|the phases of the Andrew benchmark with mkdir, cp, find, ls, grep, wc, gcc and ld on sources of OpenSSH (commit 0ef0f5a8)
LIST
done
