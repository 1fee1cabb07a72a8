/* support_verbs.c: the fake libibverbs, and devices for it. */
#include "support_verbs.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_verbs *fake_load(void) {
  void *library = dlopen(COLL_PLUGINS "/fake_ibverbs.so", RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "fake_verbs_get") : NULL;
  fake_verbs_get_fn *get;
  if (!symbol) {
    fprintf(stderr, "fake_load: %s\n", dlerror());
    return NULL;
  }
  memcpy(&get, &symbol, sizeof(get));
  return get();
}

fake_device *fake_add(fake_verbs *fake, const char *name, int nports) {
  fake_device *made = &fake->devices[fake->count];
  fake->listed = ++fake->count;
  snprintf(made->device.name, sizeof(made->device.name), "%s", name);
  snprintf(made->device.dev_name, sizeof(made->device.dev_name), "uverbs%d", fake->count - 1);
  made->device.node_type = IBV_NODE_CA;
  made->device.transport_type = IBV_TRANSPORT_IB;
  made->nports = nports;
  for (int i = 0; i < FAKE_PORTS; i++) {
    fake_port *port = &made->ports[i];
    port->attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                        .max_mtu = IBV_MTU_4096,
                                        .active_mtu = IBV_MTU_4096,
                                        .gid_tbl_len = FAKE_GIDS,
                                        .max_msg_sz = 1u << 30,
                                        .lid = (uint16_t)(10 * fake->count + i),
                                        .active_width = 2,
                                        .active_speed = 32,
                                        .link_layer = IBV_LINK_LAYER_INFINIBAND};
    fake_gid(port, 0, "fe80::5054:ff:fe00:1", IBV_GID_TYPE_IB);
    port->gids[0].gid.raw[15] = (uint8_t)(10 * fake->count + i);
  }
  return made;
}

void fake_make_roce(fake_port *port) {
  port->attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  port->attr.lid = 0;
  memset(port->gids, 0, sizeof(port->gids));
}

void fake_gid(fake_port *port, int index, const char *address, int type) {
  union ibv_gid *gid = &port->gids[index].gid;
  memset(gid, 0, sizeof(*gid));
  if (!strchr(address, ':')) {
    gid->raw[10] = gid->raw[11] = 0xff;
    if (inet_pton(AF_INET, address, gid->raw + 12) != 1)
      abort();
  } else if (inet_pton(AF_INET6, address, gid->raw) != 1) {
    abort();
  }
  port->gids[index].gid_type = (uint32_t)type;
}

verbs_settings fake_settings(void) {
  return (verbs_settings){.devices = "", .ifname = "", .gid_index = -1, .timeout = 18, .retry = 7};
}
