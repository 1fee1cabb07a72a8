#!/bin/bash
# docs/examples, built with an installed libcoll, work; each installed file belongs to a component; and `uninstall`
# leaves nothing of it, but what others have put there.
. "$SOURCE/tests/install/support.inc"
quietly cmake --install "$BUILD" --prefix "$scratch/prefix"
find prefix ! -type d | sort >installed
mkdir -p prefix/include/other
touch prefix/include/other/kept.h

sanitizers=$(cached COLL_SANITIZE)
quietly cmake -S "$SOURCE/docs/examples" -B examples -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers}"
quietly cmake --build examples
run_examples examples

for component in runtime development tools documentation python torch; do
  DESTDIR=$scratch/parts quietly cmake --install "$BUILD" --prefix "$scratch/prefix" --component $component
done
(cd "parts/$scratch" && find prefix ! -type d | sort) | diff installed - || {
  echo "a file of libcoll/install.cmake has no component, or one that this test does not know"
  exit 1
}

# Only of the latest installation there is a list.
rm -f "$BUILD"/install_manifest*.txt
quietly cmake --install "$BUILD" --prefix "$scratch/prefix"
quietly cmake --build "$BUILD" --target uninstall
find prefix -mindepth 1 -ipath '*coll*' >left
if [ -s left ] || [ ! -e prefix/include/other/kept.h ]; then
  echo "wrong after uninstall:"
  find prefix
  exit 1
fi
if cmake --build "$BUILD" --target uninstall >output.log 2>&1 || ! grep -q 'Nothing was installed' output.log; then
  echo "a second uninstall does not say why it fails:"
  cat output.log
  exit 1
fi
