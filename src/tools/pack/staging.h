/* tools/pack/staging.h: the folder in which a data set is written, before it gets its final name.
 *
 *   DST.part/stoker.plan.json, shards (+ .done each) -commit-> index, manifest -> DST
 *                              stoker.left, if samples were left out, until DST has its name
 *
 * After a kill at any point the same call continues: the plan file shows whether it is the same
 * work, done files show which shards are complete. DST gets its name by one rename, after all files
 * in it are on disk. All files are written in the folder that was opened first, also if another
 * process replaces DST.part by a link.
 * Owner: pack, or the shard writer. Threads: one. Memory: paths, the settings.
 * Bound: STK_STAGING_SHARDS_MAX shards. */
#ifndef TOOLS_PACK_STAGING_H
#define TOOLS_PACK_STAGING_H

#include "base/base.h"
#include "format/manifest/manifest.h"
#include "io/write.h"
#include "tools/pack/staging_files.h"

#define STK_STAGING_SHARDS_MAX (1u << 24)
#define STK_STAGING_KEY_BYTES_MAX 4096u
#define STK_STAGING_PLAN_NAME "stoker.plan.json"
#define STK_STAGING_INDEX_NAME "stoker.index"
#define STK_STAGING_LEFT_OUT_NAME "stoker.left"

enum stk_staging_state {
    STK_STAGING_OPEN = 0,     /* shards may be written */
    STK_STAGING_COMPLETE = 1, /* all files are written; only the rename may be missing */
};

struct stk_staging {
    struct stk_io *io;          /* borrowed */
    struct stk_io *files;       /* for paths below directory: no link leads out of the folder that
                                 * was opened first (stk_io_open_beneath); NULL: not open */
    char *destination;          /* owned: without '/' at its end */
    char *directory;            /* owned: destination.part, or destination once it has its name */
    struct json_t *settings;    /* owned: settings that determine the bytes; also in the manifest */
    uint8_t plan[32];           /* SHA-256 of the plan file */
    uint32_t state;             /* enum stk_staging_state */
    bool is_renamed;            /* DST has its name; only the plan file must be removed */
    struct stk_file_lock *lock; /* owned: DST.lock; one process at a time works on DST */
};

/* Starts the work, or continues an earlier run. settings (borrowed): a flat object of text and
 * integers. stamp: text that identifies the work, too, but is not stored in the manifest (times).
 * Returns 0 on success, -EEXIST if DST exists, -EBUSY if another process works on it, or
 * STOKER_ERROR_STATE if DST.part is other work; the error names the first setting that differs. */
int stk_staging_open(struct stk_staging *staging, struct stk_io *io, const char *destination,
                     struct json_t *settings, const char *stamp, struct stoker_error *error);
void stk_staging_close(struct stk_staging *staging); /* zeroed is allowed; files stay */

struct stk_staging_content {
    const char *pattern;
    uint64_t shard_count;
    const char *const *classes; /* NULL: none */
    uint64_t class_count;
    uint32_t block_bytes; /* for the index; 0: its default */
    uint64_t left_out;    /* samples of the source that are in no shard */
};

/* Reads the manifest. The state must be STK_STAGING_COMPLETE. */
int stk_staging_manifest(const struct stk_staging *staging, struct stk_manifest *manifest_out,
                         struct stoker_error *error);

/* After all shards are finished: writes index and manifest, syncs, renames. After a failure
 * DST.part remains and the work can continue. */
int stk_staging_commit(struct stk_staging *staging, const struct stk_staging_content *content,
                       struct stoker_error *error);

/* Checks a pattern for shard names: text with one %d or %0Nd that ends with ".tar". Returns 0, or
 * STOKER_ERROR_ARGUMENT. */
int stk_shard_pattern_check(const char *pattern, struct stoker_error *error);
/* Number of shards that a pattern can name in sorted order. */
uint64_t stk_shard_pattern_max(const char *pattern);
/* Writes the name of a shard; STK_SHARD_NAME_MAX bytes suffice for a checked pattern. */
void stk_shard_pattern_name(const char *pattern, uint64_t shard, char *name, size_t capacity);
#define STK_SHARD_NAME_MAX 300

#endif
