/*
 * ctrl_line.h: one socket of a control link. Between hosts that share two networks, a link has two
 * of these lines, one in each (ctrl_net.c), of which one may be made later (ctrl_spare.c).
 */
#ifndef COLLI_WIREUP_CTRL_LINE_H
#define COLLI_WIREUP_CTRL_LINE_H

#include "libcoll/net/heartbeat.h"
#include "libcoll/net/sockets.h"
#include "libcoll/wireup/ctrl_links.h"

struct pollfd;

typedef struct colli_ctrl_line {
  colli_sealed conn; /* no descriptor: closed, or never made */
  int epoll_fd;      /* the owner's, which watches it */
  uint32_t epoll_tag;
  bool broken;    /* nothing more can be sent, */
  int broken_by;  /* because of this errno */
  bool mute;      /* nor received, */
  int ended_by;   /* because of this errno; 0: the stream ended */
  bool joins;     /* made later: it is not used before the other one has delivered what it has */
  bool fresh;     /* made later: nothing was taken from it yet; */
  bool held;      /* `in` is what will be first */
  bool told;      /* the log says that it is lost */
  bool quiet;     /* at the last look, its host had not answered for too long; */
  bool was_quiet; /* or at an earlier one */
  bool watching;  /* epoll watches for space to send */
  bool shut;      /* this side is shut down */
  colli_ctrl_msg in;
  size_t in_done;
  colli_ctrl_entry out; /* being sent */
  size_t out_done;      /* all of it: none is */
  colli_ctrl_queue queue;
  colli_heartbeat heartbeat;
  int beats;                                          /* sent since the neighbour's last message */
  char here[COLLI_ADDR_TEXT], there[COLLI_ADDR_TEXT]; /* its addresses */
} colli_ctrl_line;

/* Has epoll watch a connection, which it takes over: false with errno. */
bool colli_ctrl_line_open(colli_ctrl_line *line, const colli_sealed *conn, int epoll_fd,
                          uint32_t epoll_tag, int heartbeat_ms);

/* Whether anything may still arrive. */
static inline bool colli_ctrl_line_works(const colli_ctrl_line *line) {
  return line->conn.fd >= 0 && !line->mute;
}

/* Whether anything still has to be sent. */
bool colli_ctrl_line_unsent(const colli_ctrl_line *line);

/* Queues a copy of a message, and sends what the socket accepts. False: it was not queued. */
bool colli_ctrl_line_send(colli_ctrl_line *line, const colli_ctrl_msg *msg, int nranks);

/* Sends what the socket accepts. */
void colli_ctrl_line_flush(colli_ctrl_line *line);

/* Receives a message to line->in: COLL_T_DONE, COLL_T_AGAIN, or an errno: the line has ended. 0 is
 * not among them: ESHUTDOWN is the end of the stream. */
int colli_ctrl_line_receive(colli_ctrl_line *line);

/* Whether the neighbour's kernel has left questions unanswered, maybe before the line ended. */
bool colli_ctrl_line_unheard(const colli_ctrl_line *line);

/* Looks whether its host answers: sets `quiet`. If it does, sends something to be answered, where
 * the kernel asks too seldom. */
void colli_ctrl_line_look(colli_ctrl_line *line, int rank, int nranks, int heartbeat_ms,
                          uint64_t now_ns);

/* Stops using it without closing it: the neighbour would take that for the end of this process. */
void colli_ctrl_line_mute(colli_ctrl_line *line);

/* Closes it for good. */
void colli_ctrl_line_close(colli_ctrl_line *line);

/* Advances its end: sends what is queued, and shuts it down. True while the neighbour's kernel has
 * not all of it; *pfd is what to poll for. */
bool colli_ctrl_line_end(colli_ctrl_line *line, struct pollfd *pfd);

/* ---- ctrl_spare.c ---------------------------------------------------------------------------- */

/* Logs that a line of a link is lost, and why, or that there are two again. */
void colli_ctrl_spare_tell(const colli_ctrl_spares *spares, int link, const colli_ctrl_line *line,
                           bool lost, int heartbeat_ms);

/* A line of a link is not there while the other one works: whether to ask the neighbour for a new
 * one now, with *msg. */
bool colli_ctrl_spare_ask(colli_ctrl_spares *spares, int link, int line,
                          const colli_ctrl_line *works, colli_ctrl_msg *msg);

/* Takes the neighbour's question or answer; works: a line that does, or NULL. Whether to send
 * *answer. */
bool colli_ctrl_spare_take(colli_ctrl_spares *spares, int link, const colli_ctrl_msg *msg,
                           const colli_ctrl_line *works, colli_ctrl_msg *answer);

/* Advances what is under way. True: *conn, which the caller owns, is the new line number *line. */
bool colli_ctrl_spare_step(colli_ctrl_spares *spares, int link, int *line, colli_sealed *conn);

void colli_ctrl_spares_free(colli_ctrl_spares *spares);

#endif
