/* support_files.c: descriptors of the simulated kernel; epoll and eventfd. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "support_machine.h"

static LIST_HEAD(, sk_file) all_files;

sk_file *sk_file_get(int fd) {
  sk_rank *r = sk.current;
  const int at = fd - SK_FD_BASE - r->rank * SK_FD_RANK;
  if (at >= 0 && at < r->nfiles && r->files[at])
    return r->files[at];
  errno = EBADF;
  return NULL;
}

int sk_file_install(sk_file *file, sk_kind kind) {
  sk_rank *r = sk.current;
  int at = 0;
  while (at < r->nfiles && r->files[at])
    at++;
  if (at == r->nfiles) {
    const int more = r->nfiles ? 2 * r->nfiles : 16;
    r->files = realloc(r->files, (size_t)more * sizeof(*r->files));
    if (!r->files || more > SK_FD_RANK)
      abort();
    memset(r->files + r->nfiles, 0, (size_t)(more - r->nfiles) * sizeof(*r->files));
    r->nfiles = more;
  }
  r->files[at] = file;
  file->kind = kind;
  file->rank = r->rank;
  file->fd = SK_FD_BASE + r->rank * SK_FD_RANK + at;
  if (!file->all.le_prev)
    sk_file_keep(file);
  return file->fd;
}

void sk_file_keep(sk_file *file) {
  LIST_INSERT_HEAD(&all_files, file, all);
}

/* ---- epoll ------------------------------------------------------------------------------------
 */

/* Whether one of the watched descriptors is ready. */
static bool has_ready(sk_epoll *epoll) {
  sk_watch *w;
  TAILQ_FOREACH(w, &epoll->ready, ready)
    if (sk_file_ready(w->file) & (w->events | EPOLLERR | EPOLLHUP))
      return true;
  return false;
}

/* Queues a watch for the next epoll_wait(). */
static void queue_watch(sk_watch *w) {
  if (!w->queued)
    TAILQ_INSERT_TAIL(&w->epoll->ready, w, ready);
  w->queued = true;
}

static void free_watch(sk_watch *w) {
  if (w->queued)
    TAILQ_REMOVE(&w->epoll->ready, w, ready);
  LIST_REMOVE(w, of_file);
  LIST_REMOVE(w, of_epoll);
  free(w);
}

int sk_epoll_create(void) {
  sk_epoll *epoll = calloc(1, sizeof(*epoll));
  if (!epoll)
    abort();
  TAILQ_INIT(&epoll->ready);
  return sk_file_install(&epoll->file, SK_EPOLL);
}

int sk_epoll_ctl(int epoll_fd, int op, int fd, uint32_t events, uint64_t data) {
  sk_file *file = sk_file_get(fd), *base = sk_file_get(epoll_fd);
  if (!file || !base)
    return -1;
  if (base->kind != SK_EPOLL || file == base) {
    errno = EINVAL;
    return -1;
  }
  sk_epoll *epoll = (sk_epoll *)base;
  sk_watch *w;
  LIST_FOREACH(w, &file->watches, of_file)
    if (w->epoll == epoll)
      break;
  if ((op == EPOLL_CTL_ADD) == (w != NULL)) {
    errno = w ? EEXIST : ENOENT;
    return -1;
  }
  if (op == EPOLL_CTL_DEL) {
    free_watch(w);
    return 0;
  }
  if (!w) {
    w = calloc(1, sizeof(*w));
    if (!w)
      abort();
    w->epoll = epoll;
    w->file = file;
    LIST_INSERT_HEAD(&file->watches, w, of_file);
    LIST_INSERT_HEAD(&epoll->watches, w, of_epoll);
  }
  w->events = events;
  w->data = data;
  if (sk_file_ready(file) & (events | EPOLLERR | EPOLLHUP)) {
    queue_watch(w);
    sk_file_notify(&epoll->file, POLLIN);
  }
  return 0;
}

int sk_epoll_collect(sk_epoll *epoll, void *out, int most) {
  struct epoll_event *found = out;
  int count = 0;
  sk_watch *last = NULL, *w, *next; /* those queued again meanwhile are not looked at */
  TAILQ_FOREACH(w, &epoll->ready, ready)
    last = w;
  for (w = TAILQ_FIRST(&epoll->ready); w && count < most; w = next) {
    next = w == last ? NULL : TAILQ_NEXT(w, ready);
    const uint32_t ready = sk_file_ready(w->file) & (w->events | EPOLLERR | EPOLLHUP);
    TAILQ_REMOVE(&epoll->ready, w, ready);
    w->queued = false;
    if (!ready)
      continue;
    found[count++] = (struct epoll_event){.events = ready, .data.u64 = w->data};
    if (!(w->events & EPOLLET))
      queue_watch(w);
  }
  return count;
}

/* ---- all files --------------------------------------------------------------------------------
 */

int sk_eventfd_create(unsigned count, int flags) {
  sk_eventfd *file = calloc(1, sizeof(*file));
  if (!file)
    abort();
  file->count = count;
  file->file.flags = flags;
  return sk_file_install(&file->file, SK_EVENTFD);
}

unsigned sk_file_ready(sk_file *file) {
  if (file->kind == SK_SOCKET)
    return sk_tcp_ready(file);
  if (file->kind == SK_EPOLL)
    return has_ready((sk_epoll *)file) ? POLLIN : 0;
  return POLLOUT | (((sk_eventfd *)file)->count > 0 ? POLLIN : 0);
}

void sk_file_notify(sk_file *file, unsigned events) {
  if (file->fd < 0)
    return;
  sk_watch *w;
  LIST_FOREACH(w, &file->watches, of_file)
    if (events == 0 || events & (w->events | EPOLLERR | EPOLLHUP)) {
      queue_watch(w);
      sk_file_notify(&w->epoll->file, POLLIN);
    }
  sk_wake(file->rank);
}

void sk_file_close(sk_file *file) {
  sk_rank *r = &sk.ranks[file->rank];
  r->files[file->fd - SK_FD_BASE - r->rank * SK_FD_RANK] = NULL;
  file->fd = -1;
  while (!LIST_EMPTY(&file->watches))
    free_watch(LIST_FIRST(&file->watches));
  if (file->kind == SK_EPOLL)
    while (!LIST_EMPTY(&((sk_epoll *)file)->watches))
      free_watch(LIST_FIRST(&((sk_epoll *)file)->watches));
  if (file->kind == SK_SOCKET) {
    sk_tcp_close(file); /* its memory is freed with the machine, because packets may refer to it */
    return;
  }
  LIST_REMOVE(file, all);
  free(file);
}

void sk_files_free(void) {
  while (!LIST_EMPTY(&all_files)) {
    sk_file *file = LIST_FIRST(&all_files);
    if (file->fd >= 0)
      sk_file_close(file); /* frees all but sockets */
    if (LIST_FIRST(&all_files) != file)
      continue;
    LIST_REMOVE(file, all);
    sk_tcp_free(file);
  }
}
