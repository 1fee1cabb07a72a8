#!/bin/bash
# There is a man page for each function of the public headers and each installed program, mandoc finds nothing wrong
# with any, and what they refer to is there.
. "$SOURCE/tests/install/support.inc"
command -v mandoc >/dev/null || {
  echo "left out: there is no mandoc (package mandoc)"
  exit 77
}
man=$BUILD/man
wrong=0
say() {
  echo "$1"
  wrong=1
}

grep -h '^COLL_API' "$SOURCE"/libcoll/include/coll/*.h | sed -n 's/.*[ *]\(coll_[a-z0-9_]*\)(.*/\1/p' >functions
[ "$(wc -l <functions)" -ge 100 ]
while read -r function; do
  [ -e "$man/man3/$function.3.gz" ] || say "no man page of $function()"
done <functions
for program in "$BUILD"/bin/coll*; do
  name=$(basename "$program")
  # Those for developers only are not installed.
  grep -q "/bin/$name\"" "$BUILD/cmake_install.cmake" || continue
  [ -e "$man/man1/$name.1.gz" ] || say "no man page of $name"
done

mkdir pages
for page in "$man"/man?/*.gz; do
  [ -L "$page" ] || gunzip <"$page" >"pages/$(basename "$page" .gz)"
done
# mandoc expects the name of its system, and looks for pages among those of this machine.
mandoc -Tlint pages/* | grep -vE 'STYLE: (operating system explicitly specified|referenced manual not found)' &&
  say "mandoc finds fault with these pages; docs/man.py makes them of the headers and of --help"
while read -r _ name section; do
  [ -e "$man/man$section/$name.$section.gz" ] || say "a page refers to $name($section), which is not there"
done < <(cat pages/* | sed -n 's/^\.Xr ( /.Xr /; s/^\.Xr \([a-z0-9_]*\) \([137]\).*/.Xr \1 \2/p' | sort -u)

# The text is that of the headers and of the programs.
mandoc -Tascii pages/coll_send.3 | col -b >text
grep -q 'Sends count elements to rank peer' text || say "coll_send(3) does not say what it does"
mandoc -Tascii pages/collrun.1 | col -b >text
grep -q -- '--keep-going' text || say "collrun(1) does not have --keep-going"
exit $wrong
