#!/bin/sh
# Times the real PostMark and Ordo's, by turns, with the same parameters in a directory DIR: beside.sh ORDO DIR ROUNDS. Prints seconds of
# both and their ratio for each round.
set -eu
ordo=$1 dir=$2 rounds=$3
now() { date +%s%N; }
config=$(mktemp)
printf 'set location %s\nset size 512 16384\nset number 10000\nset transactions 50000\nset subdirectories 10\nset buffering true\nrun\nquit\n' \
    "$dir/real" >"$config"
for round in $(seq "$rounds"); do
    mkdir "$dir/real"
    begun=$(now)
    postmark "$config" >/dev/null
    real=$(($(now) - begun))
    rm -r "$dir/real"
    begun=$(now)
    "$ordo" bench postmark:files=10000,transactions=50000,directories=10 --dir "$dir" --quiet >/dev/null
    ours=$(($(now) - begun))
    echo "$real $ours" | awk '{ printf "postmark %.2f s, ordo %.2f s, ratio %.2f\n", $1 / 1e9, $2 / 1e9, $2 / $1 }'
done
rm "$config"
