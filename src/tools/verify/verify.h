/* tools/verify/verify.h: reads a complete data set and reports what is wrong with it; continues
 * after damage.
 *
 *   open: list -> thread: roots | shard, shard, ... (rounds of the engine) | missing | repair
 *                            \______ findings, stage by stage, in this order ______/--> next
 *
 * One pass over each shard: its bytes are hashed and walked as a tar, and its members are hashed
 * and checked, while the next blocks are being read. Owner: the user. Threads: one of its own, and
 * the engine's workers for rounds. Memory: for each shard being read: a reader, keys, 16 bytes a
 * sample (and 20 a member to repair); the findings. Bound: findings_max findings; the engine's
 * budget for bytes of files. */
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

/* Counts a finding, and stores it unless findings_max are stored. `error` has its location and
 * text. Returns 0, or -ENOMEM. */
int stk_verify_add_finding(struct stoker_verify *verify, struct stk_verify_findings *findings,
                           uint32_t kind, const struct stoker_error *error, const char *extension);
void stk_verify_findings_deinit(struct stk_verify_findings *findings);
/* Returns true for a note, which is no damage. */
bool stk_verify_finding_is_note(uint32_t kind);
/* Takes ownership of the finding. */
void stk_verify_finding_move(struct stk_verify_finding *finding, struct stoker_finding *out);
/* Returns true if an error is about the process (memory, budget), not about the data. */
bool stk_verify_is_process_error(int status);

/* ---- manifests and indexes (manifest_check.c, index_check.c) ---- */

/* A folder that holds shards, and may hold their manifest. */
struct stk_manifest_root {
    char *path;    /* owned; with '/' at its end, or empty: the working directory */
    bool complete; /* all of its shards are listed, so a missing one is found */
    bool has_manifest;
    bool changed; /* repair changed entries */
    struct stk_file_lock
        *lock; /* owned: one repair at a time; NULL: no repair, or the folder is read-only */
    struct stk_manifest manifest;
    uint32_t *by_name;       /* owned: entries of the manifest, sorted */
    bool *seen;              /* owned: for each entry: the shard exists */
    char *index_file;        /* owned; NULL: stoker.index in `path`. Else this root has only the
                                index, which is above the shards or in the cache folder */
    struct stk_index *index; /* owned; NULL: none, or not readable */
    _Atomic bool stale;      /* the index: repair removes it */
};

enum { STK_MANIFEST_ROOTS_EXTRA = 2 };

/* Position of an object in an index. */
struct stk_verify_location {
    uint32_t root; /* its number + 1; 0: in no index */
    uint32_t shard;
};

struct stk_manifest_roots {
    struct stk_manifest_root *items; /* owned; const after open except for `changed` and entries */
    uint32_t count;                  /* items has space for STK_MANIFEST_ROOTS_EXTRA more */
    uint32_t *of_object;             /* owned; tars only */
    struct stk_verify_location *locations; /* owned; NULL: there is no index */
};

/* Reads the manifests. Damage in them becomes findings. Returns 0, -EBUSY if another repair runs,
 * or an error of the process. */
int stk_manifest_roots_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error);
void stk_manifest_roots_deinit(struct stoker_verify *verify);
/* Returns the manifest entry of the object's shard, or NULL. */
struct stk_manifest_shard *stk_manifest_roots_find(struct stoker_verify *verify, uint64_t object);
/* Adds a finding if the shard exists and its manifest does not list it; report_missing: findings
 * for the reverse. */
int stk_manifest_roots_report_extra(struct stoker_verify *verify, uint64_t object,
                                    struct stk_verify_findings *findings,
                                    struct stoker_error *error);
int stk_manifest_roots_report_missing(struct stoker_verify *verify,
                                      struct stk_verify_findings *findings,
                                      struct stoker_error *error);
/* Replaces the entry of a repaired shard. stk_manifest_roots_write() writes changed manifests. */
int stk_manifest_roots_set(struct stoker_verify *verify, uint64_t object,
                           const struct stk_manifest_shard *values, struct stoker_error *error);
int stk_manifest_roots_write(struct stoker_verify *verify, struct stoker_error *error);

/* Compares the current shard with its index, member by member. */
struct stk_index_check {
    const struct stk_index *index; /* borrowed from the root; NULL: the shard is in none */
    uint32_t root, shard;
    bool members, sums;    /* members are still compared; the index has checksums */
    const uint8_t *digest; /* of the complete shard; NULL: unknown */
    uint64_t sample, end;
    struct stk_sample current;
    uint32_t member;
    bool loaded; /* current is sample */
    struct stk_member place;
    bool summed; /* the current member has a checksum: sum */
    uint64_t sum;
};

/* Maps the indexes. Damage in them becomes findings. */
int stk_verify_indexes_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error);
/* After all shards: adds a note if an index that matches the data is not the one in the manifest.
 */
int stk_verify_indexes_compare(struct stoker_verify *verify, struct stk_verify_findings *findings,
                               struct stoker_error *error);
/* The object's shard was repaired, so its index no longer matches. */
void stk_verify_indexes_mark_stale(struct stoker_verify *verify, uint64_t object);
int stk_verify_indexes_remove_stale(struct stoker_verify *verify, struct stoker_error *error);
void stk_index_check_init(struct stk_index_check *index_check, struct stoker_verify *verify,
                          uint64_t object);

struct stk_shard_check;
/* Add a finding if the index differs. Then the rest of this shard is not compared. */
int stk_index_check_size(struct stk_shard_check *check, uint64_t bytes, struct stoker_error *error);
int stk_index_check_member(struct stk_shard_check *check, struct stk_view key,
                           const char *extension, uint64_t offset, uint64_t bytes,
                           struct stoker_error *error);
/* The offset of a hard link, whose data is before it: only its name is compared. */
#define STK_INDEX_CHECK_LINK UINT64_MAX
int stk_index_check_end(struct stk_shard_check *check, struct stoker_error *error);
int stk_index_check_fail(struct stk_shard_check *check, struct stoker_error *cause, uint64_t offset,
                         struct stoker_error *error);

/* ---- the object ---- */

enum { STK_VERIFY_FILES = 256 /* of a folder, in a stage */ };

struct stk_verify_stage {
    struct stk_verify_findings findings;
    bool done;
};

struct stoker_verify {
    struct stoker_engine *engine; /* held; const after open, as all down to job */
    struct stoker_verify_options options;
    struct stoker_dataset *named;    /* owned: URLs and their listing; never opened */
    struct stk_source_files objects; /* borrowed from named */
    uint64_t stage_count;            /* manifests, then rounds, then the end */
    uint64_t bytes_total;
    struct stk_manifest_roots roots;
    struct stk_repair_result
        *repaired_objects; /* owned: one for each object, written by its round; repair only */
    struct stk_background_job job; /* job.changed: a stage is done */
    struct {
        _Atomic uint64_t shards, bytes, samples, members, findings, notes, listed, repaired,
            dropped, unproven, skipped;
    } count;
    struct { /* under job.lock */
        struct stk_verify_stage
            *stages;   /* the findings of a stage belong to its round until done */
        uint64_t next; /* stage whose findings next() returns */
    } locked;
};

/* ---- repair (repair.c) ---- */

enum stk_repair_state {
    STK_REPAIR_NONE = 0,
    STK_REPAIR_MOVE_FILE, /* the file must be moved */
    STK_REPAIR_WRITTEN,   /* SHARD.repair is complete and on disk */
    STK_REPAIR_RENAMED    /* it has its final name */
};

struct stk_repair_result {
    uint32_t state; /* enum stk_repair_state */
    uint64_t bytes, samples, dropped, unproven;
    uint8_t sha256[32];
};

/* Writes SHARD.repair for a checked shard, if it has damage that can be repaired. */
int stk_repair_shard(struct stk_shard_check *check, uint64_t object, struct stoker_error *error);
/* After all shards: renames repaired shards, keeps the originals, moves damaged files of a folder.
 */
int stk_repair_finish(struct stoker_verify *verify, struct stk_verify_findings *findings,
                      struct stoker_error *error);

/* If verify ended early: removes repaired shards that were not renamed. */
void stk_repair_abandon(struct stoker_verify *verify);

/* ---- one picture (picture_check.c) ---- */

bool stk_verify_is_picture(const char *extension);
/* Returns 0 if the image is good, 1 if it is not (*kind_out and *error describe it), or an error of
 * the process. codec: opened at the first need, for `deep`. */
int stk_verify_picture(struct stoker_verify *verify, struct stk_codec **codec,
                       struct stk_view bytes, const char *extension, uint32_t *kind_out,
                       struct stoker_error *error);

/* For a good image: returns true if its own checksums cover all of its bytes (PNG). */
bool stk_verify_picture_has_checksum(struct stk_view bytes);

/* ---- one shard, or some files of a folder ---- */

enum { STK_SHARD_CHECK_EXTENSIONS_MAX = 256 };

enum stk_check_sample_flag {
    STK_CHECK_SAMPLE_BAD = 1,
    STK_CHECK_SAMPLE_SUSPECT = 2,
    STK_CHECK_SAMPLE_SCATTERED = 4,
    STK_CHECK_SAMPLE_DAMAGED = 7,      /* any of these */
    STK_CHECK_SAMPLE_UNVERIFIED = 8,   /* no checksum covers its bytes, and nothing shows damage */
    STK_CHECK_SAMPLE_NO_CHECKSUM = 16, /* one of its members has no checksum of its own */
    STK_CHECK_SAMPLE_RENAMED =
        32, /* a member follows damage: a lost extended header may have named it */
};

/* What repair does with samples in a range of the tar, unless another checksum verifies them. */
enum stk_shard_doubt {
    STK_SHARD_DOUBT_WRONG = 1, /* some of the bytes are wrong: they are left out */
    STK_SHARD_DOUBT_CHECKSUM,  /* a checksum of the compression is wrong: left out, or kept with
                                  keep_unverified */
    STK_SHARD_DOUBT_UNVERIFIED /* no checksum covers them: kept, and counted */
};

struct stk_shard_check_sample {
    uint64_t shape; /* of its extensions, in any order */
    uint32_t last_member;
    uint8_t flags; /* enum stk_check_sample_flag */
};

/* A sample that has a hard link to a member of another one. */
struct stk_shard_check_link {
    uint32_t sample, target;
};

/* Bytes that a repaired shard leaves out, or replaces by zeros. */
struct stk_repair_range {
    uint64_t offset, end;
    bool zero;
};

/* A member of a sample, for repair. */
struct stk_shard_check_member {
    uint64_t header, end; /* its headers, data and padding */
    uint32_t sample;      /* STK_SHARD_CHECK_NO_SAMPLE: always dropped */
};
#define STK_SHARD_CHECK_NO_SAMPLE UINT32_MAX

struct stk_shard_check {
    struct stoker_verify *verify; /* borrowed, as path, findings */
    struct stk_verify_findings *findings;
    const char *path;
    struct stk_read_ahead reader;
    struct stk_codec *codec; /* owned; NULL until needed */
    struct stk_index_check index_check;
    struct stk_xxh3 *sum;   /* owned; NULL until a member does not fit in one block */
    struct stk_sha256 *sha; /* of the file's bytes; borrowed; NULL: not needed */
    bool is_compressed;
    bool no_end_marker;   /* no valid end marker was found */
    bool broken;          /* not all bytes could be read: it cannot be repaired */
    bool over_limit;      /* its compression passes a limit, or is not supported: likewise */
    bool checksum_failed; /* a checksum of the compression is wrong: repair leaves out samples that
                             nothing else verifies */
    bool rewrite;         /* damage belongs to no sample: the shard is written again nevertheless */
    uint32_t compression;
    int level;
    uint64_t streams, tar_bytes; /* so far: begun, decompressed */
    bool no_checksum;            /* one of them has no checksum */
    bool verified;               /* temporary: all bytes before the current damage are verified */
    uint64_t damaged_stream,
        damaged_at; /* the last stream in which the tar was damaged, and its first offset there */
    uint64_t unverified_stream; /* one without a checksum, in which damage was seen; 0: none */

    struct stk_string_table keys;
    struct stk_shard_check_sample *samples; /* owned */
    uint32_t sample_capacity;
    uint32_t sample;             /* of the last member; STK_SHARD_CHECK_NO_SAMPLE: none yet */
    uint32_t suspects_remaining; /* so many more new samples may lack members after damage */
    bool follows_damage;         /* the next member follows damage */
    bool extended;               /* a member has an extended header, which may name it */
    uint32_t member_count;
    uint64_t run[STK_SHARD_CHECK_EXTENSIONS_MAX]; /* hashes of the extensions of this sample */
    uint32_t run_count;
    struct stk_string_table
        extra_extensions; /* sample and extension, if `run` is full or members may be apart */

    struct stk_shard_check_member *members; /* owned; for repair only, as ranges */
    uint32_t members_used, member_capacity;
    struct stk_repair_range *ranges; /* owned */
    uint32_t range_count, range_capacity;
    uint64_t damage;                    /* findings that repair removes */
    struct stk_string_table unnamed;    /* files without a key: targets of hard links */
    struct stk_shard_check_link *links; /* owned */
    uint32_t link_count, link_capacity;

    struct { /* the current member */
        bool open, keyed, picture;
        bool sealed;  /* its own checksums cover each of its bytes, and match */
        bool summing; /* the index has a checksum, which is compared at the end */
        bool summed;  /* hashed as one block */
        uint64_t sum;
        uint64_t header, offset, bytes, held;
        char key[256], extension[64];
    } member;
    uint8_t *member_data; /* owned: a member that does not fit in one block */
    uint64_t member_data_bytes;
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
/* complete: all of the member's bytes were added; else the shard ends inside the member. */
int stk_shard_check_end_member(struct stk_shard_check *check, bool complete,
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
