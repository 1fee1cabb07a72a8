/* test_verbs_event.c: asynchronous events of devices, and messages for failed completions. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support_verbs.h"
#include "transports/verbs/verbs_event.h"

static fake_verbs *fake;
static verbs_lib lib;
static verbs_fault fault;
static verbs_rail rail;
static verbs_settings settings;

static void load(void) {
  fake = fake_load();
  cr_assert_not_null(fake);
  cr_assert_eq(verbs_lib_load(&lib, VERBS_LIB_NAME, &fault), COLL_OK, "%s", fault.detail);
  fake_add(fake, "mlx5_0", 2);
  settings = fake_settings();
  settings.port = 2;
  cr_assert_eq(verbs_rails_open(&lib, &settings, &rail, 1, &fault), 1);
}

static void unload(void) {
  verbs_rails_close(&lib, &rail, 1);
  verbs_lib_close(&lib);
}

static void tell(enum ibv_event_type type, int port, void *object) {
  struct ibv_async_event *event = &fake->events[fake->nevents++];
  memset(event, 0, sizeof(*event));
  event->event_type = type;
  if (object)
    event->element.qp = object;
  else
    event->element.port_num = port;
}

/* Without an event nothing blocks: otherwise the fake library ends the test. */
Test(verbs_event, nothing_to_tell, .init = load, .fini = unload) {
  verbs_event event;
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 0);
  fake->event_errno = EINTR;
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 0);
}

Test(verbs_event, only_the_own_port_counts, .init = load, .fini = unload) {
  verbs_event event;
  tell(IBV_EVENT_PORT_ERR, 1, NULL);
  tell(IBV_EVENT_SM_CHANGE, 2, NULL);
  tell(IBV_EVENT_PORT_ERR, 2, NULL);
  tell(IBV_EVENT_PORT_ACTIVE, 1, NULL);
  tell(IBV_EVENT_PORT_ACTIVE, 2, NULL);
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 1);
  cr_assert_eq(event.kind, VERBS_EVENT_PORT_DOWN);
  cr_assert_eq(verbs_event_fault(&rail, &event, &fault), COLL_ERR_SYSTEM);
  cr_assert(strstr(fault.detail, "mlx5_0 port 2 went down: check cable"), "%s", fault.detail);
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 1);
  cr_assert_eq(event.kind, VERBS_EVENT_PORT_UP);
  cr_assert_eq(verbs_event_fault(&rail, &event, &fault), COLL_OK);
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 0);
  cr_assert_eq(fake->acked, 5);
}

Test(verbs_event, objects_are_named, .init = load, .fini = unload) {
  static char object;
  const struct {
    enum ibv_event_type type;
    verbs_event_kind kind;
    coll_status status;
    bool about_object;
  } cases[] = {
      {IBV_EVENT_QP_FATAL, VERBS_EVENT_QP_LOST, COLL_ERR_SYSTEM, true},
      {IBV_EVENT_QP_REQ_ERR, VERBS_EVENT_QP_LOST, COLL_ERR_SYSTEM, true},
      {IBV_EVENT_QP_ACCESS_ERR, VERBS_EVENT_QP_LOST, COLL_ERR_SYSTEM, true},
      {IBV_EVENT_CQ_ERR, VERBS_EVENT_CQ_LOST, COLL_ERR_INTERNAL, true},
      {IBV_EVENT_SRQ_ERR, VERBS_EVENT_SRQ_LOST, COLL_ERR_SYSTEM, true},
      {IBV_EVENT_DEVICE_FATAL, VERBS_EVENT_DEVICE_LOST, COLL_ERR_SYSTEM, false},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    verbs_event event;
    tell(cases[i].type, 0, &object);
    cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 1);
    cr_expect_eq(event.kind, cases[i].kind, "case %zu", i);
    cr_expect_eq(event.object, cases[i].about_object ? &object : NULL, "case %zu", i);
    cr_expect_eq(verbs_event_fault(&rail, &event, &fault), cases[i].status, "case %zu", i);
    cr_expect(strstr(fault.detail, "mlx5_0"), "%s", fault.detail);
  }
}

/* Harmless and unknown events are ignored, and never read endlessly. */
Test(verbs_event, the_rest_is_passed_over, .init = load, .fini = unload) {
  verbs_event event;
  tell(IBV_EVENT_COMM_EST, 0, &event);
  tell(IBV_EVENT_SQ_DRAINED, 0, &event);
  tell((enum ibv_event_type)12345, 0, &event);
  tell(IBV_EVENT_GID_CHANGE, 2, NULL);
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), 1);
  cr_assert_eq(event.kind, VERBS_EVENT_ADDRESS);
  cr_assert_eq(verbs_event_fault(&rail, &event, &fault), COLL_OK);
  cr_assert_eq(fake->acked, 4);
}

Test(verbs_event, device_that_is_gone, .init = load, .fini = unload) {
  verbs_event event;
  fake->event_errno = EIO;
  cr_assert_eq(verbs_event_next(&lib, &rail, &event, &fault), -1);
  cr_assert_eq(fault.status, COLL_ERR_SYSTEM);
  cr_assert_eq(fault.sys_errno, EIO);
  cr_assert(strstr(fault.detail, "device mlx5_0 is gone"), "%s", fault.detail);
}

/* A device that disappears from the system's list is being removed; one that was never listed is
 * not. */
Test(verbs_event, device_that_is_being_removed, .init = load, .fini = unload) {
  char path[] = "/tmp/coll_test_uverbs_XXXXXX";
  int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  cr_assert_not(verbs_event_removed(&rail, &fault));
  verbs_rails_close(&lib, &rail, 1);
  snprintf(fake->devices[0].device.dev_path, sizeof(fake->devices[0].device.dev_path), "%s", path);
  cr_assert_eq(verbs_rails_open(&lib, &settings, &rail, 1, &fault), 1);
  cr_assert_not(verbs_event_removed(&rail, &fault));
  close(fd);
  unlink(path);
  cr_assert(verbs_event_removed(&rail, &fault));
  cr_assert_eq(fault.status, COLL_ERR_SYSTEM);
  cr_assert(strstr(fault.detail, "device mlx5_0 is being removed"), "%s", fault.detail);
}

/* ---- completions ----------------------------------------------------------------------------- */

/* Every status has a message that names work request, peer, device and port. */
Test(verbs_event, every_status_has_a_sentence, .init = load, .fini = unload) {
  for (int status = 1; status < 40; status++) {
    struct ibv_wc wc = {.status = (enum ibv_wc_status)status, .vendor_err = 0x51};
    coll_status result =
        verbs_completion_fault(&lib, &rail, &settings, &wc, "RDMA write of 64 bytes", 3, &fault);
    cr_assert_neq(result, COLL_OK);
    cr_assert_eq(fault.status, result);
    cr_assert(strstr(fault.detail, "RDMA write of 64 bytes: rank 3"), "%s", fault.detail);
    cr_assert(strstr(fault.detail, "mlx5_0 port 2"), "%s", fault.detail);
    cr_assert_null(strchr(fault.detail, '\n'));
    cr_assert_lt(strlen(fault.detail), sizeof(fault.detail) - 1, "cut: %s", fault.detail);
  }
}

Test(verbs_event, who_is_to_blame, .init = load, .fini = unload) {
  const struct {
    enum ibv_wc_status status;
    coll_status want;
    const char *words;
  } cases[] = {
      {IBV_WC_RETRY_EXC_ERR, COLL_ERR_PEER_LOST, "did not answer 8 times, for 8.6 s or more"},
      {IBV_WC_RNR_RETRY_EXC_ERR, COLL_ERR_PEER_LOST, "is its process stopped?"},
      {IBV_WC_REM_ACCESS_ERR, COLL_ERR_PEER_LOST, "remote access error (10, vendor code 0x51)"},
      {IBV_WC_WR_FLUSH_ERR, COLL_ERR_PEER_LOST, "had failed before"},
      {IBV_WC_LOC_PROT_ERR, COLL_ERR_INTERNAL, "unmapped"},
      {IBV_WC_LOC_LEN_ERR, COLL_ERR_INTERNAL, "please report"},
      {IBV_WC_FATAL_ERR, COLL_ERR_SYSTEM, "dmesg"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    struct ibv_wc wc = {.status = cases[i].status, .vendor_err = 0x51};
    cr_expect_eq(verbs_completion_fault(&lib, &rail, &settings, &wc, "send", 1, &fault),
                 cases[i].want);
    cr_expect(strstr(fault.detail, cases[i].words), "%s", fault.detail);
  }
  cr_assert_null(strstr(fault.detail, "loses packets"));
  rail.link_layer = IBV_LINK_LAYER_ETHERNET;
  struct ibv_wc wc = {.status = IBV_WC_RETRY_EXC_ERR};
  verbs_completion_fault(&lib, &rail, &settings, &wc, "send", 1, &fault);
  cr_assert(strstr(fault.detail, "or the network loses packets"), "%s", fault.detail);
}
