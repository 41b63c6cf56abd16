/* programs/cli/info_filesystem.h: file systems below paths, for stoker info.
 *
 *   paths --info_filesystem_open--> one row for each mount --print | json--> advice
 * --info_filesystem_close-->
 *
 * Owner: the command. Threads: one. Memory: a block each. Bound: INFO_FILESYSTEMS_MAX mounts. */
#ifndef PROGRAMS_CLI_INFO_FILESYSTEM_H
#define PROGRAMS_CLI_INFO_FILESYSTEM_H

#include "programs/cli/args.h"

#define INFO_FILESYSTEMS_MAX 16u

struct info_filesystem {
    struct stoker_filesystem *grounds[INFO_FILESYSTEMS_MAX];
    struct stoker_filesystem_info infos[INFO_FILESYSTEMS_MAX];
    uint32_t count;
    bool is_silent; /* one of them does not respond */
    int status;     /* of the first path that could not be inspected */
    struct stoker_error error;
};

/* Skips URLs; for a pattern it inspects the folder before it. */
void info_filesystem_open(struct info_filesystem *filesystems, const struct args *args);
void info_filesystem_close(struct info_filesystem *filesystems);
void info_filesystem_print(const struct info_filesystem *filesystems);
/* Prints the member "ground": [...] of the current JSON object. */
void info_filesystem_json(const struct info_filesystem *filesystems);
/* Returns EXIT_FINDINGS if an advice is a finding. */
int info_filesystem_status(const struct info_filesystem *filesystems);

#endif
