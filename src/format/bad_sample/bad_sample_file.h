/* format/bad_sample/bad_sample_file.h: damaged samples in memory, and in files that are whole or
 * not there: as records that a later run reads back, and as the quarantine, a line of JSON each.
 *
 *   damage -record-> bytes -read-> damage            open -add, add-> commit: FILE by one rename
 *                                                         \-> close: nothing under its name
 *
 * Owner: the caller. Threads: one. Memory: one line, or one block a sample.
 * Bound: STK_BAD_SAMPLE_RECORD_BYTES a record. */
#ifndef FORMAT_BAD_SAMPLE_BAD_SAMPLE_FILE_H
#define FORMAT_BAD_SAMPLE_BAD_SAMPLE_FILE_H

#include "format/bad_sample/bad_sample.h"
#include "io/write.h"

/* ---- damaged samples in memory ---- */

struct stk_bad_sample_list {
    struct stk_bad_sample **items; /* owned, each too */
    uint64_t count, capacity;
};

/* Takes the damage, unless it fails (-ENOMEM). */
int stk_bad_sample_list_add(struct stk_bad_sample_list *list, struct stk_bad_sample *bad_sample);
void stk_bad_sample_list_deinit(struct stk_bad_sample_list *list); /* zeroed is fine */

/* ---- records ---- */

/* Of the longest shard, key and reason; `where` and `advice` stay behind. */
#define STK_BAD_SAMPLE_RECORD_BYTES                                                                \
    (24 + sizeof((struct stoker_error *)0)->shard + sizeof((struct stoker_error *)0)->key +        \
     sizeof((struct stoker_error *)0)->what)

/* How many bytes; as the machine has numbers: a record never leaves it. */
size_t stk_bad_sample_write_record(const struct stk_bad_sample *bad_sample,
                                   uint8_t record[STK_BAD_SAMPLE_RECORD_BYTES]);
/* The first record of *bytes, which moves behind it. 1: gives *bad_sample_out. 0: it is none. Or
 * -ENOMEM. */
int stk_bad_sample_read_record(struct stk_view *bytes, struct stk_bad_sample **bad_sample_out);

/* ---- files ---- */

enum stk_bad_sample_file_format {
    STK_BAD_SAMPLE_FILE_LINES = 1, /* the quarantine: JSON, for people and programs */
    STK_BAD_SAMPLE_FILE_RECORDS,   /* for a later run: "stkleft1", records, XXH3-64 of all before */
};

struct stk_bad_sample_file;
/* Creates path.tmp; path itself stays what it is until commit. */
int stk_bad_sample_file_open(struct stk_bad_sample_file **out_out, struct stk_io *io,
                             const char *path, enum stk_bad_sample_file_format form,
                             struct stoker_error *error);
int stk_bad_sample_file_add(struct stk_bad_sample_file *out,
                            const struct stk_bad_sample *bad_sample, struct stoker_error *error);
/* On disk, under its name. */
int stk_bad_sample_file_commit(struct stk_bad_sample_file *out, struct stoker_error *error);
/* The records of a file, one by one, in order; each() takes the damage. 1; or 0: no file of records
 * is there. A failure of each() ends it. Reads the file whole: its bytes are taken at once. */
int stk_bad_sample_file_read(struct stk_io *io, const char *path,
                             int (*each)(void *context, struct stk_bad_sample *bad_sample,
                                         struct stoker_error *error),
                             void *context, struct stoker_error *error);
/* Takes it; NULL is fine. Removes what was not committed. */
void stk_bad_sample_file_close(struct stk_bad_sample_file *out);

#endif
