/*
 * links.h: makes a rank's control links, over which the table comes down the tree. Where
 * two hosts share a second network, the dialling rank makes a spare connection in it, and then says
 * on the first one whether it has.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_LINKS_H
#define COLLI_WIREUP_BOOTSTRAP_LINKS_H

#include "libcoll/wireup/bootstrap/dial.h"
#include "libcoll/wireup/bootstrap/door.h"
#include "libcoll/wireup/ctrl_links.h"

/* The first message on a control link. From parent to child, the table follows. With tries_spare, a
 * word (uint32_t) comes last: whether there is a spare connection. */
typedef struct boot_link_head {
  uint32_t magic;
  uint32_t table_bytes;  /* that follow */
  uint32_t remaining_ms; /* until the links must be up */
  uint32_t margin_ms;    /* so long after that the server tells the outcome at the latest */
  int32_t server;
  uint32_t tries_spare;
} boot_link_head;

typedef struct boot_link {
  int peer;
  bool dials; /* this rank connects */
  bool table; /* the table goes over it, unless the child is the server, which has it */
  bool began, up;
  bool headed; /* head and table have been sent or received */
  bool dialling_spare;
  colli_sealed conn, spare;
  size_t head_done, table_done, spare_done; /* bytes sent or received so far */
  boot_link_head head;
  uint32_t has_spare;
  uint64_t spare_until_ns; /* when the spare connection is given up */
  boot_dial dial;
} boot_link;

typedef struct boot_links {
  int listen_fd; /* -1: none */
  colli_door door;
  colli_rank_table *table; /* NULL: nothing of it is here */
  bool have_table;         /* all of it is */
  int server; /* the rank that serves the others; -1: not known yet. With the table it is */
  /* Set by the server, and arrive with the table; before that, about what they will be: */
  uint64_t deadline_ns; /* for the links; then until this rank gives up */
  uint64_t outcome_ns;  /* by when the server tells the outcome */
  uint64_t margin_ns;   /* from the one to the other */
  int count;
  boot_link at[COLLI_CTRL_LINKS_MAX];
} boot_links;

/* Opens the control listener, completes boot->mine. */
coll_status boot_links_open(const boot *b, boot_links *links, const colli_params *params);

/* The table will come from the rank `from`, with so many bytes: makes room, unless there is.
 * COLL_OK, PROTOCOL or NO_MEMORY. */
coll_status boot_links_expect_table(const boot *b, boot_links *links, int from, size_t bytes);

/* The table has arrived from the rank `from`, with the rank that serves and the times for links and
 * outcome: checks it. COLL_OK, or PROTOCOL. */
coll_status boot_links_take_table(const boot *b, boot_links *links, int from, int server,
                                  uint32_t remaining_ms, uint32_t margin_ms);

/* Until the table comes: about when the server will tell the outcome if it has heard of this rank
 * now. */
void boot_links_guess_outcome(const boot *b, boot_links *links);

/* COLL_T_DONE: all links are up; COLL_T_AGAIN; or a coll_status, with boot->error filled in. */
int boot_links_step(const boot *b, boot_links *links);

void boot_links_watch(boot *b, const boot_links *links);
void boot_links_close(boot_links *links);

#endif
