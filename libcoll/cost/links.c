/* links.c: the constants of each kind of link. */
#include "libcoll/cost/links.h"

#include <string.h>

#include "coll/coll_transport.h"

#define TCP_SLOT_BYTES  (128 * 1024) /* a system call per message: few, long ones */
#define TCP_SLICE_BYTES (128 * 1024)
#define SHM_SLOT_BYTES  (64 * 1024) /* all slots of a connection fit into an L2 cache */
#define SHM_SLICE_BYTES (8 * 1024)  /* shorter ones cost more line transfers than they gain */

/* Typical costs of a current x86-64 host; coll_calibrate measures the real ones. */
void colli_calibration_default(colli_calibration *out) {
  *out = (colli_calibration){
      .apart =
          {[COLLI_LINK_SHM] = {150, 0.03, 0.01, 40}, [COLLI_LINK_TCP] = {2600, 0.15, 0.02, 1200}},
      .crowded = {[COLLI_LINK_SHM] = {1740, 0.039, 0.0018, 2},
                  [COLLI_LINK_TCP] = {2000, 0.25, 0.05, 5000}},
  };
}

/* Number `index` of a calibration. */
double *colli_calibration_number(colli_calibration *calibration, int index) {
  colli_link_costs *all =
      index < COLLI_CALIBRATION_NUMBERS / 2 ? calibration->apart : calibration->crowded;
  colli_link_costs *costs = &all[index / 4 % COLLI_LINK_KINDS];
  double *const fields[] = {&costs->alpha_ns, &costs->beta_ns_per_byte, &costs->gamma_ns_per_byte,
                            &costs->step_ns};
  return fields[index % 4];
}

/* The name of a kind of link. */
const char *colli_link_name(colli_link_kind kind) {
  static const char *const names[COLLI_LINK_KINDS] = {
      [COLLI_LINK_SHM] = "shm", [COLLI_LINK_TCP] = "tcp"};
  return names[kind];
}

/* The kind of a name. */
int colli_link_parse(const char *name) {
  for (int kind = 0; kind < COLLI_LINK_KINDS; kind++)
    if (strcmp(name, colli_link_name((colli_link_kind)kind)) == 0)
      return kind;
  return -1;
}

/* Whose costs a transport has. */
colli_link_kind colli_link_kind_of(uint32_t caps) {
  return caps & COLL_CAP_SHARED_MEMORY ? COLLI_LINK_SHM : COLLI_LINK_TCP;
}

/* Sizes of slots and slices that suit a kind of link. */
void colli_limits_default(colli_link_kind link, colli_limits *out) {
  bool memory = link == COLLI_LINK_SHM;
  out->slot_bytes = memory ? SHM_SLOT_BYTES : TCP_SLOT_BYTES;
  out->slice_bytes = memory ? SHM_SLICE_BYTES : TCP_SLICE_BYTES;
}
