#!/bin/bash
# The public headers declare every operation in all its forms, and forms.c defines exactly these: see
# docs/operations.py, which must notice missing, changed and extra declarations.
set -euo pipefail
"$SOURCE/docs/operations.py" --check
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Fails unless the check refuses a copy of the sources with one file changed by an expression of sed.
refuses() {
  local file=$1 change=$2
  rm -rf "$dir/libcoll"
  mkdir -p "$dir/libcoll/api"
  cp -r "$SOURCE/libcoll/include" "$dir/libcoll/"
  cp "$SOURCE/libcoll/api/forms.c" "$dir/libcoll/api/"
  sed -i "$change" "$dir/libcoll/$file"
  if cmp -s "$dir/libcoll/$file" "$SOURCE/libcoll/$file"; then
    echo "$file has nothing that $change changes"
    exit 1
  fi
  if "$SOURCE/docs/operations.py" --check --source="$dir" >"$dir/out"; then
    echo "not noticed: $file changed by $change"
    exit 1
  fi
}

refuses include/coll/coll_collectives.h '/Starts coll_barrier()/,/coll_ibarrier(/d'
refuses include/coll/coll_collectives.h 's/coll_scan_init(const void \*sendbuf/coll_scan_init(void *sendbuf/'
refuses include/coll/coll_p2p.h 's/^\/\* Starts coll_send().*/\/* Starts it. *\//'
refuses api/forms.c 's/^FORMS(exscan,/FORMS(prescan,/'
refuses api/forms.c 's/(int peer, coll_window \*window)/(int rank, coll_window *window)/'

# From headers without one form, --write restores the original headers.
refuses include/coll/coll_collectives.h '/Starts coll_barrier()/,/coll_ibarrier(/d'
"$SOURCE/docs/operations.py" --write --source="$dir"
diff -r "$SOURCE/libcoll/include" "$dir/libcoll/include"
