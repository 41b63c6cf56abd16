/* io/filesystem/filesystem.h: what a path lies on, and what of it slows training down.
 *
 *   /proc/self/mountinfo --text of the path--> mount --\
 *   a thread: statx, statfs, xattrs, a few files -------+--> facts --> advice
 *   /sys: read-ahead, disk -----------------------------/
 *
 * A call on a dead server never returns: so what is asked of the file system is asked on a thread
 * that is left behind at the deadline, and the table of mounts alone tells the rest.
 * Owner: the caller. Threads: one. Memory: one block, 70 KiB.
 * Bound: STK_GROUND_ADVICES, files_max of a folder, the deadline. */
#ifndef IO_FILESYSTEM_FILESYSTEM_H
#define IO_FILESYSTEM_FILESYSTEM_H

#include "io/filesystem/filesystem_type.h"
#include "io/filesystem/mountinfo.h"
#include "io/filesystem/read_size.h"
#include "io/filesystem/stripe_layout.h"

#define STK_GROUND_TEXT_BYTES 4096u
#define STK_GROUND_ADVICES 16u
#define STK_GROUND_TABLE_BYTES_MAX (4u << 20)

struct stk_ground_files {
    uint64_t seen, away, bytes, bytes_away;
    uint64_t bytes_most; /* of the largest */
};

/* What the file system itself told. */
struct stk_ground_told {
    int status; /* 0, or -errno of the path */
    uint64_t mount_id, magic;
    uint64_t major, minor;
    bool is_folder, has_space, has_layout, tells_presence;
    uint32_t
        file_block_bytes; /* st_blksize of the file, or of one in the folder; 0: there is none */
    uint64_t block_bytes, bytes_total, bytes_free, files_total, files_free;
    struct stk_layout layout;
    struct stk_ground_files files;
};

struct stk_advice {
    uint32_t level;
    char what[256], reason[512], command[1024];
};

struct stoker_ground {
    struct stoker_ground_info info; /* its texts lie below */
    const struct stk_kind *kind;
    struct stk_ground_told told;
    struct stk_requests requests;
    char path[STK_GROUND_TEXT_BYTES], point[STK_GROUND_TEXT_BYTES];
    char source[STK_GROUND_TEXT_BYTES], options[2 * STK_GROUND_TEXT_BYTES];
    char server[STK_GROUND_TEXT_BYTES];
    char type[128], version[32], transport[32], recovery[16], device[64], scheduler[64];
    uint32_t advice_count;
    struct stk_advice advices[STK_GROUND_ADVICES];
};

struct stk_ground_request {
    const char *path;
    const char *prefix; /* before /proc and /sys: tests bring their own */
    uint32_t timeout_ms, files_max;
    bool is_fuse; /* a program answers: see mount_probe.c */
};

/* The table of mounts as text, owned. NULL: it cannot be read. */
char *stk_ground_table(const char *prefix);
/* A zeroed one with nothing told. */
void stk_ground_begin(struct stoker_ground *ground);
/* From path, told and info.answers: the mount, /sys and advice. */
void stk_ground_judge(struct stoker_ground *ground, const char *prefix);
/* All of it: begin, ask, judge. */
int stk_ground_look(struct stoker_ground *ground, const struct stk_ground_request *request,
                    struct stoker_error *error);

/* enum stoker_ground_group of the mount of a device (st_dev), by the table alone; of none that is
 * there UNKNOWN. */
uint32_t stk_ground_group_of(uint64_t device);
/* mount_probe.c: asks the file system. `path` is from the root on. STOKER_ERROR_TIMEOUT: it did not
 * answer; *told_out is zeroed then. */
int stk_ground_ask(const struct stk_ground_request *request, struct stk_ground_told *told_out);
/* block_device.c: read-ahead and disk out of /sys. */
void stk_ground_device(struct stoker_ground *ground, const char *prefix);
/* mount_advice.c: from the facts alone. */
void stk_ground_advise(struct stoker_ground *ground);

#endif
