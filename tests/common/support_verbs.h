/* support_verbs.h: the fake libibverbs, and devices for it. */
#ifndef COLLI_TESTS_UNIT_SUPPORT_VERBS_H
#define COLLI_TESTS_UNIT_SUPPORT_VERBS_H

#include "tests/plugins/fake_ibverbs.h"
#include "transports/verbs/verbs_device.h"

/* Loads the fake library instead of the real one, for the rest of this process. NULL: not found.
 * It has no device yet. */
fake_verbs *fake_load(void);

/* Adds a device with that many ports, all active InfiniBand at 100 Gbit/s. */
fake_device *fake_add(fake_verbs *fake, const char *name, int nports);

/* Makes a port one of RoCE, without addresses. */
void fake_make_roce(fake_port *port);

/* Puts an address ("10.0.0.1" or "fe80::1") into a port's table, as a type of GID. */
void fake_gid(fake_port *port, int index, const char *address, int type);

/* Default settings. */
verbs_settings fake_settings(void);

#endif
