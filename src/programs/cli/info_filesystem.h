/* programs/cli/info_filesystem.h: what paths lie on, for stoker info.
 *
 *   paths --info_filesystem_open--> one ground for each mount --print | json--> advice
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
    bool is_silent; /* one of them does not answer */
    int status;     /* of the first path that could not be looked at */
    struct stoker_error error;
};

/* URLs are passed over; of patterns the folder before them is looked at. */
void info_filesystem_open(struct info_filesystem *filesystems, const struct args *args);
void info_filesystem_close(struct info_filesystem *filesystems);
void info_filesystem_print(const struct info_filesystem *filesystems);
/* "ground": [...] of an object that is open. */
void info_filesystem_json(const struct info_filesystem *filesystems);
/* EXIT_FINDINGS: one of the advices is a finding. */
int info_filesystem_status(const struct info_filesystem *filesystems);

#endif
