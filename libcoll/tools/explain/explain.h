/* explain.h: declarations that the parts of coll_explain share. */
#ifndef COLLI_TOOLS_EXPLAIN_EXPLAIN_H
#define COLLI_TOOLS_EXPLAIN_EXPLAIN_H

#include "libcoll/tuning/calibration.h"
#include "libcoll/tuning/choose.h"

/* The command line. */
typedef struct question {
  const char *name; /* of the collective */
  colli_coll coll;
  bool varying;
  bool list; /* only list its algorithms */
  int nranks;
  size_t bytes, last_bytes; /* last_bytes: of a range of sizes, or 0 */
  const char *type_name;
  coll_type type;
  size_t type_bytes;
  int root;
  int rank; /* -1: no schedule wanted */
  coll_determinism deterministic;
  bool in_place;
  const char *algo; /* NULL: what COLL_ALGO says */
  const char *transport;
  colli_link_kind link; /* what it costs */
  int hosts;
  int cores; /* of a host */
  bool cores_given;
} question;

/* The inputs of the choice. */
typedef struct answer {
  colli_shape shape;
  int32_t *group;
  colli_limits limits;
  colli_model model;
  colli_corrections *corrections; /* or NULL */
  colli_calibration_origin origin;
  colli_chooser chooser;
} answer;

/* The transport between ranks that are furthest apart (question.c). */
const char *explain_far_transport(const question *q);

/* question.c: reads the command line; ends the program if it is bad. */
question explain_ask(int argc, char **argv);
void explain_refuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* answer.c: sets the inputs of the choice, as programs with these settings would have them. */
void explain_set_up(const question *q, answer *a);
void explain_free(answer *a);

/* The choice for a size, with predicted_ns. */
colli_choice explain_choose(answer *a, const question *q, size_t bytes);

/* The event model's time for a candidate in ns; negative if computing it would take too long. */
double explain_events(const colli_choice *choice, const question *q, const answer *a);

#endif
