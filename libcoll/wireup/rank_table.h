/*
 * rank_table.h: what every rank knows about every other: a record of each, in a table.
 *
 * Records are long, but those of two ranks are nearly the same. So a table keeps, of each rank, the
 * bytes in which its record differs from another one's: that of the first rank on its host, of
 * which it keeps what differs from rank 0's, of which it keeps all that is not 0. That is also how
 * a table travels.
 */
#ifndef COLLI_WIREUP_RANK_TABLE_H
#define COLLI_WIREUP_RANK_TABLE_H

#include "coll/coll_transport.h"
#include "libcoll/base/calibration.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/interfaces.h"

#define COLLI_MAX_TRANSPORTS 6
#define COLLI_CPU_WORDS      16
#define COLLI_LEVELS_BYTES   256
#define COLLI_HOST_LEVELS    8 /* of groups of hosts */
#define COLLI_RANK_WORD      8 /* bytes: in such words a table notes where records differ */

/* Where colli_rank_info.link_mbit comes from. Later ones are trusted more. */
typedef enum colli_speed_source {
  COLLI_SPEED_UNKNOWN,
  COLLI_SPEED_CARDS,    /* what the kernel says of the cards */
  COLLI_SPEED_WANTED,   /* not known, and the rank asks to measure it */
  COLLI_SPEED_MEASURED, /* at creation */
  COLLI_SPEED_DECLARED, /* COLL_LINK_SPEED */
  COLLI_SPEED_SOURCES
} colli_speed_source;

/* Where colli_rank_info.levels comes from. Later ones are trusted more. */
typedef enum colli_level_source {
  COLLI_LEVELS_UNKNOWN,
  COLLI_LEVELS_MEASURED, /* at creation */
  COLLI_LEVELS_SLURM,    /* Slurm's topology */
  COLLI_LEVELS_NONE,     /* COLL_LEVELS=none: there are none, whatever others know */
  COLLI_LEVELS_DECLARED, /* COLL_LEVELS */
  COLLI_LEVEL_SOURCES
} colli_level_source;

/* What every rank knows about every other. It is sent byte for byte, so it has no padding. */
typedef struct colli_rank_info {
  char host[64];
  uint64_t host_id;
  uint64_t machine_id; /* hosts that share it share processors, as containers do */
  uint64_t clock_id;   /* of its CLOCK_MONOTONIC, if it wants the shared time; 0: it does not */
  int32_t pid;
  int32_t core;        /* the processor that it is bound to, or -1 if not exactly one */
  int32_t numa_node;   /* of that processor, or -1 */
  uint32_t slot_bytes; /* as the user set it; 0: not set */
  uint32_t slot_count;
  uint32_t timeout_ms;
  uint32_t transports;              /* bit t: blob[t] is valid; t is an index of transport_names */
  uint8_t deterministic;            /* coll_determinism */
  uint8_t accumulate;               /* coll_accumulate */
  uint8_t data_check;               /* colli_data_check */
  uint8_t gpu;                      /* 1: it uses a GPU, and may share its memory */
  uint8_t nonce[COLLI_NONCE_BYTES]; /* drawn for this communicator, if data is checked */
  uint64_t dev_shm_free;            /* bytes for shared memory: see shm_capacity.h */
  uint64_t tmp_free;
  uint64_t cpus[COLLI_CPU_WORDS];  /* the processors that it may run on */
  uint64_t quota_group;            /* those of one machine with the same share ... */
  uint64_t quota_millicores;       /* ... this much processor time; 0: no limit */
  colli_calibration calibration;   /* what it has measured, or typical costs */
  double link_mbit;                /* the speed of its host's link to the network; 0: not known */
  uint64_t link_source;            /* colli_speed_source */
  char levels[COLLI_LEVELS_BYTES]; /* where its host is: "paris/rack 7"; "": not known */
  uint64_t level_source;           /* colli_level_source */
  uint64_t far;                    /* 1: from the rank where it checked in, as that one found */
  double level_alpha_ns[COLLI_HOST_LEVELS]; /* what a message costs that leaves each of these; 0:
                                             * not known */
  double level_beta_ns_per_byte[COLLI_HOST_LEVELS];
  uint64_t corrections; /* the digest of those that it has read; 0: none */
  colli_addr control_addrs[COLLI_MAX_ADDRS];
  char transport_names[64]; /* in the order of choice: "shm,verbs,tcp" */
  uint8_t blob[COLLI_MAX_TRANSPORTS][COLL_BLOB_BYTES];
  uint32_t status_port;    /* where other hosts ask for status pages; 0: nowhere */
  uint32_t gpu_slot_bytes; /* COLL_GPU_SLOT_BYTES */
} colli_rank_info;

/* Words of a record: a bit for each. */
typedef struct colli_rank_words {
  uint64_t bits[(sizeof(colli_rank_info) / COLLI_RANK_WORD + 63) / 64];
} colli_rank_words;

/* From what a record differs. */
typedef enum colli_rank_base {
  COLLI_RANK_FROM_NOTHING, /* rank 0's from 0 */
  COLLI_RANK_FROM_FIRST,   /* those of first ranks on hosts from rank 0's */
  COLLI_RANK_FROM_HOST,    /* others from that of the first rank on their host */
  COLLI_RANK_BASES
} colli_rank_base;

typedef struct colli_rank_table {
  int nranks;
  size_t bytes;                              /* of: */
  unsigned char *packed;                     /* rank_table.c says what is in it */
  colli_rank_words differ[COLLI_RANK_BASES]; /* the words in which records do; some may not */
} colli_rank_table;

/* Makes a table of `nranks` records. NULL: out of memory. */
colli_rank_table *colli_rank_table_create(const colli_rank_info *records, int nranks);
void colli_rank_table_free(colli_rank_table *table);

/* Replaces all records of a table. False: out of memory; the table is as before. */
bool colli_rank_table_replace(colli_rank_table *table, const colli_rank_info *records);

/* `offset` and `bytes` of neighbouring fields of a record. */
#define COLLI_RANK_FIELDS(first, last)                                                             \
  offsetof(colli_rank_info, first), offsetof(colli_rank_info, last) +                              \
                                        sizeof(((colli_rank_info *)0)->last) -                     \
                                        offsetof(colli_rank_info, first)
#define COLLI_RANK_FIELD(only) COLLI_RANK_FIELDS(only, only)

/* Changes neighbouring fields of all records, but not their hosts: calls change(ctx, rank, info)
 * with a record of which only these fields mean something, maybe more than once for a rank. False:
 * out of memory; the table is as before. */
typedef void (*colli_rank_change_fn)(void *ctx, int rank, colli_rank_info *info);
bool colli_rank_table_change(colli_rank_table *table, size_t offset, size_t bytes,
                             colli_rank_change_fn change, void *ctx);

/* One rank's record. It is put together anew: loops over many ranks walk. */
colli_rank_info colli_rank_at(const colli_rank_table *table, int rank);

/* A walk over records, which does what ranks of one host share only once. */
typedef struct colli_rank_walk {
  const colli_rank_table *table;
  bool between, within;    /* whether hosts differ, or ranks on one host, in what is looked at */
  colli_rank_info first;   /* rank 0's */
  colli_rank_info of_host; /* the one from which those of the ranks on a host differ, ... */
  int host;                /* ... which is that of this rank */
  colli_rank_info info;    /* the one of: */
  int rank;
} colli_rank_walk;

colli_rank_walk colli_rank_walk_begin(const colli_rank_table *table);

/* The same for one who looks at these fields only, which is fast where they are equal: other fields
 * may be those of another rank. */
colli_rank_walk colli_rank_walk_over(const colli_rank_table *table, size_t offset, size_t bytes);

/* A rank's record, which is the walk's, and good until the next. Any order will do, but one host
 * after the other is fast. */
const colli_rank_info *colli_rank_walk_to(colli_rank_walk *walk, int rank);

/* The first rank on a rank's host: ranks share a host if it is the same. */
int colli_rank_host(const colli_rank_table *table, int rank);

/* All records, which the caller frees. NULL: out of memory. */
colli_rank_info *colli_rank_table_unpack(const colli_rank_table *table);

/* Whether a table of so many ranks can have so many bytes. */
bool colli_rank_table_fits(int nranks, size_t bytes);

/* Makes a table of that many bytes, which are to be received into table->packed. NULL: out of
 * memory. */
colli_rank_table *colli_rank_table_receive(int nranks, size_t bytes);

/* Whether what was received is a table, which may then be read. What its records say is not looked
 * at. */
bool colli_rank_table_check(colli_rank_table *table);

#endif
