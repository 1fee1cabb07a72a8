/*
 * calibration.h: measured costs of a rank's machine. Plain numbers, because they travel in the
 * rank's record; the cost model is built from them.
 */
#ifndef COLLI_BASE_CALIBRATION_H
#define COLLI_BASE_CALIBRATION_H

/* What a message over one kind of link costs. */
typedef struct colli_link_costs {
  double alpha_ns;          /* to hand over a message, whatever its size */
  double beta_ns_per_byte;  /* to move a byte over a link, one way */
  double gamma_ns_per_byte; /* to reduce a byte */
  double step_ns;           /* a rank's own work for each message; where ranks share cores and use
                             * sockets, that of both ends */
} colli_link_costs;

typedef enum colli_link_kind { COLLI_LINK_SHM, COLLI_LINK_TCP, COLLI_LINK_KINDS } colli_link_kind;

/* Measured or typical costs, where each rank has a core of its own and where ranks share cores. */
typedef struct colli_calibration {
  colli_link_costs apart[COLLI_LINK_KINDS];
  colli_link_costs crowded[COLLI_LINK_KINDS];
} colli_calibration;
#define COLLI_CALIBRATION_NUMBERS 16

#endif
