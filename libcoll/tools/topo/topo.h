/* topo.h: coll_topo's parts: the picture of a machine. Its GPUs: gpus.h. */
#ifndef COLLI_TOOLS_TOPO_TOPO_H
#define COLLI_TOOLS_TOPO_TOPO_H

#include <stdio.h>

#include "topology/topology.h"

/* What a picture shows. */
typedef struct topo_scene {
  const colli_topo *topo;
  int nranks;        /* 0: none are known */
  const int *cores;  /* the core of each rank; -1: none in particular, or on another host */
  const char *notes; /* lines of text below the machine */
  bool runs;         /* the ranks do: which cores only this one may use does not matter */
} topo_scene;

/* ---- layout.c -------------------------------------------------------------------------------- */

typedef enum box_kind {
  BOX_MACHINE,
  BOX_PACKAGE,
  BOX_NODE,
  BOX_L3,
  BOX_L2,
  BOX_CORE,
  BOX_DEVICE
} box_kind;

#define BOX_TITLE 64

/* One rectangle of the picture. What a box holds comes behind it in the list. */
typedef struct box {
  box_kind kind;
  int index;  /* of the object, as hwloc counts */
  int parent; /* box, or -1 */
  int end;    /* the boxes up to here belong to it */
  double x, y, w, h;
  char title[BOX_TITLE];
} box;

/* Sizes in pixels. A letter of the picture's font is at most CHAR_W wide for each pixel of its
 * height. */
#define CHAR_W   0.66
#define TEXT_PX  11.0
#define SMALL_PX 9.5
#define PAD      8.0
#define TITLE_H  18.0
#define CORE_W   76.0
#define CORE_H   36.0
#define DEVICE_W 150.0
#define DEVICE_H 50.0

/* Arranges the machine from (0, 0) on. NULL: out of memory. */
box *topo_layout_make(const colli_topo *topo, int *count);

/* ---- svg.c ----------------------------------------------------------------------------------- */

/* Writes text into SVG so that it is nothing but text, at most so many characters of it. */
void topo_svg_text(FILE *out, const char *text, size_t most);

/* Draws a scene as SVG. False: out of memory. */
bool topo_svg(const topo_scene *scene, FILE *out);

/* ---- picture.c ------------------------------------------------------------------------------- */

/* The same for this machine: also its GPUs. */
bool topo_draw_here(const topo_scene *scene, FILE *out);

#endif
