/* format/tar_recover/tar_recover.h: the samples of a damaged tar that are surely whole, and a list
 * of the others.
 *
 *   members -> damage: what it may have touched is doubtful -> the next header -> members -> end
 *                       kept: those that have what most samples of the tar have
 *
 * A header that is damaged may have been any member of the sample before it or of the two behind
 * it; so these stay only if they have the extensions that most samples have, as with repair. It may
 * also have been the one that names the member behind it (PAX, GNU): in a tar with such headers a
 * member that follows damage without one has a name that nobody can be sure of, and is not kept. A
 * tar that ends early has all that is before. Of a packed one nothing but that it ends early can be
 * believed to have left the rest alone (a flipped bit goes unseen up to a checksum at the end):
 * else all of it is given up, and `stoker verify --repair`, which looks closer, may do better.
 * The same bytes give the same answer. Owner: the scan. Threads: one.
 * Memory: STK_TAR_RECOVER_WINDOW_BYTES, 40 bytes and the name a member, some 300 bytes for each
 * place and each sample that is lost. Bound: STK_TAR_RECOVER_MEMBERS_MAX members, names of 4 GiB;
 * behind STK_TAR_RECOVER_DAMAGES_MAX places of damage the rest is given up. */
#ifndef FORMAT_TAR_RECOVER_TAR_RECOVER_H
#define FORMAT_TAR_RECOVER_TAR_RECOVER_H

#include "format/bad_sample/bad_sample_file.h"
#include "format/tar/tar.h"

enum {
    STK_TAR_RECOVER_WINDOW_BYTES = 64 << 10,
    STK_TAR_RECOVER_MEMBERS_MAX = 1 << 30,
    STK_TAR_RECOVER_DAMAGES_MAX = 10000
};

/* Where its bytes come from; offsets count unpacked ones, and mostly go forward. */
struct stk_tar_recover_source {
    const char *path; /* lent */
    uint64_t bytes;   /* of the tar; UINT64_MAX: packed, not known */
    struct stk_tar_limits limits;
    void *context;
    /* *got_out: fewer than bytes only at the end. */
    int (*read)(void *context, uint64_t offset, uint8_t *buffer, size_t bytes, size_t *got_out,
                struct stoker_error *error);
};

struct stk_tar_recover_member {
    uint64_t offset, bytes;
    uint32_t name_at, name_bytes; /* in the text */
    uint32_t sample;              /* UINT32_MAX: of none */
};

struct stk_tar_recover_sample {
    uint64_t offset;    /* of its first member's data */
    uint64_t signature; /* of its extensions, whatever their order */
    uint32_t key_at, key_bytes;
    bool uncertain, lost;
    bool renamed; /* a member follows damage: an extended header may have path_args it */
};

struct stk_tar_recover {
    struct stk_tar_recover_member *members; /* owned */
    struct stk_tar_recover_sample *samples; /* owned */
    uint64_t member_count, member_capacity, sample_count, sample_capacity;
    char *text; /* owned */
    uint64_t text_bytes, text_capacity;
    struct stk_bad_sample_list
        bad_samples;     /* owned: each place, and each sample that is lost by it */
    uint32_t suspects;   /* so many new samples follow damage */
    bool follows_damage; /* the next member follows damage */
    bool extended;       /* a member has a header that may name it before its own */
};

/* Whether a tar that fails with this may have whole samples. */
bool stk_tar_recover_is_possible(int status);
/* Negative: the source failed for another reason than damage, or memory. */
int stk_tar_recover_run(struct stk_tar_recover *recover,
                        const struct stk_tar_recover_source *source, struct stoker_error *error);
/* The members of whole samples, in order; also those that are of none. */
bool stk_tar_recover_is_intact(const struct stk_tar_recover *recover, uint64_t member);
struct stk_view stk_tar_recover_name(const struct stk_tar_recover *recover, uint64_t member);
void stk_tar_recover_deinit(struct stk_tar_recover *recover); /* zeroed is fine */

/* ---- what was lost, by shard ---- */

struct stk_tar_losses {
    struct stk_tar_loss *first; /* owned; by shard */
    uint64_t count;             /* of damages */
};

/* Takes the damages, unless it fails (-ENOMEM). One call a shard. */
int stk_tar_losses_add(struct stk_tar_losses *losses, uint32_t shard,
                       struct stk_bad_sample_list *damages);
/* Lent; NULL: there are not so many. */
const struct stk_bad_sample *stk_tar_losses_get(const struct stk_tar_losses *losses,
                                                uint64_t number);
void stk_tar_losses_deinit(struct stk_tar_losses *losses); /* zeroed is fine */

#endif
