/* network_svg.c: draws a network: boxes of groups in boxes, units (ranks, or groups that are drawn
 * whole) in the inmost, and a line for each pair of units that sends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/topo/network.h"
#include "libcoll/tools/topo/topo.h"

#define RANK_W     44.0
#define RANK_H     26.0
#define GAP        26.0 /* lines pass there */
#define LINE_H     16.0
#define UNIT_H     36.0
#define LINES      16384 /* more would be a file of several megabytes in which nothing can be seen */
#define LABELS     512
#define LEAST_BEND 8.0 /* so that lines both ways are beside each other */

/* The place of everything. */
typedef struct drawing {
  const topo_network *network;
  int *order;    /* ranks, such that those of a group follow each other at each level */
  double *x, *y; /* [unit] its middle */
  double *w;     /* how wide it is */
  double h;      /* how high all are */
  double least;  /* bytes of lines that are drawn */
  FILE *out;     /* NULL: only measure */
} drawing;

static const char style[] =
    "<style>text{font-family:'DejaVu Sans',Verdana,sans-serif;font-size:11px;fill:#1d2733}"
    "rect{stroke:#5b6b7d;rx:4;fill:#fff}[class^=level]>rect{fill:#f4e9f2}"
    ".level0>rect{fill:#eef2f7}.level1>rect{fill:#e5efe2}.level2>rect{fill:#fbf3df}"
    ".rank rect,.unit>rect{fill:#ffcf70}"
    "path{fill:none;opacity:.75}[class^=meet]{stroke:#a3184a}"
    ".meet0{stroke:#8a96a3}.meet1{stroke:#3466a3}.meet2{stroke:#c4551b}"
    ".rails{font-size:9px;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px}.rails.lost{fill:#c00}</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" "
    "markerUnits=\"userSpaceOnUse\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
    "style=\"fill:#1d2733;stroke:none\"/></marker></defs>\n";

/* Sorts ranks by their groups, the widest level first: for each level it counts the ranks of each
 * group, which says where groups begin. False: out of memory. */
static bool sort_ranks(drawing *d) {
  const topo_network *n = d->network;
  const size_t room = (size_t)n->nranks + 1;
  int *sorted = malloc(2 * room * sizeof(*sorted)), *place_of = sorted ? sorted + room : NULL;
  const bool made = sorted;
  for (int rank = 0; rank < n->nranks; rank++)
    d->order[rank] = rank;
  for (int level = 0; made && level < n->nlevels; level++) {
    const int32_t *group = n->group[level];
    memset(place_of, 0, room * sizeof(*place_of));
    for (int rank = 0; rank < n->nranks; rank++)
      place_of[group[rank] + 1]++;
    for (int i = 1; i < n->nranks; i++)
      place_of[i] += place_of[i - 1];
    for (int i = 0; i < n->nranks; i++)
      sorted[place_of[group[d->order[i]]]++] = d->order[i];
    memcpy(d->order, sorted, (size_t)n->nranks * sizeof(*sorted));
  }
  free(sorted);
  return made;
}

/* The end of the group of a level that begins at a place of the order; below hosts: of a rank. */
static int group_end(const drawing *d, int level, int first, int end) {
  int at = first + 1;
  while (level >= 0 && at < end &&
         d->network->group[level][d->order[at]] == d->network->group[level][d->order[first]])
    at++;
  return at;
}

/* What is written on a unit. */
static void unit_title(const topo_network *n, int rank, char *text, size_t room) {
  if (n->unit_level < 0)
    snprintf(text, room, "%d", rank);
  else
    topo_network_name(n, n->unit_level, rank, text, room);
}

/* The size of a unit's box. */
static void unit_size(const topo_network *n, int rank, double *w, double *h) {
  char title[COLLI_LEVELS_BYTES];
  *w = RANK_W;
  *h = RANK_H;
  if (n->unit_level < 0)
    return;
  unit_title(n, rank, title, sizeof(title));
  *w = fmax(2 * RANK_W, (double)strlen(title) * CHAR_W * TEXT_PX + 2 * PAD);
  *h = UNIT_H;
}

/* Draws the unit of a rank, or takes its place. */
static void draw_unit(const drawing *d, int rank, double x, double y, double w, double h) {
  const topo_network *n = d->network;
  const int unit = topo_network_unit(n, rank);
  char title[COLLI_LEVELS_BYTES];
  d->x[unit] = x + w / 2;
  d->y[unit] = y + h / 2;
  d->w[unit] = w;
  if (!d->out)
    return;
  unit_title(n, rank, title, sizeof(title));
  fprintf(d->out, "<g class=\"%s\" data-index=\"%d\">", n->unit_level < 0 ? "rank" : "unit", unit);
  if (n->unit_level >= 0)
    fprintf(d->out, "<title>%.0f bytes inside</title>", topo_network_flow(n, unit, unit)->bytes);
  fprintf(d->out,
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
          x, y, w, h, x + w / 2, y + (n->unit_level < 0 ? 17 : 15));
  topo_svg_text(d->out, title, sizeof(title));
  fputs("</text>", d->out);
  if (n->unit_level >= 0)
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d ranks</text>", x + w / 2,
            y + 29, n->units[unit].nranks);
  fputs("</g>\n", d->out);
}

static void place(const drawing *d, int level, int first, int end, double x, double y, double *w,
                  double *h);

/* Draws the box of a group, with what is inside. */
static void draw_group(const drawing *d, int level, int first, int end, double x, double y,
                       double w, double h) {
  char title[COLLI_LEVELS_BYTES];
  double in_w, in_h;
  topo_network_name(d->network, level, d->order[first], title, sizeof(title));
  if (d->out) {
    fprintf(d->out,
            "<g class=\"level%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
            "<text x=\"%.1f\" y=\"%.1f\">",
            level, x, y, w, h, x + PAD, y + 13);
    topo_svg_text(d->out, title, sizeof(title));
    fputs("</text></g>\n", d->out);
  }
  place(d, level - 1, first, end, x + PAD, y + TITLE_H, &in_w, &in_h);
}

/* The size of the box that begins at a place of the order. */
static void measure(const drawing *d, int level, int first, int end, double *w, double *h) {
  char title[COLLI_LEVELS_BYTES];
  drawing measuring = *d;
  measuring.out = NULL;
  if (level == d->network->unit_level) {
    unit_size(d->network, d->order[first], w, h);
    return;
  }
  place(&measuring, level - 1, first, end, 0, 0, w, h);
  topo_network_name(d->network, level, d->order[first], title, sizeof(title));
  *w = fmax(*w, (double)strlen(title) * CHAR_W * TEXT_PX) + 2 * PAD;
  *h += TITLE_H + PAD;
}

/* Places what ranks [first, end) of the order have inside, from (x, y) on; `level` is that of the
 * boxes. *w and *h receive the size. */
static void place(const drawing *d, int level, int first, int end, double x, double y, double *w,
                  double *h) {
  int count = 0;
  double cell_w = 0, cell_h = 0;
  for (int at = first, next; at < end; at = next, count++) {
    double in_w, in_h;
    next = group_end(d, level, at, end);
    measure(d, level, at, next, &in_w, &in_h);
    cell_w = fmax(cell_w, in_w);
    cell_h = fmax(cell_h, in_h);
  }
  const int columns = (int)ceil(sqrt(count * cell_h / cell_w * 1.6)),
            rows = (count - 1) / columns + 1;
  const int used = count < columns ? count : columns;
  *w = used * (cell_w + GAP) - GAP;
  *h = rows * (cell_h + GAP) - GAP;
  for (int at = first, next, i = 0; at < end; at = next, i++) {
    next = group_end(d, level, at, end);
    const double left = x + i % columns * (cell_w + GAP), top = y + i / columns * (cell_h + GAP);
    if (level == d->network->unit_level)
      draw_unit(d, d->order[at], left, top, cell_w, cell_h);
    else
      draw_group(d, level, at, next, left, top, cell_w, cell_h);
  }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Orders numbers from the largest down. */
static int compare_bytes(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x > y ? -1 : x < y;
}

/* Finds how few bytes a line may have, and how many lines have more than none. False: out of
 * memory. */
static bool limit_lines(drawing *d, size_t *count) {
  const topo_network *n = d->network;
  double *bytes = malloc((size_t)n->nunits * (size_t)n->nunits * sizeof(*bytes));
  *count = 0;
  for (int from = 0; bytes && from < n->nunits; from++)
    for (int to = 0; to < n->nunits; to++)
      if (from != to && topo_network_flow(n, from, to)->bytes > 0)
        bytes[(*count)++] = topo_network_flow(n, from, to)->bytes;
  d->least = 0;
  if (bytes && *count > LINES) {
    qsort(bytes, *count, sizeof(*bytes), compare_bytes);
    d->least = bytes[LINES - 1];
  }
  free(bytes);
  return bytes;
}

/* Writes how many rails a line has on it, in its middle. */
static void draw_rails(const drawing *d, const topo_flow *flow, double x, double y) {
  fprintf(d->out, "<text class=\"rails%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
          flow->lost ? " lost" : "", x, y);
  if (flow->lost)
    fprintf(d->out, "%d of ", flow->rails - flow->lost);
  fprintf(d->out, "%d rails</text>\n", flow->rails);
}

/* The part of the way from the middle of a unit to that of another one that is in its box. */
static double part_inside(const drawing *d, int unit, double dx, double dy) {
  return fmin(d->w[unit] / 2 / fmax(fabs(dx), 1), d->h / 2 / fmax(fabs(dy), 1)) + 2 / hypot(dx, dy);
}

/* Draws the line from one unit to another. Both ways are beside each other. */
static void draw_line(const drawing *d, int a, int b, double most, bool label) {
  const topo_network *n = d->network;
  const topo_flow *flow = topo_network_flow(n, a, b);
  double dx = d->x[b] - d->x[a], dy = d->y[b] - d->y[a];
  const double part_a = part_inside(d, a, dx, dy), part_b = part_inside(d, b, dx, dy);
  const double from_x = d->x[a] + dx * part_a, from_y = d->y[a] + dy * part_a,
               to_x = d->x[b] - dx * part_b, to_y = d->y[b] - dy * part_b;
  dx = to_x - from_x;
  dy = to_y - from_y;
  const double far = fmax(hypot(dx, dy), 1), bend = fmax(1.0 / 8, LEAST_BEND / far);
  const double side_x = -dy * bend, side_y = dx * bend;
  fprintf(d->out,
          "<path class=\"meet%d\" stroke-width=\"%.2f\" marker-end=\"url(#tip)\" "
          "d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"><title>",
          topo_network_meet(n, n->units[a].first, n->units[b].first),
          0.8 + 2.2 * sqrt(flow->bytes / most), from_x, from_y, from_x + dx / 2 + side_x,
          from_y + dy / 2 + side_y, to_x, to_y);
  for (int end = 0; end < 2; end++) {
    char title[COLLI_LEVELS_BYTES];
    unit_title(n, n->units[end ? b : a].first, title, sizeof(title));
    topo_svg_text(d->out, title, sizeof(title));
    fputs(end ? ": " : " to ", d->out);
  }
  fprintf(d->out, "%.0f bytes", flow->bytes);
  if (flow->rails > 1)
    fprintf(d->out, " over %d rails", flow->rails);
  if (flow->lost)
    fprintf(d->out, ", %d not connected", flow->lost);
  fputs("</title></path>\n", d->out);
  if (label) /* halfway to the point that bends the line */
    draw_rails(d, flow, from_x + dx / 2 + side_x / 2, from_y + dy / 2 + side_y / 2);
}

/* Whether there is a line from one unit to another: if not all are drawn, those with the least
 * bytes come `last`. */
static bool is_drawn(const drawing *d, int a, int b, bool last) {
  const double bytes = topo_network_flow(d->network, a, b)->bytes;
  return a != b && bytes > 0 && (last ? bytes == d->least : bytes > d->least);
}

/* Draws lines for pairs that send: the more bytes, the wider. Returns how many there are. */
static size_t draw_lines(const drawing *d) {
  const topo_network *n = d->network;
  double most = 1;
  size_t lines = 0, labels = 0;
  for (int a = 0; a < n->nunits; a++)
    for (int b = 0; b < n->nunits; b++)
      if (a != b)
        most = fmax(most, topo_network_flow(n, a, b)->bytes);
  for (int last = 0; last < 2; last++)
    for (int a = 0; a < n->nunits; a++)
      for (int b = 0; b < n->nunits && lines < LINES; b++) {
        const topo_flow *flow = topo_network_flow(n, a, b);
        const bool label = (flow->rails > 1 || flow->lost) && labels < LABELS;
        if (!is_drawn(d, a, b, last))
          continue;
        draw_line(d, a, b, most, label);
        labels += label;
        lines++;
      }
  return lines;
}

/* Writes what is sent, level by level, below the picture, and how many lines are not drawn. */
static void draw_sums(const drawing *d, double y, size_t missing) {
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
  if (missing)
    fprintf(d->out,
            "<text x=\"%.1f\" y=\"%.1f\">%zu lines that have no more bytes than those here are "
            "left out</text>\n",
            PAD, y + LINE_H * (n->nlevels + 2), missing);
}

/* Draws it all, once there is room for what it needs. */
static void draw(drawing *d, size_t lines, FILE *out) {
  const topo_network *n = d->network;
  double w, h, unit_w;
  unit_size(n, 0, &unit_w, &d->h);
  place(d, n->nlevels - 1, 0, n->nranks, 0, 0, &w, &h);
  w = fmax(w, (double)strlen(n->title) * CHAR_W * TEXT_PX) + 2 * PAD;
  const double all = LINE_H + 2 * PAD + h + LINE_H * (n->nlevels + 3);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
          "%.0f %.0f\">\n<title>%s</title>\n%s<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
          w, all, w, all, n->title, style, PAD, LINE_H, n->title);
  d->out = out;
  place(d, n->nlevels - 1, 0, n->nranks, PAD, LINE_H + PAD, &w, &h);
  const size_t drawn = draw_lines(d);
  draw_sums(d, LINE_H + 2 * PAD + h, lines - drawn);
  fputs("</svg>\n", out);
}

bool topo_network_svg(const topo_network *network, FILE *out) {
  const size_t n = (size_t)network->nranks, units = (size_t)network->nunits;
  size_t lines = 0;
  drawing d = {.network = network,
               .order = malloc(n * sizeof(int)),
               .x = malloc(units * sizeof(double)),
               .y = malloc(units * sizeof(double)),
               .w = malloc(units * sizeof(double))};
  const bool made = d.order && d.x && d.y && d.w && sort_ranks(&d) && limit_lines(&d, &lines);
  if (made)
    draw(&d, lines, out);
  free(d.order);
  free(d.x);
  free(d.y);
  free(d.w);
  return made;
}
