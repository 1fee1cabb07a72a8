/* picture.c: a picture of this machine, with the GPUs that CUDA's driver knows. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/topo/gpus.h"
#include "libcoll/tools/topo/topo.h"

/* Whether hwloc has a device for a GPU. */
static bool has_device(const colli_topo *topo, const topo_gpu *gpu) {
  for (int d = 0; d < topo->ndevices && gpu->place; d++)
    if (strcmp(topo->devices[d].bus, gpu->place->bus) == 0)
      return true;
  return false;
}

/* All devices, with GPUs for which hwloc has none; *count becomes their number. NULL: out of
 * memory. */
static colli_topo_device *join_devices(const colli_topo *topo, const topo_gpus *gpus, int *count) {
  colli_topo_device *all = calloc((size_t)(topo->ndevices + gpus->count) + 1, sizeof(*all));
  *count = topo->ndevices;
  if (all == NULL)
    return NULL;
  if (topo->ndevices > 0)
    memcpy(all, topo->devices, (size_t)topo->ndevices * sizeof(*all));
  for (int i = 0; i < gpus->count; i++) {
    const topo_gpu *gpu = &gpus->gpus[i];
    if (has_device(topo, gpu))
      continue;
    colli_topo_device *device = &all[(*count)++];
    device->kind = COLLI_DEVICE_GPU;
    snprintf(device->name, sizeof(device->name), "cuda%d", i);
    snprintf(device->bus, sizeof(device->bus), "%s", gpu->place ? gpu->place->bus : gpu->bus);
    device->numa_node = gpu->place ? gpu->place->place.numa_node : -1;
    device->package = gpu->place ? gpu->place->package : -1;
  }
  return all;
}

bool topo_draw_here(const topo_scene *scene, FILE *out) {
  topo_gpus gpus;
  char *notes = NULL;
  size_t bytes;
  if (!topo_gpus_find(scene->topo, &gpus))
    return false;
  colli_topo topo = *scene->topo;
  topo.devices = join_devices(scene->topo, &gpus, &topo.ndevices);
  FILE *text = open_memstream(&notes, &bytes);
  if (text != NULL) {
    fputs(scene->notes, text);
    if (gpus.count > 0 && scene->notes[0] != '\0' && scene->notes[strlen(scene->notes) - 1] != '\n')
      fputc('\n', text);
    topo_gpus_print_short(&gpus, text);
  }
  bool made = text != NULL && fclose(text) == 0 && topo.devices != NULL;
  if (made) {
    topo_scene whole = *scene;
    whole.topo = &topo;
    whole.notes = notes;
    made = topo_svg(&whole, out);
  }
  free(notes);
  free(topo.devices);
  topo_gpus_free(&gpus);
  return made;
}
