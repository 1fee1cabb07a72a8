/* model.h: the cost model: alpha, beta, gamma. */
#ifndef COLLI_COST_MODEL_H
#define COLLI_COST_MODEL_H

#include <stdbool.h>

#include "libcoll/base/calibration.h"
#include "libcoll/cost/corrections.h"
#include "libcoll/sched/sched.h"

/* What a message costs between two ranks. */
typedef struct colli_pair_cost {
  double alpha_ns;
  double beta_ns_per_byte;
} colli_pair_cost;

/* Must be equal on all ranks, so that all make the same choice. */
typedef struct colli_model {
  double alpha_ns;          /* to hand over a message, whatever its size */
  double beta_ns_per_byte;  /* to move a byte over a link, one way */
  double gamma_ns_per_byte; /* to reduce a byte */
  double step_ns;       /* a rank's own work for each step of a schedule; where ranks share cores
                         * and use sockets, the work of both ends for each message */
  double host_step_ns;  /* the same for messages within a host; 0: as much */
  double core_share;    /* cores / ranks on the fullest machine, at most 1 */
  double near_alpha_ns; /* alpha and beta between ranks of one group (shape->group), which */
  double near_beta_ns_per_byte; /* share memory; the others hold between groups */
  double chunk_share;           /* length of the longest chunk; limited by caches as well as by the
                                 * slots */
  double flight_ns;             /* alpha between ranks that have a core each: the flight time of a
                                 * message */
  bool device;                  /* a device moves messages, not the ranks' cores */
  bool remote;      /* sockets or a device carry messages, not memory that ranks share */
  bool near_remote; /* also those within a host */
  bool containers;  /* hosts of one machine share too few cores */
  bool paired;      /* all ranks 2i and 2i + 1 share a core and memory */
  bool sites;       /* groups are sites */
  const colli_correction
      *corrections;   /* indexed by algorithm id; NULL: none. Not owned by the model */
  double turn_share;  /* where ranks share cores and use sockets, as core_share: while one waits for
                       * its turn, others work, and step_ns is the work of both ends of a message,
                       * because each costs system calls. 0: not so */
  double path_factor; /* how much longer a critical path takes than its parts; 0: as long */
  double host_beta_ns_per_byte; /* to move a byte over the slowest host's link to the network, which
                                 * its ranks share; 0: each rank has a link of its own */
  double core_beta_ns_per_byte; /* what a core does for a byte, if beta is longer as links are
                                 * shared; 0: it is not */
  double host_gap_ns;           /* for which each message occupies that link besides */
  const double *link_beta_ns_per_byte;       /* the same for each host, where they differ. NULL: all
                                              * alike. Not owned */
  colli_pair_cost inner[COLLI_INNER_LEVELS]; /* between ranks of one group of colli_shape.inner;
                                              * beta 0: as near */
} colli_model;

/* Whether groups are sites, if a message between them takes so long. */
static inline bool colli_model_is_far(double alpha_ns) {
  return alpha_ns >= 5e5;
}

/* Whether step_ns is the work of both ends of a message. */
static inline bool colli_model_has_shared_steps(const colli_model *model) {
  return model->turn_share > 0;
}

/* The part of alpha that is work of a core. */
static inline double colli_model_wait_share(const colli_model *model) {
  return model->turn_share > 0 ? model->turn_share : 1;
}

/* How much longer a critical path takes than its parts. */
static inline double colli_model_path_factor(const colli_model *model) {
  return model->path_factor > 0 ? model->path_factor : 1;
}

/* What a message costs between two ranks of a shape that are alone with it. */
colli_pair_cost colli_model_pair(const colli_model *model, const colli_shape *shape, int a, int b);

/* A rank's own work for a message between two ranks; of both, where turn_share holds for them. */
double colli_model_step(const colli_model *model, const colli_shape *shape, int a, int b);

/* turn_share of a message between two ranks. */
double colli_model_turns(const colli_model *model, const colli_shape *shape, int a, int b);

/*
 * The model of nranks ranks on `cores` cores (0: as many as ranks) whose slowest links are `far`,
 * and whose links within a group are `near`.
 */
void colli_model_make(const colli_calibration *calibration, colli_link_kind far,
                      colli_link_kind near, int nranks, int cores, colli_model *out);

/* Sets the costs of sockets between containers of one machine that has too few cores; those of
 * devices stay. */
void colli_model_set_containers(colli_model *model);

/*
 * Sets the costs of links over which a device moves messages: `alpha_ns` and `beta_ns_per_byte` as
 * the transport gives them. `calibration` describes the cores, which post, poll and reduce.
 */
void colli_model_device(colli_model *model, const colli_calibration *calibration, double alpha_ns,
                        double beta_ns_per_byte);

/*
 * The model of a kind of link between nranks ranks on one host with that many cores (0: as many as
 * ranks). Without measurements, and the same on all ranks.
 */
void colli_model_default(colli_link_kind link, int nranks, int cores, colli_model *out);

#endif
