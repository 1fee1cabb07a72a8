#!/bin/sh
# perf/compare/curves.py: its numbers are those of coll_explain, and the picture, if matplotlib is here, has a curve for
# each number of ranks and each algorithm.
set -eu
export COLL_CALIBRATION=none
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
curves="$SOURCE/perf/compare/curves.py" explain=$BUILD/bin/coll_explain
python3 "$curves" "$explain" "$dir/c.csv" --ranks 64,512 --bytes 8-64M

# expect WHAT WANTED GOT
expect() { [ "$2" = "$3" ] || { echo "$1: $3 instead of $2"; exit 1; }; }
expect header group,algorithm,ranks,bytes,ns,chosen "$(head -n 1 "$dir/c.csv")"
for n in 64 512; do
  for bytes in 8 4096 2097152; do
    expect "the choice for $bytes bytes" "$("$explain" allreduce -n $n --levels assumed -b $bytes | sed -n 's/^\* \([a-z_0-9]*\).*/\1/p')" \
      "$(sed -n "s/^host memory,\([a-z_0-9]*\),$n,$bytes,.*,1$/\1/p" "$dir/c.csv")"
  done
  expect "sizes on GPUs" 8 "$(grep -c "^GPUs,[a-z_0-9]*,$n,[0-9]*,[0-9.]*,1$" "$dir/c.csv")"
done
expect "a time" "$("$explain" allreduce -n 64 --levels assumed --gpu 8 -b 16M | awk '/ in all under/ { print $2 * 1e6 }')" \
  "$(awk -F, '$1 == "GPUs" && $3 == 64 && $4 == 16777216 { print $5 + 0 }' "$dir/c.csv")"
if python3 -c 'import matplotlib' 2> "$dir/none"; then
  python3 "$curves" "$explain" "$dir/c.svg" --ranks 64,512 --bytes 8-64M
  expect "numbers of ranks in two panels" 4 "$(grep -cE '>(64|512) ranks<' "$dir/c.svg")"
  for name in recdbl hier_split dbtree ring hier_trees; do
    grep -q ">$name<" "$dir/c.svg" || { echo "no curve of $name"; exit 1; }
  done
else
  python3 "$curves" "$explain" "$dir/c.svg" --ranks 64 --bytes 8-64 2> "$dir/err" && exit 1
  expect "lines of the error" 1 "$(grep -c 'apt-get install python3-matplotlib' "$dir/err")"
fi
