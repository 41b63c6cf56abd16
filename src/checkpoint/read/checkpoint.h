/* checkpoint/read/checkpoint.h: a committed step, or one file, open for reading.
 *
 *   path --find--> manifest --check--> files: length, header, root --load--> ranges of tensors
 *
 * A load reads the leaves that its ranges touch, each once, hashes them, and copies only what was
 * requested. A leaf that one range covers is read into the caller's buffer directly.
 * Owner: the caller; a load holds its checkpoint. Threads: any; those of a load are its own.
 * A step with an index of names is opened without the headers of its files; they are read when a
 * tensor of theirs is needed. Memory: headers and hashes of these files; two blocks of 16 MiB for
 * each thread of a load. Descriptors: those of io/descriptor_budget.h, and one for each thread.
 * Bound: STK_STEP_MANIFEST_FILES_MAX files, headers of STK_SAFETENSORS_HEADER_BYTES_MAX. */
#ifndef CHECKPOINT_READ_CHECKPOINT_H
#define CHECKPOINT_READ_CHECKPOINT_H

#include "checkpoint/foreign/foreign.h"
#include "checkpoint/layout/name_index.h"
#include "checkpoint/layout/safetensors.h"
#include "checkpoint/layout/step_manifest.h"
#include "checkpoint/place/place.h"
#include "engine/background_job.h"

#include <stdatomic.h>

/* With an index of names, layout and file are set when they are first needed: call
 * stk_checkpoint_need before. */
struct stk_checkpoint_file {
    char *path;            /* owned */
    struct stk_file *file; /* NULL: each read opens the file */
    struct stk_safetensors layout;
    uint64_t bytes;
    uint64_t first_tensor; /* number of its first tensor */
    _Atomic bool ready;    /* with an index: layout and file are set */
};

struct stoker_checkpoint {
    struct stoker_engine *engine; /* held; const after open */
    struct stk_checkpoint_place place;
    char *path;                 /* owned: of the step or file */
    bool single;                /* one file of safetensors */
    struct stk_foreign foreign; /* of another tool; kind NULL: not */
    struct stk_step_manifest manifest;
    struct stk_checkpoint_file *files; /* owned */
    uint64_t file_count, tensor_count;
    uint32_t descriptors;           /* reserved: so many files of a folder stay open */
    struct stk_named_tensor *names; /* owned; sorted; NULL: there is an index */
    struct stk_name_index index;    /* data NULL: there is none */
    pthread_mutex_t *opening;       /* owned; with an index: for `ready` of files */
    _Atomic uint32_t references;
};

/* Opens the step in a folder. quick: checks the manifest and the lengths of its files only. */
int stk_checkpoint_open_folder(struct stoker_checkpoint **checkpoint_out,
                               struct stoker_engine *engine, const char *path, bool quick,
                               struct stoker_error *error);
/* True if this error of opening says that the step is damaged, so that an older one is the newest.
 * Others (no descriptors, no permission, a timeout, a later version) say nothing about the step. */
static inline bool stk_checkpoint_is_damage(int status)
{
    return status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_TRUNCATED ||
           status == STOKER_ERROR_FORMAT || status == STOKER_ERROR_MISSING;
}
/* step_files.c. Opens a file, reads its header, and compares it with the manifest, if there is one.
 * Sets file, bytes and layout. */
int stk_checkpoint_read_file(const struct stoker_checkpoint *checkpoint,
                             struct stk_checkpoint_file *file, uint64_t index,
                             struct stoker_error *error);
/* The file of a tensor, by halving. */
uint64_t stk_checkpoint_file_of(const struct stoker_checkpoint *checkpoint, uint64_t tensor);
/* Reads the index of names, if the step has one. One that is missing or damaged is left out: it has
 * nothing that the headers have not. */
void stk_checkpoint_read_index(struct stoker_checkpoint *checkpoint);
/* Reads the header of a file, if it was not read yet. Any thread. */
int stk_checkpoint_need(const struct stoker_checkpoint *checkpoint, uint64_t file,
                        struct stoker_error *error);
/* The same of the files that ranges touch, several at once. */
int stk_checkpoint_need_ranges(const struct stoker_checkpoint *checkpoint,
                               const struct stoker_checkpoint_range *ranges, size_t count,
                               struct stoker_error *error);
/* Reads all headers, and sorts the names: then there is no index. Before other threads use it. */
int stk_checkpoint_need_all(struct stoker_checkpoint *checkpoint, struct stoker_error *error);
void stk_checkpoint_release(struct stoker_checkpoint *checkpoint);
/* The steps below a place, by number; free with stk_free. Returns 0 or an error: -ENOENT if there
 * is no such folder. */
int stk_checkpoint_steps(const struct stk_checkpoint_place *place, uint64_t **steps_out,
                         size_t *count_out, struct stoker_error *error);
/* Reads exactly these bytes of a file. */
int stk_checkpoint_read(const struct stoker_checkpoint *checkpoint,
                        const struct stk_checkpoint_file *file, uint64_t offset, uint8_t *data,
                        uint64_t bytes, struct stoker_error *error);
/* Name of the tensor with this byte of the buffer of a file; "" if there is none. */
const char *stk_checkpoint_tensor_at(const struct stk_checkpoint_file *file, uint64_t offset);

#endif
