#!/bin/bash
# docs/collectives is what docs/generate.sh makes of the header and the algorithms of this build.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$SOURCE/docs/generate.sh" "$BUILD" "$dir/pages"
diff -r "$SOURCE/docs/collectives" "$dir/pages" || {
  echo "docs/collectives is not up to date; run: docs/generate.sh $BUILD"
  exit 1
}
