/* shared.c: memory that other processes can map: memfds, and files where those are refused. */
#include "libcoll/base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libcoll/base/fork.h"

#define DEV_SHM    "/dev/shm"
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* as of Linux 6.1 */
#endif

/* Records which call failed, closes the descriptor if there is one, and returns -1. */
static int fail_create(int fd, const char *syscall, int sys_errno, colli_shared_fault *fault) {
  *fault = (colli_shared_fault){syscall, sys_errno};
  if (fd >= 0)
    colli_fd_close(fd);
  return -1;
}

/* The first way: a sealed memfd. */
static int make_memfd(size_t bytes, colli_shared_fault *fault) {
  int fd = COLLI_FD(memfd_create("libcoll", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0)
    return fail_create(-1, "memfd_create", errno, fault);
  if (ftruncate(fd, (off_t)bytes) != 0)
    return fail_create(fd, "ftruncate", errno, fault);
  if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
    return fail_create(fd, "fcntl(F_ADD_SEALS)", errno, fault);
  return fd;
}

/* Opens an unnamed file in a folder. Returns -1 with errno on failure. */
static int open_unnamed(const char *folder) {
  int fd = COLLI_FD(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
    return fd;
  char path[4096]; /* no O_TMPFILE on this file system: the name exists only for a moment */
  if (snprintf(path, sizeof(path), "%s/libcoll-XXXXXX", folder) >= (int)sizeof(path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  fd = COLLI_FD(mkostemp(path, O_CLOEXEC));
  if (fd >= 0)
    unlink(path);
  return fd;
}

/* The fallback for memfds: an unlinked file in a folder, with its space reserved. */
static int make_file(const char *folder, size_t bytes, colli_shared_fault *fault) {
  int fd = open_unnamed(folder);
  if (fd < 0)
    return fail_create(-1, "open", errno, fault);
  int error;
  do
    error = posix_fallocate(fd, 0, (off_t)bytes);
  while (error == EINTR);
  return error == 0 ? fd : fail_create(fd, "posix_fallocate", error, fault);
}

/* Whether no other way can help either. */
static bool is_final(int sys_errno) {
  return sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM;
}

bool colli_shared_allowed(size_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

int colli_shared_create(size_t bytes, colli_shared_fault *fault) {
  if (!colli_shared_allowed(bytes))
    return fail_create(-1, "getrlimit(RLIMIT_FSIZE)", EFBIG, fault);
  int fd = make_memfd(bytes, fault);
  if (fd < 0 && !is_final(fault->sys_errno))
    fd = make_file(DEV_SHM, bytes, fault);
  if (fd < 0 && !is_final(fault->sys_errno))
    fd = make_file(colli_shared_tmp(), bytes, fault);
  return fd;
}

int colli_shared_check(int fd, size_t bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0)
    return -1;
  if (!S_ISREG(info.st_mode) || info.st_size != (off_t)bytes)
    return 0;
  int seals = fcntl(fd, F_GET_SEALS);
  /* tmpfs files report F_SEAL_SEAL; files on a disk do not support seals, and the call fails. */
  return seals < 0 || seals == F_SEAL_SEAL || (seals & SEALS) == SEALS;
}

/* Finds a free range of addresses that starts at a huge page. NULL: anywhere will do. */
static void *huge_address(size_t bytes) {
  if (bytes < HUGE_BYTES)
    return NULL;
  char *found =
      mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return NULL;
  munmap(found, bytes + HUGE_BYTES);
  return found + (0 - (uintptr_t)found) % HUGE_BYTES;
}

/*
 * Asks the kernel to put a file into huge pages, whatever its default: small pages are scattered
 * over physical memory and evict each other from the caches. MADV_COLLAPSE needs one existing page
 * in each range; if all of them exist, it copies them, which takes 20 times as long. This is only a
 * hint: where it fails, pages stay small.
 */
static void collect_pages(char *memory, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  size_t whole = bytes - bytes % HUGE_BYTES, page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t at = 0; at < whole; at += HUGE_BYTES)
    if (madvise(memory + at, page, MADV_POPULATE_WRITE) != 0)
      return;
  (void)madvise(memory, whole, MADV_COLLAPSE);
#else
  (void)memory, (void)bytes;
#endif
}

void *colli_shared_map(int fd, size_t bytes, bool writable) {
  int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void *memory = mmap(huge_address(bytes), bytes, protection, flags, fd, 0);
  if (memory == MAP_FAILED)
    return NULL;
  /* Both are hints: without them, pages are small or are allocated on first touch. */
  if (bytes >= HUGE_BYTES)
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
  if (bytes >= HUGE_BYTES && fd >= 0 && writable)
    collect_pages(memory, bytes);
#ifdef MADV_POPULATE_WRITE
  (void)madvise(memory, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
  return memory;
}

/*
 * Makes some pages private. A private page is the file's until the first write and a copy from then
 * on, so this writes to each page without changing it. The kernel does both steps atomically: no
 * thread finds a hole or loses a write.
 */
static bool make_private(int fd, char *memory, size_t first, size_t end) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), from = first - first % page;
  size_t length = (end - from + page - 1) / page * page;
  if (mmap(memory + from, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
           (off_t)from) == MAP_FAILED)
    return false;
  for (size_t at = first; at < end; at += page - at % page) {
    _Atomic unsigned char *byte = (_Atomic unsigned char *)(memory + at);
    unsigned char value = atomic_load_explicit(byte, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(byte, &value, value))
      ;
  }
  return true;
}

bool colli_shared_detach(int fd, void *memory, size_t bytes, size_t offset, size_t length) {
  if (length == 0 || make_private(fd, memory, offset, offset + length))
    return true;
  /* Remapping a part splits the mapping into three, and the process may be at its limit of
   * mappings. */
  if (make_private(fd, memory, 0, bytes))
    return true;
  (void)mprotect(memory, bytes, PROT_NONE);
  return false;
}

/* Tries to create a file of one page in a folder, and finds out how much space is free there. */
static uint64_t probe_folder(const char *folder, int *sys_errno) {
  colli_shared_fault fault = {NULL, 0};
  struct statvfs free_space;
  uint64_t bytes = 0;
  int fd = make_file(folder, (size_t)sysconf(_SC_PAGESIZE), &fault);
  if (fd >= 0 && fstatvfs(fd, &free_space) == 0)
    bytes = (uint64_t)free_space.f_bavail * free_space.f_frsize;
  else if (fd >= 0)
    fault.sys_errno = errno;
  if (fd >= 0)
    colli_fd_close(fd);
  *sys_errno = fault.sys_errno;
  return bytes;
}

void colli_shared_probe(colli_shared_capacity *capacity) {
  colli_shared_fault fault = {NULL, 0};
  *capacity = (colli_shared_capacity){0};
  if (!colli_shared_allowed((size_t)sysconf(_SC_PAGESIZE))) {
    capacity->memfd_errno = capacity->dev_shm_errno = capacity->tmp_errno = EFBIG;
    return;
  }
  int fd = make_memfd(1, &fault);
  if (fd >= 0) {
    colli_fd_close(fd);
    return;
  }
  capacity->memfd_errno = fault.sys_errno;
  capacity->dev_shm_bytes = probe_folder(DEV_SHM, &capacity->dev_shm_errno);
  capacity->tmp_bytes = probe_folder(colli_shared_tmp(), &capacity->tmp_errno);
}

const char *colli_shared_tmp(void) {
  const char *folder = secure_getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}
