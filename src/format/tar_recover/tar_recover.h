/* format/tar_recover/tar_recover.h: finds the samples of a damaged tar that are certainly
 * complete, and lists the lost ones.
 *
 *   members -> damage: samples that it may have changed are uncertain -> next header -> members
 *   end: keep uncertain samples that have the extensions of most samples of the tar
 *
 * A damaged header may have been a member of the sample before it or of the two samples after it.
 * These are kept only if they have the extensions that most samples have, as repair does. The
 * header may also have named the member after it (PAX, GNU): in a tar with such headers a member
 * without one after damage has an uncertain name, and is not kept. If a tar ends early,
 * everything before that is kept. If a compressed tar is damaged in any other way, nothing is
 * kept: a flipped bit is not detected before the checksum at the end. `stoker verify --repair` can
 * do better: it finds the damaged stream. The same bytes give the same result.
 * Owner: the scan. Threads: one.
 * Memory: STK_TAR_RECOVER_WINDOW_BYTES, 40 bytes and the name per member, about 300 bytes per
 * damaged place and per lost sample.
 * Bound: STK_TAR_RECOVER_MEMBERS_MAX members, names of 4 GiB; after STK_TAR_RECOVER_DAMAGES_MAX
 * damaged places the rest is lost. */
#ifndef FORMAT_TAR_RECOVER_TAR_RECOVER_H
#define FORMAT_TAR_RECOVER_TAR_RECOVER_H

#include "format/bad_sample/bad_sample_file.h"
#include "format/tar/tar.h"

enum {
    STK_TAR_RECOVER_WINDOW_BYTES = 64 << 10,
    STK_TAR_RECOVER_MEMBERS_MAX = 1 << 30,
    STK_TAR_RECOVER_DAMAGES_MAX = 10000
};

/* The source of the bytes. Offsets count decompressed bytes, and mostly go forward. */
struct stk_tar_recover_source {
    const char *path; /* borrowed */
    uint64_t bytes;   /* of the tar; UINT64_MAX: compressed, unknown */
    struct stk_tar_limits limits;
    void *context;
    /* Sets *got_out, which is less than `bytes` only at the end. */
    int (*read)(void *context, uint64_t offset, uint8_t *buffer, size_t bytes, size_t *got_out,
                struct stoker_error *error);
};

struct stk_tar_recover_member {
    uint64_t offset, bytes;
    uint32_t name_at, name_bytes; /* in the text */
    uint32_t sample;              /* UINT32_MAX: none */
};

struct stk_tar_recover_sample {
    uint64_t offset;    /* of its first member's data */
    uint64_t signature; /* of its extensions, in any order */
    uint32_t key_at, key_bytes;
    bool uncertain, lost;
    bool renamed; /* a member follows damage: a lost extended header may have named it */
};

struct stk_tar_recover {
    struct stk_tar_recover_member *members; /* owned */
    struct stk_tar_recover_sample *samples; /* owned */
    uint64_t member_count, member_capacity, sample_count, sample_capacity;
    char *text; /* owned */
    uint64_t text_bytes, text_capacity;
    struct stk_bad_sample_list
        bad_samples;     /* owned: damaged places, and the samples lost by them */
    uint32_t suspects;   /* number of new samples after damage */
    bool follows_damage; /* the next member follows damage */
    bool extended;       /* some member has an extended header, which may name it */
};

/* True if a tar that fails with this status may have complete samples. */
bool stk_tar_recover_is_possible(int status);
/* Returns 0, -ENOMEM, or the error of the source if it is not damage. */
int stk_tar_recover_run(struct stk_tar_recover *recover,
                        const struct stk_tar_recover_source *source, struct stoker_error *error);
/* True for members of complete samples, and for members of no sample. Members are in order. */
bool stk_tar_recover_is_intact(const struct stk_tar_recover *recover, uint64_t member);
struct stk_view stk_tar_recover_name(const struct stk_tar_recover *recover, uint64_t member);
void stk_tar_recover_deinit(struct stk_tar_recover *recover); /* zeroed is allowed */

/* ---- losses by shard ---- */

struct stk_tar_losses {
    struct stk_tar_loss *first; /* owned; by shard */
    uint64_t count;             /* of bad samples */
};

/* Adds the bad samples of a shard and takes ownership of them. Call it once per shard. Returns 0,
 * or -ENOMEM: the caller keeps them. */
int stk_tar_losses_add(struct stk_tar_losses *losses, uint32_t shard,
                       struct stk_bad_sample_list *damages);
/* Returns the bad sample of that number, valid until deinit, or NULL. */
const struct stk_bad_sample *stk_tar_losses_get(const struct stk_tar_losses *losses,
                                                uint64_t number);
void stk_tar_losses_deinit(struct stk_tar_losses *losses); /* zeroed is allowed */

#endif
