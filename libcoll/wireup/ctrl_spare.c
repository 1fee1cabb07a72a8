/*
 * ctrl_spare.c: makes one of the two sockets (lines) of a control link while the other one works:
 * again if it has ended, or later if it could not be made when the link was.
 *
 *   lower rank  -> higher one   SPARE 0      which line is to be made; over the one that works
 *   higher rank -> lower one    SPARE port   where it listens for it; 0: it cannot
 *   lower rank  -> higher one   dials, between interfaces that the line that works does not use
 *
 * Nobody waits for any of this: it moves whenever links are polled. What fails is tried again after
 * a pause, which doubles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/dial.h"
#include "libcoll/wireup/bootstrap/door.h"
#include "libcoll/wireup/ctrl_line.h"

#define PAUSE_NS  (COLLI_NS_PER_S / 2) /* after the first failure */
#define PAUSES_NS (60 * COLLI_NS_PER_S)
#define DIAL_NS   (3 * COLLI_NS_PER_S)  /* how long dialling may take */
#define OPEN_NS   (10 * COLLI_NS_PER_S) /* how long to listen for it */
#define WHY_BYTES 100

/* Where the neighbour dials. */
typedef struct entrance {
  int listen_fd;
  colli_door door;
} entrance;

/* What is known of one link. */
typedef struct spare {
  int peer;
  char host[64];
  colli_addr addrs[COLLI_MAX_ADDRS]; /* the peer's */
  int line;                          /* which is to be made */
  bool asked;                        /* for it, and not answered yet */
  uint64_t next_ns, pause_ns;        /* when to try again */
  uint64_t until_ns;                 /* when the attempt is over */
  boot_dial *dial;                   /* NULL: this rank does not dial now */
  entrance *entrance;                /* NULL: it does not listen now */
} spare;

struct colli_ctrl_spares {
  boot b;
  colli_id id;
  colli_rank_info mine;
  boot_shortage shortage;
  coll_error error;
  colli_log log;
  char port_range[64];
  spare at[COLLI_CTRL_LINKS_MAX];
};

colli_ctrl_spares *colli_ctrl_spares_create(const boot *b, const colli_rank_table *table,
                                            const char *port_range) {
  int peers[COLLI_CTRL_LINKS_MAX];
  const int count = colli_ctrl_peers(b->rank, b->nranks, peers);
  colli_ctrl_spares *spares = calloc(1, sizeof(*spares));
  if (!spares)
    return NULL;
  spares->id = (colli_id){
      .listen_fd = -1, .comm_id = b->id->comm_id, .secret = colli_secret_acquire(b->id->secret)};
  spares->mine = colli_rank_at(table, b->rank);
  spares->log = *b->log;
  snprintf(spares->port_range, sizeof(spares->port_range), "%s", port_range);
  spares->b = (boot){.id = &spares->id,
                     .rank = b->rank,
                     .nranks = b->nranks,
                     .mine = &spares->mine,
                     .log = &spares->log,
                     .error = &spares->error,
                     .hello_word = b->hello_word,
                     .tls = b->tls,
                     .shortage = &spares->shortage};
  for (int i = 0; i < count; i++) {
    const colli_rank_info info = colli_rank_at(table, peers[i]);
    spares->at[i] = (spare){.peer = peers[i], .pause_ns = PAUSE_NS};
    memcpy(spares->at[i].host, info.host, sizeof(info.host));
    memcpy(spares->at[i].addrs, info.control_addrs, sizeof(info.control_addrs));
  }
  return spares;
}

/* Ends what is under way on a link. */
static void stop(spare *s) {
  if (s->dial) {
    boot_dial_close(s->dial);
    explicit_bzero(s->dial, sizeof(*s->dial));
    free(s->dial);
  }
  if (s->entrance) {
    colli_door_close(&s->entrance->door);
    boot_close(&s->entrance->listen_fd);
    explicit_bzero(s->entrance, sizeof(*s->entrance));
    free(s->entrance);
  }
  s->dial = NULL;
  s->entrance = NULL;
  s->asked = false;
}

void colli_ctrl_spares_free(colli_ctrl_spares *spares) {
  if (!spares)
    return;
  for (int i = 0; i < COLLI_CTRL_LINKS_MAX; i++)
    stop(&spares->at[i]);
  colli_id_release(&spares->id);
  free(spares);
}

/* Says why a line is lost; text: room for WHY_BYTES. */
static const char *why_lost(const colli_ctrl_line *line, int heartbeat_ms, char *text) {
  if (!colli_ctrl_line_works(line))
    return line->ended_by ? strerrordesc_np(line->ended_by) : "the other end has closed it";
  snprintf(text, WHY_BYTES, "no answer for %d ms", heartbeat_ms);
  return text;
}

void colli_ctrl_spare_tell(const colli_ctrl_spares *spares, int link, const colli_ctrl_line *line,
                           bool lost, int heartbeat_ms) {
  const spare *s = &spares->at[link];
  char why[WHY_BYTES];
  if (lost)
    colli_log_write(&spares->log, COLLI_LOG_WARN,
                    "one of the two control sockets of rank %d (host %s, %s) and rank %d (host %s, "
                    "%s) is lost: %s; the other one carries on; look at the network interfaces "
                    "and cables that both hosts share",
                    spares->b.rank, spares->mine.host, line->here, s->peer, s->host, line->there,
                    why_lost(line, heartbeat_ms, why));
  else
    colli_log_write(&spares->log, COLLI_LOG_INFO,
                    "there are two control sockets of rank %d (host %s) and rank %d (host %s) now: "
                    "%s and %s are connected",
                    spares->b.rank, spares->mine.host, s->peer, s->host, line->here, line->there);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* An attempt has failed. */
static void give_up(spare *s) {
  stop(s);
  s->next_ns = colli_now_ns() + s->pause_ns;
  s->pause_ns = 2 * s->pause_ns < PAUSES_NS ? 2 * s->pause_ns : PAUSES_NS;
}

/* A message about a line. */
static colli_ctrl_msg message(const colli_ctrl_spares *spares, int line, uint64_t port) {
  return (colli_ctrl_msg){.kind = COLLI_CTRL_SPARE,
                          .origin = spares->b.rank,
                          .peer = -1,
                          .root = -1,
                          .pending = (uint32_t)line,
                          .sequence = port};
}

bool colli_ctrl_spare_ask(colli_ctrl_spares *spares, int link, int line,
                          const colli_ctrl_line *works, colli_ctrl_msg *msg) {
  spare *s = &spares->at[link];
  boot_dial pairs;
  if (s->peer < spares->b.rank || s->asked || s->dial || colli_now_ns() < s->next_ns)
    return false;
  if (!boot_dial_begin_spare(&spares->b, &pairs, s->peer, s->addrs, &works->conn)) {
    give_up(s); /* there are no other interfaces */
    return false;
  }
  s->asked = true;
  s->line = line;
  s->until_ns = colli_now_ns() + OPEN_NS;
  *msg = message(spares, line, 0);
  return true;
}

/* Begins to listen: the port, or 0. */
static uint16_t let_in(colli_ctrl_spares *spares, spare *s, int line) {
  const boot *b = &spares->b;
  uint16_t port = 0;
  stop(s);
  s->line = line;
  s->until_ns = colli_now_ns() + OPEN_NS;
  s->entrance = calloc(1, sizeof(*s->entrance));
  if (!s->entrance)
    return 0;
  s->entrance->listen_fd = -1;
  s->entrance->door = COLLI_DOOR_CLOSED;
  if (colli_door_listen(spares->port_range, b->id->secret->bytes, &s->entrance->listen_fd, &port,
                        b->error) == COLL_OK &&
      boot_door_open(b, &s->entrance->door, s->entrance->listen_fd, COLLI_HELLO_CONTROL, b->rank) ==
          COLL_OK)
    return port;
  stop(s);
  return 0;
}

/* Begins to dial a port. */
static void begin_dial(colli_ctrl_spares *spares, spare *s, uint16_t port,
                       const colli_ctrl_line *works) {
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    s->addrs[i].port = port;
  spares->b.start_ns = colli_now_ns();
  spares->b.deadline_ns = s->until_ns = spares->b.start_ns + DIAL_NS;
  s->asked = false;
  s->dial = port ? calloc(1, sizeof(*s->dial)) : NULL;
  if (!s->dial || !boot_dial_begin_spare(&spares->b, s->dial, s->peer, s->addrs, &works->conn))
    give_up(s);
}

bool colli_ctrl_spare_take(colli_ctrl_spares *spares, int link, const colli_ctrl_msg *msg,
                           const colli_ctrl_line *works, colli_ctrl_msg *answer) {
  spare *s = &spares->at[link];
  if (s->peer < spares->b.rank) {
    *answer = message(spares, (int)msg->pending, let_in(spares, s, (int)msg->pending));
    return true;
  }
  if (s->asked && works && (int)msg->pending == s->line)
    begin_dial(spares, s, (uint16_t)msg->sequence, works);
  return false;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Advances dialling: whether *conn is connected. */
static bool step_dial(colli_ctrl_spares *spares, spare *s, colli_sealed *conn) {
  const int result = boot_dial_step(&spares->b, s->dial);
  if (result == COLL_T_DONE) {
    *conn = s->dial->conn;
    return true;
  }
  if (result != COLL_T_AGAIN || boot_dial_failed(s->dial) || colli_now_ns() >= s->until_ns)
    give_up(s);
  return false;
}

/* Lets the neighbour in: whether *conn is its connection. */
static bool step_entrance(colli_ctrl_spares *spares, spare *s, colli_sealed *conn) {
  const boot *b = &spares->b;
  colli_guest guest;
  while (colli_door_next(&s->entrance->door, &guest)) {
    const colli_hello *hello = &guest.auth.hello;
    if (hello->comm_id != b->id->comm_id || hello->src_rank != s->peer ||
        hello->word != (b->hello_word | BOOT_SPARE_WORD)) {
      boot_guest_refuse(b, &guest);
    } else if (boot_guest_accept(b, &guest)) {
      colli_sealed_open(conn, &guest.auth);
      return true;
    } else {
      boot_close(&guest.fd);
    }
  }
  if (colli_now_ns() >= s->until_ns)
    stop(s);
  return false;
}

bool colli_ctrl_spare_step(colli_ctrl_spares *spares, int link, int *line, colli_sealed *conn) {
  spare *s = &spares->at[link];
  if (s->asked && colli_now_ns() >= s->until_ns)
    give_up(s); /* there was no answer */
  if (!(s->dial && step_dial(spares, s, conn)) && !(s->entrance && step_entrance(spares, s, conn)))
    return false;
  *line = s->line;
  stop(s);
  s->pause_ns = PAUSE_NS;
  s->next_ns = colli_now_ns() + PAUSE_NS; /* should it end at once */
  return true;
}
