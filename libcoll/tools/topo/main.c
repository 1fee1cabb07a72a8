/*
 * main.c: coll_topo shows the machine, and which core each of n ranks would get on it. Under a
 * launcher (collrun -n 4 coll_topo) it also shows where the ranks are, and which transport each
 * pair of them uses and why. It prints that, or writes it as XML or as a picture. Of this machine
 * it also shows the GPUs, and how calls in streams would run between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/tools/topo/draw.h"
#include "libcoll/tools/topo/files.h"
#include "libcoll/tools/topo/gather.h"
#include "libcoll/tools/topo/gpus.h"
#include "libcoll/tools/topo/json_show.h"
#include "libcoll/tools/topo/ranks.h"
#include "libcoll/tools/topo/request.h"
#include "libcoll/tools/topo/topo.h"

/* ---- files ----------------------------------------------------------------------------------- */

/* Writes the files that are asked for; returns the exit status. */
static int write_files(const request *asked, const topo_scene *scene) {
  coll_error error = COLL_ERROR_INIT;
  const char *source = asked->source != NULL ? asked->source : "";
  topo_file file;
  if (asked->xml != NULL) {
    if (!topo_file_open(&file, asked->xml))
      return 1;
    const coll_status status = colli_topo_export(source, file.out, &error);
    if (status != COLL_OK)
      fprintf(stderr, "coll_topo: %s\n", error.message);
    if (topo_file_close(&file, status == COLL_OK) != 0)
      return 1;
  }
  if (asked->svg == NULL)
    return 0;
  if (!topo_file_open(&file, asked->svg))
    return 1;
  const bool drawn = *source ? topo_svg(scene, file.out) : topo_draw_here(scene, file.out);
  if (!drawn)
    fputs("coll_topo: out of memory\n", stderr);
  return topo_file_close(&file, drawn);
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* Prints the places of n ranks. */
static int print_places(const colli_topo *topo, int nranks) {
  int *cores = malloc((size_t)nranks * sizeof(*cores));
  if (cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
    return 1;
  }
  colli_topo_place(topo, nranks, cores);
  printf("\n%d rank%s would be placed as follows\n", nranks, nranks == 1 ? "" : "s");
  if (cores[0] < 0)
    printf("  not bound to cores: this process may use only %d\n", colli_topo_allowed_cores(topo));
  for (int r = 0; r < nranks && cores[0] >= 0; r++) {
    const colli_topo_core *core = &topo->cores[cores[r]];
    printf("  rank %d: core %d", r, cores[r]);
    if (core->l3 >= 0)
      printf(", L3 cache %d", core->l3);
    if (core->numa_node >= 0)
      printf(", NUMA node %d", core->numa_node);
    if (core->package >= 0)
      printf(", package %d", core->package);
    putchar('\n');
  }
  free(cores);
  return 0;
}

/* Prints what went wrong with the communicator, or with the memory for what it says. */
static int failed(const coll_comm *comm, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  (void)coll_last_error(comm, &error);
  fprintf(stderr, "coll_topo: %s\n",
          error.status == status ? error.message : coll_status_name(status));
  return 1;
}

/* Writes the files with all ranks; returns the exit status. */
static int write_ranks(const request *asked, const colli_topo *topo, const topo_ranks *from) {
  char *notes = NULL;
  size_t bytes;
  int *cores = calloc((size_t)from->nranks, sizeof(*cores)), status = 1;
  FILE *out = open_memstream(&notes, &bytes);
  if (out != NULL) {
    topo_ranks_print_elsewhere(from, out);
    topo_ranks_print_reasons(from, "", out);
  }
  if (out == NULL || fclose(out) != 0 || cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
  } else {
    topo_ranks_cores(from, cores);
    status = write_files(asked, &(topo_scene){topo, from->nranks, cores, notes, true});
  }
  free(notes);
  free(cores);
  return status;
}

/* Gathers the whole cluster; rank 0 writes it. */
static int save_run(const request *asked, coll_comm *comm, const topo_ranks *from, int rank) {
  cluster all = {0};
  coll_error error = COLL_ERROR_INIT;
  topo_file file;
  int status = 0;
  if (topo_cluster_gather(comm, from, &all, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
    status = 1;
  } else if (rank == 0 && !topo_file_open(&file, asked->save)) {
    status = 1;
  } else if (rank == 0) {
    cluster_write(&all, file.out);
    status = topo_file_close(&file, true);
  }
  cluster_free(&all);
  return status;
}

/* Gathers what all ranks say of themselves and, if it is printed, of their ways to each other; rank
 * 0 prints or writes it. */
static int show_ranks(const request *asked, coll_comm *comm, const colli_topo *topo, int rank) {
  topo_ranks from;
  topo_paths paths = {0};
  const bool tells = asked->save == NULL && asked->xml == NULL && asked->svg == NULL;
  coll_status gathered = topo_ranks_gather(comm, topo, &from);
  int status = 0;
  if (gathered == COLL_OK && tells)
    gathered = topo_paths_gather(comm, asked->pair, &paths);
  if (gathered != COLL_OK)
    status = failed(comm, gathered);
  else if (asked->save != NULL)
    status = save_run(asked, comm, &from, rank);
  else if (rank == 0 && asked->pair[0] >= 0)
    topo_ranks_explain(&from, &paths, stdout);
  else if (rank == 0 && (asked->network != NULL || asked->messages))
    status = topo_draw_run(asked, comm, topo, &from, &paths);
  else if (rank == 0 && asked->json != NULL)
    status = topo_json_show_run(asked->json, topo, &from, &paths, NULL);
  else if (rank == 0 && !tells)
    status = write_ranks(asked, topo, &from);
  else if (rank == 0)
    topo_ranks_print(&from, &paths, stdout);
  topo_paths_free(&paths);
  topo_ranks_free(&from);
  return status;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Writes the files for a machine and the places of n ranks (0: of none). */
static int write_machine(const request *asked, const colli_topo *topo) {
  int *cores = calloc((size_t)asked->net.nranks + 1, sizeof(*cores));
  if (cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
    return 1;
  }
  if (asked->net.nranks > 0)
    colli_topo_place(topo, asked->net.nranks, cores);
  const bool bound = asked->net.nranks == 0 || cores[0] >= 0;
  const int status =
      write_files(asked, &(topo_scene){topo, asked->net.nranks, cores,
                                       bound ? "" : "ranks would not be bound to cores", false});
  free(cores);
  return status;
}

/* Shows a machine without ranks: another one, or this one before a run. */
static int show_machine(const request *wish) {
  request asked = *wish;
  coll_error error = COLL_ERROR_INIT;
  colli_params params;
  colli_topo *topo = NULL;
  coll_status status = COLL_OK;
  if (asked.source == NULL) {
    status = colli_params_load(&params, &error);
    asked.source = status == COLL_OK ? params.text[COLLI_PARAM_TOPO_FILE] : "";
  }
  if (status != COLL_OK || colli_topo_load(asked.source, &topo, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
    return 1;
  }
  int exit_status;
  const int allowed = colli_topo_allowed_cores(topo), most = allowed < 8 ? allowed : 8;
  const int nranks = asked.net.nranks > 0 ? asked.net.nranks : most;
  if (asked.json != NULL) {
    exit_status = topo_json_show_machine(asked.json, topo, nranks, !*asked.source);
  } else if (asked.xml != NULL || asked.svg != NULL) {
    exit_status = write_machine(&asked, topo);
  } else {
    colli_topo_print(topo, stdout);
    if (!*asked.source)
      topo_here_print(topo);
    exit_status = print_places(topo, nranks);
  }
  colli_topo_free(topo);
  return exit_status;
}

/* Shows this machine and the ranks of the run that this process is part of. */
static int show_run(const request *asked) {
  coll_comm *comm;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  config.progress = COLL_PROGRESS_OFF; /* nobody else may be inside: colli_comm_paths() */
  topo_gpus_use();
  if (coll_init_from_env(&comm, &config) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
    return 1;
  }
  int rank = 0, nranks = 1, status = 1;
  colli_topo *topo = NULL;
  (void)coll_comm_rank(comm, &rank);
  (void)coll_comm_nranks(comm, &nranks);
  if (nranks == 1 &&
      (asked->pair[0] >= 0 || asked->network != NULL || asked->messages || asked->save != NULL)) {
    fputs("coll_topo: --explain, --network, --messages and --save are for several ranks, as under "
          "collrun -n 4\n",
          stderr);
    status = 2;
  } else if (nranks == 1) {
    status = show_machine(asked);
  } else if (asked->pair[0] >= nranks || asked->pair[1] >= nranks) {
    if (rank == 0)
      fprintf(stderr, "coll_topo: --explain %d,%d: there are ranks 0 to %d\n", asked->pair[0],
              asked->pair[1], nranks - 1);
    status = 2;
  } else if (colli_topo_load("", &topo, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
  } else {
    if (rank == 0 && !topo_ask_writes(asked) && asked->pair[0] < 0) {
      colli_topo_print(topo, stdout);
      topo_here_print(topo);
    }
    status = show_ranks(asked, comm, topo, rank);
  }
  colli_topo_free(topo);
  (void)coll_comm_destroy(&comm);
  return status;
}

int main(int argc, char **argv) {
  request asked = topo_ask(argc, argv);
  const bool is_other = asked.describes || asked.source != NULL || asked.net.nranks > 0;
  if (is_other && topo_ask_writes(&asked) && topo_files_of_another())
    return 0; /* of a run, only rank 0 draws what is not the run's */
  if (!asked.describes)
    return is_other ? show_machine(&asked) : show_run(&asked);
  int status;
  if (asked.network != NULL || asked.messages)
    status = topo_draw_described(&asked);
  else if (asked.pair[0] >= 0)
    status = topo_predict(&asked);
  else if (asked.json != NULL)
    status = topo_json_show_cluster(asked.json, asked.net.cluster, asked.source, NULL);
  else
    status = topo_cluster_print(asked.net.cluster, asked.source);
  described_unload(&asked.net);
  return status;
}
