/* link.c: the speed of links of this machine, which the kernel knows. */
#include <dirent.h>
#include <limits.h>
#include <string.h>

#include "topology/read.h"

/* The number at the start of a file, or 0. A link that is down has -1. */
static double read_number(const char *path) {
  double number = 0;
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return 0;
  if (fscanf(file, "%lf", &number) != 1 || number < 0)
    number = 0;
  fclose(file);
  return number;
}

/* Whether a port is active: its file "state" says "4: ACTIVE". */
static bool is_active(const char *port) {
  char path[PATH_MAX], state[32] = "";
  snprintf(path, sizeof(path), "%s/state", port);
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return false;
  const bool read = fgets(state, sizeof(state), file) != NULL;
  fclose(file);
  return read && strstr(state, "ACTIVE") != NULL;
}

/* The rate of the fastest active port in a folder of ports, in Gbit/s, or 0. */
static double fastest_port(const char *ports) {
  double most = 0;
  DIR *folder = opendir(ports);
  if (folder == NULL)
    return 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char port[PATH_MAX - 8], path[PATH_MAX];
    snprintf(port, sizeof(port), "%s/%s", ports, entry->d_name);
    snprintf(path, sizeof(path), "%s/rate", port);
    const double gbit = entry->d_name[0] != '.' && is_active(port) ? read_number(path) : 0;
    most = gbit > most ? gbit : most;
  }
  closedir(folder);
  return most;
}

double colli_topo_link_mbit(const char *root, colli_device_kind kind, const char *name) {
  char path[PATH_MAX / 2];
  if (kind == COLLI_DEVICE_NET) {
    snprintf(path, sizeof(path), "%s/class/net/%s/speed", root, name);
    return read_number(path);
  }
  snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports", root, name);
  return fastest_port(path) * 1000;
}
