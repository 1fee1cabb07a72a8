/* dial.c: connects to a peer that may be at any of several addresses. */
#include "libcoll/wireup/bootstrap/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/libc.h"
#include "libcoll/net/path.h"

#define STAGGER_NS    (200 * COLLI_NS_PER_MS) /* from one address to the next */
#define RETRY_NS      (100 * COLLI_NS_PER_MS) /* at most, to the same address */
#define DESCRIBED_MAX 4                       /* addresses that an error message names */
#define SILENT_NS     COLLI_NS_PER_S          /* after this an address counts as silent */
#define TAKEN_NS      COLLI_NS_PER_S       /* the peer's kernel must have the hello after this, */
#define ANSWERED_NS   (4 * COLLI_NS_PER_S) /* and the peer should have answered; */
#define TIMEOUT_PARTS 16 /* or after this part of the time for all, so that enough is left */
#define SOON_NS       (100 * COLLI_NS_PER_MS) /* but never earlier */

/* Adds an address to dial, from one of this rank's, or from any (family 0). */
static void add_pair(boot_dial *dial, colli_addr from, const colli_addr *addr) {
  if (dial->count < BOOT_ATTEMPTS_MAX)
    dial->attempts[dial->count++] = (boot_attempt){.addr = *addr, .from = from, .fd = -1};
}

static void add_address(boot_dial *dial, const colli_addr *addr) {
  add_pair(dial, (colli_addr){.family = 0}, addr);
}

/* Whether `addrs` lists an address, whatever its port. */
static bool lists_address(const colli_addr addrs[COLLI_MAX_ADDRS], const colli_addr *addr) {
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++)
    if (colli_addr_same_ip(&addrs[i], addr))
      return true;
  return false;
}

bool boot_dial_own(const boot *b, const colli_addr addrs[COLLI_MAX_ADDRS]) {
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++)
    if (!lists_address(b->mine->control_addrs, &addrs[i]))
      return false;
  return true;
}

/* Adds the peer's addresses whose best affinity to one of ours is `wanted`. Loopback counts as at
 * least `loopback`. */
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
      add_address(dial, &addrs[i]);
      continue;
    }
    /* A link-local address is valid on only one network, so try each of our interfaces. */
    for (int j = 0; j < COLLI_MAX_ADDRS && own[j].family; j++) {
      colli_addr scoped = addrs[i];
      scoped.scope = own[j].scope;
      if (own[j].family == 6 && colli_addr_link_local(&own[j]))
        add_address(dial, &scoped);
    }
  }
}

void boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                     const colli_addr addrs[COLLI_MAX_ADDRS]) {
  memset(dial, 0, sizeof(*dial));
  dial->kind = kind;
  dial->word = b->hello_word;
  dial->peer = peer;
  dial->conn = COLLI_SEALED_NONE;
  dial->full =
      kind == COLLI_HELLO_CHECKIN ? colli_id_full(addrs) : addrs[COLLI_MAX_ADDRS - 1].family != 0;
  /* Then loopback is best, because it keeps working when an interface loses its address. */
  const int loopback = boot_dial_own(b, addrs) ? 3 : 0;
  for (int wanted = 3; wanted >= 0; wanted--)
    add_with_affinity(b, dial, addrs, wanted, loopback);
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++)
    dial->attempts[i].next_ns = now_ns + (uint64_t)i * STAGGER_NS;
}

/* Whether an address leads to other hosts by an interface that is known. */
static bool leads_out(const colli_addr *addr) {
  return !colli_addr_loopback(addr) && !colli_addr_link_local(addr) && addr->scope != 0;
}

/* Whether all addresses of a host that lead out are of one interface. */
static bool has_one_interface(const colli_addr addrs[COLLI_MAX_ADDRS], uint32_t scope) {
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++)
    if (leads_out(&addrs[i]) && addrs[i].scope != scope)
      return false;
  return true;
}

/* Adds pairs of addresses for a spare connection beside the one that has these ends. */
static void add_spare_pairs(boot_dial *dial, const colli_addr *own, const colli_addr *addrs,
                            const colli_addr *here, const colli_addr *there) {
  const int nearness = colli_addr_affinity(here, there);
  const bool one_here = has_one_interface(own, here->scope);
  const bool one_there = has_one_interface(addrs, there->scope);
  if (one_here && one_there)
    return;
  for (int i = 0; i < COLLI_MAX_ADDRS && addrs[i].family; i++) {
    if (!leads_out(&addrs[i]) || (addrs[i].scope == there->scope && !one_there) ||
        lists_address(own, &addrs[i]))
      continue; /* hosts may have an inner network each, with the same addresses */
    for (int j = 0; j < COLLI_MAX_ADDRS && own[j].family; j++)
      if (leads_out(&own[j]) && (own[j].scope != here->scope || one_here) &&
          colli_addr_affinity(&own[j], &addrs[i]) >= nearness)
        add_pair(dial, own[j], &addrs[i]);
  }
}

bool boot_dial_begin_spare(const boot *b, boot_dial *dial, int peer,
                           const colli_addr addrs[COLLI_MAX_ADDRS], const colli_sealed *first) {
  const colli_addr *own = b->mine->control_addrs;
  *dial = (boot_dial){.kind = COLLI_HELLO_CONTROL,
                      .word = b->hello_word | BOOT_SPARE_WORD,
                      .peer = peer,
                      .conn = COLLI_SEALED_NONE,
                      .answered = true}; /* the first time */
  if (boot_dial_own(b, addrs))
    return false; /* of this host */
  const colli_addr *here = colli_net_find_end(first->fd, false, own, COLLI_MAX_ADDRS);
  const colli_addr *there = colli_net_find_end(first->fd, true, addrs, COLLI_MAX_ADDRS);
  if (!here || !there)
    return false;
  add_spare_pairs(dial, own, addrs, here, there);
  return dial->count > 0;
}

bool boot_dial_failed(const boot_dial *dial) {
  for (int i = 0; i < dial->count; i++)
    if (dial->attempts[i].fd >= 0 || dial->attempts[i].failures == 0)
      return false;
  return true;
}

/* Records that an attempt failed, and schedules the next one. */
static void fail_attempt(const boot *b, boot_dial *dial, boot_attempt *attempt, int sys_errno) {
  COLLI_ASSERT(attempt >= dial->attempts && attempt < dial->attempts + dial->count);
  colli_auth_drop(&attempt->auth);
  boot_close(&attempt->fd);
  if (!(dial->word & BOOT_SPARE_WORD)) /* nobody has to have that one */
    boot_note_errno(b, sys_errno, false);
  /* A door that many knock at may have had no room for this one for a moment. */
  uint64_t pause_ns = COLLI_NS_PER_MS << (attempt->failures < 7 ? attempt->failures : 7);
  attempt->failures++;
  attempt->sys_errno = sys_errno;
  attempt->far |= sys_errno == ETIMEDOUT;
  attempt->next_ns = colli_now_ns() + (pause_ns < RETRY_NS ? pause_ns : RETRY_NS);
  /* The next address need not wait any longer. */
  for (boot_attempt *other = attempt + 1; other < dial->attempts + dial->count; other++)
    if (other->fd < 0 && other->failures == 0 && !other->dead) {
      other->next_ns = 0;
      return;
    }
}

/* Whether something on the way may change addresses although the peer is near: a tunnel ends at a
 * loopback address, while a rank of this host lists others, too, if the host has any. */
static bool leads_through_tunnel(const boot_dial *dial) {
  for (int i = 0; i < dial->count; i++)
    if (!colli_addr_loopback(&dial->attempts[i].addr))
      return false;
  return true;
}

/* Begins to connect to an address. */
static void start_attempt(const boot *b, boot_dial *dial, boot_attempt *attempt, uint64_t now_ns) {
  COLLI_ASSERT_RANK(attempt->fd < 0 && !attempt->dead, b->rank);
  attempt->connected = false;
  attempt->began_ns = now_ns;
  attempt->fd =
      colli_net_connect_from(attempt->from.family ? &attempt->from : NULL, &attempt->addr, NULL);
  if (attempt->fd < 0)
    fail_attempt(b, dial, attempt, errno);
  else
    colli_auth_connect(&attempt->auth, attempt->fd, b->id->secret->bytes, dial->kind, b->rank,
                       dial->peer, b->id->comm_id, dial->word);
  attempt->bound =
      attempt->fd >= 0 && !attempt->far && !leads_through_tunnel(dial) &&
      colli_auth_bind(&attempt->auth, &attempt->addr, b->mine->control_addrs, COLLI_MAX_ADDRS);
  if (attempt->fd >= 0 && b->tls)
    colli_auth_want_tls(&attempt->auth);
}

/* Whether the connection is established by now. */
static bool attempt_connected(const boot *b, boot_dial *dial, boot_attempt *attempt,
                              uint64_t now_ns) {
  COLLI_ASSERT(attempt->fd >= 0);
  if (attempt->connected)
    return true;
  struct pollfd pfd = {.fd = attempt->fd, .events = POLLOUT};
  const int ready = poll(&pfd, 1, 0);
  if (ready < 0)
    boot_note_errno(b, errno, true);
  if (ready <= 0) {
    if (now_ns >= attempt->auth.deadline_ns)
      fail_attempt(b, dial, attempt, ETIMEDOUT);
    return false;
  }
  int sys_errno = colli_net_connect_result(attempt->fd);
  if (sys_errno != 0)
    fail_attempt(b, dial, attempt, sys_errno);
  else
    attempt->connected = dial->answered = true;
  attempt->said_ns = now_ns;
  return attempt->connected;
}

/* After what time a hello that counts from one origin only is given up, if it is not answered, or
 * (`taken` false) not even taken by the peer's kernel. */
static uint64_t bound_ns(const boot *b, bool taken) {
  const uint64_t all_ns = boot_all_ns(b);
  const uint64_t most_ns = taken ? ANSWERED_NS : TAKEN_NS;
  uint64_t ns = all_ns / TIMEOUT_PARTS;
  ns = ns > SOON_NS ? ns : SOON_NS;
  return ns < most_ns ? ns : most_ns;
}

/* Whether an attempt waits for an answer to such a hello. */
static bool waits_bound(const boot_attempt *attempt) {
  return attempt->fd >= 0 && attempt->connected && attempt->bound &&
         !colli_auth_answered(&attempt->auth);
}

/* Whether that takes too long: something on the way seems to change addresses. What takes the hello
 * may be a proxy. Or the peer is busy, to which another connection does no harm. */
static bool is_given_up(const boot *b, const boot_attempt *attempt, uint64_t now_ns) {
  uint64_t queued;
  if (!waits_bound(attempt) || now_ns - attempt->said_ns < bound_ns(b, false))
    return false;
  return now_ns - attempt->said_ns >= bound_ns(b, true) ||
         (colli_path_queued(attempt->fd, &queued) && queued > 0);
}

/* Dials again at once, with a hello that counts from anywhere. This is no failure yet. */
static void dial_unbound(const boot *b, boot_dial *dial, boot_attempt *attempt, uint64_t now_ns) {
  colli_auth_drop(&attempt->auth);
  boot_close(&attempt->fd);
  attempt->far = true;
  start_attempt(b, dial, attempt, now_ns);
}

/* Whether this rank proves itself on another connection than that of `attempt`. */
static bool proves_elsewhere(const boot_dial *dial, const boot_attempt *attempt) {
  for (int i = 0; i < dial->count; i++) {
    const boot_attempt *other = &dial->attempts[i];
    if (other != attempt && other->fd >= 0 && colli_auth_proves(&other->auth))
      return true;
  }
  return false;
}

/* Advances an attempt; true once its connection is authenticated. */
static bool step_attempt(const boot *b, boot_dial *dial, boot_attempt *attempt, uint64_t now_ns) {
  if (attempt->dead)
    return false;
  if (attempt->fd < 0 && now_ns >= attempt->next_ns)
    start_attempt(b, dial, attempt, now_ns);
  if (attempt->fd < 0 || !attempt_connected(b, dial, attempt, now_ns))
    return false;
  attempt->auth.held = proves_elsewhere(dial, attempt);
  int result = colli_auth_poll(&attempt->auth);
  if (result == COLL_T_AGAIN && is_given_up(b, attempt, now_ns))
    dial_unbound(b, dial, attempt, now_ns);
  if (result == COLL_T_AGAIN)
    return false;
  if (result == COLL_T_DONE)
    return true;
  int sys_errno = errno;
  bool refused = result == COLL_ERR_PEER_LOST && sys_errno == EPERM;
  dial->wrong_secret |= result == COLL_ERR_AUTH || result == COLL_ERR_PROTOCOL;
  dial->refused |= refused;
  dial->tls_differs |= result == COLL_ERR_MISMATCH;
  dial->altered |= result == COLL_ERR_AUTH && sys_errno == EBADMSG;
  /* The peer may have refused a control link because it has not noticed yet that an earlier
   * connection ended. */
  attempt->dead = result == COLL_ERR_AUTH || result == COLL_ERR_PROTOCOL ||
                  result == COLL_ERR_MISMATCH || (refused && dial->kind == COLLI_HELLO_CHECKIN);
  fail_attempt(b, dial, attempt, sys_errno);
  return false;
}

/* How much an answer at an address says about the peer: any host may answer at a loopback or
 * link-local address. */
static int address_weight(const colli_addr *addr) {
  return colli_addr_loopback(addr) ? 0 : colli_addr_link_local(addr) ? 1 : 2;
}

/* The highest weight of the peer's addresses, but at least `least`. */
static int best_weight(const boot_dial *dial, int least) {
  int best = least;
  for (int i = 0; i < dial->count; i++) {
    int weight = address_weight(&dial->attempts[i].addr);
    best = weight > best ? weight : best;
  }
  return best;
}

/* Whether dialling on is pointless because, as far as this rank can tell, the peer itself
 * refused. */
static bool is_hopeless(const boot_dial *dial, uint64_t now_ns) {
  bool any_dead = false;
  const int best = best_weight(dial, 0);
  for (int i = 0; i < dial->count; i++) {
    const boot_attempt *attempt = &dial->attempts[i];
    bool silent = attempt->fd >= 0 && !attempt->connected && now_ns - attempt->began_ns > SILENT_NS;
    if (address_weight(&attempt->addr) < best)
      continue;
    if (!attempt->dead && !silent && (attempt->fd >= 0 || attempt->failures == 0))
      return false;
    if (!attempt->dead && dial->kind == COLLI_HELLO_CONTROL)
      return false; /* that peer is known to be alive */
    any_dead = any_dead || attempt->dead;
  }
  return any_dead;
}

int boot_dial_step(const boot *b, boot_dial *dial) {
  COLLI_ASSERT_RANK(dial->conn.fd < 0 && dial->count <= BOOT_ATTEMPTS_MAX, b->rank);
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++) {
    boot_attempt *attempt = &dial->attempts[i];
    if (!step_attempt(b, dial, attempt, now_ns))
      continue;
    colli_sealed_open(&dial->conn, &attempt->auth);
    attempt->fd = -1;
    boot_dial_close(dial);
    return COLL_T_DONE;
  }
  if (!dial->altered && !is_hopeless(dial, now_ns))
    return COLL_T_AGAIN;
  return dial->wrong_secret ? COLL_ERR_AUTH : COLL_ERR_MISMATCH;
}

bool boot_dial_gone(const boot_dial *dial, bool same_host) {
  const int best = best_weight(dial, same_host ? 0 : 1);
  bool any = false;
  for (int i = 0; i < dial->count; i++) {
    const boot_attempt *attempt = &dial->attempts[i];
    if (address_weight(&attempt->addr) < best)
      continue;
    if (attempt->fd >= 0 || attempt->failures == 0 || attempt->sys_errno != ECONNREFUSED)
      return false;
    any = true;
  }
  return any;
}

void boot_dial_watch(boot *b, const boot_dial *dial) {
  uint64_t now_ns = colli_now_ns();
  for (int i = 0; i < dial->count; i++) {
    const boot_attempt *attempt = &dial->attempts[i];
    if (attempt->dead)
      continue;
    if (attempt->fd < 0) {
      boot_polls_wake(&b->polls, attempt->next_ns);
      continue;
    }
    /* One that is held does nothing before the other one fails. */
    if (!attempt->auth.held || !proves_elsewhere(dial, attempt))
      boot_polls_add(&b->polls, attempt->fd,
                     attempt->connected ? colli_auth_events(&attempt->auth) : POLLOUT);
    boot_polls_wake(&b->polls, attempt->auth.deadline_ns);
    if (waits_bound(attempt)) {
      const bool taken = now_ns >= attempt->said_ns + bound_ns(b, false);
      boot_polls_wake(&b->polls, attempt->said_ns + bound_ns(b, taken));
    }
    uint64_t silent_ns = attempt->began_ns + SILENT_NS + COLLI_NS_PER_MS;
    if (!attempt->connected && silent_ns > now_ns)
      boot_polls_wake(&b->polls, silent_ns);
  }
}

void boot_dial_close(boot_dial *dial) {
  for (int i = 0; i < dial->count; i++) {
    colli_auth_drop(&dial->attempts[i].auth);
    boot_close(&dial->attempts[i].fd);
  }
}

void boot_dial_describe(const boot_dial *dial, char *text, size_t bytes) {
  size_t used = 0;
  *text = 0;
  for (int i = 0; i < dial->count && i < DESCRIBED_MAX && used < bytes; i++) {
    const boot_attempt *attempt = &dial->attempts[i];
    char addr[COLLI_ADDR_TEXT];
    const char *why = attempt->failures ? strerrordesc_np(attempt->sys_errno) : "no answer";
    if (attempt->dead)
      why = attempt->sys_errno == EPERM             ? "refused us"
            : attempt->sys_errno == EPROTONOSUPPORT ? "has another COLL_TLS"
                                                    : "does not know the secret";
    used += (size_t)snprintf(text + used, bytes - used, "%s%s (%s)", i ? ", " : "",
                             colli_addr_text(&attempt->addr, addr), why ? why : "failed");
  }
  if (dial->count > DESCRIBED_MAX && used < bytes)
    used +=
        (size_t)snprintf(text + used, bytes - used, ", and %d more", dial->count - DESCRIBED_MAX);
  if (dial->full && !dial->wrong_secret && !dial->altered && used < bytes)
    snprintf(text + used, bytes - used,
             "; its host may have addresses that it could not offer (six at most): choose "
             "interfaces with COLL_TCP_IFNAME");
}
