/* fuzz_control.c: the messages that a member of the job sends over a control link, sealed as they
 * must be. */
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/wireup/ctrl_links.h"

#define NRANKS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  int fds[2], peer = 1, sys_errno;
  colli_ctrl *ctrl;
  colli_ctrl_msg msg;
  coll_error error = COLL_ERROR_INIT;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
    return 0;
  const colli_sealed end = {.fd = fds[0], .send_key = {1}, .recv_key = {1}};
  colli_sealed member = {.fd = fds[1], .send_key = {1}, .recv_key = {1}};
  if (colli_ctrl_create_net(&ctrl, 0, NRANKS, &peer, &end, NULL, 1, 2000, &error) != COLL_OK)
    abort();
  for (int i = 0; i < 8 && bytes > 0; i++) {
    size_t done = 0;
    fuzz_take(&data, &bytes, &msg, offsetof(colli_ctrl_msg, number));
    msg.number = (uint64_t)i + 1; /* others are dropped */
    if (colli_sealed_push(&member, &msg, sizeof(msg), &done) != COLL_T_DONE)
      break;
    if (colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno) != COLLI_CTRL_MESSAGE)
      continue;
    if (msg.origin < 0 || msg.origin >= NRANKS || msg.peer < -1 || msg.peer >= NRANKS ||
        msg.nmore < 0 || msg.nmore > COLLI_CTRL_MORE)
      abort();
    if (memchr(msg.error.message, 0, sizeof(msg.error.message)) == NULL)
      abort();
  }
  colli_sealed_close(&member);
  colli_ctrl_close(ctrl, 0);
  return 0;
}
