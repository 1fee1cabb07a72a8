/*
 * test_verbs.c: messages over (fake) InfiniBand that its device moves from and to memory of (fake)
 * GPUs, which the processor cannot access here: every form, against what was sent.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_verbs_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(rdma, .timeout = 120);

enum { SLOT = 65536, LEAST = 1 << 20 };

static rdma its;

static void load(void) {
  its = rdma_load("1");
}

/* Runs ranks as threads, each on a device of its own, connected by verbs. */
static int run(int nranks, rank_fn fn, void *arg) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  setenv("COLL_SLOT_BYTES", "64K", 1);
  device_use(0);
  const int result = run_threads(nranks, &config, fn, arg);
  cr_assert_eq(its.fake->registered, 0, "%d registrations are left", its.fake->registered);
  return result;
}

/* ---- one message ----------------------------------------------------------------------------- */

typedef enum message_form { BLOCKING, REQUEST, PERSISTENT, STREAM, GRAPH, FORMS } message_form;

/* A message from rank 0 to rank 1. */
typedef struct message {
  message_form form;
  size_t bytes, capacity; /* of the receive */
  bool from_host, to_host;
  int source, tag;   /* that the receive wants */
  bool probe;        /* receives by coll_mrecv() */
  bool unexpected;   /* the receive is posted when the first slice has come */
  coll_status wants; /* of the receive */
} message;

/* Makes a half of a message in a form, and waits for its end. */
static coll_status make(const message *m, bool sends, char *buf, coll_message *got,
                        coll_comm *comm) {
  coll_request *request = NULL;
  coll_status status;
  colli_cu_stream stream = m->form >= STREAM ? device_stream() : NULL;
  if (m->form == BLOCKING)
    return sends ? coll_send(buf, m->bytes, COLL_UINT8, 1, 5, comm)
                 : coll_recv(buf, m->capacity, COLL_UINT8, m->source, m->tag, got, comm);
  if (m->form == REQUEST) {
    status = sends
                 ? coll_isend(buf, m->bytes, COLL_UINT8, 1, 5, comm, &request)
                 : coll_irecv(buf, m->capacity, COLL_UINT8, m->source, m->tag, got, comm, &request);
    return status == COLL_OK ? coll_wait(&request, -1) : status;
  }
  if (m->form == PERSISTENT) {
    status = sends ? coll_send_init(buf, m->bytes, COLL_UINT8, 1, 5, comm, &request)
                   : coll_recv_init(buf, m->capacity, COLL_UINT8, m->source, m->tag, got, comm,
                                    &request);
    for (int i = 0; i < 3 && status == COLL_OK; i++) {
      status = coll_start(request);
      coll_request *same = request;
      if (status == COLL_OK)
        status = coll_wait(&same, -1);
    }
    if (request)
      coll_request_free(&request);
    return status;
  }
  if (m->form == GRAPH)
    device_capture(stream);
  status = sends ? coll_send_on_stream(buf, m->bytes, COLL_UINT8, 1, 5, comm, stream)
                 : coll_recv_on_stream(buf, m->capacity, COLL_UINT8, m->source, m->tag, got, comm,
                                       stream);
  if (m->form == GRAPH && status == COLL_OK) {
    const device_graph graph = device_capture_end(stream);
    for (int i = 0; i < 2; i++)
      device_launch(&graph, stream);
    device_await(stream);
    device_graph_free(&graph);
  } else if (status == COLL_OK) {
    device_await(stream);
  }
  return status == COLL_OK ? coll_comm_async_error(comm) : status;
}

/* Receives what a probe has found. */
static coll_status take_probed(const message *m, char *buf, coll_message *got, coll_comm *comm) {
  coll_matched *matched;
  const coll_status status = coll_probe(comm, m->source, m->tag, got, &matched, -1);
  return status == COLL_OK ? coll_mrecv(buf, m->capacity, COLL_UINT8, &matched) : status;
}

static int run_message(coll_comm *comm, int rank, int nranks, void *arg) {
  const message *m = arg;
  const bool sends = rank == 0, host = sends ? m->from_host : m->to_host;
  const size_t bytes = sends ? m->bytes : m->capacity;
  coll_message got = {.count = m->capacity}, unused;
  (void)nranks;
  device_use(device_of_rank(rank));
  char *device = rdma_take(bytes, sends ? 9 : 0), *memory = malloc(bytes + 1);
  RANK_CHECK(memory);
  rdma_fill(memory, bytes, sends ? 9 : 0);
  char *buf = host ? memory : device;
  if (rank == 1 && m->unexpected)
    RANK_OK(coll_probe(comm, m->source, m->tag, &unused, NULL, -1));
  coll_message *tells = m->capacity > m->bytes || m->source < 0 || m->tag < 0 ? &got : NULL;
  const coll_status status =
      rank == 1 && m->probe ? take_probed(m, buf, &got, comm) : make(m, sends, buf, tells, comm);
  RANK_CHECK(status == (sends ? COLL_OK : m->wants));
  if (!sends && status == COLL_OK) {
    RANK_CHECK(!tells || (got.count == m->bytes && got.source == 0 && got.tag == 5));
    const size_t rest = m->capacity - m->bytes;
    RANK_CHECK(host ? rdma_is(buf, m->bytes, 9) && rdma_is(buf + m->bytes, rest, 0)
                    : rdma_has(buf, m->bytes, 9, rest));
  }
  RANK_OK(coll_barrier(comm));
  rdma_give(device);
  free(memory);
  return 0;
}

/* How often a form makes its call: its copies, in a graph, are counted when it is captured. */
static size_t times(int form) {
  return form == PERSISTENT ? 3 : 1;
}

/* Sends a message. How much the network's device has read and written, and the driver copied. */
static void send_one(message m, size_t *read, size_t *written, size_t *copied) {
  m.capacity = m.capacity > 0 ? m.capacity : m.bytes;
  m.tag = m.tag ? m.tag : 5;
  const size_t before = its.copied();
  its.fake->dmabuf_read = its.fake->dmabuf_written = 0;
  cr_assert_eq(run(2, run_message, &m), 0, "form %d, %zu bytes", (int)m.form, m.bytes);
  *read = its.fake->dmabuf_read;
  *written = its.fake->dmabuf_written;
  *copied = its.copied() - before;
}

static const size_t sizes[] = {0,
                               1,
                               SLOT,
                               LEAST - 1,
                               LEAST,
                               LEAST + 1,
                               LEAST + SLOT,
                               2 * LEAST + 13,
                               20 * (size_t)LEAST + 4095};

Test(rdma, all_forms_and_sizes, .init = load) {
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
    for (int form = 0; form < FORMS; form++) {
      size_t read, written, copied;
      const size_t bytes = sizes[i], n = times(form);
      send_one((message){.form = (message_form)form, .bytes = bytes}, &read, &written, &copied);
      const bool lent = bytes >= LEAST && form != GRAPH;
      cr_expect_eq(read, lent ? n * bytes : 0, "%zu of %zu read in form %d", read, bytes, form);
      cr_expect_eq(written, lent ? n * (bytes - SLOT) : 0, "%zu of %zu", written, bytes);
      cr_expect_eq(copied, n * (lent ? SLOT : 2 * bytes), "%zu of %zu", copied, bytes);
    }
}

Test(rdma, one_side_on_a_gpu, .init = load) {
  for (int form = 0; form < GRAPH; form++)
    for (int to_host = 0; to_host < 2; to_host++) {
      size_t read, written, copied;
      const size_t bytes = 3 * LEAST + 5, n = times(form);
      send_one((message){.form = (message_form)form,
                         .bytes = bytes,
                         .to_host = to_host,
                         .from_host = !to_host},
               &read, &written, &copied);
      cr_expect_eq(read, to_host ? n * bytes : 0);
      cr_expect_eq(written, to_host ? 0 : n * (bytes - SLOT), "%zu", written);
      cr_expect_eq(copied, to_host ? 0 : n * SLOT, "%zu", copied);
    }
}

Test(rdma, matched_late_or_in_other_ways, .init = load) {
  const size_t bytes = 2 * LEAST + 77, room = 3 * LEAST;
  const message messages[] = {
      {.bytes = bytes, .unexpected = true},
      {.bytes = bytes, .capacity = room},
      {.bytes = bytes, .capacity = room, .unexpected = true},
      {.bytes = 100, .capacity = room},
      {.bytes = SLOT + 1, .capacity = room},
      {.bytes = 0, .capacity = room},
      {.bytes = bytes, .tag = COLL_ANY_TAG},
      {.bytes = bytes, .source = COLL_ANY_SOURCE},
      {.bytes = bytes, .source = COLL_ANY_SOURCE, .from_host = true},
      {.bytes = bytes, .capacity = room, .probe = true},
      {.bytes = bytes, .capacity = room, .probe = true, .from_host = true},
      {.bytes = room, .capacity = bytes, .wants = COLL_ERR_MISMATCH},
      {.bytes = room, .capacity = bytes, .wants = COLL_ERR_MISMATCH, .from_host = true},
      {.bytes = bytes, .capacity = SLOT, .wants = COLL_ERR_MISMATCH},
  };
  for (size_t i = 0; i < sizeof(messages) / sizeof(*messages); i++)
    for (int form = 0; form <= REQUEST; form++) {
      size_t read, written, copied;
      message m = messages[i];
      m.form = (message_form)form;
      send_one(m, &read, &written, &copied);
      const bool target = m.bytes > SLOT && m.source >= 0 && m.wants == COLL_OK;
      cr_expect_eq(written, target ? m.bytes - SLOT : 0, "message %zu: %zu", i, written);
      cr_expect_eq(read, m.from_host || m.bytes < LEAST ? 0 : m.bytes, "message %zu: %zu", i, read);
    }
}

Test(rdma, in_streams_with_room, .init = load) {
  const message messages[] = {{.form = STREAM, .bytes = LEAST + 5, .capacity = 2 * LEAST},
                              {.form = STREAM, .bytes = SLOT - 5, .capacity = 2 * LEAST},
                              {.form = STREAM, .bytes = 0, .capacity = 2 * LEAST}};
  for (size_t i = 0; i < sizeof(messages) / sizeof(*messages); i++) {
    size_t read, written, copied;
    send_one(messages[i], &read, &written, &copied);
    cr_expect_eq(written, messages[i].bytes > SLOT ? messages[i].bytes - SLOT : 0);
  }
}

/* ---- what cannot be lent ----------------------------------------------------------------------
 */

/* Sends messages of all kinds, whose bytes are right, without the network's device. */
static void send_staged(const char *what) {
  for (int form = 0; form < FORMS; form++) {
    size_t read, written, copied;
    const size_t bytes = 2 * LEAST + 3;
    send_one((message){.form = (message_form)form, .bytes = bytes}, &read, &written, &copied);
    cr_expect_eq(read + written, 0, "%s, form %d", what, form);
    cr_expect_eq(copied, 2 * times(form) * bytes, "%s, form %d", what, form);
  }
}

Test(rdma, gpu_without_it) {
  its = rdma_load("0");
  send_staged("no dma-buf");
}

Test(rdma, gpu_that_cannot_flush) {
  its = rdma_load("3");
  send_staged("no flush");
}

Test(rdma, driver_that_refuses) {
  its = rdma_load("4");
  send_staged("no range");
}

Test(rdma, network_without_it, .init = load) {
  its.fake->dmabuf_refuse = true;
  send_staged("no support");
  its.fake->dmabuf_refuse = false;
  its.fake->dmabuf_errno = ENOMEM;
  send_staged("out of memory");
}

Test(rdma, turned_off, .init = load) {
  setenv("COLL_GPU_DIRECT_RDMA", "off", 1);
  send_staged("off");
}

Test(rdma, checked, .init = load) {
  setenv("COLL_DATA_CHECK", "crc32c", 1);
  send_staged("crc32c");
}

/* ---- flushes ----------------------------------------------------------------------------------
 */

Test(rdma, flushed) {
  its = rdma_load("2");
  its.fake->dmabuf_late = true;
  for (int form = 0; form < FORMS; form++)
    for (int from_host = 0; from_host < 2; from_host++) {
      size_t read, written, copied;
      const size_t bytes = 2 * LEAST + 3;
      send_one((message){.form = (message_form)form, .bytes = bytes, .from_host = from_host}, &read,
               &written, &copied);
      cr_expect_eq(written, form == GRAPH ? 0 : times(form) * (bytes - SLOT));
    }
}
