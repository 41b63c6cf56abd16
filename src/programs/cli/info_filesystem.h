/* programs/cli/info_filesystem.h: what paths lie on, for stoker info.
 *
 *   paths --mounted_open--> one ground for each mount --print | json--> advice --mounted_close-->
 *
 * Owner: the command. Threads: one. Memory: a block each. Bound: MOUNTED_MAX mounts. */
#ifndef PROGRAMS_CLI_INFO_FILESYSTEM_H
#define PROGRAMS_CLI_INFO_FILESYSTEM_H

#include "programs/cli/args.h"

#define MOUNTED_MAX 16u

struct mounted {
    struct stoker_ground *grounds[MOUNTED_MAX];
    struct stoker_ground_info infos[MOUNTED_MAX];
    uint32_t count;
    bool is_silent; /* one of them does not answer */
    int status;     /* of the first path that could not be looked at */
    struct stoker_error error;
};

/* URLs are passed over; of patterns the folder before them is looked at. */
void mounted_open(struct mounted *mounted, const struct args *args);
void mounted_close(struct mounted *mounted);
void mounted_print(const struct mounted *mounted);
/* "ground": [...] of an object that is open. */
void mounted_json(const struct mounted *mounted);
/* EXIT_FINDINGS: one of the advices is a finding. */
int mounted_status(const struct mounted *mounted);

#endif
