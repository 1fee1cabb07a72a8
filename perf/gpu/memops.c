/*
 * memops.c: stream memory operations between two processes. Each one's stream waits for its word,
 * then writes the other's: there and back, many times. Where the words are:
 *   host    in memory of the host that both registered
 *   write   each in the waiting process's device memory: streams write to the other's (IPC)
 *   wait    each in the writing process's device memory: streams wait for the other's (IPC)
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

enum { TIMES = 100, PATIENCE_MS = 10000, APART = 64 };

/* The words for which this process's stream waits, and that it writes. */
typedef struct words {
  colli_cu_deviceptr wait, write;
} words;

/* Exchanges memory with the other process: returns its memory, mapped here. */
static colli_cu_deviceptr exchange(const pair *it, const probe *p, colli_cu_deviceptr own) {
  colli_cu_ipc_handle handle;
  colli_cu_deviceptr at;
  PROBE_OK(p, ipc_get_mem_handle, &handle, own);
  pair_send(it, &handle, sizeof(handle));
  pair_receive(it, &handle, sizeof(handle));
  PROBE_OK(p, ipc_open_mem_handle, &at, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  return at;
}

/* Makes the words, all 0. */
static words make_words(const pair *it, const probe *p, const char *which) {
  words w;
  if (strcmp(which, "host") == 0) {
    const colli_cu_deviceptr shared = pair_register(it, p);
    w.wait = shared + (it->parent ? 0 : APART);
    w.write = shared + (it->parent ? APART : 0);
    return w;
  }
  if (strcmp(which, "write") != 0 && strcmp(which, "wait") != 0)
    probe_die("--which takes host, write or wait, not '%s'", which);
  const colli_cu_deviceptr own = probe_memory(p, APART);
  PROBE_OK(p, memset_d32_async, own, 0, APART / sizeof(uint32_t), NULL);
  PROBE_OK(p, stream_synchronize, NULL);
  const colli_cu_deviceptr other = exchange(it, p, own);
  const bool far = strcmp(which, "write") == 0;
  w.wait = far ? own : other;
  w.write = far ? other : own;
  return w;
}

/* One process's part; the time of one way. */
static double play(const pair *it, const probe_options *options, bool *ended) {
  probe p;
  probe_load(&p);
  probe_use(&p, it->parent ? options->device : options->peer);
  const words w = make_words(it, &p, options->which);
  const colli_cu_stream stream = probe_stream(&p);
  pair_meet(it);
  const double start = probe_now_us();
  for (uint32_t i = 1; i <= TIMES; i++) {
    if (it->parent)
      PROBE_OK(&p, stream_write_value_32, stream, w.write, i, COLLI_CU_STREAM_WRITE_VALUE_DEFAULT);
    PROBE_OK(&p, stream_wait_value_32, stream, w.wait, i, COLLI_CU_STREAM_WAIT_VALUE_GEQ);
    if (!it->parent)
      PROBE_OK(&p, stream_write_value_32, stream, w.write, i, COLLI_CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  *ended = probe_ends(&p, stream, PATIENCE_MS);
  const double one_way = (probe_now_us() - start) / (2 * TIMES);
  if (*ended)
    pair_meet(it); /* nothing is unmapped before */
  return one_way;
}

/* The second process; the first one tells what happened. */
static void play_second(pair *it, const probe_options *options) {
  bool ended;
  play(it, options, &ended);
}

void probe_memops(const probe_options *options) {
  bool ended;
  pair it = pair_start(play_second, options);
  const double one_way = play(&it, options, &ended);
  printf("{\"probe\": \"memops\", \"which\": \"%s\", \"ended\": %s, \"one_way_us\": %.2f}\n",
         options->which, ended ? "true" : "false", one_way);
  fflush(stdout);
  if (ended)
    return;
  fprintf(stderr, "gpu_probe: after %d s the streams still wait\n", PATIENCE_MS / 1000);
  _exit(1); /* at exit, the driver would wait for them */
}
