#!/bin/bash
# docs/collectives is what docs/generate.sh makes of the header and the algorithms of this build, every page's
# links lead to files and to headings that are there, and docs/porting.md names and uses what is in the headers.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$SOURCE/docs/generate.sh" "$BUILD" "$dir/pages"
diff -r "$SOURCE/docs/collectives" "$dir/pages" || {
  echo "docs/collectives is not up to date; run: docs/generate.sh $BUILD"
  exit 1
}

# The names on the page about porting are in the headers, and its snippets compile together.
names=$(grep -oE '\bcoll_[a-z_]+\(\)|\bCOLL_[A-Z0-9_]+\b' "$SOURCE/docs/porting.md" | tr -d '()' | sort -u)
for name in $names; do
  grep -qw -- "$name" "$SOURCE"/libcoll/include/coll/*.h "$SOURCE/docs/parameters.md" || {
    echo "docs/porting.md has $name, which is in no header and is no setting"
    exit 1
  }
done
sed -n '/^```c$/,/^```$/p' "$SOURCE/docs/porting.md" | grep -v '^```' >"$dir/porting.c"
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only -I"$SOURCE/libcoll/include" "$dir/porting.c"

# anchors PAGE: what links call its headings.
anchors() {
  sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

lost=0
for page in "$SOURCE"/*.md "$SOURCE"/docs/*.md "$SOURCE"/docs/*/*.md; do
  while read -r link; do
    file=$page
    case $link in
    [!#]*) file=$(dirname "$page")/${link%%#*} ;;
    esac
    [ -e "$file" ] && case $link in *.md'#'* | '#'*) anchors "$file" | grep -qxF -- "${link#*#}" ;; esac || {
      echo "${page#"$SOURCE"/} points to $link, which is not there"
      lost=1
    }
  done < <(grep -o '](\([^)]*\))' "$page" | tr -d '()]' | grep -v '^https\?:\|^$' || :)
done
exit $lost
