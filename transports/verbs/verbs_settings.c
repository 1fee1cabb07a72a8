/* verbs_settings.c: the COLL_VERBS_ settings, and which ports they let through. */
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/verbs_device_internal.h"

/* The number of a setting that was checked when it was read; `fallback` if it is empty. */
static int number_of(const coll_transport_env *env, const char *name, int fallback) {
  const char *text = env->param(env->ctx, name);
  return *text ? atoi(text) : fallback;
}

/*
 * Checks that each item of COLL_VERBS_DEVICE is a name, perhaps with ^ or = in front and :port
 * behind it, and says what is wrong.
 */
static bool check_devices(const char *list, verbs_fault *fault) {
  for (const char *at = list; *at;) {
    size_t length = strcspn(at, ",");
    const char *name = at + (*at == '^');
    name += *name == '=';
    size_t name_length = strcspn(name, ",:");
    const char *port = name + name_length;
    char *end = NULL;
    long value = *port == ':' ? strtol(port + 1, &end, 10) : 1;
    bool digits = *port != ':' || (port[1] >= '0' && port[1] <= '9' && end == at + length);
    if (length > 0 && (name_length == 0 || !digits || value < 1 || value > 255)) {
      verbs_fault_set(fault, COLL_ERR_INVALID_USAGE, NULL, 0,
                      "COLL_VERBS_DEVICE=%s: '%.*s' is not a device; write name, =name, ^name, or "
                      "name:port, separated by commas",
                      list, (int)length, at);
      return false;
    }
    at += length + (at[length] == ',');
  }
  return true;
}

coll_status verbs_settings_read(const coll_transport_env *env, verbs_settings *settings,
                                verbs_fault *fault) {
  *settings = (verbs_settings){
      .devices = env->param(env->ctx, "COLL_VERBS_DEVICE"),
      .ifname = env->param(env->ctx, "COLL_TCP_IFNAME"),
      .port = number_of(env, "COLL_VERBS_PORT", 0),
      .gid_index = number_of(env, "COLL_VERBS_GID_INDEX", -1),
      .traffic_class = (uint8_t)number_of(env, "COLL_VERBS_TRAFFIC_CLASS", 0),
      .service_level = (uint8_t)number_of(env, "COLL_VERBS_SERVICE_LEVEL", 0),
      .timeout = (uint8_t)number_of(env, "COLL_VERBS_TIMEOUT", 18),
      .retry = (uint8_t)number_of(env, "COLL_VERBS_RETRY", 7),
  };
  if (env->gpu && colli_pci_find_at("/sys", env->gpu, &settings->gpu_place))
    settings->gpu = env->gpu;
  return check_devices(settings->devices, fault) ? COLL_OK : fault->status;
}

/* Whether one item, without ^, fits a port of a device. */
static bool item_fits(const char *item, size_t length, const char *name, int port) {
  bool whole = length > 0 && *item == '=';
  item += whole;
  length -= whole;
  const char *colon = memchr(item, ':', length);
  size_t name_length = colon ? (size_t)(colon - item) : length;
  if (strncmp(name, item, name_length) != 0 || (whole && strlen(name) != name_length))
    return false;
  return !colon || port == 0 || atoi(colon + 1) == port;
}

bool verbs_device_allowed(const verbs_settings *settings, const char *name, int port) {
  bool wanted = false, any_wanted = false;
  for (const char *at = settings->devices; *at;) {
    size_t length = strcspn(at, ",");
    if (*at == '^') {
      /* What excludes one port does not exclude the device. */
      bool one_port = memchr(at, ':', length) != NULL;
      if (!(port == 0 && one_port) && item_fits(at + 1, length - 1, name, port))
        return false;
    } else if (length > 0) {
      any_wanted = true;
      wanted = wanted || item_fits(at, length, name, port);
    }
    at += length + (at[length] == ',');
  }
  if (any_wanted && !wanted)
    return false;
  return port == 0 || settings->port == 0 || settings->port == port;
}
