#!/bin/bash
# One brace style in all folders: none around a single statement that takes one line; see braces.py.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What the check must find, and what it must not.
cat >"$dir/good.c" <<'END'
int good(int a) {
  if (a) {
    a = 1;
    a = 2;
  } else {
    a = 3;
  }
  for (int i = 0; i < a; i++)
    a++;
  while (a) {
  }
  do {
    a++;
  } while (a);
  return a;
}
END
cat >"$dir/bad.c" <<'END'
int bad(int a) {
  if (a) {
    return 1;
  }
  if (a) {
    a = 1;
  } else {
    a = 2;
  }
  for (int i = 0; i < a &&
                  i < 8; i++) {
    a++;
  }
  return a;
}
END
cat >"$dir/fixed.c" <<'END'
int bad(int a) {
  if (a)
    return 1;
  if (a)
    a = 1;
  else
    a = 2;
  for (int i = 0; i < a &&
                  i < 8; i++)
    a++;
  return a;
}
END
check=$SOURCE/tests/unit/braces.py
python3 "$check" "$dir/good.c"
if python3 "$check" "$dir/bad.c" >"$dir/out" || [ "$(wc -l <"$dir/out")" -ne 4 ]; then
  echo "not found as it should be:"
  cat "$dir/out"
  exit 1
fi
python3 "$check" --fix "$dir/bad.c"
diff "$dir/fixed.c" "$dir/bad.c"

cd "$SOURCE"
find libcoll transports topology trainer perf tests -name '*.[ch]' -print0 | sort -z |
  xargs -0 python3 "$check"
