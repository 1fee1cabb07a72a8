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
# The package of the backend for PyTorch is made where the backend is built for Debian's python3.
torch= without_torch='*/coll_torch/*'
if [ "$(cached COLL_TORCH_DIR)" = lib/python3/dist-packages ]; then
  torch=python3-coll-torch without_torch=
elif ls python3-coll-torch_* 2>/dev/null; then
  echo "there is a package of a backend that was not built"
  exit 1
else
  echo "left out: the package of the backend for PyTorch (packages python3-torch, libtorch-dev, pybind11-dev)"
fi
for package in libcoll0 libcoll-dev libcoll-tools python3-coll $torch; do
  dpkg-deb -x "${package}_${version}_$arch.deb" root
done
dpkg-deb -x "libcoll-doc_${version}_all.deb" root

# Besides what Debian wants in each package.
DESTDIR=$scratch/whole quietly cmake --install "$BUILD" --prefix /usr
(cd whole && find . ! -type d ! -name LICENSE ! -path "$without_torch" | sort) >wanted
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
if [ -n "$torch" ]; then
  cat >sum.py <<'END'
import os, sys, torch, torch.distributed as dist
import coll_torch
assert coll_torch.__file__.startswith(sys.argv[1]), coll_torch.__file__
rank, ranks = int(os.environ["COLL_RANK"]), int(os.environ["COLL_NRANKS"])
dist.init_process_group("coll", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=ranks)
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
assert torch.equal(x, torch.full((1000,), 3.0)), x
dist.destroy_process_group()
END
  LD_LIBRARY_PATH=$lib PYTHONPATH=$scratch/root/usr/lib/python3/dist-packages quietly \
    root/usr/bin/collrun -n 2 /usr/bin/python3 sum.py "$scratch/root"
fi
cc -I root/usr/include "$SOURCE/docs/examples/mean.c" -L "$lib" -lcoll -o mean
LD_LIBRARY_PATH=$lib root/usr/bin/collrun -n 2 ./mean | diff - <(echo "2 ranks: the mean is 1000.5, the maximum 2000")
