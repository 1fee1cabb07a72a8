#!/bin/sh
# Rooms and files know only what docs/architecture.md's table lets them: see arrows.py.
set -eu
exec python3 "$SOURCE/tests/unit/arrows.py" "$SOURCE" "$BUILD"
