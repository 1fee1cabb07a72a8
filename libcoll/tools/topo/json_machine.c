/* json_machine.c: a machine and its GPUs as JSON. */
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/tools/topo/json.h"

static const char *const kinds[] = {"network", "RDMA", "GPU"};
static const char *const ends[] = {"GPU", "switch", "package", "other"};

/* A text that is not known if it is empty. */
static void put_known(colli_json *json, const char *name, const char *text) {
  colli_json_text(json, name, *text ? text : NULL);
}

/* A number that is not known if it is 0. */
static void put_positive(colli_json *json, const char *name, double number) {
  if (number > 0)
    colli_json_number(json, name, number);
  else
    colli_json_text(json, name, NULL);
}

/* ---- a machine ------------------------------------------------------------------------------- */

/* Bytes that are not known if they are 0. */
static void put_bytes(colli_json *json, const char *name, uint64_t bytes) {
  if (bytes > 0)
    colli_json_count(json, name, bytes);
  else
    colli_json_text(json, name, NULL);
}

/* Caches of one level. */
static void put_caches(colli_json *json, const char *name, int count, uint64_t bytes) {
  colli_json_open(json, name, '{');
  colli_json_int(json, "count", count);
  put_bytes(json, "bytes", bytes);
  colli_json_close(json, '}');
}

static void put_core(const colli_topo *topo, int index, colli_json *json) {
  const colli_topo_core *core = &topo->cores[index];
  colli_json_open(json, NULL, '{');
  colli_json_int(json, "core", index);
  colli_json_int(json, "package", core->package);
  colli_json_int(json, "numa_node", core->numa_node);
  colli_json_int(json, "l3", core->l3);
  colli_json_int(json, "l2", core->l2);
  colli_json_bool(json, "allowed", core->allowed);
  colli_json_open(json, "hardware_threads", '[');
  for (int unit = 0; unit < topo->npu_numbers; unit++)
    if (topo->core_of_pu[unit] == index)
      colli_json_int(json, NULL, unit);
  colli_json_close(json, ']');
  colli_json_close(json, '}');
}

/* The cards that are nearest to a GPU, and what they share with it. */
static void put_nearest(const colli_topo *topo, const char *bus, colli_json *json) {
  const colli_topo_pci *card = colli_topo_next_nearest(topo, bus, NULL);
  colli_json_text(json, "nearest_network_shares", card ? colli_topo_shared(topo, bus, card) : NULL);
  colli_json_open(json, "nearest_network", '[');
  for (; card; card = colli_topo_next_nearest(topo, bus, card)) {
    colli_json_open(json, NULL, '{');
    colli_json_text(json, "bus", card->bus);
    colli_json_open(json, "names", '[');
    for (int d = 0; d < topo->ndevices; d++)
      if (strcmp(topo->devices[d].bus, card->bus) == 0)
        colli_json_text(json, NULL, topo->devices[d].name);
    colli_json_close(json, ']');
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

/* Where the NVLinks of a device go. */
static void put_nvlinks(const colli_topo *topo, int device, colli_json *json) {
  colli_json_open(json, "nvlinks", '[');
  for (int i = 0; i < topo->nnvlinks; i++) {
    const colli_topo_nvlink *link = &topo->nvlinks[i];
    if (link->gpu != device)
      continue;
    colli_json_open(json, NULL, '{');
    colli_json_text(json, "to_kind", ends[link->end]);
    if (link->end == COLLI_NVLINK_GPU)
      colli_json_text(json, "to_name", topo->devices[link->to].name);
    else
      colli_json_int(json, "to_index", link->end == COLLI_NVLINK_OTHER ? -1 : link->to);
    colli_json_number(json, "link_mbit", link->mbit);
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

static void put_device(const colli_topo *topo, int index, colli_json *json) {
  const colli_topo_device *device = &topo->devices[index];
  colli_json_open(json, NULL, '{');
  colli_json_text(json, "kind", kinds[device->kind]);
  colli_json_text(json, "name", device->name);
  put_known(json, "bus", device->bus);
  colli_json_int(json, "numa_node", device->numa_node);
  colli_json_int(json, "package", device->package);
  put_positive(json, "link_mbit", device->link_mbit);
  if (device->kind == COLLI_DEVICE_GPU) {
    put_nearest(topo, device->bus, json);
    put_nvlinks(topo, index, json);
  }
  colli_json_close(json, '}');
}

/* What NVLinks carry between each two GPUs between which there are some. */
static void put_nvlink_pairs(const colli_topo *topo, colli_json *json) {
  int gpus[COLLI_TOPO_NVLINKS_MOST];
  const int count = colli_topo_nvlink_gpus(topo, gpus);
  colli_json_open(json, "nvlink_pairs", '[');
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++) {
      const int a = gpus[i], b = gpus[j];
      const double direct = colli_topo_nvlink_direct(topo, a, b),
                   switched = colli_topo_nvlink_switched(topo, a, b);
      if (a == b || direct + switched <= 0)
        continue;
      colli_json_open(json, NULL, '{');
      colli_json_text(json, "from", topo->devices[a].name);
      colli_json_text(json, "to", topo->devices[b].name);
      colli_json_number(json, "direct_mbit", direct);
      colli_json_number(json, "switched_mbit", switched);
      colli_json_close(json, '}');
    }
  colli_json_close(json, ']');
}

void topo_json_machine(const colli_topo *topo, const char *name, colli_json *json) {
  colli_json_open(json, name, '{');
  colli_json_text(json, "source", topo->source);
  colli_json_int(json, "package_count", topo->npackages);
  colli_json_int(json, "numa_node_count", topo->nnuma);
  colli_json_int(json, "allowed_core_count", colli_topo_allowed_cores(topo));
  colli_json_int(json, "hardware_thread_count", topo->npus);
  put_bytes(json, "memory_bytes", topo->memory_bytes);
  put_caches(json, "l3_caches", topo->nl3, topo->l3_bytes);
  put_caches(json, "l2_caches", topo->nl2, topo->l2_bytes);
  colli_json_open(json, "cores", '[');
  for (int core = 0; core < topo->ncores; core++)
    put_core(topo, core, json);
  colli_json_close(json, ']');
  colli_json_open(json, "devices", '[');
  for (int d = 0; d < topo->ndevices; d++)
    put_device(topo, d, json);
  colli_json_close(json, ']');
  put_nvlink_pairs(topo, json);
  colli_json_close(json, '}');
}

void topo_json_machine_ranks(const colli_topo *topo, const int *cores, int nranks,
                             colli_json *json) {
  colli_json_open(json, "ranks", '[');
  for (int rank = 0; rank < nranks; rank++) {
    const colli_topo_core *core = cores[rank] >= 0 ? &topo->cores[cores[rank]] : NULL;
    colli_json_open(json, NULL, '{');
    colli_json_int(json, "rank", rank);
    colli_json_int(json, "core", cores[rank]);
    colli_json_int(json, "l3", core ? core->l3 : -1);
    colli_json_int(json, "numa_node", core ? core->numa_node : -1);
    colli_json_int(json, "package", core ? core->package : -1);
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

void topo_json_lines(const char *text, const char *name, colli_json *json) {
  colli_json_open(json, name, '[');
  for (size_t length; *text; text += length + (text[length] == '\n')) {
    char line[512];
    length = strcspn(text, "\n");
    const size_t indent = strspn(text, " ");
    snprintf(line, sizeof(line), "%.*s", indent < length ? (int)(length - indent) : 0,
             text + indent);
    if (*line)
      colli_json_text(json, NULL, line);
  }
  colli_json_close(json, ']');
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void put_gpu(const topo_gpus *gpus, int index, colli_json *json) {
  const topo_gpu *gpu = &gpus->gpus[index];
  colli_json_open(json, NULL, '{');
  colli_json_int(json, "gpu", index);
  colli_json_text(json, "name", gpu->name);
  put_known(json, "uuid", gpu->uuid);
  put_known(json, "bus", gpu->bus);
  colli_json_int(json, "numa_node", gpu->place ? gpu->place->place.numa_node : -1);
  colli_json_int(json, "package", gpu->place ? gpu->place->package : -1);
  put_nearest(gpus->topo, gpu->bus, json);
  colli_json_int(json, "switch_nvlink_count", gpus->has_links ? gpu->switch_links : -1);
  colli_json_int(json, "other_nvlink_count", gpus->has_links ? gpu->more_links : -1);
  colli_json_close(json, '}');
}

/* How one GPU reaches another, or ranks on one each other. */
static void put_pair(const topo_gpus *gpus, int from, int to, colli_json *json) {
  static const char *const words[] = {[COLLI_PCI_SWITCH] = "switch",
                                      [COLLI_PCI_HOST_BRIDGE] = "bridge",
                                      [COLLI_PCI_NODE] = "node",
                                      [COLLI_PCI_SYSTEM] = "system",
                                      [COLLI_PCI_UNKNOWN] = NULL};
  const topo_gpu_pair *pair = topo_gpus_pair(gpus, from, to);
  const char *why;
  const colli_gpu_mode mode = topo_gpus_mode(gpus, from, to, &why);
  colli_json_open(json, NULL, '{');
  colli_json_int(json, "from", from);
  colli_json_int(json, "to", to);
  if (from != to) {
    colli_json_bool(json, "access", pair->access);
    colli_json_int(json, "speed_rank", pair->access ? pair->speed_rank : -1);
    colli_json_int(json, "nvlink_count", gpus->has_links ? pair->links : -1);
    colli_json_text(json, "pci", words[pair->distance]);
  }
  colli_json_text(json, "mode", colli_param_word(COLLI_PARAM_GPU_MODE, mode));
  colli_json_text(json, "why", why);
  colli_json_close(json, '}');
}

void topo_json_gpus(const topo_gpus *gpus, colli_json *json) {
  char version[32];
  snprintf(version, sizeof(version), "%d.%d", gpus->version / 1000, gpus->version % 1000 / 10);
  colli_json_open(json, "gpus", '{');
  colli_json_text(json, "cuda_version", gpus->version > 0 ? version : NULL);
  put_known(json, "why_none", gpus->why_none);
  put_known(json, "why_no_nvlinks", gpus->no_links);
  colli_json_open(json, "list", '[');
  for (int i = 0; i < gpus->count; i++)
    put_gpu(gpus, i, json);
  colli_json_close(json, ']');
  colli_json_open(json, "pairs", '[');
  for (int from = 0; from < gpus->count; from++)
    for (int to = 0; to < gpus->count; to++)
      put_pair(gpus, from, to, json);
  colli_json_close(json, ']');
  colli_json_close(json, '}');
}
