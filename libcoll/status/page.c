/* page.c: makes a status page, and gives out the places in it. */
#include "libcoll/status/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/shared.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10 /* as of Linux 5.1 */
#endif

/* Reserves memory: touching a page of a file for which there is none would kill the process. */
static int reserve(int fd, size_t offset, size_t bytes) {
  int error;
  do
    error = fallocate(fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
  while (error == EINTR);
  return error;
}

/* Makes the file and maps it. An errno on failure; then the caller closes it. */
static int make(colli_status_page *page, size_t first_bytes) {
  page->fd = COLLI_FD(memfd_create(COLLI_STATUS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (page->fd < 0 || fchmod(page->fd, 0400) != 0 || ftruncate(page->fd, (off_t)page->bytes) != 0)
    return errno;
  int error = reserve(page->fd, 0, first_bytes);
  if (error)
    return error;
  void *memory = mmap(NULL, page->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page->fd, 0);
  if (memory == MAP_FAILED)
    return errno;
  page->head = memory;
  /* Older kernels lack the first: then only the mode keeps others from writing. */
  (void)fcntl(page->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  return fcntl(page->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? 0 : errno;
}

int colli_status_open(colli_status_page *page, const colli_status_head *head) {
  size_t first_bytes = colli_status_head_bytes(head->nranks);
  page->fd = -1;
  page->nranks = head->nranks;
  page->bytes = first_bytes + COLLI_STATUS_COMMS * colli_status_comm_bytes(head->nranks);
  int error = colli_shared_allowed(page->bytes) ? make(page, first_bytes) : EFBIG;
  if (error) {
    if (page->head)
      munmap(page->head, page->bytes);
    if (page->fd >= 0)
      colli_fd_close(page->fd);
    page->head = NULL;
    return error;
  }
  *page->head = *head;
  page->head->version = COLLI_STATUS_VERSION;
  page->head->ncomms = COLLI_STATUS_COMMS;
  page->head->magic = COLLI_STATUS_MAGIC;
  return 0;
}

void colli_status_close(colli_status_page *page) {
  if (!page->head)
    return;
  munmap(page->head, page->bytes);
  colli_fd_close(page->fd);
  page->head = NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Whether a communicator is in the page; *place is the number of its place. */
static bool is_inside(const colli_status_page *page, const colli_status_comm *comm,
                      unsigned *place) {
  uintptr_t at = (uintptr_t)comm, first = (uintptr_t)page->head;
  if (!page->head || at < first || at - first >= page->bytes)
    return false;
  *place = (unsigned)((at - first - colli_status_head_bytes(page->nranks)) /
                      colli_status_comm_bytes(page->nranks));
  return true;
}

/* Clears those places of a ring that the numbers up to `last` have used. */
static void clear_ring(colli_flight *ring, uint64_t last) {
  memset(ring, 0, (last < COLLI_FLIGHTS ? last + 1 : COLLI_FLIGHTS) * sizeof(*ring));
}

/* Clears what another communicator has left in its place. */
static void clear_place(colli_status_comm *comm, int nranks) {
  colli_flight_rings *rings = &comm->flights;
  clear_ring(rings->collectives, rings->last);
  clear_ring(rings->messages, rings->nmessages);
  memset(rings->names, 0, rings->nmessages ? sizeof(rings->names) : 0);
  rings->last = rings->nmessages = 0;
  const size_t head = offsetof(colli_status_comm, flights);
  memset((char *)comm + sizeof(comm->shown), 0, head - sizeof(comm->shown));
  memset(comm->peers, 0, (size_t)nranks * sizeof(*comm->peers));
}

/* Takes a free place of the page, or returns NULL. */
static colli_status_comm *take_place(colli_status_page *page) {
  size_t bytes = colli_status_comm_bytes(page->nranks);
  uint64_t taken = atomic_load(&page->taken), bit;
  do {
    bit = ~taken & -~taken; /* the lowest that is free */
    if (!page->head || !bit)
      return NULL;
  } while (!atomic_compare_exchange_weak(&page->taken, &taken, taken | bit));
  unsigned place = (unsigned)__builtin_ctzll(bit);
  if (!(atomic_load(&page->reserved) & bit)) {
    if (reserve(page->fd, colli_status_head_bytes(page->nranks) + place * bytes, bytes) != 0) {
      atomic_fetch_and(&page->taken, ~bit);
      return NULL;
    }
    atomic_fetch_or(&page->reserved, bit);
  }
  colli_status_comm *comm = colli_status_comm_at(page->head, place);
  clear_place(comm, page->nranks);
  return comm;
}

colli_status_comm *colli_status_take(colli_status_page *page, int nranks) {
  colli_status_comm *comm = take_place(page);
  if (comm)
    return comm;
  void *memory = mmap(NULL, colli_status_comm_bytes(nranks), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* of thousands of peers, few are used */
  if (memory == MAP_FAILED)
    return NULL;
  if (page->head)
    __atomic_fetch_add(&page->head->unshown, 1, __ATOMIC_RELAXED);
  return memory;
}

void colli_status_show(colli_status_comm *comm) {
  __atomic_store_n(&comm->shown, comm->shown + 1, __ATOMIC_RELEASE);
}

void colli_status_free(colli_status_page *page, colli_status_comm *comm) {
  unsigned place;
  if (!comm)
    return;
  if (is_inside(page, comm, &place)) {
    if (comm->shown % 2)
      colli_status_show(comm);
    atomic_fetch_and(&page->taken, ~(UINT64_C(1) << place));
    return;
  }
  if (page->head)
    __atomic_fetch_sub(&page->head->unshown, 1, __ATOMIC_RELAXED);
  munmap(comm, colli_status_comm_bytes(comm->nranks));
}
