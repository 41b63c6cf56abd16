/* io/filesystem/filesystem.h: the file system of a path, and advice on settings that slow reads
 * down.
 *
 *   /proc/self/mountinfo --path--> mount ----------------\
 *   a thread: statx, statfs, xattrs, a few files ---------+--> facts --> advice
 *   /sys: read-ahead, disk -------------------------------/
 *
 * A call on a dead server never returns, so the calls run on a thread that is abandoned at the
 * deadline; then only the mount table is used.
 * Owner: the caller. Threads: one. Memory: one block, 70 KiB.
 * Bound: STK_FILESYSTEM_ADVICES, files_max of a folder, the deadline. */
#ifndef IO_FILESYSTEM_FILESYSTEM_H
#define IO_FILESYSTEM_FILESYSTEM_H

#include "io/filesystem/filesystem_type.h"
#include "io/filesystem/mountinfo.h"
#include "io/filesystem/read_size.h"
#include "io/filesystem/stripe_layout.h"

struct stk_io; /* io/io.h */

#define STK_FILESYSTEM_TEXT_BYTES 4096u
#define STK_FILESYSTEM_ADVICES 16u

struct stk_filesystem_files {
    uint64_t seen, archived, bytes, bytes_archived;
    uint64_t largest_bytes; /* of the largest file */
};

/* The results of the calls on the file system. */
struct stk_mount_probe_info {
    int status; /* 0, or -errno of the path */
    uint64_t mount_id, magic;
    uint64_t major, minor;
    bool is_folder, has_space, has_layout, has_residency;
    uint32_t file_block_bytes; /* st_blksize of the file, or of one in the folder; 0: no file */
    uint64_t block_bytes, bytes_total, bytes_free, files_total, files_free;
    struct stk_stripe_layout layout;
    struct stk_filesystem_files files;
};

struct stk_mount_advice {
    uint32_t level;
    char what[256], reason[512], command[1024];
};

struct stoker_filesystem {
    struct stoker_filesystem_info info; /* its texts are in the arrays below */
    const struct stk_filesystem_type *kind;
    struct stk_mount_probe_info probe;
    struct stk_request_size requests;
    char path[STK_FILESYSTEM_TEXT_BYTES], point[STK_FILESYSTEM_TEXT_BYTES];
    char source[STK_FILESYSTEM_TEXT_BYTES], options[2 * STK_FILESYSTEM_TEXT_BYTES];
    char server[STK_FILESYSTEM_TEXT_BYTES];
    char type[128], version[32], transport[32], recovery[16], device[64], scheduler[64];
    uint32_t advice_count;
    struct stk_mount_advice advices[STK_FILESYSTEM_ADVICES];
};

struct stk_filesystem_request {
    const char *path;
    const char *prefix; /* prepended to /proc and /sys, for tests */
    uint32_t timeout_ms, files_max;
    bool is_fuse; /* a program serves the file system: see mount_probe.c */
};

/* Sets all facts of a zeroed struct to unknown. */
void stk_filesystem_init(struct stoker_filesystem *filesystem);
/* Sets the mount, the facts of /sys and the advice, from path, probe and info.responds. */
void stk_filesystem_evaluate(struct stoker_filesystem *filesystem, const char *prefix);
/* init, probe and evaluate. */
int stk_filesystem_inspect(struct stoker_filesystem *filesystem,
                           const struct stk_filesystem_request *request,
                           struct stoker_error *error);

/* Returns enum stoker_filesystem_group of the mount of a device (st_dev), by the mount table;
 * UNKNOWN if it has no such mount. */
uint32_t stk_filesystem_group_of(uint64_t device);
/* Returns whether reads of small parts of a file in any order cost no more than in sequence: true
 * unless it is in a store, or on the mount of a network file system or FUSE. A path that cannot be
 * looked at counts as one on a local disk: one failed call must not choose another order.
 * *free_device: 0 at first; then the device (st_dev) of the last path with free reads, whose other
 * paths need no look at the mount table. */
bool stk_filesystem_has_free_reads(struct stk_io *io, const char *path, uint64_t *free_device);
/* mount_probe.c: calls the file system. path is absolute. Returns STOKER_ERROR_TIMEOUT and zeroes
 * *info_out if it does not respond. */
int stk_mount_probe(const struct stk_filesystem_request *request,
                    struct stk_mount_probe_info *info_out);
/* block_device.c: reads the read-ahead and the disk from /sys. */
void stk_block_device_read(struct stoker_filesystem *filesystem, const char *prefix);
/* mount_advice.c: sets the advice from the facts. */
void stk_mount_advise(struct stoker_filesystem *filesystem);

#endif
