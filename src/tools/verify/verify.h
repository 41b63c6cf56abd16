/* tools/verify/verify.h: reads all of a data set and says what is wrong with it; goes on after
 * damage.
 *
 *   open: list -> thread: roots | shard, shard, ... (rounds of the engine) | missing | repair
 *                            \______ findings, stage by stage, in this order ______/--> next
 *
 * One pass over each shard: its bytes are hashed, walked as a tar, and its members summed and
 * looked at, while the next blocks are being read.
 * Owner: the user. Threads: one of its own, and the engine's workers for rounds.
 * Memory: a reader, keys and 16 bytes a sample of each shard in work (20 a member more to repair);
 * the findings. Bound: findings_max findings; the engine's budget for bytes of files. */
#ifndef TOOLS_VERIFY_VERIFY_H
#define TOOLS_VERIFY_VERIFY_H

#include "base/crypto/digest.h"
#include "base/xxh3.h"
#include "dataset/index_locate.h"
#include "decode/codec/codec.h"
#include "engine/background_job.h"
#include "engine/read_ahead.h"
#include "format/manifest/manifest.h"
#include "format/tar/tar.h"
#include "index/index.h"
#include "index/string_table.h"
#include "storage/source/source.h"
#include "tools/recover/shard_reader.h"

/* ---- findings (finding.c) ---- */

struct stk_verify_finding {
    struct stk_verify_finding *next;
    uint32_t kind;
    int status;
    uint64_t offset;
    char text[]; /* shard, key, extension, what, advice: each with its NUL */
};

struct stk_verify_findings {
    struct stk_verify_finding *first, *last; /* owned */
};

struct stoker_verify;

/* Counts it, and keeps it if there is room. Its place and words are those of `error`. Negative
 * only without memory. */
int stk_verify_add_finding(struct stoker_verify *verify, struct stk_verify_findings *findings,
                           uint32_t kind, const struct stoker_error *error, const char *extension);
void stk_verify_findings_deinit(struct stk_verify_findings *findings);
/* Worth a look, but no damage. */
bool stk_verify_finding_is_note(uint32_t kind);
/* Takes the finding. */
void stk_verify_finding_move(struct stk_verify_finding *finding, struct stoker_finding *out);
/* Whether an error is about the process (memory, budget), not about what it read. */
bool stk_verify_is_process_error(int status);

/* ---- what the data is compared with (manifest_check.c, index_check.c) ---- */

/* A folder that holds shards, and may hold their manifest. */
struct stk_manifest_root {
    char *path;    /* owned; with '/' at its end, or empty: the working directory */
    bool complete; /* all of its shards are listed: one that is missing is missed */
    bool has_manifest;
    bool changed; /* repair changed entries */
    struct stk_file_lock
        *lock; /* owned: one repair at a time; NULL: none, or nothing can be written */
    struct stk_manifest manifest;
    uint32_t *by_name;       /* owned: entries of the manifest, sorted */
    bool *seen;              /* owned: of entries: the shard is there */
    char *index_file;        /* owned; NULL: stoker.index in `path`. Else nothing but the index
                                belongs to this root: it lies above the shards, or in the cache */
    struct stk_index *index; /* owned; NULL: none that can be read */
    _Atomic bool stale;      /* the index: repair removes it */
};

enum { STK_MANIFEST_ROOTS_EXTRA = 2 };

/* Where an index has an object. */
struct stk_verify_location {
    uint32_t root; /* its number + 1; 0: no index has it */
    uint32_t shard;
};

struct stk_manifest_roots {
    struct stk_manifest_root *items; /* owned; const after open but for `changed` and its entries */
    uint32_t count;                  /* there is room for STK_MANIFEST_ROOTS_EXTRA more */
    uint32_t *of_object;             /* owned; tars only */
    struct stk_verify_location *locations; /* owned; NULL: there is no index */
};

/* Reads the manifests; what is wrong with them is a finding. -EBUSY: another repair is at work. */
int stk_manifest_roots_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error);
void stk_manifest_roots_deinit(struct stoker_verify *verify);
/* The entry of the object's shard; NULL: none, or there is no manifest. */
struct stk_manifest_shard *stk_manifest_roots_find(struct stoker_verify *verify, uint64_t object);
/* The shard is there and no manifest's: a finding. */
int stk_manifest_roots_report_extra(struct stoker_verify *verify, uint64_t object,
                                    struct stk_verify_findings *findings,
                                    struct stoker_error *error);
int stk_manifest_roots_report_missing(struct stoker_verify *verify,
                                      struct stk_verify_findings *findings,
                                      struct stoker_error *error);
/* The entry is another shard's now; stk_manifest_roots_write brings it to the files. */
int stk_manifest_roots_set(struct stoker_verify *verify, uint64_t object,
                           const struct stk_manifest_shard *values, struct stoker_error *error);
int stk_manifest_roots_write(struct stoker_verify *verify, struct stoker_error *error);

/* What an index says of the shard in work, member by member. */
struct stk_index_check {
    const struct stk_index *index; /* lent by the root; NULL: none has the shard */
    uint32_t root, shard;
    bool members, sums;    /* are still compared; there are checksums */
    const uint8_t *digest; /* of the whole shard; NULL: not known */
    uint64_t sample, end;
    struct stk_sample current;
    uint32_t member;
    bool loaded; /* current is sample */
    struct stk_member place;
    bool summed; /* the member in work has a checksum: sum */
    uint64_t sum;
};

/* Maps the indexes; what is wrong with them is a finding. */
int stk_verify_indexes_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error);
/* After all shards: a good index is the one that the manifest names, else that is a note. */
int stk_verify_indexes_compare(struct stoker_verify *verify, struct stk_verify_findings *findings,
                               struct stoker_error *error);
/* The object's shard was written anew. */
void stk_verify_indexes_mark_stale(struct stoker_verify *verify, uint64_t object);
int stk_verify_indexes_remove_stale(struct stoker_verify *verify, struct stoker_error *error);
void stk_index_check_init(struct stk_index_check *known, struct stoker_verify *verify,
                          uint64_t object);

struct stk_shard_check;
/* Findings where the index differs: it is then not asked again about this shard. */
int stk_index_check_size(struct stk_shard_check *check, uint64_t bytes, struct stoker_error *error);
int stk_index_check_member(struct stk_shard_check *check, struct stk_view key,
                           const char *extension, uint64_t offset, uint64_t bytes,
                           struct stoker_error *error);
int stk_index_check_end(struct stk_shard_check *check, struct stoker_error *error);
int stk_index_check_fail(struct stk_shard_check *check, struct stoker_error *found, uint64_t offset,
                         struct stoker_error *error);

/* ---- the object ---- */

enum { STK_VERIFY_FILES = 256 /* of a folder a stage */ };

struct stk_verify_stage {
    struct stk_verify_findings findings;
    bool done;
};

struct stoker_verify {
    struct stoker_engine *engine; /* held; const after open, as all down to job */
    struct stoker_verify_options options;
    struct stoker_dataset *named;    /* owned: urls and their listing; it is never opened */
    struct stk_source_files objects; /* lent by path_args */
    uint64_t stage_count;            /* roots, then rounds, then the end */
    uint64_t bytes_total;
    struct stk_manifest_roots roots;
    struct stk_repair_result *mended; /* owned: one an object, by its round; repair only */
    struct stk_background_job job;    /* job.changed: a stage is done */
    struct {
        _Atomic uint64_t shards, bytes, samples, members, findings, notes, kept, repaired, dropped,
            unproven;
    } count;
    struct {                             /* under job.lock */
        struct stk_verify_stage *stages; /* a stage's findings: by its round alone until done */
        uint64_t next;                   /* stage whose findings are being given */
    } locked;
};

/* ---- repair (repair.c) ---- */

enum stk_repair_state {
    STK_REPAIR_NONE = 0,
    STK_REPAIR_MOVE_FILE, /* a file to be moved */
    STK_REPAIR_WRITTEN,   /* SHARD.repair is whole and on disk */
    STK_REPAIR_RENAMED    /* it has its name */
};

struct stk_repair_result {
    uint32_t state; /* enum stk_repair_state */
    uint64_t bytes, samples, dropped, unproven;
    uint8_t sha256[32];
};

/* Writes SHARD.repair of a checked shard, if there is something to mend and it can be. */
int stk_repair_shard(struct stk_shard_check *check, uint64_t object, struct stoker_error *error);
/* After all: gives what was written its name, keeps the originals, moves files of a folder. */
int stk_repair_finish(struct stoker_verify *verify, struct stk_verify_findings *findings,
                      struct stoker_error *error);

/* Instead, where the work ended early: what was written goes again. */
void stk_repair_abandon(struct stoker_verify *verify);

/* ---- one picture (picture_check.c) ---- */

bool stk_verify_is_picture(const char *extension);
/* 0: fine. 1: *kind_out and *error tell what is wrong with it. Negative: ours, see *error.
 * codec: made at the first need, for deep. */
int stk_verify_picture(struct stoker_verify *verify, struct stk_codec **codec,
                       struct stk_view bytes, const char *extension, uint32_t *kind_out,
                       struct stoker_error *error);

/* A picture that was found fine: whether its checksums cover all of its bytes (PNG). */
bool stk_verify_picture_has_checksum(struct stk_view bytes);

/* ---- one shard, or some files of a folder ---- */

enum { STK_SHARD_CHECK_EXTENSIONS_MAX = 256 };

enum stk_check_sample_flag {
    STK_CHECK_SAMPLE_BAD = 1,
    STK_CHECK_SAMPLE_SUSPECT = 2,
    STK_CHECK_SAMPLE_SCATTERED = 4,
    STK_CHECK_SAMPLE_DAMAGED = 7, /* any of these */
    STK_CHECK_SAMPLE_UNVERIFIED =
        8, /* no checksum stands for its bytes, and nothing speaks against them */
    STK_CHECK_SAMPLE_NO_CHECKSUM = 16, /* a member of it does not prove itself */
    STK_CHECK_SAMPLE_RENAMED =
        32, /* a member follows damage: an extended header may have path_args it */
};

/* What a range of the tar makes of samples that lie in it, unless something else proves them. */
enum stk_shard_doubt {
    STK_SHARD_DOUBT_WRONG = 1, /* some of the bytes are wrong: they are left out */
    STK_SHARD_DOUBT_CHECKSUM,  /* a checksum of the packing is wrong: left out, or kept if asked for
                                */
    STK_SHARD_DOUBT_UNVERIFIED /* no checksum reaches them: kept, and counted */
};

struct stk_shard_check_sample {
    uint64_t shape; /* of its extensions, in any order */
    uint32_t last_member;
    uint8_t flags; /* enum stk_check_sample_flag */
};

/* Bytes that a repaired shard leaves out, or has as zeros. */
struct stk_repair_range {
    uint64_t offset, end;
    bool zero;
};

/* A member of a sample, for repair. */
struct stk_shard_check_member {
    uint64_t header, end; /* its headers, data and padding */
    uint32_t sample;      /* STK_SHARD_CHECK_NO_SAMPLE: dropped whatever its neighbours are */
};
#define STK_SHARD_CHECK_NO_SAMPLE UINT32_MAX

struct stk_shard_check {
    struct stoker_verify *verify; /* borrowed, as path, findings */
    struct stk_verify_findings *findings;
    const char *path;
    struct stk_read_ahead reader;
    struct stk_codec *codec; /* owned; NULL until needed */
    struct stk_index_check index_check;
    struct stk_xxh3 *sum;   /* owned; NULL until a member does not lie in one block */
    struct stk_sha256 *sha; /* of the file's bytes; borrowed; NULL: nobody asks */
    bool is_compressed;
    bool no_end_marker; /* no sane end marker was seen */
    bool broken;        /* not all bytes could be read: it cannot be repaired */
    bool over_limit;    /* its packing passes a limit, or needs what is not there: likewise */
    bool
        checksum_failed; /* the packing's checksum is wrong: what nothing else proves is left out */
    bool rewrite; /* what is wrong belongs to no sample: the shard is written anew all the same */
    uint32_t compression;
    int level;
    uint64_t streams, tar_bytes; /* so far: that began, that were unpacked */
    bool no_checksum;            /* one of them has no checksum */
    bool verified;               /* for a moment: all before the damage in hand is */
    uint64_t damaged_stream,
        damaged_at;             /* the last in which the tar was damaged, and where first */
    uint64_t unverified_stream; /* one without a checksum, in which damage was seen; 0: none */

    struct stk_string_table keys;
    struct stk_shard_check_sample *samples; /* owned */
    uint32_t sample_capacity;
    uint32_t sample;             /* of the last member; STK_SHARD_CHECK_NO_SAMPLE: none yet */
    uint32_t suspects_remaining; /* so many new samples follow damage */
    bool follows_damage;         /* the next member follows damage */
    bool extended;               /* a member has a header that may name it before its own */
    uint32_t member_count;
    uint64_t run[STK_SHARD_CHECK_EXTENSIONS_MAX]; /* hashes of the extensions of this sample */
    uint32_t run_count;
    struct stk_string_table
        extra_extensions; /* sample and extension, where `run` is full or parts may lie apart */

    struct stk_shard_check_member *members; /* owned; for repair only, as ranges */
    uint32_t members_kept, member_capacity;
    struct stk_repair_range *ranges; /* owned */
    uint32_t range_count, range_capacity;
    uint64_t damage; /* findings that repair mends */

    struct { /* the member whose data goes by */
        bool open, keyed, picture;
        bool sealed;  /* its own checksums cover each of its bytes, and are right */
        bool summing; /* the index has a checksum, to be compared at the end */
        bool summed;  /* with the whole member at once */
        uint64_t sum;
        uint64_t header, offset, bytes, held;
        char key[256], extension[64];
    } member;
    uint8_t *kept_data; /* owned: a member that does not lie in one block */
    uint64_t kept_data_bytes;
};

/* ---- shard_check.c ---- */

/* Reads and checks the shard of an object, or the file of a folder. Damage becomes findings.
 * Returns 0, or an error that is not about the data: -ENOMEM, STOKER_ERROR_BUDGET ... */
int stk_shard_check_run(struct stk_shard_check *check, uint64_t object, struct stoker_error *error);
int stk_shard_check_file(struct stk_shard_check *check, uint64_t object,
                         struct stoker_error *error);

/* ---- tar_walk.c ---- */

/* Reads the started reader to its end, walks it as a tar, and passes members and damage to the
 * functions of member_check.c and member_content.c. */
int stk_tar_walk(struct stk_shard_check *check, struct stoker_error *error);

/* ---- member_check.c: names, samples, damage ---- */

/* step: offsets from the start of the (decompressed) shard. */
int stk_shard_check_begin_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                                 struct stoker_error *error);
/* The padding after a member is not zero. */
int stk_shard_check_padding(struct stk_shard_check *check, uint64_t offset, uint64_t bytes,
                            struct stoker_error *error);
/* [from, to) cannot be read as a tar. cause: the error, which is used up. */
int stk_shard_check_add_damage(struct stk_shard_check *check, uint32_t kind,
                               struct stoker_error *cause, uint64_t from, uint64_t to,
                               struct stoker_error *error);
/* The open member ends at a gap that goes up to `to`. */
int stk_shard_check_cut_member(struct stk_shard_check *check, uint64_t to,
                               struct stoker_error *error);
/* [from, to) was decompressed, and may be wrong: what repair does with samples there, unless the
 * index verifies all members, or the sample verifies itself. */
void stk_shard_check_add_doubt(struct stk_shard_check *check, uint64_t from, uint64_t to,
                               enum stk_shard_doubt doubt);
/* After the last member: decides about samples next to damage, which may have lost members. */
void stk_shard_check_suspects(struct stk_shard_check *check);

/* ---- member_content.c: checksums and pictures ---- */

int stk_shard_check_add_data(struct stk_shard_check *check, struct stk_view piece,
                             struct stoker_error *error);
/* whole: all of the member's bytes were added; else the shard ends inside the member. */
int stk_shard_check_end_member(struct stk_shard_check *check, bool whole,
                               struct stoker_error *error);

/* ---- shard_check_state.c: used by all of the above, by index_check.c and repair.c ---- */

void stk_shard_check_init(struct stk_shard_check *check, struct stoker_verify *verify,
                          struct stk_verify_findings *findings);
void stk_shard_check_deinit(struct stk_shard_check *check);
/* Location in the check's shard, for an error that does not have it. */
struct stk_verify_spot {
    uint64_t offset;
    const char *key, *extension; /* key: may be NULL */
};
/* Adds a finding at the spot, which may be NULL; *cause is used up. Returns 0, or -ENOMEM. */
int stk_shard_check_add_finding(struct stk_shard_check *check, uint32_t kind,
                                struct stoker_error *cause, const struct stk_verify_spot *spot,
                                struct stoker_error *error);
/* Options to read the shard as the check's own walk does; without a hash. */
void stk_shard_check_reader_options(const struct stk_shard_check *check,
                                    struct stk_shard_reader_options *options);
/* True if the index has a checksum for each member and all were compared. */
bool stk_shard_check_is_verified(const struct stk_shard_check *check);
/* The sample of the open member is damaged. */
void stk_shard_check_mark_bad(struct stk_shard_check *check);
/* For repair; without repair they do nothing. add_range: repair leaves [offset, end) out, or writes
 * zeros for it. Return 0, or -ENOMEM. */
int stk_shard_check_add_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                               struct stoker_error *error);
int stk_shard_check_add_range(struct stk_shard_check *check, uint64_t offset, uint64_t end,
                              bool zero, struct stoker_error *error);
/* An array with space for one item after `count`. Returns NULL if there is no memory; then the
 * array is unchanged. */
void *stk_shard_check_grow(void *block, uint32_t count, uint32_t *capacity, size_t item_bytes);
/* Cuts the text to the capacity, and ends it with NUL. */
void stk_shard_check_copy_text(char *to, size_t capacity, struct stk_view text);

#endif
