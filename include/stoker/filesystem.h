/* stoker/filesystem.h: file system, server and device below a local path, and advice for training.
 */
#ifndef STOKER_FILESYSTEM_H
#define STOKER_FILESYSTEM_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Properties of the file system, server and device below a local path, and what of them slows
 * training down. No call hangs: a server that does not respond is reported as such. */
struct stoker_filesystem;

enum stoker_filesystem_group {
    STOKER_FILESYSTEM_UNKNOWN = 0,
    STOKER_FILESYSTEM_MEMORY,  /* tmpfs */
    STOKER_FILESYSTEM_DISK,    /* ext4, xfs, ... */
    STOKER_FILESYSTEM_NETWORK, /* nfs, lustre, gpfs, beegfs, cephfs, wekafs, 9p, virtiofs, ... */
    STOKER_FILESYSTEM_FUSE,    /* served by a local program */
    STOKER_FILESYSTEM_LAYERED, /* overlay: the lower layer is unknown */
};

/* Whether the bytes of a file are resident, or in an archive (HSM, a file system that loads
 * lazily). */
enum stoker_residency {
    STOKER_RESIDENCY_UNKNOWN = 0, /* the file system does not report it */
    STOKER_RESIDENCY_RESIDENT,
    STOKER_RESIDENCY_PARTIAL,
    STOKER_RESIDENCY_ARCHIVED, /* the first read restores it: stoker_prewarm_open */
};

struct stoker_filesystem_options {
    size_t struct_size;
    uint32_t timeout_ms; /* of all calls to the file system; default 5,000 */
    uint32_t files_max;  /* number of files of a folder to inspect; default 1,000 */
};

/* Texts are never NULL, and empty if unknown; unknown numbers are STOKER_UNKNOWN. Valid until
 * close. */
struct stoker_filesystem_info {
    size_t struct_size;
    const char *path, *kind; /* "nfs", "ext4", "fuse", ..., "unknown" */
    uint32_t group;          /* enum stoker_filesystem_group */
    uint32_t is_folder, is_read_only;
    uint32_t responds; /* 0: the file system did not respond within timeout_ms; all that needs a
                         response is unknown */
    const char *mount_point, *type, *source, *options, *server; /* from the table of mounts */
    uint64_t major, minor;
    uint64_t block_bytes, bytes_total, bytes_free, files_total, files_free; /* for this user */
    /* Mount options of network file systems and FUSE. */
    uint64_t read_bytes, write_bytes;           /* of one request: rsize, max_read, msize */
    uint64_t connections;                       /* nconnect: 1 unless NFS reports another number */
    const char *version, *transport, *recovery; /* "4.2"; "tcp"; "hard", "soft", "softerr" */
    uint64_t timeout_tenths, retries;
    uint64_t file_attribute_cache_s,
        folder_attribute_cache_s; /* maximum time that attributes are cached */
    uint64_t read_ahead_bytes;
    /* Lustre and CephFS. count UINT32_MAX: all servers. */
    uint64_t stripe_count, stripe_bytes, stripe_parts;
    const char *pool;
    /* Disks. */
    const char *device, *scheduler; /* "nvme0n1"; the active one */
    uint64_t rotational;            /* 1: a hard disk */
    uint64_t queue_depth;
    /* The file, or the inspected files of the folder. */
    uint32_t residency;           /* enum stoker_residency */
    const char *residency_source; /* where it was found */
    uint64_t files, files_archived, bytes, bytes_archived;
    /* Read sizes of loaders here, unless engine options set them (io_gap_bytes, io_bytes_max): cold
     * samples with a gap up to coalesce_gap_bytes share a read of up to coalesce_bytes_max. */
    uint64_t coalesce_gap_bytes, coalesce_bytes_max;
};

enum stoker_advice_level { STOKER_ADVICE_HINT = 1, STOKER_ADVICE_FINDING };
struct stoker_advice {
    size_t struct_size;
    uint32_t level; /* enum stoker_advice_level; a finding slows training down now */
    const char *what, *reason;
    const char *command; /* to run; empty: none */
};

/* Inspects a path; options may be NULL. Returns 0 and sets *filesystem_out, also if the file system
 * does not respond; -ENOENT if the path does not exist; STOKER_ERROR_ARGUMENT if it is a URL. */
STOKER_API int stoker_filesystem_open(struct stoker_filesystem **filesystem_out, const char *path,
                                      const struct stoker_filesystem_options *options,
                                      struct stoker_error *error);
/* Returns 0 and fills *info; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_filesystem_info(const struct stoker_filesystem *filesystem,
                                      struct stoker_filesystem_info *info);
/* Returns 1 and fills *advice with number `index`; 0 past the last one. */
STOKER_API int stoker_filesystem_advice(const struct stoker_filesystem *filesystem, uint32_t index,
                                        struct stoker_advice *advice);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_filesystem_close(struct stoker_filesystem *filesystem);

#ifdef __cplusplus
}
#endif
#endif
