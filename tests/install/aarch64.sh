#!/bin/bash
# libcoll, its programs and its tests are built for AArch64, and about half of the tests run under qemu-user. SYSROOT in
# the environment names a folder with Debian's packages for that processor. Otherwise they are downloaded when a build
# folder first needs them, and take 420 MB there. docs/packaging/building.md has the same commands.
. "$SOURCE/tests/install/support.inc"

leave_out() {
  echo "left out: $1"
  exit 77
}

needs() {
  command -v "$1" >/dev/null || leave_out "there is no $1 (package $2)"
}

# Makes the folder with packages, which counts only if it is complete.
make_sysroot() {
  local packages=libc6-dev,libgcc-12-dev,libstdc++-12-dev,libssl-dev,libhwloc-dev,libibverbs-dev,libpmix-dev
  packages+=,systemtap-sdt-dev,libcriterion-dev,libopenblas-openmp-dev,zlib1g-dev,dataset-fashion-mnist
  rm -rf "$1.part"
  mmdebstrap --variant=extract --architectures=arm64 --include=$packages bookworm "$1.part"
  # What the packages' scripts would do.
  (cd "$1.part/usr/lib/aarch64-linux-gnu" && ln -s openblas-openmp/libopenblas.so* . &&
    ln -s ../openblas-openmp/pkgconfig/openblas.pc pkgconfig)
  mv "$1.part" "$1"
}

# introduced COMMAND...: runs it where the kernel knows the emulator: in a user namespace of its own, which takes that
# knowledge along when it ends (from Linux 6.7 on).
introduced() {
  # shellcheck disable=SC2016
  unshare --user --map-root-user --mount sh -c 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
    cat /usr/lib/binfmt.d/qemu-aarch64*.conf >/proc/sys/fs/binfmt_misc/register && exec "$@"' sh "$@"
}

needs aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
needs aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
needs qemu-aarch64-static qemu-user-static
needs ninja ninja-build
folder=$BUILD/aarch64
mkdir -p "$folder"
if [ -z "${SYSROOT-}" ]; then
  needs mmdebstrap mmdebstrap
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
    leave_out "there are no keys of Debian (package debian-archive-keyring)"
  export SYSROOT=$folder/sysroot
  [ -d "$SYSROOT" ] || quietly make_sysroot "$SYSROOT"
fi

# Criterion's tests, and ranks, are started by exec(): the kernel must know the emulator.
export QEMU_LD_PREFIX=$SYSROOT
echo 'int main(void) { return 0; }' >nothing.c
aarch64-linux-gnu-gcc --sysroot="$SYSROOT" -o nothing nothing.c
within=
if ! ./nothing 2>/dev/null; then
  within=introduced
  introduced ./nothing 2>/dev/null ||
    leave_out "the kernel does not know qemu-user, and does not let this test introduce it (package binfmt-support)"
fi

# Without debug information, which takes long to link into so many programs.
quietly cmake -S "$SOURCE" -B "$folder/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$SOURCE/docs/packaging/aarch64.cmake" \
  -DCOLL_PYTHON=OFF -DCOLL_TORCH_PYTHON=OFF -DCOLL_CUDA_ARCHITECTURES= -DCOLL_WERROR=ON -DCMAKE_C_FLAGS_RELEASE=-O2 \
  -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold
quietly ninja -C "$folder/build" -j "$(nproc)"

# What is left out, as regular expressions for names of tests:
left_out=(
  # about sources, documentation, packages, or programs of this machine that start ranks or measure them
  unit_{aarch64,arrows,braces,check,docs,headers,kernels,operations,ratchet,readme,setup,symbols,tuner_doc}
  'install_.*' 'python_.*' 'torch_.*' 'launchers_.*' 'hosts_.*' 'chaos_.*' sched_golden
  proc_{compare,failures_doc,instructions,perf,train} flight_profiler
  # the software GPU, which is an interpreter itself
  'gpu_.*' 'cuda_.*' collrun_gpus
  # the emulator cannot take socket filters off, or the kernel refuses them in a user namespace
  unit_test_{door,tcp} doors_test_meet wireup_test_ctrl_lines
  # TCP_INFO has four bytes, so silence of a host is not noticed
  wireup_test_ctrl flight_test_answer
  # the emulator takes descriptors for which the program has no room, and nobody closes them
  fuzz_shm_handshake
  # limits and marks of memory (RLIMIT_AS, MADV_DONTDUMP) are the emulator's
  proc_plain_limits doors_test_secret
  # each emulated process has a thread of the emulator, too
  progress_test_flood
  # ssh hands on no QEMU_LD_PREFIX
  collrun_topo
  # time limits that count on the speed of a processor
  proc_test_{bootstrap_faults,failures,idle,turns} proc_plain_scale wireup_test_dial recovery_test_rejoin
  # over a minute on two busy cores
  unit_test_{reduce,trainer_layers} 'model_test_.*' conformance_test_{check,fault,tcp,tcp_rails,verbs_fake}
  sched_{explain,explain_gpu,test_formula,test_verify} sim_test_{fleet,mixed} simkernel_test_{create,cuts,shrink}
  proc_plain_{comm_threads,restricted} proc_{plugins,train_json}
  proc_test_{collectives,every,p2p,progress,regions,reproducible,shrink,shrink_use,slices,split,split_failures}
  proc_test_{train,train_averages,train_lost,train_resumed,train_servers,train_wire,verbs_killed}
  calls_test_{create_group,isplit,probe} collrun_{machines,respawn} doors_test_{shortage,strangers,unmapped}
  flight_{clocks,test_patience,trace} recovery_test_{abort,agree,creation,grow,maker,notice,train_join}
  progress_test_wait_some tls_{shrink,grow,test_job} fuzz_shrink
)

# A second try, because time limits of tests are for programs that are not emulated.
export TEST_SLOW=3
unset TEST_ALL
IFS='|'
quietly $within ctest --test-dir "$folder/build" --output-on-failure --no-tests=error -j4 -LE 'vm|all_only' \
  -E "^(${left_out[*]})\$" --repeat until-pass:2
grep 'tests passed' output.log
