/*
 * param.h: the one table of settings that come from the environment (COLL_<AREA>_<NAME>).
 * Each has a type, a default and a help line; docs/parameters.md is generated from the table.
 */
#ifndef COLLI_BASE_PARAM_H
#define COLLI_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "coll/coll.h"

#define COLLI_LEVELS_FILE "file:" /* how a COLL_LEVELS begins that names a file: levels_file.h */

typedef enum colli_param_id {
  COLLI_PARAM_TIMEOUT_MS,        /* COLL_TIMEOUT_MS */
  COLLI_PARAM_CREATE_TIMEOUT_MS, /* COLL_CREATE_TIMEOUT_MS */
  COLLI_PARAM_HEARTBEAT_MS,      /* COLL_HEARTBEAT_MS */
  COLLI_PARAM_SHRINK_QUORUM,     /* COLL_SHRINK_QUORUM */
  COLLI_PARAM_TRANSPORT,         /* COLL_TRANSPORT */
  COLLI_PARAM_TRANSPORT_PATH,    /* COLL_TRANSPORT_PATH */
  COLLI_PARAM_ALGO,              /* COLL_ALGO */
  COLLI_PARAM_TUNER,             /* COLL_TUNER */
  COLLI_PARAM_CALIBRATION,       /* COLL_CALIBRATION */
  COLLI_PARAM_DETERMINISTIC,     /* COLL_DETERMINISTIC */
  COLLI_PARAM_ACCUMULATE,        /* COLL_ACCUMULATE */
  COLLI_PARAM_PROGRESS,          /* COLL_PROGRESS */
  COLLI_PARAM_LOG,               /* COLL_LOG */
  COLLI_PARAM_TRACE,             /* COLL_TRACE */
  COLLI_PARAM_TRACE_BYTES,       /* COLL_TRACE_BYTES */
  COLLI_PARAM_PROFILER,          /* COLL_PROFILER */
  COLLI_PARAM_HOST_ID,           /* COLL_HOST_ID */
  COLLI_PARAM_LINK_SPEED,        /* COLL_LINK_SPEED */
  COLLI_PARAM_LEVELS,            /* COLL_LEVELS */
  COLLI_PARAM_PORT_RANGE,        /* COLL_PORT_RANGE */
  COLLI_PARAM_TCP_IFNAME,        /* COLL_TCP_IFNAME */
  COLLI_PARAM_TCP_TRAFFIC,       /* COLL_TCP_TRAFFIC_CLASS */
  COLLI_PARAM_TCP_CONGESTION,    /* COLL_TCP_CONGESTION */
  COLLI_PARAM_TCP_SOCKETS,       /* COLL_TCP_SOCKETS */
  COLLI_PARAM_VERBS_DEVICE,      /* COLL_VERBS_DEVICE */
  COLLI_PARAM_VERBS_PORT,        /* COLL_VERBS_PORT */
  COLLI_PARAM_VERBS_GID_INDEX,   /* COLL_VERBS_GID_INDEX */
  COLLI_PARAM_VERBS_TRAFFIC,     /* COLL_VERBS_TRAFFIC_CLASS */
  COLLI_PARAM_VERBS_SERVICE,     /* COLL_VERBS_SERVICE_LEVEL */
  COLLI_PARAM_VERBS_TIMEOUT,     /* COLL_VERBS_TIMEOUT */
  COLLI_PARAM_VERBS_RETRY,       /* COLL_VERBS_RETRY */
  COLLI_PARAM_CHECK_FINITE,      /* COLL_CHECK_FINITE: colli_finite_check */
  COLLI_PARAM_DATA_CHECK,        /* COLL_DATA_CHECK: colli_data_check */
  COLLI_PARAM_TLS,               /* COLL_TLS */
  COLLI_PARAM_SLOT_BYTES,        /* COLL_SLOT_BYTES */
  COLLI_PARAM_SLOT_COUNT,        /* COLL_SLOT_COUNT */
  COLLI_PARAM_GPU_MODE,          /* COLL_GPU_MODE: colli_gpu_mode */
  COLLI_PARAM_GPU_SLOT_BYTES,    /* COLL_GPU_SLOT_BYTES */
  COLLI_PARAM_GPU_DIRECT_RDMA,   /* COLL_GPU_DIRECT_RDMA: colli_gpu_rdma */
  COLLI_PARAM_TOPO_FILE,         /* COLL_TOPO_FILE */
  COLLI_PARAM_FAULT,             /* COLL_FAULT: the fault decorator */
  COLLI_PARAM_SSH,               /* COLL_SSH: collrun */
  COLLI_PARAM_RANK,              /* set by launchers from here on */
  COLLI_PARAM_NRANKS,
  COLLI_PARAM_LOCAL_RANK,
  COLLI_PARAM_LOCAL_NRANKS,
  COLLI_PARAM_CPUS,
  COLLI_PARAM_ROOT,
  COLLI_PARAM_ROOT_FD,
  COLLI_PARAM_SECRET_FD,
  COLLI_PARAM_SECRET_FILE,
  COLLI_PARAM_MUNGE_SOCKET,
  COLLI_PARAM_RESPAWN,
  COLLI_PARAM_JOIN_FILE,
  COLLI_PARAM_SECRET, /* never loaded: see create/find_secret.h */
  COLLI_PARAM_COUNT
} colli_param_id;

/* The words of COLL_GPU_DIRECT_RDMA. */
typedef enum colli_gpu_rdma { COLLI_GPU_RDMA_AUTO, COLLI_GPU_RDMA_OFF } colli_gpu_rdma;

/* The words of COLL_DATA_CHECK: transports/check. */
typedef enum colli_data_check {
  COLLI_DATA_CHECK_NONE,
  COLLI_DATA_CHECK_CRC32C,
  COLLI_DATA_CHECK_MAC
} colli_data_check;

/* The words of COLL_CHECK_FINITE: libcoll/run/check_finite.h. */
typedef enum colli_finite_check {
  COLLI_CHECK_FINITE_OFF,
  COLLI_CHECK_FINITE_WARN,
  COLLI_CHECK_FINITE_ERROR
} colli_finite_check;

typedef enum colli_param_type {
  COLLI_PARAM_STRING,
  COLLI_PARAM_INT,
  COLLI_PARAM_BYTES,
  COLLI_PARAM_WORD /* one of several words */
} colli_param_type;

typedef struct colli_param_info {
  const char *name; /* "COLL_TIMEOUT_MS" */
  colli_param_type type;
  const char *fallback; /* the default, as text */
  long long min, max;   /* for INT and BYTES; WORD: the numbers of the first word and the last */
  const char *help;
} colli_param_info;

/* All settings, indexed by colli_param_id. */
extern const colli_param_info colli_param_table[COLLI_PARAM_COUNT];

/* The values that one communicator uses. */
typedef struct colli_params {
  const char *text[COLLI_PARAM_COUNT]; /* never NULL; a copy in `storage` */
  long long number[COLLI_PARAM_COUNT]; /* INT, BYTES and WORD */
  bool from_env[COLLI_PARAM_COUNT];
  bool ignored[COLLI_PARAM_COUNT]; /* set, but names code or a file: see param.c */
  char storage[4096];
} colli_params;

/*
 * Reads all settings from the environment. Unknown COLL_ variables and malformed values fail with
 * COLL_ERR_INVALID_USAGE. The message names the variable and what it takes, and suggests the
 * nearest known name for an unknown one. BYTES take suffixes K, M, G.
 */
coll_status colli_params_load(colli_params *params, coll_error *error);

/* The word with that number of a WORD setting. */
const char *colli_param_word(colli_param_id id, long long number);

/* Looks a setting's text up by name; NULL if there is no such setting. */
const char *colli_params_text(const colli_params *params, const char *name);

/* Copies settings, with their own storage. */
void colli_params_copy(colli_params *to, const colli_params *from);

/* Replaces the text of a STRING setting; false if it does not fit. */
bool colli_params_set_text(colli_params *params, colli_param_id id, const char *text);

/* Writes the table as a Markdown page. */
void colli_params_write_doc(FILE *out);

#endif
