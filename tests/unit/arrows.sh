#!/bin/sh
# Folders and files include and call only what docs/architecture.md's table lets them: see arrows.py.
set -eu
exec python3 "$SOURCE/tests/unit/arrows.py" "$SOURCE" "$BUILD"
