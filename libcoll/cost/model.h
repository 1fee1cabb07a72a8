/*
 * model.h: the cost model (alpha, beta, gamma) and the predictor that replays schedules as events.
 */
#ifndef COLLI_COST_MODEL_H
#define COLLI_COST_MODEL_H

#include "libcoll/base/calibration.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

/* Sizes for which an algorithm's time may have been measured: 4, 32, 256 ... bytes. */
#define COLLI_CORRECTED_SIZES    8
#define COLLI_CORRECTED_BYTES(i) ((size_t)4 << 3 * (i))
#define COLLI_CORRECTED_ALGOS    160 /* above any algorithm's id */
#define COLLI_CORRECTED_WORLDS   4
extern const int colli_corrected_ranks[COLLI_CORRECTED_WORLDS]; /* numbers of ranks: 2, 3 ... */

/* The measured time of an algorithm over that of its formula, for each size; 0: not measured. */
typedef float colli_correction[COLLI_CORRECTED_SIZES];

/* Equal on all ranks, so that all choose alike. */
typedef struct colli_model {
  double alpha_ns;          /* to hand over a message, whatever its size */
  double beta_ns_per_byte;  /* to move a byte over a link, one way */
  double gamma_ns_per_byte; /* to reduce a byte */
  double step_ns;           /* a rank's own work for each message */
  double core_share;        /* cores / ranks on the fullest host, at most 1 */
  double near_alpha_ns;     /* alpha and beta between ranks of one group (shape->group), which */
  double near_beta_ns_per_byte; /* share memory; the others hold between groups */
  double chunk_share;           /* of the longest chunk that the slots allow: what suits caches */
  double flight_ns;             /* alpha between ranks with a core each: a message's own way */
  bool device;                  /* a device moves messages, not the ranks' cores */
  bool paired; /* ranks 2i and 2i + 1 have a core between them, all of them; they share memory */
  const colli_correction *corrections; /* by the algorithm's id; NULL: none. Not the model's own */
} colli_model;

/* What was measured of algorithms on one host with so many cores. */
typedef struct colli_corrections {
  uint64_t digest; /* of all the rest and the costs that it goes with; never 0 */
  int cores;
  colli_correction of[COLLI_LINK_KINDS][COLLI_CORRECTED_WORLDS][COLLI_CORRECTED_ALGOS];
} colli_corrections;

/*
 * Corrects a model of nranks ranks on one host by what was measured there, if anything fits: as
 * many ranks or nearly so, on as many cores if they share cores. `corrections` (or NULL) must stay.
 */
void colli_model_correct(colli_model *model, const colli_corrections *corrections,
                         colli_link_kind link, int nranks, int cores);

/* The factor for an algorithm and a size: 1, or between those of the sizes that were measured. */
double colli_correction_for(const colli_model *model, int algo_id, size_t bytes);

/* Typical costs of a present-day host. */
void colli_calibration_default(colli_calibration *out);

/* Number `index` of a calibration. */
double *colli_calibration_number(colli_calibration *calibration, int index);

/* "shm" or "tcp". */
const char *colli_link_name(colli_link_kind kind);

/* The kind of link of a transport: "shm", and COLLI_LINK_TCP for anything else. */
colli_link_kind colli_link_kind_of(const char *transport);

/*
 * The model of nranks ranks on `cores` cores (0: as many as ranks) whose slowest links are `far`,
 * and whose links within a group are `near`.
 */
void colli_model_make(const colli_calibration *calibration, colli_link_kind far,
                      colli_link_kind near, int nranks, int cores, colli_model *out);

/*
 * Sets the costs of links over which a device moves messages: `alpha_ns` and `beta_ns_per_byte` as
 * the transport gives them. `calibration` tells of the cores, which post, look and reduce.
 */
void colli_model_device(colli_model *model, const colli_calibration *calibration, double alpha_ns,
                        double beta_ns_per_byte);

/*
 * The model of a kind of link ("shm" or "tcp") between nranks ranks on one host with that many
 * cores (0: as many as ranks). Without measurements, and the same on all ranks.
 */
void colli_model_default(const char *link, int nranks, int cores, colli_model *out);

/*
 * Replays the schedules of all ranks (scheds[0 .. nranks-1]) with this partition as events: a
 * message leaves when its sender has finished the step's slice and the link is free, and arrives
 * alpha and bytes * beta later; slots bound what is under way. Gives the time in ns at which the
 * last rank ends, or a negative number if the schedules deadlock or memory runs out. Ranks of one
 * group of scheds[0]->shape have the model's near links.
 */
double colli_predict(const colli_sched *const *scheds, int nranks, const colli_partition *partition,
                     size_t elem_bytes, unsigned slot_count, const colli_model *model);

/*
 * Sizes of slots and slices that suit a kind of link ("shm", or anything else as "tcp"); sets
 * slot_bytes and slice_bytes only.
 */
void colli_limits_default(const char *link, colli_limits *out);

#endif
