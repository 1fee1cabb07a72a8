/* bootstrap_root.c: checking in at rank 0. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/bootstrap_net.h"

#define LAST_WORDS_MS 500 /* how long rank 0 tries to deliver the outcome */

/* Somebody who knows the secret and says that it is a rank. */
typedef struct visitor {
  int fd;
  int rank;
  uint64_t token; /* tells two processes with one rank from two connections of one process */
  size_t done;
  bool complete;
  colli_checkin words;
} visitor;

/* Rank 0's view while it waits. */
typedef struct gathering {
  const colli_self *self;
  colli_door door;
  int nranks;
  visitor **visitors; /* by arrival */
  int count, room;
  int *by_rank; /* index of the complete visitor of each rank, or -1 */
  int missing;
  coll_error *error;
} gathering;

/* Writes "3, 5-7" for the ranks that have not come. */
static void list_missing(const gathering *g, char *text, size_t bytes) {
  text[0] = 0;
  for (int rank = 1; rank < g->nranks; rank++) {
    if (g->by_rank[rank] >= 0)
      continue;
    int last = rank;
    while (last + 1 < g->nranks && g->by_rank[last + 1] < 0)
      last++;
    size_t used = strlen(text);
    if (used + 32 > bytes) {
      snprintf(text + used, bytes - used, " ...");
      return;
    }
    used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", rank);
    if (last > rank)
      snprintf(text + used, bytes - used, "-%d", last);
    rank = last;
  }
}

/* Takes in one authenticated connection. */
static coll_status admit(gathering *g, colli_auth *auth) {
  const colli_hello *hello = &auth->hello;
  bool fits = hello->kind == COLLI_HELLO_CHECKIN && hello->comm_id == g->self->comm_id;
  for (int i = 0; i < g->count && fits; i++)
    fits = g->visitors[i]->token != hello->word; /* the same process by another address */
  if (colli_auth_answer(auth, fits) != 0 || !fits) {
    close(auth->fd);
    return COLL_OK;
  }
  if (g->count == g->room) {
    int room = g->room ? 2 * g->room : 16;
    visitor **grown = realloc(g->visitors, (size_t)room * sizeof(*grown));
    if (!grown) {
      close(auth->fd);
      return colli_error_set(g->error, COLL_ERR_NO_MEMORY, "create", "no memory for %d ranks",
                             room);
    }
    g->visitors = grown;
    g->room = room;
  }
  visitor *v = calloc(1, sizeof(*v));
  if (!v) {
    close(auth->fd);
    return colli_error_set(g->error, COLL_ERR_NO_MEMORY, "create", "no memory for a rank");
  }
  v->fd = auth->fd;
  v->rank = hello->src_rank;
  v->token = hello->word;
  g->visitors[g->count++] = v;
  return COLL_OK;
}

/* A visitor has said everything: is it one that we wait for? */
static coll_status take_words(gathering *g, int index) {
  visitor *v = g->visitors[index];
  const colli_rank_info *info = &v->words.info;
  v->complete = true;
  v->words.info.host[sizeof(info->host) - 1] = 0;
  if (v->words.version != COLLI_CHECKIN_VERSION)
    return colli_error_set(g->error, COLL_ERR_PROTOCOL, "create",
                           "rank %d (host %s, pid %d) runs another version of libcoll (%u, not %u)",
                           v->rank, info->host, info->pid, v->words.version, COLLI_CHECKIN_VERSION);
  if (v->words.nranks != (uint32_t)g->nranks || v->rank < 1 || v->rank >= g->nranks)
    return colli_error_set(g->error, COLL_ERR_MISMATCH, "create",
                           "rank %d (host %s, pid %d) was started as one of %u ranks, but rank 0 "
                           "(pid %d) as one of %d; start all with the same nranks",
                           v->rank, info->host, info->pid, v->words.nranks, getpid(), g->nranks);
  if (g->by_rank[v->rank] >= 0) {
    const colli_rank_info *other = &g->visitors[g->by_rank[v->rank]]->words.info;
    return colli_error_set(g->error, COLL_ERR_MISMATCH, "create",
                           "two processes claim rank %d: pid %d on host %s and pid %d on host %s; "
                           "give each its own number",
                           v->rank, other->pid, other->host, info->pid, info->host);
  }
  g->by_rank[v->rank] = index;
  g->missing--;
  return COLL_OK;
}

/* Reads what visitors say; one that dies after it checked in ends everything. */
static coll_status hear(gathering *g) {
  for (int i = 0; i < g->count; i++) {
    visitor *v = g->visitors[i];
    if (v->fd < 0)
      continue;
    if (!v->complete) {
      int status = colli_pull(v->fd, &v->words, sizeof(v->words), &v->done);
      if (status == COLL_T_DONE) {
        coll_status taken = take_words(g, i);
        if (taken != COLL_OK)
          return taken;
      } else if (status > 0) {
        close(v->fd); /* it never said who it is: its process may come again */
        v->fd = -1;
        v->token = 0;
      }
      continue;
    }
    char byte;
    size_t done = 0;
    if (colli_pull(v->fd, &byte, 1, &done) == COLL_T_AGAIN)
      continue;
    return colli_error_set(g->error, COLL_ERR_PEER_LOST, "create",
                           "rank %d (host %s, pid %d) checked in and then was lost while others "
                           "were awaited",
                           v->rank, v->words.info.host, v->words.info.pid);
  }
  return COLL_OK;
}

/* Sleeps until something happens or the patience ends. */
static void rest(const gathering *g, struct pollfd *fds, uint64_t deadline_ns) {
  int count = colli_door_fds(&g->door, fds);
  for (int i = 0; i < g->count; i++)
    if (g->visitors[i]->fd >= 0)
      fds[count++] = (struct pollfd){.fd = g->visitors[i]->fd, .events = POLLIN};
  poll(fds, (nfds_t)count, colli_patience_ms(deadline_ns));
}

/* Tells everybody how it ended, and closes. */
static void tell_all(gathering *g, coll_status status) {
  colli_verdict verdict;
  memset(&verdict, 0, sizeof(verdict));
  verdict.status = status;
  if (status != COLL_OK && g->error)
    verdict.error = *g->error;
  uint64_t until = colli_now_ns() + LAST_WORDS_MS * COLLI_NS_PER_MS;
  for (int i = 0; i < g->count; i++) {
    visitor *v = g->visitors[i];
    size_t done = 0;
    while (v->fd >= 0 && colli_push(v->fd, &verdict, sizeof(verdict), &done) == COLL_T_AGAIN &&
           colli_now_ns() < until)
      poll(&(struct pollfd){.fd = v->fd, .events = POLLOUT}, 1, 10);
    if (v->fd >= 0)
      close(v->fd);
    free(v);
  }
}

/* Waits until all have come: OK, or why not. */
static coll_status gather(gathering *g, struct pollfd **fds, uint64_t deadline_ns) {
  int room = 0;
  coll_status status = COLL_OK;
  while (status == COLL_OK && g->missing > 0) {
    colli_auth auth;
    while (status == COLL_OK && colli_door_next(&g->door, &auth))
      status = admit(g, &auth);
    if (status == COLL_OK)
      status = hear(g);
    if (status != COLL_OK || g->missing == 0)
      break;
    if (colli_now_ns() >= deadline_ns) {
      char missing[256];
      list_missing(g, missing, sizeof(missing));
      return colli_error_set(
          g->error, COLL_ERR_TIMEOUT, "create",
          "%d of %d ranks did not check in at rank 0 in time: missing rank %s; "
          "look whether they were started, with the same id and nranks, or raise "
          "COLL_CREATE_TIMEOUT_MS",
          g->missing, g->nranks, missing);
    }
    int needed = g->count + COLLI_DOOR_STRANGERS + 1;
    if (needed > room) {
      room = 2 * needed;
      struct pollfd *grown = realloc(*fds, (size_t)room * sizeof(*grown));
      if (!grown)
        return colli_error_set(g->error, COLL_ERR_NO_MEMORY, "create", "no memory to wait");
      *fds = grown;
    }
    rest(g, *fds, deadline_ns);
  }
  return status;
}

coll_status colli_root_gather(const colli_self *self, int listen_fd, int nranks,
                              colli_rank_info *table, uint64_t deadline_ns, coll_error *error) {
  gathering *g = calloc(1, sizeof(*g));
  int *by_rank = malloc((size_t)nranks * sizeof(*by_rank));
  struct pollfd *fds = NULL;
  if (!g || !by_rank) {
    free(g);
    free(by_rank);
    close(listen_fd);
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for %d ranks", nranks);
  }
  coll_error spare = COLL_ERROR_INIT;
  g->self = self;
  g->door.self = self;
  g->door.listen_fd = listen_fd;
  g->nranks = nranks;
  g->by_rank = by_rank;
  g->missing = nranks - 1;
  g->error = error ? error : &spare;
  for (int rank = 0; rank < nranks; rank++)
    by_rank[rank] = -1;
  coll_status status = gather(g, &fds, deadline_ns);
  if (status == COLL_OK)
    for (int rank = 1; rank < nranks; rank++)
      table[rank] = g->visitors[by_rank[rank]]->words.info;
  tell_all(g, status);
  colli_door_close(&g->door);
  free(g->visitors);
  free(by_rank);
  free(fds);
  free(g);
  return status;
}

/* Says the words and hears the verdict on an authenticated socket. */
static coll_status converse(const colli_self *self, int fd, const colli_checkin *words,
                            uint64_t deadline_ns, coll_error *error) {
  colli_verdict verdict;
  size_t said = 0, heard = 0;
  for (;;) {
    int status = colli_push(fd, words, sizeof(*words), &said);
    if (status == COLL_T_DONE)
      status = colli_pull(fd, &verdict, sizeof(verdict), &heard);
    if (status == COLL_T_DONE)
      break;
    if (status > 0)
      return colli_error_set(error, COLL_ERR_PEER_LOST, "create",
                             "rank 0 was lost while rank %d waited for the other ranks: %s",
                             self->rank, errno ? strerror(errno) : "connection closed");
    if (colli_now_ns() > deadline_ns + COLLI_NS_PER_S)
      return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                             "rank 0 gave rank %d no answer in time; raise COLL_CREATE_TIMEOUT_MS "
                             "or look whether rank 0 is frozen",
                             self->rank);
    poll(&(struct pollfd){.fd = fd, .events = said < sizeof(*words) ? POLLOUT : POLLIN}, 1, 100);
  }
  if (verdict.status == COLL_OK)
    return COLL_OK;
  if (verdict.status <= COLL_IN_PROGRESS || verdict.status > COLL_ERR_INTERNAL)
    return colli_error_set(error, COLL_ERR_PROTOCOL, "create", "rank 0 sent nonsense");
  verdict.error.message[sizeof(verdict.error.message) - 1] = 0;
  return colli_error_set(error, (coll_status)verdict.status, "create", "%s", verdict.error.message);
}

coll_status colli_root_visit(const colli_self *self, const colli_id *id, int nranks,
                             const colli_rank_info *mine, uint64_t deadline_ns, coll_error *error) {
  uint64_t token = 0;
  if (colli_random_secret(&token, sizeof(token)) != 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", errno, "no randomness");
  colli_dial dial;
  colli_dial_begin(&dial, self, 0, id->addrs, COLLI_HELLO_CHECKIN, token | 1, true);
  struct pollfd fds[COLLI_MAX_ADDRS];
  int status;
  while ((status = colli_dial_poll(&dial)) == COLL_T_AGAIN && colli_now_ns() < deadline_ns) {
    int count = colli_dial_fds(&dial, fds), patience = colli_patience_ms(deadline_ns);
    poll(fds, (nfds_t)count, patience > 20 ? 20 : patience);
  }
  if (status != COLL_T_DONE) {
    coll_status why = status > 0 ? (coll_status)status : COLL_ERR_UNREACHABLE;
    colli_dial_end(&dial);
    return colli_dial_failed(&dial, why, "rank 0", error);
  }
  colli_checkin *words = calloc(1, sizeof(*words));
  coll_status result =
      words ? COLL_OK : colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory");
  if (words) {
    words->version = COLLI_CHECKIN_VERSION;
    words->nranks = (uint32_t)nranks;
    words->info = *mine;
    errno = 0;
    result = converse(self, dial.result, words, deadline_ns, error);
  }
  free(words);
  close(dial.result);
  return result;
}
