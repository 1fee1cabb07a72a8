/* ipc.c: memory of a GPU that another process opens: it reads what is there, and writes. */
#include <stdio.h>
#include <stdlib.h>

#include "pair.h"

#define BYTES ((size_t)1 << 20)
#define WORDS (BYTES / sizeof(uint32_t))

/* Whether all words of memory of a device have a value. */
static bool holds(const probe *p, colli_cu_deviceptr at, size_t words, uint32_t value) {
  uint32_t *copy = malloc(BYTES);
  bool same = copy != NULL;
  PROBE_OK(p, memcpy_dtoh_async, copy, at, words * sizeof(*copy), NULL);
  PROBE_OK(p, stream_synchronize, NULL);
  for (size_t i = 0; same && i < words; i++)
    same = copy[i] == value;
  free(copy);
  return same;
}

/* Sets words of memory of a device. */
static void fill(const probe *p, colli_cu_deviceptr at, size_t words, uint32_t value) {
  PROBE_OK(p, memset_d32_async, at, value, words, NULL);
  PROBE_OK(p, stream_synchronize, NULL);
}

/* What the process tells that opens the memory. */
typedef struct answer {
  colli_cu_result opened;
  bool read;
  double open_us;
} answer;

/* Opens the memory, reads it and writes its first half. */
static void open_it(pair *it, const probe_options *options) {
  probe p;
  colli_cu_ipc_handle handle;
  colli_cu_deviceptr at;
  probe_load(&p);
  probe_use(&p, options->peer);
  pair_receive(it, &handle, sizeof(handle));
  const double start = probe_now_us();
  answer told = {
      .opened = p.cuda.ipc_open_mem_handle(&at, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)};
  told.open_us = probe_now_us() - start;
  if (told.opened == COLLI_CUDA_SUCCESS) {
    told.read = holds(&p, at, WORDS, 41);
    fill(&p, at, WORDS / 2, 43);
    PROBE_OK(&p, ipc_close_mem_handle, at);
  }
  pair_send(it, &told, sizeof(told));
}

void probe_ipc(const probe_options *options) {
  probe p;
  answer told = {.open_us = 0};
  colli_cu_ipc_handle handle;
  pair it = pair_start(open_it, options);
  probe_load(&p);
  probe_use(&p, options->device);
  const colli_cu_deviceptr at = probe_memory(&p, BYTES);
  fill(&p, at, WORDS, 41);
  const colli_cu_result given = p.cuda.ipc_get_mem_handle(&handle, at);
  if (given != COLLI_CUDA_SUCCESS)
    probe_die("no memory can be shared: cuIpcGetMemHandle failed with error %d, %s (containers may "
              "need --ipc=host)",
              given, colli_cuda_result_name(&p.cuda, given));
  pair_send(&it, &handle, sizeof(handle));
  pair_receive(&it, &told, sizeof(told));
  if (told.opened != COLLI_CUDA_SUCCESS)
    probe_die("memory of another process cannot be opened: cuIpcOpenMemHandle failed with error "
              "%d, %s",
              told.opened, colli_cuda_result_name(&p.cuda, told.opened));
  const bool written = holds(&p, at, WORDS / 2, 43) && holds(&p, at + BYTES / 2, WORDS / 2, 41);
  printf("{\"probe\": \"ipc\", \"device\": %d, \"peer\": %d, \"read\": %s, \"written\": %s, "
         "\"open_us\": %.1f}\n",
         options->device, options->peer, told.read ? "true" : "false", written ? "true" : "false",
         told.open_us);
  if (!told.read || !written)
    probe_die("the other process saw or wrote something else");
}
