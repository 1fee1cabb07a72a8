/*
 * queues.c: streams share the hardware queues of a process (CUDA_DEVICE_MAX_CONNECTIONS), and what
 * waits at the head of a queue blocks all its streams. How many streams may wait, for a word or in
 * a kernel that spins, while another one still runs?
 */
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

enum { MOST = 40, PATIENCE_MS = 100 };

/* Blocks a stream until the word is not 0. */
static void block(const probe *p, colli_cu_stream stream, probe_word word, bool spins) {
  if (spins)
    probe_launch(p, p->spin, stream, (void *[]){(void *)&word.at});
  else
    PROBE_OK(p, stream_wait_value_32, stream, word.at, 1, COLLI_CU_STREAM_WAIT_VALUE_GEQ);
}

/* The most streams that may be blocked, or MOST. */
static int most_blocked(const probe *p, const colli_cu_stream *streams, bool spins) {
  int blocked = 0;
  bool runs = true;
  const probe_word word = probe_pinned(p);
  while (runs && blocked < MOST) {
    block(p, streams[blocked++], word, spins);
    probe_launch(p, p->empty, streams[blocked], NULL);
    runs = probe_ends(p, streams[blocked], PATIENCE_MS);
  }
  probe_put(word, 1);
  for (int i = 0; i <= MOST; i++)
    PROBE_OK(p, stream_synchronize, streams[i]);
  return runs ? blocked : blocked - 1;
}

void probe_queues(const probe_options *options) {
  probe p;
  colli_cu_stream streams[MOST + 1];
  probe_load(&p);
  probe_use(&p, options->device);
  for (int i = 0; i <= MOST; i++)
    streams[i] = probe_stream(&p);
  const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int waits = most_blocked(&p, streams, false);
  printf("{\"probe\": \"queues\", \"connections\": \"%s\", \"most\": %d, \"waits\": %d, "
         "\"kernels\": %d}\n",
         connections ? connections : "", MOST, waits, most_blocked(&p, streams, true));
}
