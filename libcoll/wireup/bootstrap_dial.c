/* bootstrap_dial.c: reaching a peer that may be at any of several addresses. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/wireup/bootstrap_internal.h"

#define STAGGER_NS  (200 * COLLI_NS_PER_MS) /* from one address to the next */
#define RETRY_NS    (100 * COLLI_NS_PER_MS) /* at most, to the same address */
#define STORY_TRIES 4                       /* addresses that an error message names */
#define SILENT_NS   COLLI_NS_PER_S          /* after this a silent address counts as hopeless */

/* Adds an address to try. */
static void add_try(boot_dial *dial, const colli_addr *addr) {
  if (dial->count == BOOT_TRIES_MAX)
    return;
  boot_try *t = &dial->tries[dial->count++];
  t->addr = *addr;
  t->fd = -1;
}

/* Whether an address is one of some. */
static bool among(const colli_addr *addr, const colli_addr addrs[COLLI_MAX_ADDRS]) {
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++)
    if (addrs[i].family == addr->family &&
        memcmp(addrs[i].ip, addr->ip, addr->family == 4 ? 4 : sizeof(addr->ip)) == 0)
      return true;
  return false;
}

/* Whether the peer has no address that this rank has not: it seems to be on the same host, where
 * loopback goes on when an interface loses its address. */
static bool same_network(const boot *b, const colli_addr addrs[COLLI_MAX_ADDRS]) {
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++)
    if (!among(&addrs[i], b->mine->control_addrs))
      return false;
  return true;
}

/* Adds the peer's addresses that have an affinity of `wanted` to the best of ours; loopback has
 * `loopback` at least. */
static void add_with_affinity(const boot *b, boot_dial *dial, const colli_addr *addrs, int wanted,
                              int loopback) {
  const colli_addr *own = b->mine->control_addrs;
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++) {
    int best = colli_addr_loopback(&addrs[i]) ? loopback : 0;
    for (int j = 0; j < COLLI_MAX_ADDRS && own[j].family; j++) {
      int affinity = colli_addr_affinity(&own[j], &addrs[i]);
      best = affinity > best ? affinity : best;
    }
    if (best != wanted)
      continue;
    if (!colli_addr_link_local(&addrs[i]) || addrs[i].family == 4) {
      add_try(dial, &addrs[i]);
      continue;
    }
    /* A link-local address means something on a given cable only: try each of ours. */
    for (int j = 0; j < COLLI_MAX_ADDRS && own[j].family; j++) {
      colli_addr scoped = addrs[i];
      scoped.scope = own[j].scope;
      if (own[j].family == 6 && own[j].scope)
        add_try(dial, &scoped);
    }
  }
}

void boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                     const colli_addr addrs[COLLI_MAX_ADDRS]) {
  memset(dial, 0, sizeof(*dial));
  dial->kind = kind;
  dial->peer = peer;
  dial->fd = -1;
  const int loopback = same_network(b, addrs) ? 3 : 0;
  for (int wanted = 3; wanted >= 0; wanted--)
    add_with_affinity(b, dial, addrs, wanted, loopback);
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++)
    dial->tries[i].next_ns = now_ns + (uint64_t)i * STAGGER_NS;
}

/* Notes that an address did not work this time. */
static void try_failed(boot_dial *dial, boot_try *t, int sys_errno) {
  boot_close(&t->fd);
  uint64_t pause_ns = (10 * COLLI_NS_PER_MS) << (t->failures < 4 ? t->failures : 4);
  t->failures++;
  t->sys_errno = sys_errno;
  t->next_ns = colli_now_ns() + (pause_ns < RETRY_NS ? pause_ns : RETRY_NS);
  /* No reason to let the next address wait any longer. */
  for (boot_try *other = t + 1; other < dial->tries + dial->count; other++)
    if (other->fd < 0 && other->failures == 0 && !other->dead) {
      other->next_ns = 0;
      return;
    }
}

/* Begins to connect to an address. */
static void try_begin(const boot *b, boot_dial *dial, boot_try *t, uint64_t now_ns) {
  t->connected = false;
  t->began_ns = now_ns;
  t->fd = colli_net_connect(&t->addr);
  if (t->fd < 0)
    try_failed(dial, t, errno);
  else
    colli_auth_connect(&t->auth, t->fd, b->id->secret, dial->kind, b->rank, dial->peer,
                       b->id->comm_id, b->word);
}

/* Finds out whether a connection stands; true if it does. */
static bool try_connected(boot_dial *dial, boot_try *t, uint64_t now_ns) {
  if (t->connected)
    return true;
  struct pollfd pfd = {.fd = t->fd, .events = POLLOUT};
  if (poll(&pfd, 1, 0) <= 0) {
    if (now_ns >= t->auth.deadline_ns)
      try_failed(dial, t, ETIMEDOUT);
    return false;
  }
  int sys_errno = colli_net_connect_result(t->fd);
  if (sys_errno != 0)
    try_failed(dial, t, sys_errno);
  else
    t->connected = dial->answered = true;
  return t->connected;
}

/* Moves one address on; true if its connection is the one. */
static bool try_step(const boot *b, boot_dial *dial, boot_try *t, uint64_t now_ns) {
  if (t->dead)
    return false;
  if (t->fd < 0 && now_ns >= t->next_ns)
    try_begin(b, dial, t, now_ns);
  if (t->fd < 0 || !try_connected(dial, t, now_ns))
    return false;
  int result = colli_auth_poll(&t->auth);
  if (result == COLL_T_AGAIN)
    return false;
  if (result == COLL_T_DONE)
    return true;
  int sys_errno = errno;
  bool refused = result == COLL_ERR_PEER_LOST && sys_errno == EPERM;
  dial->wrong_secret |= result == COLL_ERR_AUTH || result == COLL_ERR_PROTOCOL;
  dial->refused |= refused;
  /* A peer that refused a control link may do so because it has not noticed yet that an earlier
   * connection ended. */
  t->dead = result == COLL_ERR_AUTH || result == COLL_ERR_PROTOCOL ||
            (refused && dial->kind == COLLI_HELLO_CHECKIN);
  try_failed(dial, t, sys_errno);
  return false;
}

/* How much an answer at an address means: behind another host's loopback or link-local address may
 * be anybody. */
static int weight(const colli_addr *addr) {
  return colli_addr_loopback(addr) ? 0 : colli_addr_link_local(addr) ? 1 : 2;
}

/* Whether nothing is left to hope for: the peer itself has said no, as far as can be told. */
static bool hopeless(const boot_dial *dial, uint64_t now_ns) {
  bool any_dead = false;
  int best = 0;
  for (int i = 0; i < dial->count; i++)
    best = weight(&dial->tries[i].addr) > best ? weight(&dial->tries[i].addr) : best;
  for (int i = 0; i < dial->count; i++) {
    const boot_try *t = &dial->tries[i];
    bool silent = t->fd >= 0 && !t->connected && now_ns - t->began_ns > SILENT_NS;
    if (weight(&t->addr) < best)
      continue;
    if (!t->dead && !silent && (t->fd >= 0 || t->failures == 0))
      return false;
    if (!t->dead && dial->kind == COLLI_HELLO_CONTROL)
      return false; /* that peer is known to be there */
    any_dead = any_dead || t->dead;
  }
  return any_dead;
}

int boot_dial_step(const boot *b, boot_dial *dial) {
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++) {
    boot_try *t = &dial->tries[i];
    if (!try_step(b, dial, t, now_ns))
      continue;
    dial->fd = t->fd;
    t->fd = -1;
    boot_dial_close(dial);
    return COLL_T_DONE;
  }
  if (!hopeless(dial, now_ns))
    return COLL_T_AGAIN;
  return dial->wrong_secret ? COLL_ERR_AUTH : COLL_ERR_MISMATCH;
}

bool boot_dial_gone(const boot_dial *dial, bool same_host) {
  int best = same_host ? 0 : 1;
  bool any = false;
  for (int i = 0; i < dial->count; i++)
    best = weight(&dial->tries[i].addr) > best ? weight(&dial->tries[i].addr) : best;
  for (int i = 0; i < dial->count; i++) {
    const boot_try *t = &dial->tries[i];
    if (weight(&t->addr) < best)
      continue;
    if (t->fd >= 0 || t->failures == 0 || t->sys_errno != ECONNREFUSED)
      return false;
    any = true;
  }
  return any;
}

void boot_dial_watch(boot *b, const boot_dial *dial) {
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++) {
    const boot_try *t = &dial->tries[i];
    if (t->dead)
      continue;
    if (t->fd < 0) {
      boot_polls_wake(&b->polls, t->next_ns);
      continue;
    }
    boot_polls_add(&b->polls, t->fd, t->connected ? colli_auth_events(&t->auth) : POLLOUT);
    boot_polls_wake(&b->polls, t->auth.deadline_ns);
    uint64_t silent_ns = t->began_ns + SILENT_NS + COLLI_NS_PER_MS;
    if (!t->connected && silent_ns > now_ns)
      boot_polls_wake(&b->polls, silent_ns);
  }
}

void boot_dial_close(boot_dial *dial) {
  for (int i = 0; i < dial->count; i++)
    boot_close(&dial->tries[i].fd);
}

void boot_dial_story(const boot_dial *dial, char *text, size_t bytes) {
  size_t used = 0;
  *text = 0;
  for (int i = 0; i < dial->count && i < STORY_TRIES && used < bytes; i++) {
    const boot_try *t = &dial->tries[i];
    char addr[COLLI_ADDR_TEXT];
    const char *why = t->failures ? strerrordesc_np(t->sys_errno) : "no answer";
    if (t->dead)
      why = t->sys_errno == EPERM ? "refused us" : "does not know the secret";
    used += (size_t)snprintf(text + used, bytes - used, "%s%s (%s)", i ? ", " : "",
                             colli_addr_text(&t->addr, addr), why ? why : "failed");
  }
  if (dial->count > STORY_TRIES && used < bytes)
    snprintf(text + used, bytes - used, ", and %d more", dial->count - STORY_TRIES);
}
