# The five phases of the Andrew benchmark with the programs of today: andrew.sh FROM TO.
set -eu
from=$1 to=$2
# MakeDir: five subtrees.
for tree in 1 2 3 4 5; do mkdir -p "$to/tree$tree/src" "$to/tree$tree/obj"; done
# Copy: one file after another.
for file in "$from"/*; do cp "$file" "$to/tree1/src"; done
# ScanDir: the status of everything.
find "$to" -printf '%s\n' >/dev/null
ls -lR "$to" >/dev/null
# ReadAll: every byte twice.
grep -r nothing-has-this-word "$to" >/dev/null || true
wc "$to"/tree1/src/* >/dev/null
# Make: compile and link.
for file in "$to"/tree1/src/*.c; do
    name=$(basename "$file" .c)
    gcc -w -c -I "$to/tree1/src" -I "$from/.." "$file" -o "$to/tree1/obj/$name.o" 2>/dev/null || true
done
ld -r --allow-multiple-definition -o "$to/program" "$to"/tree1/obj/*.o
