/* support_ctrl.c: one side of control links. */
#include "support_ctrl.h"

#include <criterion/criterion.h>
#include <string.h>

colli_sealed ctrl_unkeyed(int fd) {
  return (colli_sealed){.fd = fd, .send_key = {1}, .recv_key = {1}};
}

void ctrl_rank_open(ctrl_rank *rank, bool tls) {
  memset(rank, 0, sizeof(*rank));
  cr_assert_eq(colli_id_fresh(&rank->id, &rank->error), COLL_OK);
  rank->b = (boot){.id = &rank->id,
                   .rank = 1,
                   .nranks = 2,
                   .mine = &rank->mine,
                   .log = &rank->log,
                   .error = &rank->error,
                   .tls = tls,
                   .shortage = &rank->shortage};
}

void ctrl_rank_close(ctrl_rank *rank) {
  colli_id_release(&rank->id);
}
