/* checkpoint/place/place.h: a folder, or a prefix of an object store, that holds checkpoints: its
 * names, and small files in it.
 *
 *   ROOT/step-0000001000/        a committed step, or (stores) one that is being written
 *        step-0000001000.pin     pins the step
 *        .stoker-0000001000-ID.part/  folders only: a step that is being written
 *        .stoker-0000001000-ID.lock   folders only: its writer lives
 *        .stoker-trash-...            folders only: is being removed
 *
 * Owner: the caller. Threads: any. Memory: the root, and what callers get. Bound: names of
 * STK_PLACE_NAME_BYTES. */
#ifndef CHECKPOINT_PLACE_PLACE_H
#define CHECKPOINT_PLACE_PLACE_H

#include "checkpoint/layout/step_manifest.h"
#include "io/io.h"

#include <errno.h>

#define STK_PLACE_NAME_BYTES 96u
#define STK_PLACE_FILE_BYTES 80u /* as in struct stoker_checkpoint_part */
#define STK_PLACE_ID_BYTES_MAX 32u
#define STK_PLACE_PART_SUFFIX ".part"
#define STK_PLACE_LOCK_SUFFIX ".lock"
#define STK_PLACE_PIN_SUFFIX ".pin"
#define STK_PLACE_HIDDEN ".stoker-"
#define STK_PLACE_TRASH ".stoker-trash-"
#define STK_PLACE_SHARD_PREFIX "shard-"   /* of the file of a rank */
#define STK_PLACE_SHARED_PREFIX "shared-" /* of the tensors of a rank that did not change */
#define STK_PLACE_INDEX_PREFIX "index-"   /* of the index of names, in a store */
#define STK_PLACE_SHARD_SUFFIX ".safetensors"

struct stk_store;

struct stk_checkpoint_place {
    struct stk_io *io; /* borrowed */
    char *root;        /* owned; without a '/' at its end */
    bool remote;
    struct stk_store *store; /* borrowed; NULL: a folder */
};

/* write: the place must be writable. Makes no folder, and sends no request. Returns 0,
 * STOKER_ERROR_UNSUPPORTED for URLs that cannot be written, -ENOMEM. */
int stk_place_init(struct stk_checkpoint_place *place, struct stk_io *io, const char *path,
                   bool write, struct stoker_error *error);
void stk_place_deinit(struct stk_checkpoint_place *place); /* zeroed is allowed */

/* ROOT/folder/name; folder or name NULL: left out. Free with stk_free; NULL without memory. */
char *stk_place_path(const struct stk_checkpoint_place *place, const char *folder,
                     const char *name);
/* Writes the name of a step's folder, and returns it. */
const char *stk_place_step_name(uint64_t step, char name[STK_PLACE_NAME_BYTES]);
/* Returns false if the name is not that of a step. suffix: what must follow the number. */
bool stk_place_parse_step(const char *name, const char *suffix, uint64_t *step_out);
/* The hidden name of a save: .stoker-STEP-ID followed by a suffix. */
const char *stk_place_part_name(uint64_t step, const char *id, const char *suffix,
                                char name[STK_PLACE_NAME_BYTES]);
/* Writes the name of a file of a rank, and returns it. In a store it has the id of the save, too,
 * so that no other save replaces it. */
const char *stk_place_file_name(const struct stk_checkpoint_place *place, const char *prefix,
                                uint32_t rank, const char *id, char name[STK_PLACE_FILE_BYTES]);
/* Makes an id that no other save has. Returns 0 or -EIO: there are no random numbers. */
int stk_place_make_id(char id[STK_PLACE_ID_BYTES_MAX + 1], struct stoker_error *error);
/* Makes the root and its parents, each synced. Does nothing in a store. */
int stk_place_make_root(const struct stk_checkpoint_place *place, struct stoker_error *error);

/* Reads a file of at most bytes_max. Free *data_out with stk_free. */
int stk_place_read(const struct stk_checkpoint_place *place, const char *path, uint64_t bytes_max,
                   uint8_t **data_out, size_t *bytes_out, struct stoker_error *error);
/* Reads the manifest of a step. folder: that of the step; NULL: the place is this folder.
 * read_out: set to whether the text was read, so that an error is one of its content; NULL is
 * allowed. Free *manifest with stk_step_manifest_deinit. */
int stk_place_read_manifest(const struct stk_checkpoint_place *place, const char *folder,
                            struct stk_step_manifest *manifest, bool *read_out,
                            struct stoker_error *error);
/* Writes a small file atomically: a synced file with a rename, or one request. if_absent: -EEXIST
 * if there is one (stores: unless it has the same bytes). */
int stk_place_write(const struct stk_checkpoint_place *place, const char *path,
                    struct stk_view bytes, bool if_absent, struct stoker_error *error);
/* True if the error of stat or open says that the path does not exist. */
static inline bool stk_place_is_absent(int status)
{
    return status == -ENOENT || status == -ENOTDIR || status == STOKER_ERROR_MISSING;
}
/* Stat without cached metadata of an object: another process may have changed it. */
int stk_place_stat_now(const struct stk_checkpoint_place *place, const char *path,
                       struct stk_stat *stat_out, struct stoker_error *error);
/* Nanoseconds since the last change of a file or folder; 0 if that is unknown. */
uint64_t stk_place_age_ns(const struct stk_checkpoint_place *place, const char *path);
/* Returns 0 if a file of a folder exists with this length; STOKER_ERROR_MISSING or TRUNCATED if
 * not; or another error. */
int stk_place_check_file(const struct stk_checkpoint_place *place, const char *folder,
                         const char *name, uint64_t bytes, struct stoker_error *error);
/* Removes a file or object. Returns 0 also if there is none. */
int stk_place_remove(const struct stk_checkpoint_place *place, const char *path,
                     struct stoker_error *error);
/* Removes a folder with everything below it. Returns 0 also if there is none. */
int stk_place_remove_folder(const struct stk_checkpoint_place *place, const char *path,
                            struct stoker_error *error);

#endif
