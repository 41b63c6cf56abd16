/* Walks a shard as a tar. After damage the walk continues at the next block that is a header by its
 * checksum. */
#include "tools/verify/verify.h"

#include "format/compress/decompress.h"

#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 512 };

struct walk {
    struct stk_shard_check *check;
    struct stk_shard_reader reader;
    struct stk_view piece; /* of the tar; begins at a multiple of BLOCK_BYTES */
    uint64_t offset;       /* of the piece */
    bool ended;            /* no piece follows */
    struct stk_tar *tar;   /* owned */
    uint64_t base;         /* its start */
    uint64_t last_end;     /* of the last member */
    bool jumped;           /* over a gap, of which the tar parser does not know yet */
    bool damaged; /* the compressed data ends too early: has a finding, which explains that the tar
                     ends early, too */
    struct {
        bool open;
        uint64_t fed, end, padded_end;
        bool dirty; /* the padding is not all zeros */
    } member;
};

static int next_piece(struct walk *walk, struct stoker_error *error);
static int skip_gap(struct walk *walk, struct stoker_error *error);
static int feed(struct walk *walk, struct stoker_error *error);
static int tar_failed(struct walk *walk, struct stoker_error *cause, struct stoker_error *error);
static int find_header(struct walk *walk, uint64_t from, uint64_t *header_out,
                       struct stoker_error *error);
static int resume(struct walk *walk, struct stoker_error *error);
static int walk_tar(struct walk *walk, struct stoker_error *error);
static int open_tar(struct walk *walk, uint64_t base, struct stoker_error *error);

/* Adds a finding for data that cannot be read, and ends the walk. */
static int unreadable(struct walk *walk, struct stoker_error *cause, struct stoker_error *error)
{
    walk->check->broken = true;
    if (stk_verify_is_process_error(cause->status)) {
        *error = *cause;
        return cause->status;
    }
    return stk_shard_check_add_finding(walk->check, STOKER_FINDING_UNREADABLE, cause, NULL, error);
}

/* Adds a finding for data that was decompressed without an error, but whose stream or index has
 * another checksum, or none. */
static int add_error_finding(struct stk_shard_check *check,
                             const struct stk_shard_error *shard_error, struct stoker_error *error)
{
    static const struct {
        uint32_t doubt, kind; /* 0: none; no finding */
        const char *what, *advice;
    } rows[] = {
        [STK_SHARD_ERROR_INDEX] =
            {STK_SHARD_DOUBT_WRONG, STOKER_FINDING_CHECKSUM,
             "the decompressed bytes do not match the checksum in the index",
             "copy the shard again, or leave out the samples there (--repair)"},
        [STK_SHARD_ERROR_CHECKSUM] =
            {STK_SHARD_DOUBT_CHECKSUM, STOKER_FINDING_PACKING,
             "a checksum of the compression is wrong, and nothing else shows whether "
             "the checksum or the data is",
             "copy the shard again; --repair leaves out unverified samples, with "
             "--keep-unverified it keeps them"},
        [STK_SHARD_ERROR_STREAM_END] =
            {0, STOKER_FINDING_PACKING,
             "the end of a compressed stream is damaged; the data is verified",
             "copy the shard again, or --repair: nothing is left out for it"},
        [STK_SHARD_ERROR_UNVERIFIED] = {STK_SHARD_DOUBT_UNVERIFIED, 0, "", ""},
    };
    struct stoker_error cause = {0};

    if (rows[shard_error->kind].doubt) {
        stk_shard_check_add_doubt(check, shard_error->from, shard_error->to,
                                  rows[shard_error->kind].doubt);
    }
    if (!rows[shard_error->kind].kind) {
        return 0;
    }
    check->rewrite = true;
    stk_fail(&cause, STOKER_ERROR_CORRUPT, rows[shard_error->kind].what,
             rows[shard_error->kind].advice, "%llu bytes, %u place%s",
             (unsigned long long)(shard_error->to - shard_error->from), shard_error->count,
             shard_error->count == 1 ? "" : "s");
    cause.offset = shard_error->kind == STK_SHARD_ERROR_INDEX ? shard_error->from
                                                              : shard_error->compressed_offset;
    return stk_shard_check_add_finding(check, rows[shard_error->kind].kind, &cause, NULL, error);
}

static int add_error_findings(struct walk *walk, struct stoker_error *error)
{
    struct stk_shard_check *check = walk->check;
    struct stoker_error cause = {0};
    int status = 0;

    for (uint32_t i = 0; i < walk->reader.error_count && status == 0; i++) {
        const struct stk_shard_error *shard_error = &walk->reader.errors[i];

        /* If the index is stale, its checksums mean nothing. */
        if (shard_error->kind != STK_SHARD_ERROR_INDEX ||
            !check->verify->roots.items[check->index_check.root].stale) {
            status = add_error_finding(check, shard_error, error);
        }
    }
    if (status == 0 && walk->reader.mismatch.what) {
        check->rewrite = true;
        stk_fail(&cause, STOKER_ERROR_CORRUPT, "the seek table does not match the frames",
                 "stoker does not need it, other programs may: copy the shard again, or "
                 "--repair",
                 "%s", walk->reader.mismatch.what);
        cause.offset = walk->reader.mismatch.at;
        status = stk_shard_check_add_finding(check, STOKER_FINDING_TABLE, &cause, NULL, error);
    }
    return status;
}

int stk_tar_walk(struct stk_shard_check *check, struct stoker_error *error)
{
    struct walk walk = {.check = check};
    struct stk_shard_reader_options options;
    struct stoker_error cause = {0};
    int status;

    stk_shard_check_reader_options(check, &options);
    options.sha = check->sha;
    options.counter = &check->verify->count.bytes;
    status = stk_shard_reader_start(&walk.reader, &check->reader, &options, &cause);
    status = status < 0 ? unreadable(&walk, &cause, error) : next_piece(&walk, error);
    if (status == 0 && !check->broken) {
        status = open_tar(&walk, 0, error);
    }
    if (status == 0 && !check->broken) {
        status = walk_tar(&walk, error);
    }
    if (status == 0 && !check->broken && stk_shard_reader_drain(&walk.reader, &cause) < 0) {
        status = unreadable(&walk, &cause, error);
    }
    if (status == 0 && !check->broken) {
        status = add_error_findings(&walk, error);
    }
    check->broken = check->broken || walk.reader.stopped;
    check->compression = walk.reader.compression;
    check->level = walk.reader.level;
    check->streams = walk.reader.streams;
    check->tar_bytes = walk.reader.bytes;
    stk_tar_close(walk.tar);
    stk_shard_reader_stop(&walk.reader);
    return status;
}

static int open_tar(struct walk *walk, uint64_t base, struct stoker_error *error)
{
    const struct stoker_verify_options *options = &walk->check->verify->options;
    struct stk_tar_limits limits = {.name_bytes_max = options->key_bytes_max,
                                    .header_bytes_max = options->header_bytes_max};
    uint64_t size = walk->check->is_compressed ? UINT64_MAX : walk->check->reader.bytes - base;

    stk_tar_close(walk->tar);
    walk->tar = NULL;
    walk->base = walk->last_end = base;
    return stk_tar_open(&walk->tar, size, &limits, error);
}

/* Takes the next piece, and passes it to the open member; an empty one at the end. */
static int next_piece(struct walk *walk, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int event = STK_SHARD_READER_GAP, status = 0;

    walk->offset += walk->piece.bytes;
    walk->piece.bytes = 0;
    while (status == 0 && event == STK_SHARD_READER_GAP && !walk->ended) {
        event = stk_shard_reader_next(&walk->reader, &cause);
        if (event < 0) {
            walk->ended = true;
            return unreadable(walk, &cause, error);
        }
        walk->check->is_compressed = walk->reader.compression != STK_COMPRESSION_NONE;
        status = event == STK_SHARD_READER_GAP ? skip_gap(walk, error) : 0;
        walk->ended = event == STK_SHARD_READER_END;
    }
    walk->check->broken = walk->check->broken || walk->reader.stopped;
    if (status < 0 || walk->ended) {
        return status;
    }
    walk->piece = walk->reader.piece;
    walk->offset = walk->reader.offset;
    walk->check->streams = walk->reader.streams;
    walk->check->no_checksum = walk->reader.no_checksum;
    return feed(walk, error);
}

/* A part of the tar is missing. That affects the current member, and, since damage in a compressed
 * stream may begin before it is detected, the one before it. */
static int skip_gap(struct walk *walk, struct stoker_error *error)
{
    struct stk_shard_check *check = walk->check;
    struct stk_shard_gap *gap = &walk->reader.gap;
    int status = 0;

    if (walk->member.open) {
        walk->member.open = false;
        status = stk_shard_check_cut_member(check, gap->to, error);
    }
    if (gap->error.status == STOKER_ERROR_LIMIT || gap->error.status == STOKER_ERROR_UNSUPPORTED) {
        check->over_limit = true;
    }
    if (status == 0) {
        stk_shard_check_add_doubt(check, gap->trusted_end, gap->doubted_from,
                                  STK_SHARD_DOUBT_UNVERIFIED);
        stk_shard_check_add_doubt(check, gap->doubted_from, gap->from, STK_SHARD_DOUBT_CHECKSUM);
        if (check->damaged_stream == check->streams && !gap->verified) {
            /* It began there, or after the data that checksums verify. */
            stk_shard_check_add_doubt(check, stk_max(check->damaged_at, gap->trusted_end),
                                      gap->from, STK_SHARD_DOUBT_WRONG);
        }
        check->verified = gap->verified;
        status = stk_shard_check_add_damage(check, STOKER_FINDING_PACKING, &gap->error, gap->from,
                                            gap->to, error);
        check->verified = false;
    }
    if (!gap->exact) {
        check->index_check.members = check->index_check.sums = false;
    }
    walk->damaged = gap->to == UINT64_MAX;
    walk->jumped = !walk->damaged;
    return status;
}

/* Continues after a gap, at the next header. Returns 1, or 0 if there is none. */
static int resume(struct walk *walk, struct stoker_error *error)
{
    uint64_t from = walk->offset, header;
    int status;

    walk->jumped = false;
    status = find_header(walk, from, &header, error);
    walk->jumped = false; /* gaps on the way were skipped */
    if (status == 0 && header > from) {
        status = stk_shard_check_add_range(walk->check, from, header, false, error);
    }
    if (status < 0 || header == UINT64_MAX || walk->check->broken) {
        return status;
    }
    status = open_tar(walk, header, error);
    return status < 0 ? status : 1;
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

/* Passes bytes of the piece to the open member: data, then padding. */
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

        status = stk_shard_check_add_data(walk->check, data, error);
        walk->member.fed = until;
        if (status == 0 && until == walk->member.end) {
            status = stk_shard_check_end_member(walk->check, true, error);
        }
    }
    if (status == 0 && walk->member.fed >= walk->member.end) {
        uint64_t until = stk_min(walk->member.padded_end, piece_end);

        walk->member.dirty |= !is_zero(walk->piece.data + (walk->member.fed - walk->offset),
                                       until - walk->member.fed);
        walk->member.fed = until;
        walk->member.open = until < walk->member.padded_end;
        if (!walk->member.open && walk->member.dirty) {
            status = stk_shard_check_padding(walk->check, walk->member.end,
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
    status = stk_shard_check_begin_member(walk->check, step, error);
    if (status == 0 && step->bytes == 0) {
        walk->member.open = false;
        return stk_shard_check_end_member(walk->check, true, error);
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
        struct stoker_error cause = {0};

        status = stk_tar_step(walk->tar, input, &step, &cause);
        input = (struct stk_view){0};
        if (status < 0) {
            status = tar_failed(walk, &cause, error);
            if (status == 1) {
                status = 0;
                continue;
            }
            return status;
        }
        if (step.event == STK_TAR_END) {
            walk->check->no_end_marker = false;
            return 0;
        }
        if (step.event == STK_TAR_MEMBER) {
            status = member_begins(walk, &step, error);
            continue;
        }
        step.offset += walk->base;
        while (status == 0 && !walk->ended && !walk->jumped &&
               step.offset >= walk->offset + walk->piece.bytes) {
            status = next_piece(walk, error);
        }
        if (walk->check->broken) {
            return status;
        }
        if (walk->jumped && status == 0) {
            status = resume(walk, error);
            if (status <= 0) {
                return status;
            }
            status = 0;
            continue;
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

/* Returns 1 if the walk continues at a later header; 0: the tar ends here. */
static int tar_failed(struct walk *walk, struct stoker_error *cause, struct stoker_error *error)
{
    uint64_t at, header = UINT64_MAX, from = walk->last_end;
    int number = cause->status, status = 0;

    if (stk_verify_is_process_error(number)) {
        *error = *cause;
        return number;
    }
    if (walk->damaged) {
        return 0; /* the end of the compressed data has a finding, and cut the member */
    }
    if (cause->offset != STOKER_NO_OFFSET) {
        cause->offset += walk->base;
    }
    if (walk->member.open && walk->member.fed < walk->member.end) {
        status = stk_shard_check_end_member(walk->check, false, error); /* names the member */
        return status;
    }
    if (walk->member.open && walk->member.dirty) { /* cut inside the padding */
        status = stk_shard_check_padding(walk->check, walk->member.end,
                                         walk->member.fed - walk->member.end, error);
        if (status < 0) {
            return status;
        }
    }
    walk->member.open = false;
    at = cause->offset == STOKER_NO_OFFSET ? walk->offset
                                           : cause->offset / BLOCK_BYTES * BLOCK_BYTES;
    if (kind_of(number) != STOKER_FINDING_END) {
        status = find_header(walk, at + BLOCK_BYTES, &header, error);
    }
    if (status == 0 && !walk->check->broken) {
        status =
            stk_shard_check_add_damage(walk->check, kind_of(number), cause, from, header, error);
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
        status = next_piece(walk, error);
    }
    return status;
}
