/* link.c: the speed of links of this machine, which the kernel knows. */
#include "topology/read.h"

double colli_topo_link_mbit(colli_device_kind kind, const char *name) {
  char path[160];
  double speed = 0;
  if (kind == COLLI_DEVICE_NET)
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
  else
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/rate", name);
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return 0;
  if (fscanf(file, "%lf", &speed) != 1 || speed < 0)
    speed = 0; /* a link that is down has -1 */
  fclose(file);
  return kind == COLLI_DEVICE_NET ? speed : speed * 1000;
}
