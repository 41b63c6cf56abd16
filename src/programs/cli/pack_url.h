/* programs/cli/pack_url.h: packs a data set to a URL: in a local staging folder, then by an upload,
 * the manifest last.
 *
 *   prepare --staging-dir/data--> pack --> send --> the manifest exists: all is complete
 *
 * The name of the staging folder is a hash of URL, source and settings, so the same command
 * resumes. Owner: the command. Threads: one. Memory: in the struct. Bound: paths of 4 kB. */
#ifndef PROGRAMS_CLI_PACK_URL_H
#define PROGRAMS_CLI_PACK_URL_H

#include "programs/cli/args.h"

#define PACK_URL_BYTES 4096

struct pack_url {
    const char *url; /* NULL: the destination is a folder */
    struct stoker_engine *engine;
    char stage[PACK_URL_BYTES], data[PACK_URL_BYTES + 16], sending[PACK_URL_BYTES + 16];
    bool is_packed; /* an earlier run packed everything and did not upload it */
};

/* Checks the URL and creates the staging folder. Returns EXIT_FINE, or prints an error and returns
 * its exit status. */
int pack_url_prepare(struct pack_url *self, const struct args *args, struct stoker_engine *engine,
                     const struct stoker_dataset *dataset, const char *url);
/* Uploads the packed files and removes the staging folder. Returns an exit status. */
int pack_url_send(struct pack_url *self);

#endif
