/* test_ctrl_lines.c: control links with two sockets (lines), of which either may be cut or end. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "sockets.h"
#include "support_ctrl.h"
#include "waits.h"

enum { LINES = 2, LIMIT_MS = 200 };

/* A rank whose neighbour, rank 1, is played by the test. */
typedef struct scene {
  colli_ctrl *ctrl;
  int fd[LINES];              /* the neighbour's ends, */
  colli_sealed sealed[LINES]; /* with keys; closed with the scene unless the test has done so */
} scene;

static scene open_scene(void) {
  scene s = {0};
  const int peer = 1;
  colli_sealed own[LINES];
  coll_error error = COLL_ERROR_INIT;
  for (int i = 0; i < LINES; i++) {
    int pair[2];
    tcp_pair(pair);
    own[i] = ctrl_unkeyed(pair[0]);
    s.sealed[i] = ctrl_unkeyed(pair[1]);
    s.fd[i] = pair[1];
  }
  cr_assert_eq(colli_ctrl_create_net(&s.ctrl, 0, 2, &peer, &own[0], &own[1], 1, LIMIT_MS, &error),
               COLL_OK);
  return s;
}

static void close_scene(scene *s) {
  colli_ctrl_close(s->ctrl, 0);
  for (int i = 0; i < LINES; i++)
    colli_sealed_close(&s->sealed[i]);
}

/* The neighbour sends message `number` over a line. */
static void push(scene *s, int line, uint64_t number, colli_ctrl_kind kind) {
  size_t done = 0;
  const colli_ctrl_msg msg = {
      .kind = kind, .origin = 1, .peer = -1, .serial = number, .number = number};
  cr_assert_eq(colli_sealed_push(&s->sealed[line], &msg, sizeof(msg), &done), COLL_T_DONE);
}

/* The next event, waited for unless `now`; *number is that of a message. */
static colli_ctrl_event next_event(scene *s, bool now, uint64_t *number) {
  colli_ctrl_msg msg = {0};
  colli_ctrl_event event;
  int peer, sys_errno = 0;
  (void)WAIT_UNTIL(
      (event = colli_ctrl_poll(s->ctrl, &peer, &msg, &sys_errno)) != COLLI_CTRL_NOTHING || now, 10);
  *number = msg.number;
  return event;
}

/* Whether exactly this message comes next. */
static bool takes(scene *s, uint64_t number) {
  uint64_t got;
  return next_event(s, false, &got) == COLLI_CTRL_MESSAGE && got == number;
}

/* Lets nothing more through to the neighbour on a line, not even to its kernel; or again. */
static void cut(scene *s, int line, bool on) {
  struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const struct sock_fprog program = {1, code};
  const int none = 0;
  cr_assert_eq(on ? setsockopt(s->fd[line], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program))
                  : setsockopt(s->fd[line], SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)),
               0);
}

/* Ends a line with a reset: what the neighbour's kernel does, or something on the way. */
static void reset_line(scene *s, int line) {
  const struct linger reset = {1, 0};
  setsockopt(s->fd[line], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(s->fd[line]);
  s->sealed[line].fd = -1;
}

/* The event within some limits of silence; beats are sent meanwhile, and nobody reads them. */
static colli_ctrl_event event_in_limits(scene *s, int limits) {
  const uint64_t until_ns = colli_now_ns() + (uint64_t)limits * LIMIT_MS * COLLI_NS_PER_MS;
  colli_ctrl_event event = COLLI_CTRL_NOTHING;
  uint64_t number;
  while (event == COLLI_CTRL_NOTHING && colli_now_ns() < until_ns)
    event = next_event(s, true, &number);
  return event;
}

Test(ctrl_lines, a_message_is_taken_once_from_the_line_that_has_it_first, .timeout = 60) {
  scene s = open_scene();
  uint64_t number;
  for (uint64_t i = 1; i <= 3; i++) {
    push(&s, 1, i, COLLI_CTRL_WAITING);
    cr_assert(takes(&s, i));
  }
  for (uint64_t i = 1; i <= 5; i++)
    push(&s, 0, i, COLLI_CTRL_WAITING);
  cr_assert(takes(&s, 4));
  cr_assert(takes(&s, 5));
  for (uint64_t i = 4; i <= 6; i++)
    push(&s, 1, i, COLLI_CTRL_WAITING);
  cr_assert(takes(&s, 6));
  cr_assert_eq(next_event(&s, true, &number), COLLI_CTRL_NOTHING);
  close_scene(&s);
}

Test(ctrl_lines, what_is_sent_goes_over_both, .timeout = 60) {
  scene s = open_scene();
  const colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING, .peer = -1, .serial = 7};
  for (int i = 0; i < 3; i++)
    colli_ctrl_send(s.ctrl, 1, &msg);
  for (int line = 0; line < LINES; line++)
    for (uint64_t number = 1; number <= 3; number++) {
      colli_ctrl_msg got;
      size_t done = 0;
      cr_assert(WAIT_UNTIL(
          colli_sealed_pull(&s.sealed[line], &got, sizeof(got), &done) == COLL_T_DONE, 10));
      cr_assert_eq(got.number, number);
      cr_assert_eq(got.serial, 7);
    }
  close_scene(&s);
}

Test(ctrl_lines, a_line_that_is_cut_is_not_missed, .timeout = 60) {
  scene s = open_scene();
  cut(&s, 0, true);
  cr_assert_eq(event_in_limits(&s, 5), COLLI_CTRL_NOTHING);
  push(&s, 1, 1, COLLI_CTRL_WAITING);
  cr_assert(takes(&s, 1));
  cut(&s, 1, true);
  cr_assert_eq(event_in_limits(&s, 50), COLLI_CTRL_SILENT);
  close_scene(&s);
}

Test(ctrl_lines, a_line_heals, .timeout = 60) {
  scene s = open_scene();
  cut(&s, 0, true);
  cr_assert_eq(event_in_limits(&s, 3), COLLI_CTRL_NOTHING);
  cut(&s, 0, false);
  char byte; /* what was repeated since then has arrived */
  while (recv(s.fd[0], &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 1)
    cr_assert_eq(event_in_limits(&s, 1), COLLI_CTRL_NOTHING);
  cut(&s, 1, true);
  cr_assert_eq(event_in_limits(&s, 5), COLLI_CTRL_NOTHING);
  push(&s, 0, 1, COLLI_CTRL_WAITING);
  cr_assert(takes(&s, 1));
  close_scene(&s);
}

Test(ctrl_lines, the_end_of_a_process_is_the_end_of_both, .timeout = 60) {
  scene s = open_scene();
  uint64_t number;
  push(&s, 0, 1, COLLI_CTRL_WAITING);
  close(s.fd[1]);
  s.sealed[1].fd = -1;
  cr_assert(takes(&s, 1), "what the other line has is taken first");
  close(s.fd[0]);
  s.sealed[0].fd = -1;
  cr_assert_eq(next_event(&s, false, &number), COLLI_CTRL_CLOSED);
  close_scene(&s);
}

Test(ctrl_lines, the_end_is_known_although_the_other_line_is_cut, .timeout = 60) {
  scene s = open_scene();
  cut(&s, 0, true);
  close(s.fd[1]);
  s.sealed[1].fd = -1;
  cr_assert_eq(event_in_limits(&s, 50), COLLI_CTRL_CLOSED);
  close_scene(&s);
}

Test(ctrl_lines, a_line_that_breaks_is_no_end, .timeout = 60) {
  scene s = open_scene();
  uint64_t number;
  reset_line(&s, 0);
  cr_assert_eq(event_in_limits(&s, 1), COLLI_CTRL_NOTHING);
  push(&s, 1, 1, COLLI_CTRL_WAITING);
  cr_assert(takes(&s, 1));
  push(&s, 1, 2, COLLI_CTRL_GOODBYE);
  cr_assert(takes(&s, 2));
  close(s.fd[1]);
  s.sealed[1].fd = -1;
  cr_assert_eq(next_event(&s, true, &number), COLLI_CTRL_NOTHING);
  cr_assert_eq(event_in_limits(&s, 1), COLLI_CTRL_NOTHING, "it has left");
  close_scene(&s);
}

Test(ctrl_lines, bad_bytes_on_either_line_are_told, .timeout = 60) {
  for (int line = 0; line < LINES; line++) {
    scene s = open_scene();
    uint64_t number;
    push(&s, line, 1, 99);
    cr_assert_eq(next_event(&s, false, &number), COLLI_CTRL_SILENT);
    close_scene(&s);
  }
}

/* The kernel tells the next call of a reset, and then the end of the stream. */
Test(ctrl_lines, a_reset_that_a_send_meets_proves_nothing, .timeout = 60) {
  scene s = open_scene();
  const colli_ctrl_msg msg = {.kind = COLLI_CTRL_WAITING, .peer = -1, .serial = 1};
  reset_line(&s, 0);
  colli_ctrl_send(s.ctrl, 1, &msg);
  cr_assert_eq(event_in_limits(&s, 1), COLLI_CTRL_NOTHING);
  cut(&s, 1, true);
  cr_assert_eq(event_in_limits(&s, 50), COLLI_CTRL_SILENT);
  close_scene(&s);
}

Test(ctrl_lines, the_end_of_a_silent_process_is_known, .timeout = 60) {
  scene s = open_scene();
  uint64_t number;
  cut(&s, 0, true);
  cut(&s, 1, true);
  cr_assert_eq(event_in_limits(&s, 50), COLLI_CTRL_SILENT);
  cut(&s, 1, false);
  close(s.fd[1]);
  s.sealed[1].fd = -1;
  cr_assert_eq(next_event(&s, false, &number), COLLI_CTRL_CLOSED);
  close_scene(&s);
}

Test(ctrl_lines, two_resets_are_the_end_although_a_line_was_cut_once, .timeout = 60) {
  scene s = open_scene();
  uint64_t number;
  cut(&s, 0, true);
  cr_assert_eq(event_in_limits(&s, 5), COLLI_CTRL_NOTHING);
  cut(&s, 0, false);
  reset_line(&s, 1);
  reset_line(&s, 0);
  cr_assert_eq(next_event(&s, false, &number), COLLI_CTRL_CLOSED);
  close_scene(&s);
}

/* Ends the link, which waits for what is on its way, and the scene: whether it did not wait long.
 */
static bool ends_soon(scene *s) {
  const double begun_s = wait_clock_s();
  colli_ctrl_close(s->ctrl, 50000);
  const bool soon = wait_clock_s() - begun_s < 40;
  for (int i = 0; i < LINES; i++)
    colli_sealed_close(&s->sealed[i]);
  return soon;
}

/* The neighbour has closed, too; its end has come over the line that works. */
Test(ctrl_lines, closing_waits_for_no_line_that_is_cut, .timeout = 60) {
  scene s = open_scene();
  cut(&s, 0, true);
  cr_assert_eq(event_in_limits(&s, 2), COLLI_CTRL_NOTHING);
  close(s.fd[1]);
  s.sealed[1].fd = -1;
  cr_assert(ends_soon(&s));
}

Test(ctrl_lines, closing_waits_for_one_line_only, .timeout = 60) {
  scene s = open_scene();
  const colli_ctrl_msg msg = {.kind = COLLI_CTRL_GOODBYE, .peer = -1, .serial = 1};
  cut(&s, 0, true);
  colli_ctrl_send(s.ctrl, 1, &msg);
  cr_assert_not(colli_ctrl_unsent(s.ctrl));
  cr_assert(ends_soon(&s));
}
