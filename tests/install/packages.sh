#!/bin/bash
# Debian packages: lintian finds nothing wrong, the list of symbols is right, the packages together have all that
# `cmake --install` installs, and what is in them works.
. "$SOURCE/tests/install/support.inc"
for tool in cpack lintian dpkg-gensymbols dpkg-deb; do
  command -v $tool >/dev/null || {
    echo "left out: there is no $tool (packages cmake, lintian, dpkg-dev)"
    exit 77
  }
done
if [ "$(cached CMAKE_INSTALL_PREFIX)" != /usr ] || [ "$(cached COLL_PYTHON)" != /usr/bin/python3 ]; then
  echo "left out: packages are made of a build with -DCMAKE_INSTALL_PREFIX=/usr and Debian's python3"
  exit 77
fi
quietly cpack -G DEB -B "$scratch" --config "$BUILD/CPackConfig.cmake"
version=$(cached CMAKE_PROJECT_VERSION) arch=$(dpkg --print-architecture)
for package in libcoll0 libcoll-dev libcoll-tools python3-coll; do
  dpkg-deb -x "${package}_${version}_$arch.deb" root
done
dpkg-deb -x "libcoll-doc_${version}_all.deb" root

# Besides what Debian wants in each package. No package has the backend for PyTorch.
DESTDIR=$scratch/whole quietly cmake --install "$BUILD" --prefix /usr
(cd whole && find . ! -type d ! -name LICENSE ! -path '*/coll_torch/*' | sort) >wanted
(cd root && find . ! -type d ! -path './usr/share/doc/*coll*/copyright' ! -path './usr/share/doc/*coll*/changelog.gz' | sort) |
  diff wanted - || {
  echo "the packages lack or have other files than an installation"
  exit 1
}

mkdir -p debian
printf 'Source: libcoll\n\nPackage: libcoll0\nArchitecture: any\n' >debian/control
quietly dpkg-gensymbols -c4 -plibcoll0 -v"$version" -Proot -I"$SOURCE/docs/packaging/debian/symbols" -Osymbols
dpkg-deb -e "libcoll0_${version}_$arch.deb" control
diff "$SOURCE/docs/packaging/debian/symbols" control/symbols

# Whoever distributes packages gives an address.
lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog ./*.deb

lib=$scratch/root/usr/lib/$(cc -print-multiarch)
LD_LIBRARY_PATH=$lib PYTHONPATH=$scratch/root/usr/lib/python3/dist-packages quietly /usr/bin/python3 -c \
  'import coll; comm = coll.init(); assert comm.nranks == 1'
quietly root/usr/bin/collrun -n 2 root/usr/bin/coll_perf allreduce -b 4 -e 4
cc -I root/usr/include "$SOURCE/docs/examples/mean.c" -L "$lib" -lcoll -o mean
LD_LIBRARY_PATH=$lib root/usr/bin/collrun -n 2 ./mean | diff - <(echo "2 ranks: the mean is 1000.5, the maximum 2000")
