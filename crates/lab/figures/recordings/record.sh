#!/bin/sh
# Runs a real program under strace(1), and leaves its calls about files as NAME.strace in the directory WORK.
#
#   record.sh NAME WORK
#
# A build of OpenSSH gives three: openssh-unpack, openssh-config and openssh-build.
#
# NAME is postmark, pgbench, tpcc, nginx, sendmail, kernel, openssh or andrew. Every program works below WORK/files, which is made
# anew; what it needs (sources, settings) is below WORK. Debian's packages have the programs: postmark, postgresql-contrib, nginx-light,
# wrk, gcc, make. sendmail's are unpacked into WORK/sendmail (dpkg-deb -x; no directory above may be writable for all), a kernel's sources into WORK/linux, OpenSSH's, with
# a configure, into WORK/openssh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
name=$1
mkdir -p "$2"
work=$(cd "$2" && pwd)
files=$work/files
rm -rf "$files"
mkdir -p "$files"

traced='?open,?creat,openat,close,write,pwrite64,writev,pwritev,?pwritev2,lseek,ftruncate,truncate,fallocate,fsync,fdatasync'
traced="$traced,sync_file_range,msync,sync,syncfs,?rename,renameat,renameat2,?link,linkat,?symlink,symlinkat,?unlink,unlinkat"
traced="$traced,?mkdir,mkdirat,?rmdir,copy_file_range,sendfile,chdir,fchdir,read,pread64,readv,preadv,?preadv2"

# Runs a command under strace, from the directory of its files.
record() {
    record_as "$name" "$@"
}

# The same for a part of the work, which has a recording of its own.
record_as() {
    label=$1
    shift
    (cd "$files" && strace -f --seccomp-bpf -y -s 0 --absolute-timestamps=unix,ns --syscall-times=ns -e signal=none \
        -e "trace=$traced" -o "$work/$label.strace" -- "$@")
}

# Ends the server that is recorded, and waits for strace.
finish() {
    strace=$(pgrep -f "^strace .*$work/$name.strace" | head -n 1)
    kill "-$1" $(pgrep -P "$strace")
    wait "$server" || true
}

# Waits until a command succeeds, for half a minute at most.
await() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "record.sh: the server does not answer: $*" >&2; exit 1; }
        sleep 0.1
    done
}

postgres_up() {
    chown -R nobody "$files"
    as="setpriv --reuid=nobody --clear-groups"
    $as initdb -D "$files/data" >/dev/null
    # The memory for pages is small beside the data, as it was for the papers' databases.
    cat >>"$files/data/postgresql.conf" <<CONF
unix_socket_directories = '$files'
listen_addresses = ''
shared_buffers = $1
autovacuum = off
checkpoint_timeout = 30s
CONF
    $as postgres -D "$files/data" >"$work/postgres.log" 2>&1 &
    up=$!
    await psql -h "$files" -U nobody postgres -c ''
}

postgres_recorded() {
    kill -INT $up && wait $up || true
    record setpriv --reuid=nobody --clear-groups postgres -D "$files/data" >"$work/postgres.log" 2>&1 &
    server=$!
    await psql -h "$files" -U nobody postgres -c ''
}

case $name in
postmark)
    printf 'set location %s\nset size 512 16384\nset number 500\nset transactions 2000\nset subdirectories 10\nrun\nquit\n' \
        "$files" >"$work/postmark.cfg"
    record postmark "$work/postmark.cfg"
    ;;
pgbench)
    postgres_up 4MB
    pgbench -h "$files" -U nobody -i -s 8 -q postgres >/dev/null 2>&1
    postgres_recorded
    pgbench -h "$files" -U nobody -n -c 1 -t 4000 postgres
    finish INT
    ;;
tpcc)
    postgres_up 8MB
    psql -h "$files" -U nobody -q postgres -f "$here/tpcc.sql"
    postgres_recorded
    pgbench -h "$files" -U nobody -n -c 10 -t 200 -f "$here/new_order.sql@45" -f "$here/payment.sql@43" \
        -f "$here/order_status.sql@4" -f "$here/delivery.sql@4" -f "$here/stock_level.sql@4" postgres
    finish INT
    ;;
nginx)
    python3 "$here/site.py" "$files" 20
    sed "s|FILES|$files|g" "$here/nginx.conf" >"$work/nginx.conf"
    chown -R nobody "$files"
    record nginx -c "$work/nginx.conf" &
    server=$!
    await curl -sf http://127.0.0.1:8377/post
    wrk -t 1 -c 20 -d 10 -s "$here/specweb.lua" http://127.0.0.1:8377
    finish TERM
    ;;
sendmail)
    unshare -um sh "$here/named_host.sh" sh "$here/sendmail.sh" "$work" "$files"
    export LD_LIBRARY_PATH="$work/sendmail/usr/lib/x86_64-linux-gnu"
    record unshare -um sh "$here/named_host.sh" "$work/sendmail/usr/libexec/sendmail/sendmail" -C "$work/sendmail.cf" -bD -q1h &
    server=$!
    await python3 "$here/mail.py" 8325 0 0
    python3 "$here/mail.py" 8325 1000 20
    finish TERM
    ;;
kernel)
    make -s -C "$work/linux" mrproper
    cp -a "$work/linux" "$files/linux"
    # The tools that the build needs, and headers that it generates, are made before.
    make -s -C "$files/linux" tinyconfig prepare scripts
    record make -s -C "$files/linux" vmlinux
    ;;
openssh)
    tar -C "$work" -cf "$work/openssh.tar" openssh
    record_as openssh-unpack tar -xf "$work/openssh.tar"
    record_as openssh-config sh -c 'cd openssh && ./configure --without-openssl --without-zlib >/dev/null 2>&1'
    record_as openssh-build make -s -C openssh >/dev/null 2>&1
    ;;
andrew)
    [ -e "$work/configured" ] || {
        cp -a "$work/openssh" "$work/configured"
        (cd "$work/configured" && ./configure --without-openssl --without-zlib >/dev/null 2>&1)
    }
    mkdir "$files/from"
    cp "$work"/configured/*.c "$work"/configured/*.h "$files/from"
    cp -r "$work/configured/openbsd-compat" "$files/openbsd-compat"
    record sh "$here/andrew.sh" from to
    ;;
*)
    echo "record.sh: no program is called '$name'" >&2
    exit 2
    ;;
esac
rm -rf "$files"
