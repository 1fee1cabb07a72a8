/* registry.c: the transports of this build, and what plug-ins add. */
#include "transports/registry.h"

#include <stdbool.h>
#include <string.h>

#include "transports/plugins.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

/* The index of a name among the transports from index `from` on, or -1. */
static int find_name(const colli_transport_list *list, int from, const char *name, size_t length) {
  for (int i = from; list->ops[i]; i++)
    if (strlen(list->ops[i]->name) == length && memcmp(list->ops[i]->name, name, length) == 0)
      return i;
  return -1;
}

/* Whether a comma-separated list names a plug-in. */
static bool names_plugin(const colli_transport_list *list, const char *choice) {
  for (const char *at = choice; *at; at += *at == ',') {
    size_t length = strcspn(at, ",");
    if (find_name(list, COLLI_TRANSPORTS_BUILT_IN, at, length) >= 0)
      return true;
    at += length;
  }
  return false;
}

/* Moves the transports that `choice` names to the front, in its order. */
static void order_by_choice(colli_transport_list *list, const char *choice) {
  int place = 0;
  for (const char *at = choice; *at; at += *at == ',') {
    size_t length = strcspn(at, ",");
    int from = find_name(list, place, at, length);
    at += length;
    if (from < 0)
      continue;
    const coll_transport_ops *named = list->ops[from];
    memmove(&list->ops[place + 1], &list->ops[place], (size_t)(from - place) * sizeof(named));
    list->ops[place++] = named;
  }
}

coll_status colli_transports_list(const char *path, const char *choice, colli_transport_list *list,
                                  coll_error *error) {
  *list = (colli_transport_list){{&shm_transport, &verbs_transport, &tcp_transport}};
  coll_status status = transports_load_plugins(path, COLLI_TRANSPORTS_BUILT_IN, list, error);
  if (status == COLL_OK && names_plugin(list, choice))
    order_by_choice(list, choice);
  return status;
}

/* Prints which network devices the transports would use. */
void colli_devices_print(const coll_transport_env *env, FILE *out) {
  fputs("\nInfiniBand and RoCE\n", out);
  colli_verbs_print(env, out);
}
