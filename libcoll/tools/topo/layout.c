/* layout.c: where the parts of a machine lie in its picture: boxes in boxes, cores in the inmost.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/topo/topo.h"

#define LEVELS 4
#define ASPECT 1.5 /* of what a box holds: its width by its height */

typedef struct plan {
  const colli_topo *topo;
  box_kind levels[LEVELS]; /* from the outermost */
  int nlevels;
  box *boxes;
  int count;
} plan;

/* The object of a kind that a core belongs to, or -1. */
static int object_of(const colli_topo_core *core, box_kind kind) {
  const int objects[] = {[BOX_PACKAGE] = core->package,
                         [BOX_NODE] = core->numa_node,
                         [BOX_L3] = core->l3,
                         [BOX_L2] = core->l2};
  return objects[kind];
}

/* Chooses which kind of box holds which: those of which there are fewer hold the others. */
static void order_levels(plan *p) {
  const colli_topo *t = p->topo;
  const struct {
    box_kind kind;
    int count;
  } all[LEVELS] = {
      {BOX_PACKAGE, t->npackages}, {BOX_NODE, t->nnuma}, {BOX_L3, t->nl3}, {BOX_L2, t->nl2}};
  int counts[LEVELS];
  for (int i = 0; i < LEVELS; i++) {
    int at = p->nlevels;
    if (all[i].count == 0)
      continue;
    for (; at > 0 && counts[at - 1] > all[i].count; at--) {
      p->levels[at] = p->levels[at - 1];
      counts[at] = counts[at - 1];
    }
    p->levels[at] = all[i].kind;
    counts[at] = all[i].count;
    p->nlevels++;
  }
}

/* Writes the title of a box. */
static void set_title(const colli_topo *topo, box *b) {
  static const char *const words[] = {"", "package", "NUMA node", "L3 cache", "L2", "core", ""};
  if (b->kind == BOX_DEVICE || b->kind == BOX_MACHINE)
    return;
  int used = snprintf(b->title, sizeof(b->title), "%s %d", words[b->kind], b->index);
  if (b->kind == BOX_L3 && topo->l3_bytes > 0)
    snprintf(b->title + used, sizeof(b->title) - (size_t)used, ", %g MiB",
             (double)topo->l3_bytes / (1 << 20));
}

/* Adds a box; close_box() says that it is complete. */
static int open_box(plan *p, box_kind kind, int index, int parent) {
  box *b = &p->boxes[p->count];
  *b = (box){.kind = kind, .index = index, .parent = parent};
  set_title(p->topo, b);
  return p->count++;
}

static void close_box(plan *p, int b) {
  p->boxes[b].end = p->count;
}

/* Whether a device belongs to a box: to the node it is near, or else its package. */
static bool is_near(const colli_topo_device *device, box_kind kind, int index) {
  if (device->numa_node >= 0)
    return kind == BOX_NODE && device->numa_node == index;
  if (device->package >= 0)
    return kind == BOX_PACKAGE && device->package == index;
  return kind == BOX_MACHINE;
}

/* Whether a box of that kind and index exists, before another one. */
static bool is_there(const plan *p, box_kind kind, int index, int before) {
  for (int b = 0; b < before; b++)
    if (p->boxes[b].kind == kind && p->boxes[b].index == index)
      return true;
  return false;
}

/* Adds the devices of a box. */
static void add_devices(plan *p, int b) {
  const box_kind kind = p->boxes[b].kind;
  if (kind == BOX_L3 || kind == BOX_L2)
    return;
  if (is_there(p, kind, p->boxes[b].index, b))
    return; /* a node of several boxes has its devices in the first */
  for (int d = 0; d < p->topo->ndevices; d++)
    if (is_near(&p->topo->devices[d], kind, p->boxes[b].index))
      close_box(p, open_box(p, BOX_DEVICE, d, b));
}

/* Adds cores [first, end), which share all that is outside of a level. */
static void add_cores(plan *p, int level, int first, int end, int parent) {
  const colli_topo_core *cores = p->topo->cores;
  if (level == p->nlevels) {
    for (int c = first; c < end; c++)
      close_box(p, open_box(p, BOX_CORE, c, parent));
    return;
  }
  const box_kind kind = p->levels[level];
  for (int next; first < end; first = next) {
    const int object = object_of(&cores[first], kind);
    for (next = first + 1; next < end && object_of(&cores[next], kind) == object;)
      next++;
    const int b = object >= 0 ? open_box(p, kind, object, parent) : parent;
    add_cores(p, level + 1, first, next, b);
    if (b != parent) {
      add_devices(p, b);
      close_box(p, b);
    }
  }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool is_child(const plan *p, int parent, int b, bool device) {
  return p->boxes[b].parent == parent && (p->boxes[b].kind == BOX_DEVICE) == device;
}

/* How many columns give n equal boxes about the right shape; columns that are all full are better.
 */
static int choose_columns(int n, double w, double h) {
  int best = 1;
  double lowest = INFINITY;
  for (int columns = 1; columns <= n; columns++) {
    const int rows = (n + columns - 1) / columns;
    const double price =
        fabs(log(columns * w / (rows * h) / ASPECT)) + (n % columns != 0 ? 0.7 : 0);
    if (price < lowest) {
      lowest = price;
      best = columns;
    }
  }
  return best;
}

/* Arranges a box's children of one sort in a grid below `top`; *w and *h grow to hold them. */
static void arrange(plan *p, int parent, bool devices, double top, double *w, double *h) {
  const double gap = devices ? 1.5 * PAD : PAD;
  double cell_w = 0, cell_h = 0;
  int n = 0, at = 0;
  for (int b = parent + 1; b < p->boxes[parent].end; b = p->boxes[b].end)
    if (is_child(p, parent, b, devices)) {
      cell_w = fmax(cell_w, p->boxes[b].w);
      cell_h = fmax(cell_h, p->boxes[b].h);
      n++;
    }
  if (n == 0)
    return;
  int columns = choose_columns(n, cell_w + gap, cell_h + gap);
  const int fit = (int)((*w - PAD) / (cell_w + gap)); /* beside each other below the cores */
  if (devices && fit > columns)
    columns = fit < n ? fit : n;
  for (int b = parent + 1; b < p->boxes[parent].end; b = p->boxes[b].end)
    if (is_child(p, parent, b, devices)) {
      p->boxes[b].x = PAD + at % columns * (cell_w + gap);
      p->boxes[b].y = top + at / columns * (cell_h + gap) + (devices ? gap : 0);
      at++;
    }
  const int rows = (n + columns - 1) / columns;
  *w = fmax(*w, PAD + columns * (cell_w + gap) - gap + PAD);
  *h = top + rows * (cell_h + gap) + (devices ? gap : 0) - gap + PAD;
}

/* Finds the sizes of a box and of all that it holds, and where these lie in it. */
static void measure(plan *p, int b) {
  box *it = &p->boxes[b];
  if (it->kind == BOX_CORE || it->kind == BOX_DEVICE) {
    it->w = it->kind == BOX_CORE ? CORE_W : DEVICE_W;
    it->h = it->kind == BOX_CORE ? CORE_H : DEVICE_H;
    return;
  }
  for (int child = b + 1; child < it->end; child = p->boxes[child].end)
    measure(p, child);
  it->w = strlen(it->title) * CHAR_W * TEXT_PX + 2 * PAD;
  it->h = (it->kind == BOX_MACHINE ? PAD : TITLE_H) + PAD;
  const double top = it->kind == BOX_MACHINE ? PAD : TITLE_H;
  arrange(p, b, false, top, &it->w, &it->h);
  arrange(p, b, true, it->h, &it->w, &it->h);
}

box *topo_layout_make(const colli_topo *topo, int *count) {
  plan p = {.topo = topo};
  const size_t most = 1 + (size_t)(LEVELS + 1) * (size_t)topo->ncores + (size_t)topo->ndevices +
                      (size_t)topo->nnuma;
  p.boxes = calloc(most, sizeof(*p.boxes));
  if (p.boxes == NULL)
    return NULL;
  order_levels(&p);
  (void)open_box(&p, BOX_MACHINE, 0, -1);
  add_cores(&p, 0, 0, topo->ncores, 0);
  for (int node = 0; node < topo->nnuma; node++)
    if (!is_there(&p, BOX_NODE, node, p.count)) { /* memory without cores */
      const int b = open_box(&p, BOX_NODE, node, 0);
      add_devices(&p, b);
      close_box(&p, b);
    }
  add_devices(&p, 0);
  close_box(&p, 0);
  measure(&p, 0);
  for (int b = 1; b < p.count; b++) { /* parents come first */
    p.boxes[b].x += p.boxes[p.boxes[b].parent].x;
    p.boxes[b].y += p.boxes[p.boxes[b].parent].y;
  }
  *count = p.count;
  return p.boxes;
}
