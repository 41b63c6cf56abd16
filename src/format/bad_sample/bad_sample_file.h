/* format/bad_sample/bad_sample_file.h: lists of damaged samples in memory, and in files that are
 * written atomically: as records that a later run reads, or as the quarantine file, one line of
 * JSON each.
 *
 *   bad sample -record-> bytes -read-> bad sample    open -add, add-> commit: FILE by one rename
 *                                                         \-> close: no file under its name
 *
 * Owner: the caller. Threads: one.
 * Memory: one line, or one block per sample.
 * Bound: STK_BAD_SAMPLE_RECORD_BYTES per record. */
#ifndef FORMAT_BAD_SAMPLE_BAD_SAMPLE_FILE_H
#define FORMAT_BAD_SAMPLE_BAD_SAMPLE_FILE_H

#include "format/bad_sample/bad_sample.h"
#include "io/write.h"

/* ---- damaged samples in memory ---- */

struct stk_bad_sample_list {
    struct stk_bad_sample **items; /* owned, each too */
    uint64_t count, capacity;
};

/* Adds the bad sample and takes ownership of it. Returns 0, or -ENOMEM: the caller keeps it. */
int stk_bad_sample_list_add(struct stk_bad_sample_list *list, struct stk_bad_sample *bad_sample);
void stk_bad_sample_list_deinit(struct stk_bad_sample_list *list); /* a zeroed list is allowed */

/* ---- records ---- */

/* With the longest shard, key and reason. `where` and `advice` are not written. */
#define STK_BAD_SAMPLE_RECORD_BYTES                                                                \
    (24 + sizeof((struct stoker_error *)0)->shard + sizeof((struct stoker_error *)0)->key +        \
     sizeof((struct stoker_error *)0)->what)

/* Returns the number of bytes. Numbers are in the byte order of the machine, which records never
 * leave. */
size_t stk_bad_sample_write_record(const struct stk_bad_sample *bad_sample,
                                   uint8_t record[STK_BAD_SAMPLE_RECORD_BYTES]);
/* Reads the first record of *bytes, and advances *bytes. Returns 1 and sets *bad_sample_out (owned
 * by the caller), 0 if there is no record, or -ENOMEM. */
int stk_bad_sample_read_record(struct stk_view *bytes, struct stk_bad_sample **bad_sample_out);

/* ---- files ---- */

enum stk_bad_sample_file_format {
    STK_BAD_SAMPLE_FILE_LINES = 1, /* the quarantine file: JSON */
    STK_BAD_SAMPLE_FILE_RECORDS,   /* for a later run: "stkleft1", records, XXH3-64 of all before it
                                    */
};

struct stk_bad_sample_file;
/* Creates path.tmp. The file at `path` does not change before commit. */
int stk_bad_sample_file_open(struct stk_bad_sample_file **out_out, struct stk_io *io,
                             const char *path, enum stk_bad_sample_file_format form,
                             struct stoker_error *error);
int stk_bad_sample_file_add(struct stk_bad_sample_file *out,
                            const struct stk_bad_sample *bad_sample, struct stoker_error *error);
/* Writes the file to disk, and renames it to its name. */
int stk_bad_sample_file_commit(struct stk_bad_sample_file *out, struct stoker_error *error);
/* Reads the records of a file in order; each() takes ownership of a bad sample. The complete file
 * is read into memory. Returns 1, 0 if there is no file of records, or an error, also that of
 * each(). */
int stk_bad_sample_file_read(struct stk_io *io, const char *path,
                             int (*each)(void *context, struct stk_bad_sample *bad_sample,
                                         struct stoker_error *error),
                             void *context, struct stoker_error *error);
/* Takes ownership; NULL is allowed. Removes path.tmp if it was not committed. */
void stk_bad_sample_file_close(struct stk_bad_sample_file *out);

#endif
