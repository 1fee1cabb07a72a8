/* nvlink.c: where the NVLinks of GPUs go, and what they carry between two of them. */
#include "libcoll/base/line.h"
#include "topology/read.h"

coll_status colli_topo_add_nvlink(colli_topo *topo, colli_topo_nvlink link) {
  if (link.end == COLLI_NVLINK_GPU && link.to == link.gpu)
    return COLL_OK;
  for (int i = 0; i < topo->nnvlinks; i++) {
    const colli_topo_nvlink *known = &topo->nvlinks[i];
    if (known->gpu == link.gpu && known->end == link.end && known->to == link.to)
      return COLL_OK;
  }
  if (topo->nnvlinks == COLLI_TOPO_NVLINKS_MOST)
    return COLL_ERR_INVALID_ARGUMENT;
  topo->nvlinks[topo->nnvlinks++] = link;
  return COLL_OK;
}

int colli_topo_nvlink_gpus(const colli_topo *topo, int gpus[COLLI_TOPO_NVLINKS_MOST]) {
  int count = 0;
  for (int d = 0; d < topo->ndevices && count < COLLI_TOPO_NVLINKS_MOST; d++) {
    int i = 0;
    while (i < topo->nnvlinks && topo->nvlinks[i].gpu != d)
      i++;
    if (i < topo->nnvlinks)
      gpus[count++] = d;
  }
  return count;
}

/* Gbit/s of a GPU's NVLinks to ends of a kind, together; *ends receives how many these are. */
static double sum_of(const colli_topo *topo, int device, colli_nvlink_end end, int *ends) {
  double mbit = 0;
  *ends = 0;
  for (int i = 0; i < topo->nnvlinks; i++)
    if (topo->nvlinks[i].gpu == device && topo->nvlinks[i].end == end) {
      mbit += topo->nvlinks[i].mbit;
      (*ends)++;
    }
  return mbit / 1000;
}

const char *colli_topo_nvlinks_text(const colli_topo *topo, int device,
                                    char text[COLLI_TOPO_NVLINKS]) {
  colli_line line = {text, COLLI_TOPO_NVLINKS, 0};
  const char *comma = "NVLinks: ";
  int ends;
  text[0] = '\0';
  for (int i = 0; i < topo->nnvlinks; i++) {
    const colli_topo_nvlink *link = &topo->nvlinks[i];
    if (link->gpu != device || (link->end != COLLI_NVLINK_GPU && link->end != COLLI_NVLINK_PACKAGE))
      continue;
    colli_line_add(&line, "%s%g Gbit/s to ", comma, link->mbit / 1000);
    if (link->end == COLLI_NVLINK_GPU)
      colli_line_add(&line, "%s", topo->devices[link->to].name);
    else
      colli_line_add(&line, "package %d", link->to);
    comma = ", ";
  }
  const double switched = sum_of(topo, device, COLLI_NVLINK_SWITCH, &ends);
  if (ends > 0) {
    colli_line_add(&line, "%s%g Gbit/s to %d switch%s", comma, switched, ends,
                   ends == 1 ? "" : "es");
    comma = ", ";
  }
  const double more = sum_of(topo, device, COLLI_NVLINK_OTHER, &ends);
  if (ends > 0)
    colli_line_add(&line, "%s%g Gbit/s to other devices", comma, more);
  return text;
}

double colli_topo_nvlink_direct(const colli_topo *topo, int a, int b) {
  double mbit = 0;
  for (int i = 0; i < topo->nnvlinks; i++)
    if (topo->nvlinks[i].gpu == a && topo->nvlinks[i].end == COLLI_NVLINK_GPU &&
        topo->nvlinks[i].to == b)
      mbit += topo->nvlinks[i].mbit;
  return mbit;
}

/* What lies between a GPU and a switch. */
static double to_switch(const colli_topo *topo, int gpu, int number) {
  double mbit = 0;
  for (int i = 0; i < topo->nnvlinks; i++)
    if (topo->nvlinks[i].gpu == gpu && topo->nvlinks[i].end == COLLI_NVLINK_SWITCH &&
        topo->nvlinks[i].to == number)
      mbit += topo->nvlinks[i].mbit;
  return mbit;
}

double colli_topo_nvlink_switched(const colli_topo *topo, int a, int b) {
  double mbit = 0;
  for (int i = 0; i < topo->nnvlinks; i++) {
    const colli_topo_nvlink *link = &topo->nvlinks[i];
    if (link->gpu != a || link->end != COLLI_NVLINK_SWITCH)
      continue;
    const double other = to_switch(topo, b, link->to);
    mbit += other < link->mbit ? other : link->mbit;
  }
  return mbit;
}

/* Prints the cell of a pair. */
static void print_pair(const colli_topo *topo, int a, int b, FILE *out) {
  char text[40];
  const double direct = colli_topo_nvlink_direct(topo, a, b),
               switched = colli_topo_nvlink_switched(topo, a, b);
  if (a == b)
    snprintf(text, sizeof(text), "-");
  else if (direct == 0 && switched > 0)
    snprintf(text, sizeof(text), "switch:%g", switched / 1000);
  else
    snprintf(text, sizeof(text), "%g", direct / 1000);
  fprintf(out, " %11s", text);
}

void colli_topo_print_nvlinks(const colli_topo *topo, FILE *out) {
  int gpus[COLLI_TOPO_NVLINKS_MOST];
  const int count = colli_topo_nvlink_gpus(topo, gpus);
  if (count == 0)
    return;
  fprintf(out,
          "\nGbit/s over NVLinks between GPUs; switch:G: over switches to which both are linked\n"
          "%8s",
          "");
  for (int b = 0; b < count; b++)
    fprintf(out, " %11s", topo->devices[gpus[b]].name);
  for (int a = 0; a < count; a++) {
    fprintf(out, "\n%8s", topo->devices[gpus[a]].name);
    for (int b = 0; b < count; b++)
      print_pair(topo, gpus[a], gpus[b], out);
  }
  fputc('\n', out);
}
