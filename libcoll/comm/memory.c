/*
 * memory.c: memory for collectives: shared pages, which peers on this host can read in place
 * (messages by reference, coll_transport.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/base/shared.h"
#include "libcoll/comm/comm.h"

#define SHARE_LEAST 16384 /* so little is not worth a descriptor */

/* Records a failed allocation. */
static coll_status alloc_failed(coll_comm *comm, const char *syscall, int sys_errno, size_t bytes) {
  coll_status status = sys_errno == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM;
  if (comm->failure.status != COLL_OK)
    return status;
  return colli_error_sys(&comm->failure.error, status, "mem_alloc", syscall, sys_errno,
                         "cannot get %zu bytes of memory on rank %d (host %s)", bytes, comm->rank,
                         comm->host);
}

/* Shared memory of the right size, or -1. Without it, the caller gets ordinary memory, which works
 * too. */
static int make_shared(const coll_comm *comm, size_t bytes) {
  colli_shared_fault fault;
  if (bytes < SHARE_LEAST)
    return -1;
  int fd = colli_shared_create(bytes, &fault);
  if (fd < 0)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "mem_alloc: %zu bytes that peers cannot read in place: %s: %s", bytes,
                    fault.syscall, strerror(fault.sys_errno));
  return fd;
}

/* Announces a region to the transports. Not for communicators that share connections, which send
 * only from slots. */
static void add_region(coll_comm *comm, colli_memory *memory) {
  if (memory->fd < 0 || comm->child)
    return;
  memory->region = ++comm->memory.last_region;
  for (int i = 0; i < comm->family->nports; i++) {
    colli_port *port = &comm->family->ports[i];
    if (port->endpoint && coll_transport_sends_by_ref(port->ops))
      (void)port->ops->region_add(port->endpoint, memory->region, memory->ptr, memory->bytes,
                                  memory->fd);
  }
}

/* Detaches the parts of a region to which peers may still write. */
static void detach_memory(const coll_comm *comm, const colli_memory *memory) {
  for (int i = 0; memory->region && i < comm->family->nports; i++) {
    const colli_port *port = &comm->family->ports[i];
    size_t offset, length;
    if (!port->endpoint || !coll_transport_shares_work(port->ops) ||
        !port->ops->unfinished_work(port->endpoint, memory->region, &offset, &length))
      continue;
    bool detached = colli_shared_detach(memory->fd, memory->ptr, memory->bytes, offset, length);
    colli_log_write(&comm->log, detached ? COLLI_LOG_INFO : COLLI_LOG_ERROR,
                    detached
                        ? "mem_alloc: a peer has not finished its work on %zu bytes of memory, "
                          "which is private now"
                        : "mem_alloc: a peer may still write to %zu bytes of memory, and the "
                          "system allows no mapping in its place: the memory cannot be accessed",
                    length);
  }
}

void colli_memory_detach(const coll_comm *comm) {
  for (const colli_memory *memory = comm->memory.first; memory; memory = memory->next)
    detach_memory(comm, memory);
}

/* Frees memory. Peers may keep it mapped for some time, but its pages are freed now. */
static void release_memory(coll_comm *comm, colli_memory *memory) {
  for (int i = 0; memory->region && i < comm->family->nports; i++) {
    colli_port *port = &comm->family->ports[i];
    if (port->endpoint && coll_transport_sends_by_ref(port->ops))
      port->ops->region_remove(port->endpoint, memory->region);
  }
  if (memory->ptr && memory->region)
    (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    (off_t)memory->bytes);
  if (memory->ptr)
    munmap(memory->ptr, memory->bytes);
  if (memory->fd >= 0)
    colli_fd_close(memory->fd);
  free(memory);
}

/* Whether the machine could ever hold this much. */
static bool is_possible(size_t bytes, size_t page) {
  long pages = sysconf(_SC_PHYS_PAGES);
  return pages <= 0 || bytes / page <= (size_t)pages;
}

coll_status colli_memory_allocate(coll_comm *comm, size_t bytes, void **ptr) {
  if (!ptr)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_alloc", "ptr is NULL");
  *ptr = NULL;
  if (bytes == 0)
    return COLL_OK;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > (size_t)PTRDIFF_MAX - page)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_alloc",
                             "%zu bytes are more than memory can hold", bytes);
  if (!is_possible(bytes, page))
    return alloc_failed(comm, "mmap", ENOMEM, bytes);
  colli_memory *memory = calloc(1, sizeof(*memory));
  if (!memory)
    return alloc_failed(comm, "malloc", ENOMEM, sizeof(*memory));
  memory->bytes = (bytes + page - 1) / page * page;
  memory->fd = make_shared(comm, memory->bytes);
  memory->ptr = colli_shared_map(memory->fd, memory->bytes, true);
  if (!memory->ptr) {
    coll_status status = alloc_failed(comm, "mmap", errno, memory->bytes);
    release_memory(comm, memory);
    return status;
  }
  add_region(comm, memory);
  memory->next = comm->memory.first;
  comm->memory.first = memory;
  *ptr = memory->ptr;
  return COLL_OK;
}

/* Whether an operation in flight uses some memory. */
static bool is_used(const coll_comm *comm, const colli_memory *memory) {
  for (const coll_request *op = comm->exec.oldest; op; op = op->newer) {
    const colli_p2p_op *p2p = op->coll == COLLI_SENDRECV ? colli_p2p_op_of(op) : NULL;
    for (int i = 0; p2p && i < p2p->nposts; i++)
      if (!p2p->post[i].over && colli_memory_holds(memory, p2p->post[i].buf))
        return true;
    if (!p2p && op->coll != COLLI_BARRIER &&
        (colli_memory_holds(memory, op->in) || colli_memory_holds(memory, op->out)))
      return true;
  }
  return false;
}

coll_status colli_memory_release(coll_comm *comm, void *ptr) {
  if (!ptr)
    return COLL_OK;
  colli_memory **at = &comm->memory.first;
  while (*at && (*at)->ptr != ptr)
    at = &(*at)->next;
  colli_memory *memory = *at;
  if (!memory)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mem_free",
                             "%p is not memory of coll_mem_alloc() on this communicator", ptr);
  if (is_used(comm, memory))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "mem_free",
                             "an operation in flight uses the memory; complete it first");
  *at = memory->next;
  release_memory(comm, memory);
  return COLL_OK;
}

void colli_memory_free_all(coll_comm *comm) {
  while (comm->memory.first) {
    colli_memory *memory = comm->memory.first;
    comm->memory.first = memory->next;
    release_memory(comm, memory);
  }
}
