#!/usr/bin/python3
"""Makes the Python package in a folder: copies its modules, writes coll/operations.py, and compiles coll/_coll, the
extension through which they call libcoll.

usage: build.py FOLDER LIBRARY [HEADERS [RUNPATH]]

LIBRARY: the folder of libcoll.so; HEADERS: that of the folder coll with the headers (default: ../../include from here);
RUNPATH: where the extension looks for libcoll.so when it is loaded (default: LIBRARY; "": where the system does)."""
import os
import shutil
import sys

import cffi

import declarations
import operations

HERE = os.path.dirname(os.path.abspath(__file__))
# Functions in Python that libcoll calls.
CALLED_BACK = """
extern "Python" void coll_python_combine(const void *left, const void *right, void *result, size_t count,
                                         coll_type type, void *context);
"""


def compile_extension(folder, headers, library, runpath):
    """Compiles coll/_coll.*.so in a folder."""
    ffi = cffi.FFI()
    ffi.cdef(declarations.of_headers(headers) + CALLED_BACK)
    ffi.set_source("coll._coll", "#include <coll/coll.h>", libraries=["coll"], library_dirs=[library],
                   include_dirs=[headers], extra_compile_args=["-O2", "-g0"],
                   extra_link_args=["-Wl,-rpath," + runpath] if runpath else [])
    ffi.compile(tmpdir=folder)
    for name in os.listdir(os.path.join(folder, "coll")):
        if name.startswith("_coll.") and name.endswith((".c", ".o")):
            os.remove(os.path.join(folder, "coll", name))


def main(folder, library, headers=os.path.join(HERE, "../../include"), runpath=None):
    """Makes the package."""
    package = os.path.join(folder, "coll")
    os.makedirs(package, exist_ok=True)
    for name in os.listdir(os.path.join(HERE, "coll")):
        if name.endswith((".py", ".typed")):
            shutil.copy(os.path.join(HERE, "coll", name), package)
    with open(os.path.join(package, "operations.py"), "w", encoding="utf-8") as file:
        file.write(operations.module(headers))
    compile_extension(os.path.abspath(folder), os.path.abspath(headers), os.path.abspath(library),
                      os.path.abspath(library) if runpath is None else runpath)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
