#!/bin/bash
# libcoll as a subproject of a project with options of its own: its targets have the names that find_package() gives,
# and nothing else of it is built or installed. With TEST_ALL=1 all is built: the static library alone, optimised for
# size, without verbs, hwloc and warnings, and the tools; then docs/examples are linked with it, and run.
. "$SOURCE/tests/install/support.inc"
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(around C)
set(BUILD_SHARED_LIBS OFF)
add_subdirectory("$SOURCE" coll EXCLUDE_FROM_ALL)
add_subdirectory("$SOURCE/docs/examples" examples)
foreach(target collrun coll_perf coll_train coll_verify uninstall python)
  if(TARGET \${target} AND NOT COLL_TOOLS)
    message(FATAL_ERROR "libcoll has made the target \${target} in the project around it")
  endif()
endforeach()
foreach(target coll::coll coll::coll_static)
  get_target_property(type \${target} TYPE)
  if(NOT type STREQUAL STATIC_LIBRARY)
    message(FATAL_ERROR "\${target} is a \${type}")
  endif()
endforeach()
install(TARGETS mean)
END
quietly cmake -S . -B build -G Ninja -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" -DCMAKE_BUILD_TYPE=MinSizeRel \
  -DCOLL_WERROR=ON -DCOLL_VERBS=OFF -DCOLL_HWLOC=OFF -DCOLL_CUDA_ARCHITECTURES= \
  -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)"
if grep '^BUILD_SHARED_LIBS:' build/CMakeCache.txt; then
  echo "libcoll has set BUILD_SHARED_LIBS for the project around it"
  exit 1
fi
[ -n "${TEST_ALL-}" ] || exit 0

quietly cmake build -DCOLL_TOOLS=ON
quietly ninja -C build all collrun coll_topo
nm build/coll/libcoll.a >symbols 2>/dev/null
if [ -e build/coll/libcoll.so ] || grep -q ' verbs_conn_' symbols; then
  echo "the shared library or the verbs transport was built"
  exit 1
fi
run_examples build/examples
build/coll/bin/coll_topo >topo
grep -q 'without hwloc' topo
build/coll/bin/collrun -n 2 -v build/examples/ring >bound 2>&1
grep -q 'around 2 ranks: 1' bound
if build/coll/bin/coll_topo --input numa:2 >topo 2>&1 || ! grep -q 'built without hwloc' topo; then
  echo "a machine file is not refused:"
  cat topo
  exit 1
fi
quietly cmake --install build --prefix "$scratch/prefix"
find prefix -type f | diff - <(echo prefix/bin/mean)
