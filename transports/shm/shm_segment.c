/* shm_segment.c: segments: made, checked, mapped. */
#include "transports/shm/shm_segment.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/shared.h"

coll_status shm_fault_set(shm_fault *fault, coll_status status, const char *syscall, int sys_errno,
                          const char *detail) {
  *fault = (shm_fault){status, syscall, sys_errno, detail};
  return status;
}

/* Keeps a mapping out of forked children, which must neither touch it nor keep its memory alive. */
static void keep_from_children(const shm_segment *segment) {
  (void)madvise(segment->memory, segment->bytes, MADV_DONTFORK);
}

/* Maps the whole of fd for both to write. Pages come when they are touched first. */
static coll_status map_segment(shm_segment *segment, size_t bytes, int fd, shm_fault *fault) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    int error = errno;
    return shm_fault_set(fault, error == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM, "mmap",
                         error,
                         "cannot map shared memory; use fewer ranks, or a smaller COLL_SLOT_BYTES "
                         "or COLL_SLOT_COUNT");
  }
  *segment = (shm_segment){memory, bytes};
  keep_from_children(segment);
  return COLL_OK;
}

/* Why memory cannot be allocated: out of descriptors or memory, or not allowed here. */
static coll_status create_fault(shm_fault *fault, const colli_shared_fault *shared) {
  int error = shared->sys_errno;
  if (error == EMFILE || error == ENFILE) {
    return shm_fault_set(fault, COLL_ERR_SYSTEM, shared->syscall, error,
                         "too many open files; raise the limit (ulimit -n)");
  }
  if (error == EFBIG) {
    return shm_fault_set(fault, COLL_ERR_NO_MEMORY, shared->syscall, error,
                         "a shared segment is larger than files may be; raise the limit (ulimit "
                         "-f), or use a smaller COLL_SLOT_BYTES or COLL_SLOT_COUNT");
  }
  if (error == ENOMEM || error == ENOSPC || error == EDQUOT) {
    return shm_fault_set(fault, COLL_ERR_NO_MEMORY, shared->syscall, error,
                         "out of memory for a shared segment; use a smaller COLL_SLOT_BYTES or "
                         "COLL_SLOT_COUNT, or COLL_TRANSPORT=tcp. Where memfd_create is not "
                         "allowed, a larger /dev/shm helps (docker run --shm-size)");
  }
  return shm_fault_set(fault, COLL_ERR_UNSUPPORTED, shared->syscall, error,
                       "memfd_create is not allowed, and no file can be made in /dev/shm or TMPDIR "
                       "instead; COLL_TRANSPORT=tcp works without them");
}

coll_status shm_segment_create(shm_segment *segment, size_t bytes, int *fd, shm_fault *fault) {
  colli_shared_fault shared;
  *segment = (shm_segment){NULL, 0};
  *fd = colli_shared_create(bytes, &shared);
  if (*fd < 0)
    return create_fault(fault, &shared);
  coll_status status = map_segment(segment, bytes, *fd, fault);
  if (status != COLL_OK) {
    colli_fd_close(*fd);
    *fd = -1;
  }
  return status;
}

coll_status shm_segment_probe(size_t bytes, shm_fault *fault) {
  shm_segment segment;
  colli_shared_fault shared = {"getrlimit(RLIMIT_FSIZE)", EFBIG};
  /* A page is enough to find out, and hardly changes how much memory other ranks find. */
  int fd = colli_shared_allowed(bytes) ? colli_shared_create(1, &shared) : -1;
  if (fd < 0)
    return create_fault(fault, &shared);
  coll_status status = map_segment(&segment, bytes, fd, fault);
  colli_fd_close(fd);
  if (status == COLL_OK)
    shm_segment_unmap(&segment);
  return status;
}

/* Checks what a peer has passed. */
static coll_status check_segment(size_t bytes, int fd, shm_fault *fault) {
  switch (bytes <= (size_t)INT64_MAX ? colli_shared_check(fd, bytes) : 0) {
  case -1:
    return shm_fault_set(fault, COLL_ERR_SYSTEM, "fstat", errno,
                         "cannot examine the shared segment that the peer passed");
  case 0:
    return shm_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                         "the peer passed a shared segment of the wrong size or without seals; all "
                         "ranks must run the same libcoll");
  default:
    return COLL_OK;
  }
}

coll_status shm_segment_adopt(shm_segment *segment, size_t bytes, int fd, shm_fault *fault) {
  *segment = (shm_segment){NULL, 0};
  coll_status status = check_segment(bytes, fd, fault);
  return status == COLL_OK ? map_segment(segment, bytes, fd, fault) : status;
}

coll_status shm_segment_view(shm_segment *segment, size_t bytes, int fd, shm_fault *fault) {
  *segment = (shm_segment){NULL, 0};
  coll_status status = check_segment(bytes, fd, fault);
  if (status != COLL_OK)
    return status;
  void *memory = colli_shared_map(fd, bytes, true);
  if (!memory)
    return shm_fault_set(fault, COLL_ERR_NO_MEMORY, "mmap", errno, "cannot map a peer's memory");
  *segment = (shm_segment){memory, bytes};
  keep_from_children(segment);
  return COLL_OK;
}

void shm_segment_unmap(shm_segment *segment) {
  if (segment->memory) {
    munmap(segment->memory, segment->bytes);
    *segment = (shm_segment){NULL, 0};
  }
}
