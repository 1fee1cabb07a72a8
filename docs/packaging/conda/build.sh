#!/bin/bash
# How conda builds libcoll: see meta.yaml. The package of OpenBLAS that the trainer needs is left out.
set -euo pipefail
# shellcheck disable=SC2086
cmake -S . -B build-conda -G Ninja $CMAKE_ARGS -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
  -DCOLL_TESTS=OFF -DCOLL_TRAINER=OFF -DCOLL_PYTHON=OFF
cmake --build build-conda
cmake --install build-conda
