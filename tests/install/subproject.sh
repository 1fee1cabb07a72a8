#!/bin/bash
# libcoll as a subproject of a project with options of its own: its targets have the names that find_package() gives,
# and nothing else of it is built or installed. With TEST_ALL=1 all is built: the static library alone, optimised for
# size, without verbs and without warnings; then docs/examples are linked with it, and run.
. "$SOURCE/tests/install/support.inc"
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(around C)
set(BUILD_SHARED_LIBS OFF)
add_subdirectory("$SOURCE" coll EXCLUDE_FROM_ALL)
add_subdirectory("$SOURCE/docs/examples" examples)
foreach(target collrun coll_perf coll_train coll_verify uninstall python)
  if(TARGET \${target})
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
  -DCOLL_WERROR=ON -DCOLL_VERBS=OFF -DCOLL_CUDA_ARCHITECTURES= \
  -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)"
if grep '^BUILD_SHARED_LIBS:' build/CMakeCache.txt; then
  echo "libcoll has set BUILD_SHARED_LIBS for the project around it"
  exit 1
fi
[ -n "${TEST_ALL-}" ] || exit 0

quietly ninja -C build
if [ -e build/coll/libcoll.so ] || nm build/coll/libcoll.a 2>/dev/null | grep -q ' verbs_conn_'; then
  echo "the shared library or the verbs transport was built"
  exit 1
fi
run_examples build/examples
quietly cmake --install build --prefix "$scratch/prefix"
find prefix -type f | diff - <(echo prefix/bin/mean)
