/* pair.h: two processes that use GPUs. */
#ifndef PERF_GPU_PAIR_H
#define PERF_GPU_PAIR_H

#include "probe.h"

/* What both have in common: memory of the host, and a way to tell each other something. */
typedef struct pair {
  int fd;
  bool parent;
  volatile uint32_t *shared; /* PAIR_WORDS words */
} pair;

enum { PAIR_WORDS = 1024 };

/* Starts the other process, which runs `child` and ends; before the driver is loaded. */
pair pair_start(void (*child)(pair *it, const probe_options *options),
                const probe_options *options);

/* Sends and receives; a process whose partner has ended or is silent for 20 s ends, too. */
void pair_send(const pair *it, const void *message, size_t bytes);
void pair_receive(const pair *it, void *message, size_t bytes);

/* Both wait for each other. */
void pair_meet(const pair *it);

/* Where the device finds the shared words. */
colli_cu_deviceptr pair_register(const pair *it, const probe *p);

#endif
