/* shm_segment.h: shared memory without a name (libcoll/base/shared.h), mapped. */
#ifndef COLLI_TRANSPORTS_SHM_SEGMENT_H
#define COLLI_TRANSPORTS_SHM_SEGMENT_H

#include <stddef.h>

#include "coll/coll.h"

typedef struct shm_segment {
  void *memory; /* NULL: none */
  size_t bytes;
} shm_segment;

/* What failed, for the error record. */
typedef struct shm_fault {
  coll_status status;
  const char *syscall;
  int sys_errno;
  const char *detail;
} shm_fault;

/* Makes and maps a zeroed segment; *fd is its descriptor, to be passed on and closed. */
coll_status shm_segment_create(shm_segment *segment, size_t bytes, int *fd, shm_fault *fault);

/*
 * Whether this process can make and map such segments, as far as that can be told without
 * allocating one.
 */
coll_status shm_segment_probe(size_t bytes, shm_fault *fault);

/* Maps a peer's segment after checking it; fd stays the caller's. */
coll_status shm_segment_adopt(shm_segment *segment, size_t bytes, int fd, shm_fault *fault);

/* The same, with all pages at once. */
coll_status shm_segment_view(shm_segment *segment, size_t bytes, int fd, shm_fault *fault);

void shm_segment_unmap(shm_segment *segment);

/* Fills in a fault and returns its status. */
coll_status shm_fault_set(shm_fault *fault, coll_status status, const char *syscall, int sys_errno,
                          const char *detail);

#endif
