/* memory.c: memory for collectives: shared pages, so that local peers can map them later. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/shared.h"
#include "libcoll/comm/comm.h"

/* One allocation; its descriptor is closed, the pages live as long as the mapping. */
typedef struct colli_memory {
  struct colli_memory *next;
  void *ptr;
  size_t bytes;
} colli_memory;

/* Records a failed allocation. */
static coll_status alloc_failed(coll_comm *comm, const char *syscall, int sys_errno, size_t bytes) {
  coll_status status = sys_errno == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM;
  if (comm->failed != COLL_OK)
    return status;
  return colli_error_sys(&comm->error, status, "mem_alloc", syscall, sys_errno,
                         "cannot get %zu bytes of memory on rank %d (host %s)", bytes, comm->rank,
                         comm->host);
}

/* Maps `bytes` bytes and keeps them with the communicator. */
static coll_status map(coll_comm *comm, size_t bytes, void **ptr) {
  if (!ptr)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_alloc", "ptr is NULL");
  *ptr = NULL;
  if (bytes == 0)
    return COLL_OK;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > (size_t)PTRDIFF_MAX - page)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_alloc",
                             "%zu bytes are more than memory can hold", bytes);
  colli_memory *memory = malloc(sizeof(*memory));
  if (!memory)
    return alloc_failed(comm, "malloc", ENOMEM, sizeof(*memory));
  memory->bytes = (bytes + page - 1) / page * page;
  colli_shared_fault fault;
  int fd = colli_shared_create(memory->bytes, &fault);
  int anonymous = fd < 0 ? MAP_ANONYMOUS : 0; /* no peer can map it, but it is memory */
  memory->ptr = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | anonymous, fd, 0);
  int mmap_errno = errno;
  if (fd >= 0)
    close(fd);
  if (memory->ptr == MAP_FAILED) {
    coll_status status = alloc_failed(comm, "mmap", mmap_errno, memory->bytes);
    free(memory);
    return status;
  }
  memory->next = comm->memory;
  comm->memory = memory;
  *ptr = memory->ptr;
  return COLL_OK;
}

coll_status coll_mem_alloc(coll_comm *comm, size_t bytes, void **ptr) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = map(comm, bytes, ptr);
  colli_call_leave(comm);
  return status;
}

/* Unmaps what map() gave. */
static coll_status unmap(coll_comm *comm, void *ptr) {
  if (!ptr)
    return COLL_OK;
  for (colli_memory **at = &comm->memory; *at; at = &(*at)->next) {
    colli_memory *memory = *at;
    if (memory->ptr != ptr)
      continue;
    *at = memory->next;
    munmap(memory->ptr, memory->bytes);
    free(memory);
    return COLL_OK;
  }
  return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_free",
                           "%p is not memory of coll_mem_alloc() on this communicator", ptr);
}

coll_status coll_mem_free(coll_comm *comm, void *ptr) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = unmap(comm, ptr);
  colli_call_leave(comm);
  return status;
}

void colli_memory_free_all(coll_comm *comm) {
  while (comm->memory) {
    colli_memory *memory = comm->memory;
    comm->memory = memory->next;
    munmap(memory->ptr, memory->bytes);
    free(memory);
  }
}
