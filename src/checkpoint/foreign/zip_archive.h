/* checkpoint/foreign/zip_archive.h: the directory of a zip archive whose members are stored, as
 * torch writes it. Compressed, encrypted or overlapping members are refused, and sizes that lie.
 * Untrusted input.
 * Owner: the caller. Threads: one. Memory: the directory twice. Bound:
 * STK_ZIP_ARCHIVE_DIRECTORY_BYTES_MAX. */
#ifndef CHECKPOINT_FOREIGN_ZIP_ARCHIVE_H
#define CHECKPOINT_FOREIGN_ZIP_ARCHIVE_H

#include "checkpoint/foreign/part_reader.h"

#define STK_ZIP_ARCHIVE_DIRECTORY_BYTES_MAX (256u << 20)

struct stk_zip_archive_member {
    const char *name;
    uint64_t header, bytes;
    uint64_t limit; /* where the next header or the directory begins */
    uint32_t crc;
};
struct stk_zip_archive {
    struct stk_zip_archive_member *members; /* owned; by name */
    uint64_t count;
    char *names; /* owned */
};

int stk_zip_archive_open(struct stk_zip_archive *archive, struct stk_foreign_source *source,
                         struct stoker_error *error);
void stk_zip_archive_deinit(struct stk_zip_archive *archive); /* zeroed is allowed */
/* NULL if there is no member of this name. */
const struct stk_zip_archive_member *stk_zip_archive_find(const struct stk_zip_archive *archive,
                                                          const char *name);
/* Reads the header of a member. Sets *offset_out to where its bytes begin. */
int stk_zip_archive_locate(struct stk_foreign_source *source,
                           const struct stk_zip_archive_member *member, uint64_t *offset_out,
                           struct stoker_error *error);
/* Reads a member of at most bytes_max, and compares its checksum. Free *data_out with stk_free. */
int stk_zip_archive_read(struct stk_foreign_source *source,
                         const struct stk_zip_archive_member *member, uint64_t bytes_max,
                         uint8_t **data_out, size_t *bytes_out, struct stoker_error *error);

#endif
