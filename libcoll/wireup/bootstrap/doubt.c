/* doubt.c: decides what the outcome was, for ranks to which nobody can tell it any more. */
#include <errno.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/join.h"

#define DOUBT_NS COLLI_NS_PER_S /* how long others have to notice that the rank is lost */

/* What a link tells about the neighbour: COLL_T_DONE: it sent something, so it has returned from
 * the bootstrap with success; COLL_T_AGAIN: nothing; PEER_LOST: it has closed, so it has failed. */
static int look_at_neighbour(const boot *b, const boot_link *link) {
  char byte;
  ssize_t got = recv(link->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0)
    return COLL_T_DONE;
  if (got == 0)
    return COLL_ERR_PEER_LOST;
  boot_note_errno(b, errno, false);
  const bool wait = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return wait || colli_errno_is_shortage(errno) ? COLL_T_AGAIN : COLL_ERR_PEER_LOST;
}

/*
 * The lost rank may have told others of a success, in which case the links of all ranks are up.
 * Otherwise a rank with a missing link fails at once. That closes its other links, so its
 * neighbours fail too, and so on. If no link closes, the creation has succeeded, and the first call
 * will find the rank lost. In a shrink, another round decides.
 */
coll_status boot_joiner_decide(const boot_joiner *j) {
  boot *b = j->b;
  const uint64_t until_ns = colli_now_ns() + DOUBT_NS;
  for (bool over = false; !over;) {
    boot_polls_clear(&b->polls, until_ns);
    over = colli_now_ns() >= until_ns;
    for (int i = 0; i < j->links->count; i++) {
      const boot_link *link = &j->links->at[i];
      const int result = link->peer == j->lost ? COLL_T_AGAIN : look_at_neighbour(b, link);
      if (result > 0)
        return boot_joiner_fail_lost(j);
      over = over || result == COLL_T_DONE;
      if (link->peer != j->lost)
        boot_polls_add(&b->polls, link->conn.fd, POLLIN);
    }
    if (!over)
      boot_note_errno(b, boot_polls_wait(&b->polls), true);
  }
  colli_log_write(b->log, COLLI_LOG_WARN,
                  "rank %d is lost, after all ranks were joined and before it told rank %d",
                  j->lost, b->rank);
  return COLL_OK;
}
