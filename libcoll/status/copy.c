/* copy.c: copies a status page while its process keeps writing to it. */
#include "libcoll/status/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads all of some bytes of a file; false if they are not there. */
static bool read_at(int fd, void *to, size_t bytes, size_t offset) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
    if (got <= 0 && !(got < 0 && errno == EINTR))
      return false;
    done += got > 0 ? (size_t)got : 0;
  }
  return true;
}

/* Empties the places of a ring that two copies do not agree on: they were just written. */
static void drop_torn(colli_flight *ring, const colli_flight *before) {
  for (int i = 0; i < COLLI_FLIGHTS; i++)
    if (memcmp(&ring[i], &before[i], sizeof(ring[i])) != 0)
      memset(&ring[i], 0, sizeof(ring[i]));
}

/* Copies a communicator to `to`; `before` is for a first copy. False: it is not shown, or ended
 * meanwhile. */
static bool copy_comm(int fd, size_t offset, size_t bytes, colli_status_comm *to,
                      colli_status_comm *before) {
  uint64_t after;
  if (!read_at(fd, before, sizeof(before->shown), offset) || before->shown % 2 == 0 ||
      !read_at(fd, before, bytes, offset) || !read_at(fd, to, bytes, offset) ||
      !read_at(fd, &after, sizeof(after), offset) || to->shown % 2 == 0 || after != to->shown ||
      to->shown != before->shown || to->uid != before->uid)
    return false;
  drop_torn(to->flights.collectives, before->flights.collectives);
  drop_torn(to->flights.messages, before->flights.messages);
  return true;
}

/* Copies all that are shown, behind the head and the ranks. One that makes no sense is left out:
 * the rest of the page is as good as before. */
static void copy_comms(int fd, colli_status_head *copy, colli_status_comm *before) {
  size_t bytes = colli_status_comm_bytes(copy->nranks);
  copy->ncomms = 0;
  for (unsigned i = 0; i < COLLI_STATUS_COMMS; i++) {
    colli_status_comm *to = colli_status_comm_at(copy, copy->ncomms);
    size_t offset = colli_status_head_bytes(copy->nranks) + i * bytes;
    if (copy_comm(fd, offset, bytes, to, before) && !colli_status_check_comm(copy, to))
      copy->ncomms++;
  }
}

/* Copies what is behind the head. */
static const char *copy_rest(int fd, const colli_status_head *head, colli_status_head **copy) {
  const char *wrong = NULL;
  size_t first = colli_status_head_bytes(head->nranks),
         bytes = colli_status_comm_bytes(head->nranks);
  colli_status_head *all = malloc(first + COLLI_STATUS_COMMS * bytes);
  colli_status_comm *before = malloc(bytes);
  if (!all || !before)
    wrong = "out of memory";
  else if (!read_at(fd, all, first, 0) || all->nranks != head->nranks)
    wrong = "it is cut";
  if (!wrong) {
    copy_comms(fd, all, before);
    all->now_ticks = colli_ticks();
    all->now_ns = colli_now_ns();
    wrong = colli_status_check(all, colli_status_bytes(all));
  }
  free(before);
  if (wrong) {
    free(all);
    return wrong;
  }
  colli_status_head *smaller = realloc(all, colli_status_bytes(all));
  *copy = smaller ? smaller : all;
  return NULL;
}

const char *colli_status_copy(int fd, colli_status_head **copy) {
  struct stat info;
  colli_status_head head;
  *copy = NULL;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || !read_at(fd, &head, sizeof(head), 0))
    return "it is not a status page";
  if (head.magic != COLLI_STATUS_MAGIC || head.version != COLLI_STATUS_VERSION)
    return "it is not a status page of this version of libcoll";
  if (head.nranks < 1 || head.nranks > COLLI_STATUS_RANKS ||
      (size_t)info.st_size != colli_status_head_bytes(head.nranks) +
                                  COLLI_STATUS_COMMS * colli_status_comm_bytes(head.nranks))
    return "its sizes are impossible";
  return copy_rest(fd, &head, copy);
}
