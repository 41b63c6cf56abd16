/* storage/upload/upload_record.h: remembers which unfinished uploads this user's stoker began, so
 * that no upload of another program or user is continued.
 *
 *   add --upload begun--> record, locked --remove: upload ended--> nothing
 *                                        `-close, or the process ends--> record, free
 *   find --next start of the same object--> a free record, locked
 *
 * A record is a small file in CACHE/uploads, a folder that only this user may write. Its lock
 * (flock) says that a process works on the upload, and ends with that process. Without a cache
 * folder there are no records, and each upload starts from the beginning.
 * Owner: the upload; close accepts a zeroed struct. Threads: one. Memory: the path.
 * Bound: STK_UPLOAD_RECORD_BYTES_MAX a file; records older than STK_UPLOAD_RECORD_DAYS are removed.
 */
#ifndef STORAGE_UPLOAD_UPLOAD_RECORD_H
#define STORAGE_UPLOAD_UPLOAD_RECORD_H

#include "base/base.h"

#define STK_UPLOAD_RECORD_BYTES_MAX 8192u
#define STK_UPLOAD_RECORD_DAYS 30u
#define STK_UPLOAD_RECORD_PATH_BYTES 1024u

struct stk_upload_record {
    bool is_open;
    int fd;
    char path[STK_UPLOAD_RECORD_PATH_BYTES];
};

/* Writes and locks the record of an upload that was begun. target: what the upload is of; value:
 * what find returns. Returns false, and leaves no file, if that is not possible. */
bool stk_upload_record_add(struct stk_upload_record *record, struct stk_view target,
                           struct stk_view value);
/* Opens and locks the youngest free record of a target. value: of STK_UPLOAD_RECORD_BYTES_MAX.
 * Returns false if there is none. */
bool stk_upload_record_find(struct stk_upload_record *record, struct stk_view target,
                            uint8_t *value, size_t *value_bytes_out);
/* The upload exists no longer: removes its record, and closes it. */
void stk_upload_record_remove(struct stk_upload_record *record);
/* The upload may be continued: unlocks its record. */
void stk_upload_record_close(struct stk_upload_record *record);

#endif
