/* respawn.c: where ranks that collrun has started again learn how to join the others. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

bool run_join_make(run_job *job) {
  const char *set = getenv("COLL_JOIN_FILE"), *folder = getenv("TMPDIR");
  if (job->options.respawns == 0 || (set != NULL && *set != '\0'))
    return true;
  if (folder == NULL || *folder != '/' || strlen(folder) > sizeof(job->join_folder) - 20)
    folder = "/tmp";
  snprintf(job->join_folder, sizeof(job->join_folder), "%s/collrun.XXXXXX", folder);
  if (mkdtemp(job->join_folder) != NULL) /* nobody else may look into it */
    return true;
  fprintf(stderr, "collrun: --respawn: cannot make a folder in %s: %s\n", folder, strerror(errno));
  job->join_folder[0] = '\0';
  return false;
}

void run_join_remove(const run_job *job) {
  DIR *folder = job->join_folder[0] != '\0' ? opendir(job->join_folder) : NULL;
  if (folder == NULL)
    return;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
    (void)unlinkat(dirfd(folder), entry->d_name, 0);
  closedir(folder);
  (void)rmdir(job->join_folder);
}
