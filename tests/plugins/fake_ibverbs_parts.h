/* fake_ibverbs_parts.h: what the files of the pretended libibverbs share. */
#ifndef COLLI_TESTS_PLUGINS_FAKE_IBVERBS_PARTS_H
#define COLLI_TESTS_PLUGINS_FAKE_IBVERBS_PARTS_H

#include <pthread.h>

#include "fake_ibverbs.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct fake_context {
  fake_device *device;
  struct fake_context *next;
  int pipe[2];
  bool told;                  /* that it is dead */
  struct verbs_context verbs; /* the last member, as it is in the real library */
} fake_context;

typedef struct fake_mr {
  struct ibv_mr mr;
  struct fake_mr *next;
  size_t pinned;
  unsigned access;
} fake_mr;

extern fake_verbs fake;
extern pthread_mutex_t fake_lock; /* over all that is shared */

/* Whether memory is registered under a key with these rights. */
bool fake_may(uint32_t key, uint64_t addr, size_t bytes, unsigned access);

/* Fills in the calls that move data. */
void fake_data_calls(struct ibv_context_ops *ops);

#endif
