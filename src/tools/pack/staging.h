/* tools/pack/staging.h: the folder that a data set is written in, before it has its name.
 *
 *   DST.part/stoker.plan.json, shards (+ .done each) -commit-> index, manifest -> DST
 *                              stoker.left, where samples were left out, until DST has its name
 *
 * Killed at any point, the same call goes on: the plan says whether it is the same work, done files
 * say which shards are whole. DST gets its name by one rename, after everything in it is on disk.
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
    STK_STAGING_COMPLETE = 1, /* all is written; only the rename may be missing */
};

struct stk_staging {
    struct stk_io *io;          /* borrowed */
    char *destination;          /* owned: without '/' at its end */
    char *directory;            /* owned: destination.part, or destination once it has its name */
    struct json_t *settings;    /* owned: what decides over the bytes; also in the manifest */
    uint8_t plan[32];           /* SHA-256 of the plan file */
    uint32_t state;             /* enum stk_staging_state */
    bool is_renamed;            /* DST has its name already; only the plan file is left to remove */
    struct stk_file_lock *lock; /* owned: DST.lock; only one at a time works on DST */
};

/* Begins, or goes on with what is there. settings (borrowed): a flat object of text and integers;
 * stamp: text that may not be in the manifest (times), but makes it other work.
 * -EEXIST: DST is there. -EBUSY: somebody works on it. STATE: DST.part is other work; names the
 * first setting that differs. */
int stk_staging_open(struct stk_staging *staging, struct stk_io *io, const char *destination,
                     struct json_t *settings, const char *stamp, struct stoker_error *error);
void stk_staging_close(struct stk_staging *staging); /* zeroed is fine; files stay */

struct stk_staging_content {
    const char *pattern;
    uint64_t shard_count;
    const char *const *classes; /* NULL: none */
    uint64_t class_count;
    uint32_t block_bytes; /* for the index; 0: its default */
    uint64_t left_out;    /* samples of the source that no shard has */
};

/* Of a WHOLE one: what its manifest says. */
int stk_staging_manifest(const struct stk_staging *staging, struct stk_manifest *manifest_out,
                         struct stoker_error *error);

/* All shards are finished: index, manifest, sync, rename. Any failure leaves DST.part, to go on. */
int stk_staging_commit(struct stk_staging *staging, const struct stk_staging_content *content,
                       struct stoker_error *error);

/* Names of shards: text with one %d, %0Nd in it, that ends in ".tar". ARGUMENT. */
int stk_shard_pattern_check(const char *pattern, struct stoker_error *error);
/* How many shards a pattern can name in order. */
uint64_t stk_shard_pattern_max(const char *pattern);
/* The name of shard i into name[capacity]; a checked pattern and 300 bytes never fail. */
void stk_shard_pattern_name(const char *pattern, uint64_t shard, char *name, size_t capacity);
#define STK_SHARD_NAME_MAX 300

#endif
