/* resolve.c: "host:port" as addresses, by a deadline. */
#include "libcoll/wireup/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/slow_call.h"

#define PAUSE_NS (200 * COLLI_NS_PER_MS) /* until a name is asked for again */

/* One lookup of a name. */
typedef struct lookup {
  char host[256], port[8];
  uint64_t deadline_ns;
  int result;
  struct addrinfo *list;
} lookup;

/* Frees a lookup. */
static void discard(void *arg) {
  lookup *l = arg;
  if (l->list)
    freeaddrinfo(l->list);
  free(l);
}

/* The call. */
static int ask(lookup *l, int flags) {
  const struct addrinfo hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
  return getaddrinfo(l->host, l->port, &hints, &l->list);
}

/* Whether the name may still come. In Kubernetes, that of a pod is unknown until the pod runs, and
 * ranks start in any order; elsewhere an unknown name is most likely a mistake. */
static bool may_come(int result) {
  return getenv("KUBERNETES_SERVICE_HOST") &&
         (result == EAI_NONAME || result == EAI_AGAIN || result == EAI_NODATA);
}

/* The call in a thread, since it may ask servers for minutes. */
static void ask_servers(void *arg) {
  lookup *l = arg;
  l->result = ask(l, 0);
  while (may_come(l->result) && colli_now_ns() + PAUSE_NS < l->deadline_ns) {
    poll(NULL, 0, (int)(PAUSE_NS / COLLI_NS_PER_MS));
    l->result = ask(l, 0);
  }
}

/* Looks the host up: numbers at once, names in a thread. *l is NULL afterwards if the thread still
 * has it. */
static coll_status run_lookup(lookup **l, uint64_t deadline_ns, const char *text,
                              coll_error *error) {
  char host[sizeof((*l)->host)];
  const char *syscall;
  (*l)->result = ask(*l, AI_NUMERICHOST);
  if ((*l)->result == 0)
    return COLL_OK;
  memcpy(host, (*l)->host, sizeof(host));
  (*l)->deadline_ns = deadline_ns;
  int failed = colli_slow_call(ask_servers, discard, *l, deadline_ns, &syscall);
  if (failed == ETIMEDOUT) {
    *l = NULL;
    return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                           "looking up the host \"%s\" in \"%s\" took too long; look at this "
                           "host's name servers (/etc/resolv.conf), give a number such as "
                           "10.0.0.1, or raise COLL_CREATE_TIMEOUT_MS",
                           host, text);
  }
  if (failed)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", syscall, failed,
                           "no thread can look up the host \"%s\" in \"%s\"; see ulimit -u, or "
                           "give a number such as 10.0.0.1",
                           host, text);
  if ((*l)->result != 0)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "the host \"%s\" in \"%s\" has no address (%s); give a number such as "
                           "10.0.0.1, or a name that this host can look up",
                           host, text, gai_strerror((*l)->result));
  return COLL_OK;
}

/* Splits "host:port" or "[v6]:port"; false if malformed. */
static bool split_address(const char *text, lookup *l) {
  const char *colon = strrchr(text, ':');
  if (!colon || colon == text)
    return false;
  const char *first = text;
  size_t length = (size_t)(colon - text);
  if (*text == '[') {
    if (length < 3 || text[length - 1] != ']')
      return false;
    first++;
    length -= 2;
  } else if (memchr(text, ':', length)) {
    return false;
  }
  char *end;
  errno = 0;
  long port = strtol(colon + 1, &end, 10);
  if (colon[1] < '0' || colon[1] > '9' || *end || errno || port < 1 || port > 65535 ||
      length >= sizeof(l->host))
    return false;
  snprintf(l->host, sizeof(l->host), "%.*s", (int)length, first);
  snprintf(l->port, sizeof(l->port), "%u", (unsigned)(uint16_t)port);
  return true;
}

coll_status colli_net_parse(const char *text, uint64_t deadline_ns, colli_addr *addrs, int max,
                            int *count, coll_error *error) {
  *count = 0;
  lookup *l = calloc(1, sizeof(*l));
  if (!l)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for an address");
  coll_status status;
  if (split_address(text, l))
    status = run_lookup(&l, deadline_ns, text, error);
  else
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "\"%s\" is no address with a port; write 10.0.0.1:6000, "
                             "[fd00::1]:6000 or name:6000",
                             text);
  if (status == COLL_OK)
    for (const struct addrinfo *ai = l->list; ai && *count < max; ai = ai->ai_next)
      *count += colli_net_from_sockaddr(ai->ai_addr, &addrs[*count]);
  if (l)
    discard(l);
  return status;
}
