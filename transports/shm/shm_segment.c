/* shm_segment.c: memfds: made, sealed, checked, mapped. */
#include "transports/shm/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

coll_status shm_fault_set(shm_fault *fault, coll_status status, const char *syscall, int sys_errno,
                          const char *detail) {
  *fault = (shm_fault){status, syscall, sys_errno, detail};
  return status;
}

/* Maps the whole of fd for both to write. Pages come when they are touched first. */
static coll_status map(shm_segment *segment, size_t bytes, int fd, shm_fault *fault) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    int error = errno;
    return shm_fault_set(fault, error == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM, "mmap",
                         error,
                         "cannot map shared memory; use fewer ranks, or a smaller COLL_SLOT_BYTES "
                         "or COLL_SLOT_COUNT");
  }
  *segment = (shm_segment){memory, bytes};
  return COLL_OK;
}

/* The status of a memfd_create() that failed: out of descriptors or memory, or not allowed here. */
static coll_status create_fault(shm_fault *fault, int error) {
  if (error == EMFILE || error == ENFILE) {
    return shm_fault_set(fault, COLL_ERR_SYSTEM, "memfd_create", error,
                         "too many open files; raise the limit (ulimit -n)");
  }
  if (error == ENOMEM) {
    return shm_fault_set(fault, COLL_ERR_NO_MEMORY, "memfd_create", error,
                         "no memory for a shared segment");
  }
  return shm_fault_set(fault, COLL_ERR_UNSUPPORTED, "memfd_create", error,
                       "this system does not let the process make anonymous shared memory; "
                       "COLL_TRANSPORT=tcp works without it");
}

coll_status shm_segment_create(shm_segment *segment, size_t bytes, int *fd, shm_fault *fault) {
  *segment = (shm_segment){NULL, 0};
  *fd = memfd_create("libcoll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0) {
    return create_fault(fault, errno);
  }
  coll_status status;
  if (ftruncate(*fd, (off_t)bytes) != 0) {
    status = shm_fault_set(fault, COLL_ERR_SYSTEM, "ftruncate", errno,
                           "cannot size a shared segment; use a smaller COLL_SLOT_BYTES or "
                           "COLL_SLOT_COUNT");
  } else if (fcntl(*fd, F_ADD_SEALS, SHM_SEALS) != 0) {
    status = shm_fault_set(fault, COLL_ERR_UNSUPPORTED, "fcntl(F_ADD_SEALS)", errno,
                           "this system cannot seal shared memory; COLL_TRANSPORT=tcp works "
                           "without it");
  } else {
    status = map(segment, bytes, *fd, fault);
  }
  if (status != COLL_OK) {
    close(*fd);
    *fd = -1;
  }
  return status;
}

coll_status shm_segment_adopt(shm_segment *segment, size_t bytes, int fd, shm_fault *fault) {
  struct stat info;
  *segment = (shm_segment){NULL, 0};
  if (fstat(fd, &info) != 0) {
    return shm_fault_set(fault, COLL_ERR_SYSTEM, "fstat", errno,
                         "cannot look at the shared segment that the peer passed");
  }
  int seals = fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || info.st_size != (off_t)bytes || seals < 0 ||
      (seals & SHM_SEALS) != SHM_SEALS) {
    return shm_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                         "the peer passed a shared segment of the wrong size or without seals; all "
                         "ranks must run the same libcoll");
  }
  return map(segment, bytes, fd, fault);
}

void shm_segment_unmap(shm_segment *segment) {
  if (segment->memory) {
    munmap(segment->memory, segment->bytes);
    *segment = (shm_segment){NULL, 0};
  }
}
