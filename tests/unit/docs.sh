#!/bin/bash
# docs/collectives is what docs/generate.sh makes of the header and the algorithms of this build, and every
# page's links lead to files.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$SOURCE/docs/generate.sh" "$BUILD" "$dir/pages"
diff -r "$SOURCE/docs/collectives" "$dir/pages" || {
  echo "docs/collectives is not up to date; run: docs/generate.sh $BUILD"
  exit 1
}

lost=0
for page in "$SOURCE"/*.md "$SOURCE"/docs/*.md "$SOURCE"/docs/*/*.md; do
  while read -r file; do
    [ -e "$(dirname "$page")/$file" ] || {
      echo "${page#"$SOURCE"/} points to $file, which is not there"
      lost=1
    }
  done < <(grep -o '](\([^)]*\))' "$page" | tr -d '()]' | sed 's/#.*//' | grep -v '^https\?:\|^$' || :)
done
exit $lost
