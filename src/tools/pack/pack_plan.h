/* tools/pack/pack_plan.h: assigns samples to shards, and lists the members of each sample.
 *
 *   open (reads sizes and sidecar files of a folder) -> split -> pieces of a sample, any thread
 *
 * The plan is a function of the source and the settings only, not of threads or time.
 * A sample of a folder becomes KEY.jpg (also for .jpeg, .jpe and .jfif), KEY.cls with the number of
 * its class if there are classes, KEY.EXT for each other file there whose name differs only in its
 * extension, and KEY.json with its line of a metadata.jsonl next to it or in the root. Dots in the
 * name before the extension become '_', since WebDataset ends a key at the first one.
 * A sample of tars keeps all its members.
 * Owner: pack. Threads: one; after split any. Memory: folder: 8 bytes a sample, 32 and the
 * extension (or line) for each sidecar; while splitting 32 bytes a sample. Bound:
 * STK_PACK_PIECES_MAX members a sample. */
#ifndef TOOLS_PACK_PACK_PLAN_H
#define TOOLS_PACK_PACK_PLAN_H

#include "dataset/dataset.h"
#include "order/order.h"

enum { STK_PACK_PIECES_MAX = 4096 };

enum stk_pack_piece_kind { STK_PACK_PIECE_FILE = 1, STK_PACK_PIECE_MEMBER, STK_PACK_PIECE_TEXT };

/* One member to be written. */
struct stk_pack_piece {
    uint32_t kind;              /* enum stk_pack_piece_kind */
    size_t name_at, name_bytes; /* in the pieces' text: name of the member */
    size_t key_bytes;           /* of the name: before its dot */
    size_t from_at;             /* in the text: FILE: path; TEXT: the bytes themselves */
    uint64_t bytes;
    struct stk_member member; /* MEMBER */
    bool picture;             /* may be resized */
};

/* Scratch of one thread: the pieces of one sample. */
struct stk_pack_pieces {
    struct stk_pack_piece *items; /* owned */
    size_t count, capacity;
    char *text; /* owned: NUL-ended paths, names, label */
    size_t text_bytes, text_capacity;
};

struct stk_pack_sidecar {
    uint64_t sample, bytes;
    uint64_t at;  /* in the plan's text: its extension */
    bool is_line; /* no file: the line of metadata follows the extension and its NUL */
};

struct stk_pack_plan {
    struct stoker_dataset *dataset; /* borrowed */
    bool folder, shuffled;
    uint64_t sample_count;
    uint64_t *file_bytes;              /* owned; folder: size of each image */
    struct stk_pack_sidecar *sidecars; /* owned; by sample, then extension */
    uint64_t sidecar_count;
    char *text; /* owned */
    uint64_t text_bytes;
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint8_t source[32]; /* hash of names and sizes */
    uint8_t stamp[32];  /* hash of names, sizes and modification times */
    uint64_t *starts;   /* owned; shard_count + 1 positions */
    uint64_t shard_count;
    uint64_t bytes; /* of all shards, as planned */
};

/* Borrows the dataset until close. shuffle: enum stoker_shuffle, NONE or FULL. Returns 0 on
 * success, -ECANCELED after *stop was set, or an error of the source. */
int stk_pack_plan_open(struct stk_pack_plan *plan, struct stoker_dataset *dataset, uint32_t shuffle,
                       uint64_t seed, const _Atomic bool *stop, struct stoker_error *error);
void stk_pack_plan_close(struct stk_pack_plan *plan); /* zeroed is allowed */
/* Part of open (pack_survey.c): reads sizes and sidecar files of the source, and hashes them. */
int stk_pack_survey_run(struct stk_pack_plan *plan, const _Atomic bool *stop,
                        struct stoker_error *error);
int stk_pack_plan_fail_stopped(struct stoker_error *error);
/* Splits the samples into shards of at most shard_bytes; a larger sample gets its own shard. Bytes
 * of images count ratio_ppm / 1,000,000 of their size. A key that occurs twice is an error that
 * names both locations. */
int stk_pack_plan_split(struct stk_pack_plan *plan, uint64_t shard_bytes, uint64_t ratio_ppm,
                        const _Atomic bool *stop, struct stoker_error *error);
/* The sample at a position of the output. */
uint64_t stk_pack_plan_sample(const struct stk_pack_plan *plan, uint64_t position);
/* Lists the pieces of a sample. Returns 0, or STOKER_ERROR_ARGUMENT with the reason if it cannot be
 * a WebDataset sample. */
int stk_pack_plan_pieces(const struct stk_pack_plan *plan, uint64_t sample,
                         struct stk_pack_pieces *pieces, struct stoker_error *error);
void stk_pack_pieces_deinit(struct stk_pack_pieces *pieces); /* zeroed is allowed */

static inline struct stk_view stk_pack_piece_name(const struct stk_pack_pieces *pieces,
                                                  const struct stk_pack_piece *piece)
{
    return (struct stk_view){(const uint8_t *)pieces->text + piece->name_at, piece->name_bytes};
}

#endif
