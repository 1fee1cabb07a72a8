/* network_svg.c: draws a network: boxes of groups in boxes, ranks in the inmost, and a line for
 * each pair that sends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/topo/network.h"
#include "libcoll/tools/topo/topo.h"

#define RANK_W 44.0
#define RANK_H 26.0
#define GAP    26.0 /* lines pass there */
#define LINE_H 16.0

/* The place of everything. */
typedef struct drawing {
  const topo_network *network;
  int *order;    /* ranks, such that those of a group follow each other at each level */
  double *x, *y; /* [rank] its middle */
  FILE *out;     /* NULL: only measure */
} drawing;

static const char style[] =
    "<style>text{font-family:'DejaVu Sans',Verdana,sans-serif;font-size:11px;fill:#1d2733}"
    "rect{stroke:#5b6b7d;rx:4;fill:#fff}.level0>rect{fill:#eef2f7}.level1>rect{fill:#e5efe2}"
    ".level2>rect{fill:#fbf3df}.level3>rect,.level4>rect{fill:#f4e9f2}.rank rect{fill:#ffcf70}"
    "path{fill:none;opacity:.75}.meet0{stroke:#8a96a3}.meet1{stroke:#3466a3}.meet2{stroke:#c4551b}"
    ".meet3,.meet4,.meet5{stroke:#a3184a}</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" "
    "markerUnits=\"userSpaceOnUse\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
    "style=\"fill:#1d2733;stroke:none\"/></marker></defs>\n";

/* Sorts ranks by their groups, the widest level first: a stable insertion for each level. */
static void sort_ranks(drawing *d) {
  const topo_network *n = d->network;
  for (int rank = 0; rank < n->nranks; rank++)
    d->order[rank] = rank;
  for (int level = 0; level < n->nlevels; level++)
    for (int i = 1; i < n->nranks; i++)
      for (int at = i; at > 0 && n->group[level][d->order[at - 1]] > n->group[level][d->order[at]];
           at--) {
        const int rank = d->order[at];
        d->order[at] = d->order[at - 1];
        d->order[at - 1] = rank;
      }
}

/* The end of the group of a level that begins at a place of the order; below hosts: of a rank. */
static int group_end(const drawing *d, int level, int first, int end) {
  int at = first + 1;
  while (level >= 0 && at < end &&
         d->network->group[level][d->order[at]] == d->network->group[level][d->order[first]])
    at++;
  return at;
}

/* Draws one rank, or takes its place. */
static void draw_rank(const drawing *d, int rank, double x, double y) {
  d->x[rank] = x + RANK_W / 2;
  d->y[rank] = y + RANK_H / 2;
  if (d->out)
    fprintf(d->out,
            "<g class=\"rank\" data-index=\"%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text></g>\n",
            rank, x, y, RANK_W, RANK_H, x + RANK_W / 2, y + 17, rank);
}

/* Places what ranks [first, end) of the order have inside, from (x, y) on; `level` is that of the
 * boxes, -1: ranks. *w and *h receive the size. */
static void place(const drawing *d, int level, int first, int end, double x, double y, double *w,
                  double *h) {
  int count = 0;
  double cell_w = RANK_W, cell_h = RANK_H;
  for (int at = first, next; at < end; at = next) {
    next = group_end(d, level, at, end);
    count++;
    if (level < 0)
      continue;
    char title[COLLI_LEVELS_BYTES];
    const drawing measuring = {d->network, d->order, d->x, d->y, NULL};
    double in_w, in_h;
    place(&measuring, level - 1, at, next, 0, 0, &in_w, &in_h);
    topo_network_name(d->network, level, d->order[at], title, sizeof(title));
    cell_w = fmax(cell_w, fmax(in_w, (double)strlen(title) * CHAR_W * TEXT_PX) + 2 * PAD);
    cell_h = fmax(cell_h, in_h + TITLE_H + PAD);
  }
  const int columns = (int)ceil(sqrt(count * cell_h / cell_w * 1.6)),
            rows = (count - 1) / columns + 1;
  const int used = count < columns ? count : columns;
  *w = used * (cell_w + GAP) - GAP;
  *h = rows * (cell_h + GAP) - GAP;
  for (int at = first, next, i = 0; at < end; at = next, i++) {
    next = group_end(d, level, at, end);
    const double left = x + i % columns * (cell_w + GAP), top = y + i / columns * (cell_h + GAP);
    if (level < 0) {
      draw_rank(d, d->order[at], left, top);
      continue;
    }
    char title[COLLI_LEVELS_BYTES];
    double in_w, in_h;
    topo_network_name(d->network, level, d->order[at], title, sizeof(title));
    if (d->out) {
      fprintf(d->out,
              "<g class=\"level%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
              "<text x=\"%.1f\" y=\"%.1f\">",
              level, left, top, cell_w, cell_h, left + PAD, top + 13);
      topo_svg_text(d->out, title, sizeof(title));
      fputs("</text></g>\n", d->out);
    }
    place(d, level - 1, at, next, left + PAD, top + TITLE_H, &in_w, &in_h);
  }
}

/* Draws a line for each pair that sends: the more bytes, the wider. */
static void draw_lines(const drawing *d) {
  const topo_network *n = d->network;
  double most = 1;
  for (int i = 0; i < n->nranks * n->nranks; i++)
    most = fmax(most, n->bytes[i]);
  for (int a = 0; a < n->nranks; a++)
    for (int b = 0; b < n->nranks; b++) {
      const double bytes = n->bytes[a * n->nranks + b];
      if (bytes <= 0)
        continue;
      const double dx = d->x[b] - d->x[a], dy = d->y[b] - d->y[a], far = hypot(dx, dy);
      const double cut = RANK_H / 2 + 2, bend = far / 8; /* both ways are beside each other */
      fprintf(d->out,
              "<path class=\"meet%d\" stroke-width=\"%.2f\" marker-end=\"url(#tip)\" "
              "d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"><title>%d to %d: %.0f bytes</title></path>\n",
              topo_network_meet(n, a, b), 0.8 + 2.2 * sqrt(bytes / most), d->x[a] + dx / far * cut,
              d->y[a] + dy / far * cut, d->x[a] + dx / 2 - dy / far * bend,
              d->y[a] + dy / 2 + dx / far * bend, d->x[b] - dx / far * cut,
              d->y[b] - dy / far * cut, a, b, bytes);
    }
}

/* Writes what is sent, level by level, below the picture. */
static void draw_sums(const drawing *d, double y) {
  const topo_network *n = d->network;
  for (int level = 0; level <= n->nlevels; level++) {
    char where[48] = "between hosts";
    if (level == 0)
      snprintf(where, sizeof(where), "inside hosts");
    else if (level > 1)
      snprintf(where, sizeof(where), "between groups of level %d", level - 1);
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\">%s: %.0f bytes</text>\n", PAD,
            y + LINE_H * (level + 1), where, n->across[level]);
  }
}

bool topo_network_svg(const topo_network *network, FILE *out) {
  const size_t n = (size_t)network->nranks;
  drawing d = {network, malloc(n * sizeof(int)), malloc(n * sizeof(double)),
               malloc(n * sizeof(double)), NULL};
  const bool made = d.order && d.x && d.y;
  if (made) {
    double w, h;
    sort_ranks(&d);
    place(&d, network->nlevels - 1, 0, network->nranks, 0, 0, &w, &h);
    w = fmax(w, (double)strlen(network->title) * CHAR_W * TEXT_PX) + 2 * PAD;
    const double all = LINE_H + 2 * PAD + h + LINE_H * (network->nlevels + 2);
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
        "%.0f %.0f\">\n<title>%s</title>\n%s<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
        w, all, w, all, network->title, style, PAD, LINE_H, network->title);
    d.out = out;
    place(&d, network->nlevels - 1, 0, network->nranks, PAD, LINE_H + PAD, &w, &h);
    draw_lines(&d);
    draw_sums(&d, LINE_H + 2 * PAD + h);
    fputs("</svg>\n", out);
  }
  free(d.order);
  free(d.x);
  free(d.y);
  return made;
}
