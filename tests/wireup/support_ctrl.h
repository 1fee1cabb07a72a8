/* support_ctrl.h: one side of control links. */
#ifndef TESTS_WIREUP_SUPPORT_CTRL_H
#define TESTS_WIREUP_SUPPORT_CTRL_H

#include "libcoll/wireup/bootstrap/report.h"
#include "libcoll/wireup/ctrl_links.h"

/* A connection with the same key in both directions. */
colli_sealed ctrl_unkeyed(int fd);

/* Rank 1 of 2 in a bootstrap. It must not move. */
typedef struct ctrl_rank {
  boot b;
  colli_id id;
  colli_rank_info mine;
  boot_shortage shortage;
  coll_error error;
  colli_log log;
} ctrl_rank;

/* Makes such a rank, with an id. */
void ctrl_rank_open(ctrl_rank *rank, bool tls);

void ctrl_rank_close(ctrl_rank *rank);

#endif
