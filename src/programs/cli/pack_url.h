/* programs/cli/pack_url.h: a data set packed to a URL: made on this machine, then sent, its
 * manifest last.
 *
 *   prepare --staging-dir/data--> pack --> send --> the manifest is there: so is all
 *
 * The stage is path_args by URL, source and settings, so the same command goes on in it.
 * Owner: the command. Threads: one. Memory: in the struct. Bound: paths of 4 kB. */
#ifndef PROGRAMS_CLI_PACK_URL_H
#define PROGRAMS_CLI_PACK_URL_H

#include "programs/cli/args.h"

#define PACK_URL_BYTES 4096

struct pack_url {
    const char *url; /* NULL: the destination is a folder */
    struct stoker_engine *engine;
    char stage[PACK_URL_BYTES], data[PACK_URL_BYTES + 16], sending[PACK_URL_BYTES + 16];
    bool whole; /* it was packed by an earlier run, and waits to be sent */
};

/* Looks at the URL and makes the stage. EXIT_FINE, or an exit status after saying why not. */
int pack_url_prepare(struct pack_url *self, const struct args *args, struct stoker_engine *engine,
                     const struct stoker_dataset *dataset, const char *url);
/* Sends what was packed, and removes the stage. */
int pack_url_send(struct pack_url *self);

#endif
