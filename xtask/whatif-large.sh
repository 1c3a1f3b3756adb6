#!/bin/sh
# Records what fio does on ext4 in parts: `whatif-large.sh ORDO FOLDER`. Needs root, fio, and 25 GB in FOLDER.
set -eu
ordo=$1 folder=$2
mkdir -p "$folder"
cat >"$folder/jobs.fio" <<'JOBS'
[global]
directory=${D}
ioengine=psync
refill_buffers=1
norandommap=1
randseed=7
fallocate=none
[seq]
filename=seq
rw=write
bs=1m
size=5g
end_fsync=1
[rand16]
filename=r16
rw=randwrite
bs=16k
size=3g
io_size=4g
fsync=64
direct=1
[rand4]
filename=r4
rw=randwrite
bs=4k
size=1g
io_size=1300m
fsync=32
direct=1
JOBS
image=$folder/image
truncate -s 14G "$image"
mkfs.ext4 -q -F "$image"
"$ordo" trace run --image "$image" --rotate 64m -o "$folder/trace.new" -- sh -c "
  D=\$PWD; export D
  for job in seq rand16 rand4; do fio --section=\$job '$folder/jobs.fio' >/dev/null; done"
mv "$folder/trace.new" "$folder/trace"
rm "$image"
