/* here.c: what only this machine tells: the devices that a rank would use, and its GPUs. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/tools/topo/json_show.h"
#include "transports/registry.h"

/* A setting of the environment. */
static const char *setting(void *ctx, const char *name) {
  const char *text = colli_params_text(ctx, name);
  return text ? text : "";
}

/* Prints the network devices; false: the settings cannot be read, as *error says. */
static bool print_devices(FILE *out, coll_error *error) {
  colli_params params;
  if (colli_params_load(&params, error) != COLL_OK)
    return false;
  coll_transport_env env = {.size = sizeof(env), .ctx = &params, .param = setting};
  colli_devices_print(&env, out);
  return true;
}

void topo_here_print(const colli_topo *topo) {
  coll_error error = COLL_ERROR_INIT;
  topo_gpus gpus;
  if (!print_devices(stdout, &error)) {
    printf("\nnetwork devices: %s\n", error.message);
    return;
  }
  if (!topo_gpus_find(topo, &gpus)) {
    puts("\nGPUs\n  out of memory");
    return;
  }
  topo_gpus_print(&gpus, stdout);
  topo_gpus_free(&gpus);
}

bool topo_here_json(const colli_topo *topo, colli_json *json) {
  char *text = NULL;
  size_t bytes;
  coll_error error = COLL_ERROR_INIT;
  topo_gpus gpus;
  FILE *out = open_memstream(&text, &bytes);
  if (out != NULL && !print_devices(out, &error))
    fprintf(out, "\n\n%s\n", error.message);
  if (out == NULL || fclose(out) != 0 || !topo_gpus_find(topo, &gpus)) {
    free(text);
    return false;
  }
  const char *title = strchr(text + 1, '\n'); /* the first line is empty */
  topo_json_lines(title ? title : "", "infiniband_and_roce", json);
  topo_json_gpus(&gpus, json);
  topo_gpus_free(&gpus);
  free(text);
  return true;
}
