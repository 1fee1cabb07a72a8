/* fake_ibverbs_parts.h: declarations that the files of the fake libibverbs share. */
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
  struct ibv_mr mr; /* addr: as work requests call it */
  uint8_t *place;   /* of a dma-buf: where its first byte is mapped; or NULL */
  size_t mapped;    /* bytes, from the page of `place` on */
  struct fake_mr *next;
  size_t pinned;
  unsigned access;
} fake_mr;

extern fake_verbs fake;
extern pthread_mutex_t fake_lock; /* over all that is shared */

/* Whether memory is registered under a key with these rights. */
bool fake_may(uint32_t key, uint64_t addr, size_t bytes, unsigned access);

/* Where the processor finds memory that work requests read under a key. */
const uint8_t *fake_read_at(uint32_t key, uint64_t addr, size_t bytes);

/* The same for memory that is written; of a dma-buf whose writes are seen late a copy, which comes
 * there later. */
uint8_t *fake_write_at(uint32_t key, uint64_t addr, size_t bytes);

/* ---- fake_ibverbs_far.c ---------------------------------------------------------------------- */

/* A connection with a queue pair of another process. */
typedef struct fake_far fake_far;

/* A write, or a piece of one, as it travels. */
typedef struct fake_far_head {
  uint64_t at;
  size_t bytes; /* of all pieces */
  uint32_t key;
  uint32_t imm_data;
  bool request; /* takes a receive request */
  bool last;    /* piece */
} fake_far_head;

fake_far *fake_far_open(void *qp, uint32_t number, uint32_t peer);
void fake_far_close(fake_far *far);

/* Moves a write on from its first *moved bytes: 1: it is over; 0: not now; -1: nobody is there. */
int fake_far_send(const fake_far *far, const fake_far_head *what, const uint8_t *data,
                  size_t *moved);

/* Whether all that was sent has been carried out there, or never will be. */
bool fake_far_acknowledged(const fake_far *far);

/* fake_ibverbs_data.c: moves on what waits, now and then. */
void fake_far_tick(void *qp);

/* fake_ibverbs_data.c: a piece has come; false: it has to wait for a receive request. */
bool fake_far_arrived(void *qp, const fake_far_head *head, const uint8_t *data, size_t bytes);

/* Fills in the calls that move data. */
void fake_data_calls(struct ibv_context_ops *ops);

#endif
