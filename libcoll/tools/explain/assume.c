/* assume.c: what operations on GPUs are taken to cost. */
#include <stdlib.h>
#include <string.h>

#include "explain.h"

/* Round numbers between those of usual machines. */
const gpu_costs explain_costs = {.launch_us = 3,
                                 .host_us = 15,
                                 .meet_us = 3,
                                 .link_gb = 20,
                                 .memory_gb = 500,
                                 .copy_gb = 20,
                                 .network_gb = 25};

/* The cost of a name, or NULL. */
static double *find_cost(gpu_costs *costs, const char *name, size_t length) {
  const struct {
    const char *name;
    double *cost;
  } all[] = {{"launch", &costs->launch_us},  {"host", &costs->host_us},
             {"meet", &costs->meet_us},      {"link", &costs->link_gb},
             {"memory", &costs->memory_gb},  {"copy", &costs->copy_gb},
             {"network", &costs->network_gb}};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
    if (strlen(all[i].name) == length && strncmp(all[i].name, name, length) == 0)
      return all[i].cost;
  return NULL;
}

bool explain_assume(const char *text, gpu_costs *costs) {
  for (const char *at = text;;) {
    const size_t length = strcspn(at, "=,");
    double *cost = find_cost(costs, at, length);
    char *end = (char *)at;
    const double value = at[length] == '=' ? strtod(at + length + 1, &end) : 0;
    if (!cost || !(value > 0 && value <= 1e9) || (*end != ',' && *end != '\0'))
      return false;
    *cost = value;
    if (*end == '\0')
      return true;
    at = end + 1;
  }
}
