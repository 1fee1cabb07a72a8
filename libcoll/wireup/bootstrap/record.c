/* record.c: the check of the records that ranks exchange. */
#include <string.h>

#include "libcoll/wireup/bootstrap/report.h"

#define MOST_COST_NS    1e9  /* as in a calibration file */
#define LEAST_LINK_MBIT 1e-3 /* as in COLL_LINK_SPEED */
#define MOST_LINK_MBIT  1e9

/* Whether a cost is possible: not negative, not too large, a number. */
static bool is_cost(double cost) {
  return cost >= 0 && cost <= MOST_COST_NS;
}

/* Whether all of an array of doubles are. */
static bool costs_sound(const colli_calibration *calibration) {
  double numbers[COLLI_CALIBRATION_NUMBERS];
  _Static_assert(sizeof(numbers) == sizeof(*calibration), "it has nothing else");
  memcpy(numbers, calibration, sizeof(numbers));
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++)
    if (!is_cost(numbers[i]))
      return false;
  return true;
}

bool boot_record_ends(const colli_rank_info *info) {
  return !info->host[sizeof(info->host) - 1] && !info->levels[sizeof(info->levels) - 1] &&
         !info->transport_names[sizeof(info->transport_names) - 1];
}

const char *boot_record_check(colli_rank_info *info) {
  info->host[sizeof(info->host) - 1] = '\0';
  info->levels[sizeof(info->levels) - 1] = '\0';
  info->transport_names[sizeof(info->transport_names) - 1] = '\0';
  return boot_record_wrong(info);
}

const char *boot_record_wrong(const colli_rank_info *info) {
  const colli_param_info *bytes = &colli_param_table[COLLI_PARAM_SLOT_BYTES];
  const colli_param_info *count = &colli_param_table[COLLI_PARAM_SLOT_COUNT];
  if (info->slot_bytes != 0 && (info->slot_bytes < bytes->min || info->slot_bytes > bytes->max ||
                                info->slot_bytes % 64 != 0))
    return "slot_bytes";
  if (info->slot_count > count->max)
    return "slot_count";
  if (info->gpu_slot_bytes > colli_param_table[COLLI_PARAM_GPU_SLOT_BYTES].max)
    return "gpu_slot_bytes";
  if (info->core < -1 || info->numa_node < -1)
    return "place";
  if (info->transports >> COLLI_MAX_TRANSPORTS != 0)
    return "transports";
  if (info->deterministic > COLL_DETERMINISTIC_ORDERED ||
      info->accumulate > COLL_ACCUMULATE_FLOAT32 ||
      info->data_check > colli_param_table[COLLI_PARAM_DATA_CHECK].max || info->gpu > 1)
    return "settings";
  if (!costs_sound(&info->calibration))
    return "costs";
  const double mbit = info->link_mbit;
  if (!(mbit == 0 || (mbit >= LEAST_LINK_MBIT && mbit <= MOST_LINK_MBIT)) ||
      info->link_source >= COLLI_SPEED_SOURCES)
    return "speed of a link";
  for (int i = 0; i < COLLI_HOST_LEVELS; i++)
    if (!is_cost(info->level_alpha_ns[i]) || !is_cost(info->level_beta_ns_per_byte[i]))
      return "costs of levels";
  int levels = 1;
  for (const char *at = info->levels; *at; at++)
    levels += *at == '/';
  if (info->level_source >= COLLI_LEVEL_SOURCES || levels > COLLI_HOST_LEVELS || info->far > 1)
    return "levels";
  if (info->status_port > UINT16_MAX)
    return "status port";
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    if (!colli_addr_sound(&info->control_addrs[i]))
      return "addresses";
  return NULL;
}
