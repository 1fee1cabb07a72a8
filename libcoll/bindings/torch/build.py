#!/usr/bin/python3
"""Makes the package coll_torch in a folder, for the Python that runs this: copies its modules and compiles
coll_torch/_C, the backend, with a C++ compiler ($CXX, by default c++, and $CXXFLAGS) and the headers that PyTorch has.

usage: build.py FOLDER LIBRARY [HEADERS [RUNPATH]]

LIBRARY: the folder of libcoll.so; HEADERS: that of the folder coll with the headers (default: ../../include from here);
RUNPATH: where the extension looks for libcoll.so when it is loaded (default: LIBRARY)."""
import concurrent.futures
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.dirname(os.path.abspath(torch.__file__))


def standard():
    """The C++ standard that PyTorch's headers ask for, 17 at least."""
    with open(os.path.join(TORCH, "include/torch/csrc/api/include/torch/all.h"), encoding="utf-8") as file:
        asked = re.search(r"__cplusplus < 20(\d\d)", file.read())
    return max(17, int(asked.group(1)) if asked else 17)


def options_of_compiler(headers):
    """What the compiler needs to know. The warnings are those of libcoll; other people's headers are system headers."""
    folders = [os.path.join(TORCH, "include"), os.path.join(TORCH, "include/torch/csrc/api/include"),
               sysconfig.get_path("include")]
    options = [f"-std=c++{standard()}", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-I" + headers]
    for folder in folders:
        options += ["-isystem", folder]
    options.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    # pybind11 lets modules share classes only if these are the same.
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, "_PYBIND11_" + name, None)
        if value is not None:
            options.append(f'-DPYBIND11_{name}="{value}"')
    return options + shlex.split(os.environ.get("CXXFLAGS", ""))


def compile_extension(output, headers, library, runpath):
    """Compiles and links the backend."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    options = options_of_compiler(headers)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for source in sorted(glob.glob(os.path.join(HERE, "*.cpp"))):
            made = os.path.join(folder, os.path.basename(source) + ".o")
            jobs.append((made, pool.submit(subprocess.run, compiler + options + ["-c", source, "-o", made])))
        if any([job.result().returncode for _, job in jobs]):
            sys.exit("build.py: the backend for PyTorch could not be compiled; the compiler has said why")
        subprocess.run(compiler + ["-shared", "-o", output] + [made for made, _ in jobs] +
                       ["-L" + os.path.join(TORCH, "lib"), "-L" + library, "-Wl,-rpath," + runpath, "-ltorch_python",
                        "-ltorch", "-ltorch_cpu", "-lc10", "-lcoll"], check=True)


def main(folder, library, headers=os.path.join(HERE, "../../include"), runpath=None):
    """Makes the package."""
    package = os.path.join(os.path.abspath(folder), "coll_torch")
    os.makedirs(package, exist_ok=True)
    for module in glob.glob(os.path.join(HERE, "coll_torch/*.py")):
        shutil.copy(module, package)
    compile_extension(os.path.join(package, "_C" + sysconfig.get_config_var("EXT_SUFFIX")), os.path.abspath(headers),
                      os.path.abspath(library), os.path.abspath(library) if runpath is None else runpath)
    with open(os.path.join(folder, "stamp"), "w", encoding="utf-8") as file:
        file.write(sys.executable + "\n")


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
