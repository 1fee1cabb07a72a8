"""Spack's recipe of libcoll, for the sources that it comes with:

    spack repo add docs/packaging/spack
    spack dev-build --source-path . libcoll@main
"""
from spack.package import *


class Libcoll(CMakePackage):
    """Collective communication for C programs: all-reduce, broadcast, all-gather and so on, over shared memory,
    InfiniBand, RoCE and TCP. No operation hangs: each ends with a result, or with an error that names the rank to
    blame."""

    license("Apache-2.0")

    version("main")

    variant("shared", default=True, description="Build the shared library besides the static one")
    variant("verbs", default=True, description="Build the transport for InfiniBand and RoCE")
    variant("pmix", default=True, description="Build with PMIx, for launchers that speak it")
    variant("perf", default=True, description="Build coll_perf and coll_recovery")
    variant("trainer", default=False, description="Build coll_train")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("hwloc@2:")
    depends_on("openssl@3:")
    depends_on("rdma-core", when="+verbs")
    depends_on("pmix", when="+pmix")
    depends_on("openblas threads=openmp", when="+trainer")
    depends_on("zlib-api", when="+trainer")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("COLL_VERBS", "verbs"),
            self.define_from_variant("COLL_PERF", "perf"),
            self.define_from_variant("COLL_TRAINER", "trainer"),
            self.define("COLL_PYTHON", False),
            self.define("COLL_TESTS", False),
        ]
