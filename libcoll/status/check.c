/* check.c: the check of a copy, whose bytes may be anything. */
#include <string.h>

#include "libcoll/status/copy.h"

/* Ends a text, and replaces what a terminal or a parser might take for more than text. */
static void clean(char *text, size_t bytes) {
  text[bytes - 1] = '\0';
  for (char *at = text; *at; at++)
    if (*at < ' ' || *at > '~')
      *at = '?';
}

/* Empties the places of a ring whose number is impossible there. */
static void check_ring(colli_flight *ring, uint64_t last) {
  for (unsigned i = 0; i < COLLI_FLIGHTS; i++)
    if (ring[i].number % COLLI_FLIGHTS != i || ring[i].number > last ||
        ring[i].number + COLLI_FLIGHTS <= last || ring[i].status < 0)
      memset(&ring[i], 0, sizeof(ring[i]));
}

const char *colli_status_check_comm(const colli_status_head *head, colli_status_comm *comm) {
  if (comm->nranks < 1 || comm->nranks > head->nranks || comm->rank < 0 ||
      comm->rank >= comm->nranks)
    return "the ranks of a communicator";
  if (comm->failed < 0)
    return "a status";
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_status_base_rank(comm, rank) >= (uint64_t)head->nranks)
      return "a rank of the base";
  clean(comm->name, sizeof(comm->name));
  check_ring(comm->flights.collectives, comm->flights.last);
  check_ring(comm->flights.messages, comm->flights.nmessages);
  for (int i = 0; i < COLLI_FLIGHTS; i++)
    clean(comm->flights.names[i], COLLI_FLIGHT_NAME);
  return NULL;
}

const char *colli_status_check(colli_status_head *head, size_t bytes) {
  if (bytes < sizeof(*head) || head->magic != COLLI_STATUS_MAGIC)
    return "it is not a status page";
  if (head->version != COLLI_STATUS_VERSION)
    return "it is of another version of libcoll";
  if (head->nranks < 1 || head->nranks > COLLI_STATUS_RANKS || head->rank < 0 ||
      head->rank >= head->nranks || head->ncomms > COLLI_STATUS_COMMS ||
      bytes != colli_status_bytes(head))
    return "its sizes are impossible";
  clean(head->host, sizeof(head->host));
  clean(head->desk, sizeof(head->desk));
  if (head->state < ' ' || head->state > '~')
    head->state = '?';
  for (int rank = 0; rank < head->nranks; rank++) {
    colli_status_rank *info = &colli_status_ranks(head)[rank];
    clean(info->host, sizeof(info->host));
    clean(info->transport, sizeof(info->transport));
    clean(info->link, sizeof(info->link));
    if (info->lost_rails > info->rails) /* just changed, or wrong */
      info->lost_rails = info->rails;
  }
  for (unsigned i = 0; i < head->ncomms; i++) {
    const char *wrong = colli_status_check_comm(head, colli_status_comm_at(head, i));
    if (wrong)
      return wrong;
  }
  return NULL;
}

size_t colli_status_bytes(const colli_status_head *head) {
  return colli_status_head_bytes(head->nranks) +
         head->ncomms * colli_status_comm_bytes(head->nranks);
}

double colli_status_age_s(const colli_status_head *head, uint64_t ticks) {
  if (head->now_ticks <= ticks || head->now_ticks <= head->start_ticks ||
      head->now_ns <= head->start_ns)
    return 0;
  double s_a_tick =
      (double)(head->now_ns - head->start_ns) / (double)(head->now_ticks - head->start_ticks) / 1e9;
  return (double)(head->now_ticks - ticks) * s_a_tick;
}
