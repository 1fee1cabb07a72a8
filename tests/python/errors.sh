#!/bin/sh
# Errors of the Python package.
set -eu
. "$(dirname "$0")/support.inc"
run 2 test_errors.py
run 3 test_errors.py
