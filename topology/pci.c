/* pci.c: where GPUs and network cards are plugged in, and how far they are from each other. */
#include <string.h>

#include "libcoll/base/line.h"
#include "topology/read.h"

#define MOST_NAMED 8 /* cards in one text */

int colli_topo_pci_kind(unsigned class_id) {
  if (class_id == 0x0207 || class_id == 0x0c06) /* InfiniBand, as a network and as a serial bus */
    return COLLI_DEVICE_RDMA;
  switch (class_id >> 8) {
  case 0x02:
    return COLLI_DEVICE_NET;
  case 0x03: /* displays */
    return COLLI_DEVICE_GPU;
  default:
    return -1;
  }
}

const colli_topo_pci *colli_topo_find_pci(const colli_topo *topo, const char *address) {
  char wanted[COLLI_PCI_ADDRESS];
  if (!colli_pci_read_address(address, wanted))
    return NULL;
  for (int i = 0; i < topo->npci; i++)
    if (strcmp(topo->pci[i].bus, wanted) == 0)
      return &topo->pci[i];
  return NULL;
}

colli_pci_distance colli_topo_pci_distance(const colli_topo_pci *a, const colli_topo_pci *b) {
  return colli_pci_distance_of(a != NULL ? &a->place : NULL, b != NULL ? &b->place : NULL);
}

/* ---- the nearest cards ----------------------------------------------------------------------- */

/* Compares how far two cards are from a GPU: below 0 if `a` is nearer. */
static int compare_cards(const colli_topo_pci *gpu, const colli_topo_pci *a,
                         const colli_topo_pci *b) {
  return colli_pci_order(&gpu->place, &a->place) - colli_pci_order(&gpu->place, &b->place);
}

/* Adds a card's devices, "mlx5_0/ib0", or its address if it has none. */
static void add_card(const colli_topo *topo, const colli_topo_pci *card, colli_line *line) {
  const char *slash = "";
  for (int d = 0; d < topo->ndevices; d++)
    if (strcmp(topo->devices[d].bus, card->bus) == 0) {
      colli_line_add(line, "%s%s", slash, topo->devices[d].name);
      slash = "/";
    }
  if (*slash == '\0')
    colli_line_add(line, "%s", card->bus);
}

/* The first of the cards that are nearest to a GPU; NULL: there is none. */
static const colli_topo_pci *find_nearest(const colli_topo *topo, const colli_topo_pci *gpu) {
  const colli_topo_pci *best = NULL;
  for (int i = 0; i < topo->npci; i++)
    if (topo->pci[i].kind != COLLI_DEVICE_GPU &&
        (best == NULL || compare_cards(gpu, &topo->pci[i], best) < 0))
      best = &topo->pci[i];
  return best;
}

const colli_topo_pci *colli_topo_next_nearest(const colli_topo *topo, const char *address,
                                              const colli_topo_pci *after) {
  const colli_topo_pci *gpu = colli_topo_find_pci(topo, address);
  const bool is_gpu = gpu != NULL && gpu->kind == COLLI_DEVICE_GPU;
  const colli_topo_pci *best = is_gpu ? find_nearest(topo, gpu) : NULL;
  if (colli_topo_pci_distance(gpu, best) == COLLI_PCI_UNKNOWN)
    return NULL;
  for (const colli_topo_pci *card = after != NULL ? after + 1 : best; card < topo->pci + topo->npci;
       card++)
    if (card->kind != COLLI_DEVICE_GPU && compare_cards(gpu, card, best) == 0)
      return card;
  return NULL;
}

const char *colli_topo_shared(const colli_topo *topo, const char *address,
                              const colli_topo_pci *card) {
  return colli_pci_shared(colli_topo_pci_distance(colli_topo_find_pci(topo, address), card));
}

const char *colli_topo_nearest_cards(const colli_topo *topo, const char *address,
                                     char text[COLLI_TOPO_NEAREST]) {
  const colli_topo_pci *first = colli_topo_next_nearest(topo, address, NULL);
  colli_line line = {text, COLLI_TOPO_NEAREST, 0};
  int count = 0;
  text[0] = '\0';
  if (first == NULL)
    return text;
  colli_line_add(&line, "nearest network: ");
  for (const colli_topo_pci *card = first; card != NULL;
       card = colli_topo_next_nearest(topo, address, card))
    if (count++ < MOST_NAMED) {
      colli_line_add(&line, "%s", card == first ? "" : ", ");
      add_card(topo, card, &line);
    }
  if (count > MOST_NAMED) /* as of a card that appears as many */
    colli_line_add(&line, " and %d more", count - MOST_NAMED);
  colli_line_add(&line, " (%s)", colli_topo_shared(topo, address, first));
  return text;
}
