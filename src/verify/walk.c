/* A shard's bytes, hashed, unpacked and walked as a tar; after damage the walk goes on at the next
 * block that is a header by its checksum. */
#include "verify/verify.h"

#include "format/unpack.h"

#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 512, UNPACKED_BYTES = 256 << 10 };

struct walk {
    struct stk_check *check;
    struct stk_sha256 *sha;
    struct stk_unpack *unpack; /* owned; NULL: plain */
    uint8_t *unpacked;         /* owned: UNPACKED_BYTES */
    struct stk_view packed;    /* of the reader's block, not yet unpacked */
    struct stk_view piece;     /* of the tar; begins at a multiple of BLOCK_BYTES */
    uint64_t offset;           /* of the piece */
    bool ended;                /* no piece follows */
    struct stk_tar *tar;       /* owned */
    uint64_t base;             /* where it began */
    uint64_t last_end;         /* of the last member */
    bool unpack_ended;
    bool damaged; /* the packing: told already, and what the tar lacks comes from it */
    struct {
        bool open;
        uint64_t fed, end, padded_end;
        bool dirty; /* the padding is not all zeros */
    } member;
};

static int begin(struct walk *walk, struct stoker_error *error);
static int pull(struct walk *walk, struct stoker_error *error);
static int pull_packed(struct walk *walk, struct stoker_error *error);
static int feed(struct walk *walk, struct stoker_error *error);
static int read_block(struct walk *walk, struct stk_view *block_out, struct stoker_error *error);
static int tar_failed(struct walk *walk, struct stoker_error *found, struct stoker_error *error);
static int find_header(struct walk *walk, uint64_t from, uint64_t *header_out,
                       struct stoker_error *error);
static int walk_tar(struct walk *walk, struct stoker_error *error);

int stk_walk(struct stk_check *check, struct stoker_error *error)
{
    struct walk walk = {.check = check, .sha = check->sha};
    int status = begin(&walk, error);

    if (status == 0 && !check->broken) {
        status = walk_tar(&walk, error);
    }
    while (status == 0 && !check->broken) { /* what the tar's end left, for the hash */
        struct stk_view block;

        status = read_block(&walk, &block, error);
        if (block.bytes == 0) {
            break;
        }
    }
    stk_tar_close(walk.tar);
    stk_unpack_close(walk.unpack);
    stk_free(walk.unpacked);
    return status;
}

/* The file's next block. What cannot be read is a finding, and the end. */
static int read_block(struct walk *walk, struct stk_view *block_out, struct stoker_error *error)
{
    struct stk_check *check = walk->check;
    struct stoker_error found = {0};
    int status = 0;

    *block_out = (struct stk_view){0};
    if (check->broken || atomic_load_explicit(&check->verify->stopping, memory_order_relaxed)) {
        check->broken = true;
        return 0;
    }
    status = stk_reader_next(&check->reader, block_out, &found);
    if (status < 0) {
        *block_out = (struct stk_view){0};
        check->broken = true;
        if (stk_verify_is_ours(status)) {
            *error = found;
            return status;
        }
        return stk_check_find(check, STOKER_FINDING_UNREADABLE, &found, NULL, error);
    }
    if (walk->sha) {
        stk_sha256_add(walk->sha, block_out->data, block_out->bytes);
    }
    atomic_fetch_add_explicit(&check->verify->count.bytes, block_out->bytes, memory_order_relaxed);
    return 0;
}

static int open_tar(struct walk *walk, uint64_t base, struct stoker_error *error)
{
    const struct stoker_verify_options *options = &walk->check->verify->options;
    struct stk_tar_limits limits = {.name_bytes_max = options->key_bytes_max,
                                    .header_bytes_max = options->header_bytes_max};
    uint64_t size = walk->unpack ? UINT64_MAX : walk->check->reader.bytes - base;

    stk_tar_close(walk->tar);
    walk->tar = NULL;
    walk->base = walk->last_end = base;
    return stk_tar_open(&walk->tar, size, &limits, error);
}

/* Looks at the first block: how is it packed? */
static int begin(struct walk *walk, struct stoker_error *error)
{
    const struct stoker_verify_options *options = &walk->check->verify->options;
    struct stk_unpack_limits limits = {.bytes_max = options->unpacked_bytes_max,
                                       .ratio_max = options->unpacked_ratio_max};
    struct stk_view block;
    uint32_t packing;
    int status = read_block(walk, &block, error);

    if (status < 0 || walk->check->broken) {
        return status;
    }
    packing = stk_packing_of(block);
    if (packing == STK_PLAIN) {
        walk->piece = block;
        walk->ended = block.bytes == 0;
        return open_tar(walk, 0, error);
    }
    walk->check->packed = true;
    walk->packed = block;
    walk->unpacked = stk_alloc(UNPACKED_BYTES, 1);
    if (!walk->unpacked) {
        return stk_fail(error, -ENOMEM, "cannot unpack a shard", "free memory", "%d bytes",
                        UNPACKED_BYTES);
    }
    limits.grant = stk_engine_grant(walk->check->verify->engine);
    status = stk_unpack_open(&walk->unpack, packing, &limits, error);
    status = status < 0 ? status : open_tar(walk, 0, error);
    return status < 0 ? status : pull(walk, error);
}

/* The next piece, fed to the member whose data goes by; an empty one at the end. */
static int pull(struct walk *walk, struct stoker_error *error)
{
    int status;

    walk->offset += walk->piece.bytes;
    walk->piece.bytes = 0;
    if (walk->ended) {
        return 0;
    }
    status = walk->unpack ? pull_packed(walk, error) : read_block(walk, &walk->piece, error);
    walk->ended = walk->ended || walk->piece.bytes == 0;
    return status < 0 ? status : feed(walk, error);
}

/* Fills the piece, so that only the last one is not whole blocks. */
static int pull_packed(struct walk *walk, struct stoker_error *error)
{
    struct stk_check *check = walk->check;
    struct stoker_error found = {0};
    size_t used = 0, got;
    int more = walk->unpack_ended ? 0 : 1, status;

    while (more == 1 && used < UNPACKED_BYTES) {
        bool last = check->reader.offset >= check->reader.bytes;

        if (walk->packed.bytes == 0 && !last) {
            status = read_block(walk, &walk->packed, error);
            if (status < 0 || check->broken) {
                return status;
            }
            continue;
        }
        more = stk_unpack_run(walk->unpack, &walk->packed, last, walk->unpacked + used,
                              UNPACKED_BYTES - used, &got, &found);
        used += more < 0 ? 0 : got;
    }
    walk->piece = (struct stk_view){walk->unpacked, used};
    walk->unpack_ended = more <= 0;
    if (more < 0 && stk_verify_is_ours(more)) {
        *error = found;
        return more;
    }
    if (more < 0) {
        walk->damaged = true;
        return stk_check_damage(check, STOKER_FINDING_PACKING, &found, walk->offset + used,
                                UINT64_MAX, error);
    }
    return 0;
}

static bool is_zero(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

/* What the piece has of the open member: data, then padding. */
static int feed(struct walk *walk, struct stoker_error *error)
{
    uint64_t piece_end = walk->offset + walk->piece.bytes;
    int status = 0;

    if (!walk->member.open || walk->piece.bytes == 0) {
        return 0;
    }
    if (walk->member.fed < walk->member.end) {
        uint64_t until = stk_min(walk->member.end, piece_end);
        struct stk_view data = {walk->piece.data + (walk->member.fed - walk->offset),
                                until - walk->member.fed};

        status = stk_check_data(walk->check, data, error);
        walk->member.fed = until;
        if (status == 0 && until == walk->member.end) {
            status = stk_check_end(walk->check, true, error);
        }
    }
    if (status == 0 && walk->member.fed >= walk->member.end) {
        uint64_t until = stk_min(walk->member.padded_end, piece_end);

        walk->member.dirty |= !is_zero(walk->piece.data + (walk->member.fed - walk->offset),
                                       until - walk->member.fed);
        walk->member.fed = until;
        walk->member.open = until < walk->member.padded_end;
        if (!walk->member.open && walk->member.dirty) {
            status = stk_check_padding(walk->check, walk->member.end,
                                       walk->member.padded_end - walk->member.end, error);
        }
    }
    return status;
}

static int member_begins(struct walk *walk, struct stk_tar_step *step, struct stoker_error *error)
{
    int status;

    step->offset += walk->base;
    step->header += walk->base;
    walk->member.open = true;
    walk->member.dirty = false;
    walk->member.fed = step->offset;
    walk->member.end = step->offset + step->bytes;
    walk->member.padded_end = stk_round_up(walk->member.end, BLOCK_BYTES);
    walk->last_end = walk->member.padded_end;
    status = stk_check_begin(walk->check, step, error);
    if (status == 0 && step->bytes == 0) {
        walk->member.open = false;
        return stk_check_end(walk->check, true, error);
    }
    return status < 0 || step->offset >= walk->offset + walk->piece.bytes ? status
                                                                          : feed(walk, error);
}

static int walk_tar(struct walk *walk, struct stoker_error *error)
{
    struct stk_view input = {0};
    int status = 0;

    while (status == 0) {
        struct stk_tar_step step;
        struct stoker_error found = {0};

        status = stk_tar_step(walk->tar, input, &step, &found);
        input = (struct stk_view){0};
        if (status < 0) {
            status = tar_failed(walk, &found, error);
            if (status == 1) {
                status = 0;
                continue;
            }
            return status;
        }
        if (step.event == STK_TAR_END) {
            walk->check->cut = false;
            return 0;
        }
        if (step.event == STK_TAR_MEMBER) {
            status = member_begins(walk, &step, error);
            continue;
        }
        step.offset += walk->base;
        while (status == 0 && !walk->ended && step.offset >= walk->offset + walk->piece.bytes) {
            status = pull(walk, error);
        }
        if (walk->check->broken) {
            return status;
        }
        if (step.offset >= walk->offset && step.offset < walk->offset + walk->piece.bytes) {
            size_t skip = (size_t)(step.offset - walk->offset);
            input = (struct stk_view){walk->piece.data + skip, walk->piece.bytes - skip};
        }
    }
    return status;
}

static uint32_t kind_of(int status)
{
    return status == STOKER_ERROR_TRUNCATED || status == STOKER_ERROR_EMPTY ? STOKER_FINDING_END
                                                                            : STOKER_FINDING_HEADER;
}

/* 1: the walk goes on at a later header; 0: the tar ends here. */
static int tar_failed(struct walk *walk, struct stoker_error *found, struct stoker_error *error)
{
    uint64_t at, header = UINT64_MAX, from = walk->last_end;
    int number = found->status, status = 0;

    if (stk_verify_is_ours(number)) {
        *error = *found;
        return number;
    }
    if (walk->damaged) {
        return 0; /* the packing's end was told, and cut the member short */
    }
    if (found->offset != STOKER_NO_OFFSET) {
        found->offset += walk->base;
    }
    if (walk->member.open && walk->member.fed < walk->member.end) {
        status = stk_check_end(walk->check, false, error); /* names the member */
        return status;
    }
    if (walk->member.open && walk->member.dirty) { /* cut inside the padding */
        status = stk_check_padding(walk->check, walk->member.end,
                                   walk->member.fed - walk->member.end, error);
        if (status < 0) {
            return status;
        }
    }
    walk->member.open = false;
    at = found->offset == STOKER_NO_OFFSET ? walk->offset
                                           : found->offset / BLOCK_BYTES * BLOCK_BYTES;
    if (kind_of(number) != STOKER_FINDING_END) {
        status = find_header(walk, at + BLOCK_BYTES, &header, error);
    }
    if (status == 0 && !walk->check->broken) {
        status = stk_check_damage(walk->check, kind_of(number), found, from, header, error);
    }
    if (status < 0 || header == UINT64_MAX || walk->check->broken) {
        return status;
    }
    status = open_tar(walk, header, error);
    return status < 0 ? status : 1;
}

/* The first block from `from` on that is a header; UINT64_MAX: none is. */
static int find_header(struct walk *walk, uint64_t from, uint64_t *header_out,
                       struct stoker_error *error)
{
    int status = 0;

    *header_out = UINT64_MAX;
    while (status == 0) {
        uint64_t end = walk->offset + walk->piece.bytes;

        for (uint64_t at = stk_max(from, walk->offset); at + BLOCK_BYTES <= end;
             at += BLOCK_BYTES) {
            if (stk_tar_is_header(walk->piece.data + (at - walk->offset))) {
                *header_out = at;
                return 0;
            }
        }
        if (walk->ended) {
            break;
        }
        status = pull(walk, error);
    }
    return status;
}
