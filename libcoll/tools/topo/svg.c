/* svg.c: draws a machine and the ranks on it as SVG. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/json/json.h"
#include "libcoll/tools/topo/topo.h"

#define MARGIN 12.0
#define LINE_H 15.0
#define LEAST  560.0 /* width of the picture, for the text */

static const char *const classes[] = {"machine", "package", "node", "l3", "l2", "core", "device"};
static const char *const device_kinds[] = {"network", "RDMA", "GPU"};

static const char style[] =
    "<style>text{font-family:'DejaVu Sans',Verdana,sans-serif;fill:#1d2733}"
    "rect{stroke:#5b6b7d;stroke-width:1;rx:4}.machine rect{fill:#fff}.package rect{fill:#eef2f7}"
    ".node rect{fill:#e5efe2}.l3 rect{fill:#fbf3df}.l2 rect{fill:#fdfaf2}.core rect{fill:#fff}"
    ".core.used rect{fill:#ffcf70}.core.forbidden rect{fill:#d9d9d9;stroke-dasharray:3 2}"
    ".device rect{fill:#dce8f8}.link{stroke:#3466a3;stroke-width:2;fill:none}</style>\n";

/* ---- text ------------------------------------------------------------------------------------ */

void topo_svg_text(FILE *out, const char *text, size_t most) {
  static const char *const entities[] = {
      ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
  const unsigned char *at = (const unsigned char *)text;
  for (size_t i = 0; *at != '\0'; i++) {
    const int length = colli_utf8_length(at);
    if (i + 1 >= most && at[length > 0 ? length : 1] != '\0') {
      fputs("…", out);
      return;
    }
    if (length == 0)
      fputs("\xef\xbf\xbd", out); /* what stands for something that is no character */
    else if (length == 1 && *at < sizeof(entities) / sizeof(*entities) && entities[*at] != NULL)
      fputs(entities[*at], out);
    else
      fwrite(at, 1, (size_t)length, out);
    at += length > 0 ? length : 1;
  }
}

/* Characters that fit into a width. */
static size_t fitting(double width, double px) {
  const double count = width / (CHAR_W * px);
  return count < 1 ? 1 : (size_t)count;
}

/* Writes one line of text. */
static void put_line(FILE *out, double x, double y, double px, const char *more, const char *text,
                     double width) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\"%s>", x, y, px, more);
  topo_svg_text(out, text, fitting(width, px));
  fputs("</text>\n", out);
}

/* Writes lines, each in as many as it takes, from *y on, which goes on below them. */
static void put_lines(FILE *out, const char *text, double width, const char *more, double *y) {
  const size_t most = fitting(width, TEXT_PX);
  while (*text != '\0') {
    const size_t line = strcspn(text, "\n");
    size_t bytes = line;
    if (bytes > most) { /* bytes are at least as many as characters */
      bytes = most;
      while (bytes > 0 && text[bytes] != ' ')
        bytes--;
      bytes = bytes > 0 ? bytes : most;
      while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes--;
      bytes = bytes > 0 ? bytes : line;
    }
    char *part = strndup(text, bytes);
    put_line(out, MARGIN, *y + TEXT_PX, TEXT_PX, more, part != NULL ? part : "", width);
    free(part);
    *y += LINE_H;
    text += bytes;
    text += strspn(text, text[0] == '\n' ? "\n" : " ");
  }
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Writes which ranks are on a core; returns how many. */
static int ranks_on(const topo_scene *scene, int core, char *text, size_t room) {
  int count = 0;
  size_t used = 0;
  text[0] = '\0';
  for (int r = 0; r < scene->nranks; r++) {
    const int first = r;
    if (scene->cores[r] != core)
      continue;
    while (r + 1 < scene->nranks && scene->cores[r + 1] == core)
      r++;
    count += r - first + 1;
    if (used < room)
      used += (size_t)snprintf(text + used, room - used, r > first ? "%s%d-%d" : "%s%d",
                               used > 0 ? "," : "", first, r);
  }
  return count;
}

static void draw_core(const topo_scene *scene, const box *b, FILE *out) {
  const colli_topo *topo = scene->topo;
  const bool allowed = scene->runs || topo->cores[b->index].allowed;
  char ranks[256], text[300];
  const int count = ranks_on(scene, b->index, ranks, sizeof(ranks));
  fprintf(out, "<g class=\"core%s%s\" data-index=\"%d\"><title>%s, hardware threads",
          count > 0 ? " used" : "", allowed ? "" : " forbidden", b->index, b->title);
  const char *comma = " ";
  for (int unit = 0; unit < topo->npu_numbers; unit++)
    if (topo->core_of_pu[unit] == b->index) {
      fprintf(out, "%s%d", comma, unit);
      comma = ", ";
    }
  if (count > 0)
    fprintf(out, "; rank%s %s", count > 1 ? "s" : "", ranks);
  fprintf(out, "%s</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
          allowed ? "" : "; not for this process", b->x, b->y, b->w, b->h);
  const char *middle = " text-anchor=\"middle\"";
  const double x = b->x + b->w / 2, width = b->w - 4;
  put_line(out, x, b->y + (count > 0 ? 15 : 22), TEXT_PX, middle, b->title, width);
  snprintf(text, sizeof(text), "rank%s %s", count > 1 ? "s" : "", ranks);
  if (strlen(text) > fitting(width, SMALL_PX))
    snprintf(text, sizeof(text), "%d ranks", count);
  if (count > 0)
    put_line(out, x, b->y + 29, SMALL_PX, " text-anchor=\"middle\" font-weight=\"bold\"", text,
             width);
  fputs("</g>\n", out);
}

static void draw_device(const topo_scene *scene, const box *b, const box *parent, FILE *out) {
  const colli_topo_device *device = &scene->topo->devices[b->index];
  char text[128], nearest[COLLI_TOPO_NEAREST], nvlinks[COLLI_TOPO_NVLINKS];
  const double bus = b->y - 0.75 * PAD, middle = b->x + b->w / 2, trunk = parent->x + PAD / 2;
  fprintf(out, "<path class=\"link\" d=\"M%.1f %.1fV%.1fH%.1fV%.1f\"/>\n", trunk,
          parent->y + (parent->kind == BOX_MACHINE ? 0 : TITLE_H), bus, middle, b->y);
  fprintf(out, "<g class=\"device\" data-index=\"%d\"><title>%s ", b->index,
          device_kinds[device->kind]);
  topo_svg_text(out, device->name, sizeof(device->name));
  if (*colli_topo_nearest_cards(scene->topo, device->bus, nearest)) {
    fputs("; ", out);
    topo_svg_text(out, nearest, sizeof(nearest));
  }
  if (*colli_topo_nvlinks_text(scene->topo, b->index, nvlinks)) {
    fputs("; ", out);
    topo_svg_text(out, nvlinks, sizeof(nvlinks));
  }
  fprintf(out, "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", b->x, b->y,
          b->w, b->h);
  const double x = b->x + 6, width = b->w - 10;
  snprintf(text, sizeof(text), "%s %s", device_kinds[device->kind], device->name);
  put_line(out, x, b->y + 15, TEXT_PX, " font-weight=\"bold\"", text, width * 0.93);
  put_line(out, x, b->y + 29, SMALL_PX, "", device->bus, width);
  if (device->link_mbit > 0) {
    snprintf(text, sizeof(text), "%.4g Gbit/s", device->link_mbit / 1000);
    put_line(out, x, b->y + 42, SMALL_PX, "", text, width);
  }
  fputs("</g>\n", out);
}

static void draw_box(const topo_scene *scene, const box *all, int i, FILE *out) {
  const box *b = &all[i];
  if (b->kind == BOX_CORE) {
    draw_core(scene, b, out);
  } else if (b->kind == BOX_DEVICE) {
    draw_device(scene, b, &all[b->parent], out);
  } else {
    fprintf(out,
            "<g class=\"%s\" data-index=\"%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\"/>\n",
            classes[b->kind], b->index, b->x, b->y, b->w, b->h);
    if (b->kind != BOX_MACHINE)
      put_line(out, b->x + PAD, b->y + 13, TEXT_PX, "", b->title, b->w);
    fputs("</g>\n", out);
  }
}

/* Writes what the whole machine has. */
static void put_summary(const topo_scene *scene, double width, double *y, FILE *out) {
  const colli_topo *t = scene->topo;
  char text[400];
  put_lines(out, t->source, width * 0.93, " font-weight=\"bold\"", y);
  int used = snprintf(text, sizeof(text), "packages %d, NUMA nodes %d, cores %d", t->npackages,
                      t->nnuma, t->ncores);
  if (!scene->runs)
    used += snprintf(text + used, sizeof(text) - (size_t)used, " (%d for this process)",
                     colli_topo_allowed_cores(t));
  used += snprintf(text + used, sizeof(text) - (size_t)used, ", hardware threads %d", t->npus);
  if (t->memory_bytes > 0)
    used += snprintf(text + used, sizeof(text) - (size_t)used, ", memory %.4g GiB",
                     (double)t->memory_bytes / (1 << 30));
  if (t->nl2 > 0 && t->l2_bytes > 0)
    snprintf(text + used, sizeof(text) - (size_t)used, ", L2 caches of %g KiB",
             (double)t->l2_bytes / 1024);
  put_lines(out, text, width, "", y);
}

/* Writes where the NVLinks of each GPU go. */
static void put_nvlinks(const colli_topo *topo, double width, double *y, FILE *out) {
  char text[COLLI_TOPO_NVLINKS], line[COLLI_TOPO_NVLINKS + COLLI_TOPO_NAME + 8];
  for (int d = 0; d < topo->ndevices; d++) {
    if (*colli_topo_nvlinks_text(topo, d, text) == '\0')
      continue;
    snprintf(line, sizeof(line), "GPU %s: %s", topo->devices[d].name, text);
    put_lines(out, line, width, "", y);
  }
}

bool topo_svg(const topo_scene *scene, FILE *out) {
  int count;
  char *head = NULL, *foot = NULL;
  size_t head_bytes, foot_bytes;
  box *boxes = topo_layout_make(scene->topo, &count);
  FILE *above = open_memstream(&head, &head_bytes), *below = open_memstream(&foot, &foot_bytes);
  bool made = boxes != NULL && above != NULL && below != NULL;
  if (made) {
    const double width = fmax(boxes[0].w, LEAST);
    double y = MARGIN;
    put_summary(scene, width, &y, above);
    const double top = y + PAD;
    y = top + boxes[0].h + PAD;
    put_lines(below, scene->notes, width, "", &y);
    put_nvlinks(scene->topo, width, &y, below);
    made = fflush(above) == 0 && fflush(below) == 0;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n<title>",
            width + 2 * MARGIN, y + MARGIN, width + 2 * MARGIN, y + MARGIN);
    topo_svg_text(out, scene->topo->source, sizeof(scene->topo->source));
    fprintf(
        out,
        "</title>\n%s<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff;stroke:none\"/>\n%s",
        style, head != NULL ? head : "");
    for (int b = 0; b < count; b++) {
      boxes[b].x += MARGIN;
      boxes[b].y += top;
    }
    for (int b = 0; b < count; b++)
      draw_box(scene, boxes, b, out);
    fprintf(out, "%s</svg>\n", foot != NULL ? foot : "");
  }
  if (above != NULL)
    fclose(above);
  if (below != NULL)
    fclose(below);
  free(head);
  free(foot);
  free(boxes);
  return made;
}
