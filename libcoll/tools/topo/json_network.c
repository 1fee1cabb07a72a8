/* json_network.c: what ranks send each other, as JSON: the numbers of the picture. */
#include "libcoll/base/names.h"
#include "libcoll/tools/topo/json.h"

/* The boxes: each a rank, or a group that is drawn whole. */
static void put_boxes(const topo_network *network, colli_json *json) {
  colli_json_open(json, "boxes", '[');
  for (int i = 0; i < network->nunits; i++) {
    const topo_unit *unit = &network->units[i];
    char name[COLLI_LEVELS_BYTES];
    if (network->unit_level >= 0)
      topo_network_name(network, network->unit_level, unit->first, name, sizeof(name));
    colli_json_open(json, NULL, '{');
    colli_json_int(json, "box", i);
    colli_json_text(json, "name", network->unit_level >= 0 ? name : NULL);
    colli_json_int(json, "first_rank", unit->first);
    colli_json_int(json, "rank_count", unit->nranks);
    colli_json_number(json, "inside_bytes", topo_network_flow(network, i, i)->bytes);
    colli_json_close(json, '}');
  }
  colli_json_close(json, ']');
}

/* Each pair of boxes of which one sends to the other. */
static void put_pairs(const topo_network *network, colli_json *json) {
  colli_json_open(json, "pairs", '[');
  for (int from = 0; from < network->nunits; from++)
    for (int to = 0; to < network->nunits; to++) {
      const topo_flow *flow = topo_network_flow(network, from, to);
      if (from == to || flow->bytes == 0)
        continue;
      colli_json_open(json, NULL, '{');
      colli_json_int(json, "from", from);
      colli_json_int(json, "to", to);
      colli_json_number(json, "bytes", flow->bytes);
      colli_json_int(json, "rail_count", flow->rails > 0 ? flow->rails : -1);
      colli_json_int(json, "unconnected_rail_count", flow->rails > 0 ? flow->lost : -1);
      colli_json_close(json, '}');
    }
  colli_json_close(json, ']');
}

void topo_json_messages(const topo_network *network, colli_json *json) {
  colli_json_open(json, "messages", '{');
  colli_json_text(json, "collective", colli_coll_name(network->coll));
  colli_json_count(json, "bytes", network->bytes);
  colli_json_text(json, "algorithm", network->algo);
  colli_json_int(json, "box_level", network->unit_level);
  put_boxes(network, json);
  put_pairs(network, json);
  colli_json_open(json, "level_bytes", '[');
  for (int level = 0; level <= network->nlevels; level++)
    colli_json_number(json, NULL, network->across[level]);
  colli_json_close(json, ']');
  colli_json_close(json, '}');
}
